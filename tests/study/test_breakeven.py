"""Pay-back, net present cost and belows against figures worked by hand, and the command from door to door.

Candidates that serve different models are ranked for each model on its own, unless the scenario asks otherwise.
"""

import csv
import re
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from coarse_answers import answer_coarsely
from hypothesis import given
from hypothesis import strategies as st
from pages import charts_of, text_of
from typer.testing import CliRunner

from sim.catalogue.catalog import load_catalog
from sim.cli import app
from sim.cost.cash_flow import CashFlows
from sim.cost.charge import UnitPrice
from sim.cost.finance import Annuity
from sim.cost.income_tax import IncomeTax
from sim.cost.time_value import Horizon, annuity_factor
from sim.cost.token_api import ApiTariff
from sim.language import speaking
from sim.report.breakeven import hours_sentences, owned_peaks, ranking_rows, sentences, with_labels
from sim.scenario.schema import Scenario
from sim.study import breakeven, breakeven_costs
from sim.study.breakeven import (
    API,
    BreakevenAnswer,
    TippingInput,
    _after_tax,
    _earnings,
    _financed,
    _payments,
    _tipping,
    decide,
)
from sim.study.breakeven_costs import Candidate, CandidateLedgers, Cost, _unanswered, below, months, payback_months
from sim.study.capacity import FleetCapacity, ReplicationCapacity
from sim.study.execution.cores import ProcessPool

FINANCE = Annuity(method="annuity", discount_rate=0.10, life_years=3, residual_fraction=0.0)


def flows(capex_usd: float, running_usd_per_month: float) -> CashFlows:
    running = {"staff": running_usd_per_month / 730}
    return CashFlows(running, {"gpu_capital": capex_usd}, running, {}, resold_usd=capex_usd)


def cost(capex_usd: float, running_usd_per_month: float, finance: Annuity | None = None) -> Cost:
    return Cost(1.0, 1, flows(capex_usd, running_usd_per_month), finance, Horizon(36, 0.1), 1e6, None)


def test_simple_payback_is_the_price_over_the_saving() -> None:
    # the textbook's case: 1,200 $ that save 150 $ a month are back after 8
    assert payback_months(cost(1200, 50), cost(0, 200)) == pytest.approx(8)
    assert payback_months(cost(1200, 200), cost(0, 200)) == float("inf")
    # what lives for 36 months never pays back in 40
    assert payback_months(cost(6000, 50, FINANCE), cost(0, 200)) == float("inf")
    assert payback_months(cost(5250, 50, FINANCE), cost(0, 200)) == pytest.approx(35)


@pytest.mark.slow
@given(
    price=st.floats(100, 1e6),
    running=st.floats(1, 1e4),
    residual=st.floats(0, 1),
    rate=st.floats(0, 0.3),
    life_years=st.integers(1, 4),
)
def test_a_tax_of_nothing_leaves_the_net_present_cost(
    price: float, running: float, residual: float, rate: float, life_years: int
) -> None:
    terms = {"discount_rate": rate, "life_years": life_years, "residual_fraction": residual, "tax": {"rate": 0}}
    finance = Annuity.model_validate({"method": "annuity", **terms})
    span = 12 * life_years * 2  # hardware is replaced once
    bought = cost(price, running, finance)
    path = months(bought.flows, finance, rate, span)
    found = _after_tax({"bought": bought}, lambda _: _financed(bought, path, Horizon(span, rate)), {})
    assert found["bought"].net_present_usd == pytest.approx(path[span].net_present_usd, abs=1e-6 * price)


def test_a_purchase_returns_its_capital_against_the_rent_of_the_same_fleet() -> None:
    finance = FINANCE.model_copy(update={"tax": IncomeTax(rate=0.0)})
    costs = {"bought": cost(3600, 50, finance), "rented": cost(0, 200, finance), "other": cost(0, 10, finance)}
    cash = {name: months(one.flows, finance, 0.1, 36) for name, one in costs.items()}
    found = _after_tax(
        costs,
        lambda name: _financed(costs[name], cash[name], Horizon(36, 0.1)),
        {"bought": "a", "rented": "a", "other": "b"},
    )
    assert found["rented"].internal_rate is None
    assert found["bought"].against == "rented"
    # 150 a month for 36 months on 3,600: 24 = (1 - (1 + i)^-36) / i at i = 2.3800 % a month
    assert found["bought"].internal_rate == pytest.approx((1 + 0.023800) ** 12 - 1, abs=1e-4)


def test_a_purchase_returns_its_capital_from_revenue() -> None:
    half = FINANCE.model_copy(update={"tax": IncomeTax(rate=0.5)})
    costs = {"before tax": cost(3600, 50, FINANCE), "after tax": cost(3600, 50, half), "rented": cost(0, 50)}
    costs = {name: replace(one, revenue_usd_per_h=200 / 730) for name, one in costs.items()} | {"unsold": cost(0, 1)}
    cash = {name: months(one.flows, one.finance, 0.1, 36) for name, one in costs.items()}
    found = _earnings(costs, lambda name: _financed(costs[name], cash[name], Horizon(36, 0.1)))
    assert [*found] == ["before tax", "after tax", "rented"]
    # 150 a month for 36 months on 3,600: as against a rent of 200; 150 times the annuity factor of 31.1865 at 0.7974 %
    assert found["before tax"].internal_rate == pytest.approx((1 + 0.023800) ** 12 - 1, abs=1e-4)
    assert found["before tax"].net_present_usd == pytest.approx(-3600 + 150 * 31.1865, abs=0.1)
    assert found["before tax"].payback_months == pytest.approx(24)
    # half of 150 * 12 less the depreciation of a fifth (720) is due in the first two years, the rest at the sale
    due = 0.5 * (1800 - 720), 0.5 * (1800 - 3600 + 2 * 720)
    taxes = due[0] / 1.1 + due[0] / 1.1**2 + due[1] / 1.1**3
    assert found["after tax"].net_present_usd == pytest.approx(-3600 + 150 * 31.1865 - taxes, abs=0.1)
    assert found["rented"][1:4] == (None, None, 0.0)


def test_net_present_cost_is_that_of_an_annuity_due_at_month_ends() -> None:
    # 1,000 $ now and 100 $ at 12 month ends at 10 % a year: i = 1.1^(1/12) - 1 = 0.7974 % a month, annuity factor
    # (1 - 1.1^-1) / i = 11.4005, so 1,000 + 1,140.05; after one year of three two thirds are left, 666.67 / 1.1
    path = months(flows(1000, 100), FINANCE, 0.1, 12)
    assert path[12].cash_usd == pytest.approx(2200)
    assert path[12].net_present_usd == pytest.approx(1000 + 1140.05 - 606.06, abs=0.02)
    assert path[0].net_present_usd == 0


def test_hardware_is_replaced_at_the_end_of_its_life() -> None:
    finance = Annuity(method="annuity", discount_rate=0.0, life_years=1, residual_fraction=0.25)
    path = months(flows(1000, 0), finance, 0.0, 24)
    assert (path[12].cash_usd, path[12].net_present_usd) == (1000, 1000 - 250)
    # the second machine costs 1,000 less the 250 that the first one fetches
    assert (path[13].cash_usd, path[24].cash_usd) == (1750, 1750)
    assert path[24].net_present_usd == 1750 - 250


TERMS: dict[str, Any] = {
    "vat": {"moved_usd": {(0, 0): 1300.0, (0, 2): -1300.0}},
    "net 60": {"moved_usd": {(0, -3): 300.0, (0, 0): -1000.0, (0, 2): 700.0}},
}


@pytest.mark.slow
@given(
    kind=st.sampled_from(sorted(TERMS)), rate=st.floats(0, 0.3), residual=st.floats(0, 1), life=st.sampled_from([1, 2])
)
def test_the_ledger_is_worth_the_cash_of_two_lives(kind: str, rate: float, residual: float, life: int) -> None:
    finance = Annuity(method="annuity", discount_rate=rate, life_years=life, residual_fraction=residual)
    found = CashFlows({}, **TERMS[kind])
    path = months(found, finance, rate, 24)
    per_h = finance.moved_usd_per_h([(month, usd) for (_, month), usd in found.moved_usd.items()])
    if kind == "net 60" and life == 1:  # the second order has a deposit before its delivery
        per_h += finance.sunk_usd_per_h(300 * ((1 + rate) ** (3 / 12) - 1)) / (1 + (1 + rate) ** (12 / 12))
    assert path[24].net_present_usd == pytest.approx(Horizon(24, rate).net_present_usd(per_h), abs=1e-6)
    assert path[24].working_usd == pytest.approx(0)


def test_payments_state_the_internal_price_of_emissions_apart() -> None:
    running = {"energy": 100 / 730, "carbon_price": 10 / 730}
    finance = FINANCE.model_copy(update={"inflation": {"carbon_price": 0.5}})
    priced = Cost(1.0, 1, CashFlows(running, {}, running), finance, Horizon(24, 0.1), 1e6, None)
    path = months(priced.flows, finance, 0.1, 24)
    found = _payments(priced, path, Horizon(24, 0.1))
    assert found.operating_usd == pytest.approx([100.0] * 24)
    assert (found.carbon_usd[0], found.carbon_usd[12]) == (pytest.approx(10), pytest.approx(15))
    assert [a + b for a, b in zip(found.operating_usd, found.carbon_usd, strict=True)] == pytest.approx(
        [at.operating_usd for at in path[1:]]
    )


def test_working_capital_by_hand() -> None:
    # 1,000 $ net 60 with a deposit of 300 three months before each delivery; hardware lives for six months
    finance = Annuity(method="annuity", discount_rate=0.0, life_years=0.5, residual_fraction=0.0)
    found = CashFlows(
        {}, {"gpu_capital": 1000.0}, moved_usd={(0, -3): 300.0, (0, 0): -1000.0, (0, 2): 700.0}, resold_usd=1000.0
    )
    path = months(found, finance, 0.0, 9)
    assert [at.working_usd for at in path] == pytest.approx([-700, -700, 0, 300, 300, 300, -700, -700, 0, 0])
    assert [at.cash_usd for at in path] == pytest.approx([300, 300, 1000, 1300, 1300, 1300, 300, 1300, 2000, 2000])


@pytest.mark.slow
@given(capex=st.floats(0, 1e6), running=st.floats(0, 1e5), rate=st.floats(0, 0.5), count=st.integers(1, 80))
def test_money_paid_never_falls_without_a_resale(capex, running, rate, count) -> None:
    finance = Annuity(method="annuity", discount_rate=rate, life_years=4, residual_fraction=0.0)
    path = months(flows(capex, running), finance, rate, count)
    assert [at.months for at in path] == list(range(count + 1))
    assert all(b.cash_usd >= a.cash_usd for a, b in pairwise(path))
    if rate == 0 and count <= 48:
        assert path[-1].net_present_usd == pytest.approx(path[-1].cash_usd - capex * (1 - count / 48), abs=1e-6)


def test_two_lines_cross_where_they_are_equal() -> None:
    xs = [0.01, 0.1, 1.0]
    # 10 / x = 40 at x = 0.25
    assert below(xs, lambda x: 10 / x - 40) == [(pytest.approx(0.25, rel=1e-9), xs[-1])]
    assert below(xs, lambda x: 40 - 10 / x) == [(xs[0], pytest.approx(0.25, rel=1e-9))]
    assert below(xs, lambda x: 10 / x - 5) == []
    assert below(xs, lambda x: 10 / x - 2000) == [(0.01, xs[-1])]
    assert len(below([1.0, 2.0, 4.0, 8.0], lambda x: 1 if 1.5 < x < 3 or x > 6 else -1)) == 2


def test_tipping_point_is_where_costs_are_equal() -> None:
    def costs(price: float) -> dict[str, float]:
        return {"own": 1.0 + 2.0 * price, "let": 3.0, API: 1.5}

    one = TippingInput("electricity", "USD/kWh", 0.2, (0.0, float("inf")), costs)
    found = _tipping(one, with_api=True)
    assert found.above == pytest.approx(0.25, rel=1e-4)
    assert (found.below, found.then_above) == (None, API)
    machines = _tipping(one, with_api=False)
    assert machines.above == pytest.approx(1.0, rel=1e-4)
    assert machines.then_above == "let"


SCENARIO = """\
# Rent or buy?
name: be
model: llama3.1-8b
workload:
  arrivals: {process: constant, rate_rps: 2}
  lengths:
    prompt: {distribution: fixed, value: 200}
    output: {distribution: fixed, value: 50}
horizon_s: 6
slo: {ttft_s: 1, tpot_s: 0.05}
fleets:
  - name: own
    pools: [{gpu: rtx-4090, server: workstation-2x4090}]
    cost: {acquisition: buy, quotes: {rtx-4090: 2000, workstation-2x4090: 3000}}
site: {electricity_usd_per_kwh: 0.2, pue: 1.4, hosting: none}
finance: {method: annuity, discount_rate: 0.08, life_years: 4, residual_fraction: 0.2, inflation: {energy: 0.05}}
api: {input: 0.1, output: 0.35}
breakeven: {months: 24, also: {own: {rented: {acquisition: rent, quotes: {rtx-4090: 0.5}}}}}
"""


def run(folder: Path, text: str, *options: str) -> SimpleNamespace:
    (folder / "s.yaml").write_text(text)
    result = CliRunner().invoke(
        app, ["breakeven", str(folder / "s.yaml"), "--out", str(folder / "out"), "--workers", "1", *options]
    )
    return SimpleNamespace(code=result.exit_code, out=result.stdout, err=result.stderr)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_command_writes_its_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer_coarsely(monkeypatch.setattr)
    monkeypatch.setattr(breakeven, "STEPS", 4)
    monkeypatch.setattr(breakeven, "HALVINGS", 6)
    done = run(tmp_path, SCENARIO)
    assert done.code == 0, done.err
    assert "the API is the cheapest" in done.out
    assert "Own bought is cheaper than own rented" in done.out
    points = len(list((tmp_path / "out/points").iterdir()))
    table = rows(tmp_path / "out/breakeven.csv")
    assert {row["candidate"] for row in table} == {"own bought", "own rented"}
    bought, rented = ([row for row in table if row["candidate"] == f"own {way}"] for way in ("bought", "rented"))
    # 730 h of rent at one card: 0.5 $/h whatever the load
    assert [float(row["usd_per_h"]) for row in rented] == pytest.approx([0.5] * len(rented))
    cost = [float(row["usd_per_million_output_tokens"]) for row in bought]
    assert cost == sorted(cost, reverse=True)
    ranking = {row["candidate"]: float(row["usd_per_h"]) for row in rows(tmp_path / "out/ranking.csv")}
    bill = rows(tmp_path / "out/bill.csv")
    for name, usd_per_h in ranking.items():
        levelised = [float(row["levelised_usd_per_month"]) for row in bill if row["candidate"] == name]
        assert sum(levelised) == pytest.approx(730 * usd_per_h)
    assert "levelised" in done.out
    months_of = {row["candidate"] for row in rows(tmp_path / "out/months.csv")}
    assert months_of == {"own bought", "own rented", API}
    page = (tmp_path / "out/breakeven.html").read_text()
    assert len(charts_of(page)) == 4
    assert "http:" not in text_of(page)
    # a second run finds everything and says the same
    again = run(tmp_path, SCENARIO, "--no-report")
    assert again.out == done.out
    assert len(list((tmp_path / "out/points").iterdir())) == points


@pytest.mark.slow
def test_single_candidate_is_not_called_cheapest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer_coarsely(monkeypatch.setattr)
    alone = ("--set", "api=null", "--set", "breakeven=null", "--set", "horizon_s=5", "--no-report")
    done = run(tmp_path, SCENARIO, *alone)
    assert done.code == 0, done.err
    assert "At 2 req/s, own costs $" in done.out
    assert "cheapest" not in done.out


@pytest.mark.slow
def test_states_requests_without_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer_coarsely(monkeypatch.setattr)
    text = SCENARIO.replace("{distribution: fixed, value: 50}", "{distribution: uniform, min: 1, max: 100}")
    text = text.replace("slo: {", "client: {timeout_s: 1, attempts: 1}\nslo: {attainment: 0.3, ")
    done = run(tmp_path, text, "--set", "api=null", "--set", "breakeven=null", "--no-report")
    assert done.code == 0, done.err
    # a token takes 0.02 s, so that about half of the answers would take more than a second
    share = re.search(r"Requests without an answer: own \((\S+) % timed out\)\.", " ".join(done.out.split()))
    assert share
    assert 30 < float(share[1]) < 70


def test_unanswered_share_weighs_requests_by_hours() -> None:
    # a tenth of the year at 20 of 100 requests an hour lost, the rest at 1 of 10
    bills: Any = [
        (SimpleNamespace(window_h=2.0, requests=200, unanswered={"lost": 40}), 0.1),
        (SimpleNamespace(window_h=0.5, requests=5, unanswered={"lost": 0, "rejected": 0.5}), 0.9),
    ]
    assert _unanswered(bills) == pytest.approx({"lost": 2 / 19, "rejected": 0.9 / 19})
    assert _unanswered([(SimpleNamespace(window_h=1.0, requests=0, unanswered={}), 1.0)]) == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("also: {own:", "also: {won:", "s.yaml:18: breakeven.also.won: there is no fleet 'won'; did you mean own?"),
        ("{own: {rented:", "{own: {bought:", "breakeven.also.own: two candidates are called 'own bought': choose"),
        ("- name: own", "- name: the API", "fleets.0.name: 'the API' is the name of the API in tables (section api)"),
        ("{rtx-4090: 0.5}", "{l4: 0.5}", "breakeven.also.own.rented.price: "),
        (
            "    cost: {acquisition: buy, quotes: {rtx-4090: 2000, workstation-2x4090: 3000}}\n",
            "",
            "fleets.0.cost: is missing",
        ),
        ("slo: {ttft_s: 1, tpot_s: 0.05}\n", "", "slo: a capacity needs at least one limit"),
    ],
)
def test_bad_input(tmp_path: Path, old: str, new: str, line: str) -> None:
    assert SCENARIO.count(old) == 1
    done = run(tmp_path, SCENARIO.replace(old, new))
    assert done.code == 2
    assert line in done.err
    assert not (tmp_path / "out").exists()


def test_an_owned_fleet_has_all_that_its_autoscaler_may_run() -> None:
    pool = SimpleNamespace(autoscaling="hpa", most_replicas=4)
    scenario: Any = SimpleNamespace(fleets=[SimpleNamespace(name="auto", pools=[pool])])
    candidates = [Candidate(name, "auto", {}, 1.0) for name in ("auto rented", "auto owned")]
    at_load = {"auto rented": cost(0, 100), "auto owned": cost(1000, 10)}
    answer: Any = SimpleNamespace(candidates=candidates, at_load=at_load)
    (note,) = owned_peaks(answer, scenario)
    assert note.startswith("auto owned owns all 4 replicas that its autoscaler may run")


def test_rent_by_the_hour_is_cheaper_up_to_some_hours(monkeypatch: pytest.MonkeyPatch) -> None:
    candidates = [Candidate(f"a {way}", "a", {}, 1.0) for way in ("bought", "rented")]
    flows = {"a bought": (1000.0, 0.0), "a rented": (0.0, 2.0)}
    at_load = {
        name: SimpleNamespace(flows=SimpleNamespace(capex_usd=capex, rent_usd_per_h=rent, agreed_months={}))
        for name, (capex, rent) in flows.items()
    }
    usd_per_h = {"a bought": 1.0, "a rented": 2.0}
    answer: Any = SimpleNamespace(candidates=candidates, at_load=at_load, usd_per_h=usd_per_h)
    year = SimpleNamespace(working_hours=2400.0, idle_hours=6360.0)
    monkeypatch.setattr("sim.report.breakeven.year_plan", lambda _: year)
    any_scenario: Any = None
    assert hours_sentences(answer, any_scenario) == [
        "Paid only while it runs, a rented costs less than a bought up to 365 of 730 hours a month.",
        "For the 200 hours a month with requests, a rented costs $400 this way, a bought $730.",
    ]


CATALOG = load_catalog()
FIXED = {"distribution": "fixed", "value": 60}
STEP = {"model": "affine", "base_s": 0.01, "per_token_s": 1e-5, "per_context_token_s": 1e-8}


def fleet(name: str, model: str, usd_per_h: float) -> dict[str, Any]:
    pool = {"gpu": "rtx-4090", "steptime": STEP, "batching": {"policy": "vllm", "num_gpu_blocks": 999}}
    cost = {"acquisition": "rent", "quotes": {"rtx-4090": usd_per_h}}
    return {"name": name, "model": model, "pools": [pool], "cost": cost}


def decided(folder: Path, **more: Any) -> BreakevenAnswer:
    fleets = [fleet("large", "llama3.1-70b", 0.5), fleet("small", "llama3.1-8b", 0.2), fleet("dear", "llama3.1-8b", 9)]
    scenario = Scenario.model_validate(
        {
            "name": "models",
            "workload": {"arrivals": {"process": "constant", "rate_rps": 1}, "lengths": dict.fromkeys(LENGTHS, FIXED)},
            "horizon_s": 10,
            "slo": {"ttft_s": 1},
            "fleets": fleets,
        }
        | more
    )
    found = [
        FleetCapacity(one["name"], 2.0, None, (ReplicationCapacity(one["name"], 0, 2.0, None, 0),)) for one in fleets
    ]
    return decide(scenario, CandidateLedgers(scenario, CATALOG, folder, ProcessPool(1), found), found)


LENGTHS = ("prompt", "output")


@pytest.fixture(autouse=True)
def _few_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(breakeven_costs, "UTILISATIONS", (0.5, 1.0))
    monkeypatch.setattr(breakeven, "LOADS_SHOWN", 2)


@pytest.mark.slow
def test_each_model_has_its_own_ranking(tmp_path: Path) -> None:
    answer = decided(tmp_path)
    told = sentences(answer)
    assert told[0].startswith("llama3.1-70b: At 1 req/s, large costs $365 a month.")
    assert told[1].startswith("llama3.1-8b: At 1 req/s, small is the cheapest: $146 a month, ")
    assert "across_models" in told[2]
    assert [(row["candidate"], row["model"]) for row in ranking_rows(answer)] == [
        ("large", "llama3.1-70b"), ("small", "llama3.1-8b"), ("dear", "llama3.1-8b")
    ]  # fmt: skip
    assert not answer.tipping

    terms = {"method": "annuity", "discount_rate": 0.1, "life_years": 3, "general_inflation": 0.04}
    prices = {"input": 1.0, "output": 2.0}
    together = decided(tmp_path, compare={"across_models": True}, finance=terms, revenue=prices)
    assert sentences(together)[0].startswith("At 1 req/s, small is the cheapest: $146 a month, 60")
    assert [row["candidate"] for row in ranking_rows(together)] == ["small", "large", "dear"]
    assert "model" not in ranking_rows(together)[0]
    # general inflation adds figures in today's money and changes no nominal one; 1.1 / 1.04 = 1.0577
    assert "real_usd_per_h" not in ranking_rows(answer)[0]
    assert together.usd_per_h == pytest.approx(answer.usd_per_h)
    row = ranking_rows(together)[0]
    worth = annuity_factor(row["real_discount_rate"], 36) * row["real_usd_per_h"] * 730
    assert worth == pytest.approx(row["net_present_cost_usd"])
    # 60 tokens each way in a second: 0.648 an hour, for which no capital is paid
    assert "irr_with_revenue" not in ranking_rows(answer)[0]
    value = annuity_factor(0.1, 36) * (0.648 - row["usd_per_h"]) * 730
    assert row["net_present_value_with_revenue_usd"] == pytest.approx(value)
    assert row["irr_with_revenue"] is None
    assert sentences(together)[1].startswith("With revenue, small earns the most: net present value $10,")
    assert sentences(together)[1].endswith(" in 36 months, no IRR.")
    assert sentences(together)[2].startswith("In today's money, small costs $138 a month (inflation 4.0")
    # 60 tokens each way in a second; what both kinds cost is the whole
    for row in ranking_rows(together):
        prompts, answers = (row[f"{kind}_tokens"] for kind in PER_MILLION)
        assert min(prompts, answers) > 0
        assert 0.06 * 3.6 * (prompts + answers) == pytest.approx(row["usd_per_h"])


PER_MILLION = ("prompts_usd_per_million_prompt", "answers_usd_per_million_output")


def test_the_api_has_its_own_prices_by_kind() -> None:
    price = partial(UnitPrice, unit="million_tokens", source="test")
    tariff = ApiTariff(price(0.5), price(2.0), cached_discount=0.8)
    read, held, written = 3e6, 1e6, 2e6
    mine = replace(
        cost(0, 100),
        output_tokens_per_h=written,
        api_usd_per_h=tariff.usd(read, held, written),
        prompt_tokens_per_h=read + held,
        api_prompts_usd_per_h=tariff.usd(read, held, 0.0),
    )
    nothing: Any = None
    # half the tokens at the same prices: a quarter of the prompt tokens costs a fifth
    found = CandidateLedgers.api(nothing, [mine, mine])
    half = CandidateLedgers.api(nothing, [replace(mine, api_usd_per_h=None, output_tokens_per_h=1e6), mine])
    for one in (found, half):
        assert one is not None
        assert one.usd_per_million_by_kind == pytest.approx((0.5 * (3 + 0.2) / 4, 2.0))
    assert mine.usd_per_million_by_kind is None  # nothing was metered by phase


def test_a_chinese_page_labels_the_ways_to_pay() -> None:
    fleets = {"box bought": "box", "bought": "bought", API: API}
    assert with_labels("bought, box bought, the API", fleets) == "bought, box bought, the API"
    with speaking("zh"):
        assert with_labels("bought, box bought, the API", fleets) == "bought, box（自购）, API"
