"""Revenue of sold tokens: profit, margin, break-even and the price that a margin needs."""

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

import sim
from sim.cost.revenue import Revenue, SoldTokens

FIXED = {"distribution": "fixed", "value": 60}
STEPS = {"model": "affine", "base_s": 0.01, "per_token_s": 1e-5, "per_context_token_s": 1e-8}
POOL = {
    "gpu": "rtx-4090",
    "steptime": STEPS,
    "batching": {"policy": "vllm", "num_gpu_blocks": 999, "max_num_seqs": 8},
}
SCENARIO: dict[str, Any] = {
    "name": "sale",
    "workload": {"arrivals": {"process": "poisson", "rate_rps": 2}, "lengths": {"prompt": FIXED, "output": FIXED}},
    "horizon_s": 30,
    "replications": 2,
    "slo": {"ttft_s": 2},
    "fleets": [{"name": "a", "pools": [POOL], "cost": {"acquisition": "rent", "quotes": {"rtx-4090": 0.4}}}],
}
COLUMNS = ["revenue_usd_per_month", "profit_usd_per_month", "profit_margin"]
BREAK_EVEN, PRICE = "break_even_usd_per_million_output_tokens", "price_usd_per_million_output_tokens"

usd = st.floats(0, 100)
tokens = st.floats(1e3, 1e9)


@pytest.mark.slow
@given(usd, usd, tokens, tokens, st.floats(0.01, 1e4))
def test_nothing_is_earned_at_the_break_even_price(
    price: float, output: float, prompts: float, outputs: float, cost: float
) -> None:
    sold = SoldTokens(Revenue(input=price, output=output), prompts, outputs, cost)
    even = 1e6 * sold.output_usd_to_break_even / outputs
    if even >= 0:
        again = SoldTokens(Revenue(input=price, output=even), prompts, outputs, cost)
        assert again.profit_usd == pytest.approx(0, abs=1e-9 * (cost + again.usd))


@pytest.mark.slow
@given(usd, st.floats(0, 0.99), tokens, tokens, st.floats(0.01, 1e4))
def test_the_price_for_a_margin_leaves_it(
    price: float, margin: float, prompts: float, outputs: float, cost: float
) -> None:
    asked = SoldTokens(Revenue(input=price, margin=margin), prompts, outputs, cost)
    assert asked.profit_usd == pytest.approx(margin * asked.usd)
    if asked.output_usd >= 0:
        output = 1e6 * asked.output_usd / outputs
        sold = SoldTokens(Revenue(input=price, output=output), prompts, outputs, cost)
        assert sold.profit_usd == pytest.approx(margin * sold.usd, abs=1e-9 * (cost + sold.usd))


@pytest.mark.slow
def test_a_run_at_the_price_found_leaves_the_margin(tmp_path: Path) -> None:
    asked = sim.run(SCENARIO | {"revenue": {"input": 0.1, "margin": 0.3}}, out=str(tmp_path / "asked"))
    row = asked.summary.iloc[0]
    assert row["profit_margin"] == pytest.approx(0.3)
    assert asked.verdict.startswith("a meets the SLO") or "For a margin of 30" in asked.verdict
    assert "For a margin of 30" in asked.verdict
    fresh = {"revenue": {"input": 0.1, "output": float(row[PRICE])}}
    sold = sim.run(SCENARIO | fresh, out=str(tmp_path / "sold"))
    again = sold.summary.iloc[0]
    assert again["profit_margin"] == pytest.approx(0.3)
    assert again["profit_usd_per_month"] == pytest.approx(again["revenue_usd_per_month"] - again["cost_usd_per_month"])
    assert "earns" in sold.verdict
    even = sold.price(set={"revenue": {"input": 0.1, "output": float(again[BREAK_EVEN])}}).summary.iloc[0]
    assert even["profit_usd_per_month"] == pytest.approx(0, abs=1e-6)


@pytest.mark.slow
def test_a_load_profile_has_the_profit_of_its_year(tmp_path: Path) -> None:
    profile = {"load_profile": {2: 4380, 1: 4380}, "sweep": {"workload.arrivals.rate_rps": [1, 2]}}
    asked = sim.run(SCENARIO | profile | {"revenue": {"margin": 0.25}}, out=str(tmp_path / "asked"))
    found = re.search(r"For a margin of 25.% output tokens must sell at \$([\d.]+) per million with a", asked.verdict)
    assert found, asked.verdict
    year = pd.read_csv(tmp_path / "asked" / "year.csv").iloc[0]
    assert float(found[1]) == pytest.approx(year["usd_per_million_output_tokens"] / 0.75, rel=5e-3)


@pytest.mark.slow
def test_without_revenue_there_are_no_columns_and_no_sentence(tmp_path: Path) -> None:
    plain = sim.run(SCENARIO, out=str(tmp_path / "plain"))
    assert not {*COLUMNS, BREAK_EVEN, PRICE} & set(plain.summary.columns)
    assert "break-even" not in plain.verdict


@pytest.mark.parametrize("given", [{}, {"input": 1.0}, {"output": 1.0, "margin": 0.3}, {"margin": 1.0}])
def test_revenue_needs_a_price_or_a_margin(given: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        Revenue.model_validate(given)


@pytest.mark.slow
def test_a_year_has_the_revenue_and_profit_of_its_verdict(tmp_path: Path) -> None:
    profile = {"load_profile": {2: 4380, 1: 4380}, "sweep": {"workload.arrivals.rate_rps": [1, 2]}}
    sold = sim.run(SCENARIO | profile | {"revenue": {"input": 1.0, "output": 20.0}}, out=str(tmp_path / "sold"))
    year = pd.read_csv(tmp_path / "sold" / "year.csv").iloc[0]
    prompts = year["total_tokens_per_year"] - year["output_tokens_per_year"]
    assert year["revenue_usd_per_year"] == pytest.approx((prompts + 20 * year["output_tokens_per_year"]) / 1e6)
    assert year["profit_usd_per_year"] == pytest.approx(year["revenue_usd_per_year"] - year["usd_per_year"])
    assert f"earns ${year['profit_usd_per_year']:,.0f} a year" in sold.verdict


@pytest.mark.slow
def test_draws_have_the_profit_of_each_fleet(tmp_path: Path) -> None:
    rent = {"acquisition": "rent", "quotes": {"rtx-4090": {"uniform": [0.3, 0.5]}}}
    fleets = [{"name": "a", "pools": [POOL], "cost": rent}]
    sold = sim.run(
        SCENARIO | {"fleets": fleets, "futures": {"draws": 100}, "revenue": {"output": 2.0}}, out=str(tmp_path / "sold")
    )
    draws, row = pd.read_csv(tmp_path / "sold" / "draws.csv"), sold.summary.iloc[0]
    both = draws["a profit_usd_per_month"] + draws["a usd_per_month"]
    assert both.to_numpy() == pytest.approx(row["revenue_usd_per_month"])
    spread = pd.read_csv(tmp_path / "sold" / "futures.csv").iloc[0]
    assert spread["profit_usd_per_month_central"] == pytest.approx(row["profit_usd_per_month"])


def test_services_sell_at_their_own_prices() -> None:
    prices = Revenue.model_validate(
        {"input": 1, "output": 2, "services": {"chat": {"output": 6}, "code": {"input": 3}}}
    )
    tokens = {"chat": (100.0, 10.0), "code": (300.0, 30.0), "mail": (0.0, 40.0)}
    mean = prices.blended(tokens)
    prompts, outputs = (sum(counts) for counts in zip(*tokens.values(), strict=True))
    usd = sum(SoldTokens(prices.of(name), *counts, 0.0).usd for name, counts in tokens.items())
    assert SoldTokens(mean, prompts, outputs, 0.0).usd == pytest.approx(usd)


@pytest.mark.slow
def test_a_run_adds_up_the_revenue_of_its_services(tmp_path: Path) -> None:
    services = [{"name": name, "workload": SCENARIO["workload"], "slo": {"ttft_s": 2}} for name in ("chat", "code")]
    pools = [POOL | {"name": name, "service": name} for name in ("chat", "code")]
    fleets = [{"name": "a", "pools": pools, "cost": SCENARIO["fleets"][0]["cost"]}]
    kept = {name: value for name, value in SCENARIO.items() if name not in ("workload", "slo")}
    revenue = {"input": 0.1, "output": 2.0, "services": {"code": {"output": 8.0}}}
    data = kept | {"services": services, "fleets": fleets, "revenue": revenue}
    sold = sim.run(data, out=str(tmp_path / "sold"))
    rows, whole = pd.read_csv(tmp_path / "sold" / "services.csv").set_index("service"), sold.summary.iloc[0]
    assert rows.loc["chat", PRICE] == pytest.approx(2.0)
    assert rows.loc["code", PRICE] == pytest.approx(8.0)
    parts = rows.loc[["chat", "code"], "revenue_usd_per_month"].sum()
    assert whole["revenue_usd_per_month"] == pytest.approx(parts)
    with pytest.raises(sim.ScenarioErrors, match="unknown service 'cod'; did you mean code"):
        sim.check(data | {"revenue": {"output": 2.0, "services": {"cod": {"output": 1.0}}}})
