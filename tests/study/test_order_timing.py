"""Time of order under future prices, against figures worked by hand, the plan's own cost, and laws of the draws."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rank_correlation import rank_correlation

from sim.catalogue.catalog import load_catalog
from sim.cost.cash_flow import CashFlows
from sim.cost.finance import Annuity, StraightLine
from sim.cost.metering import MeteredWindow
from sim.cost.price_paths import PriceOutlook, PricePath, PricePaths
from sim.cost.time_value import Horizon
from sim.records import Interval
from sim.report.order_timing import order_text, timing_rows, timing_sentences, timing_table
from sim.scenario.reading.errors import ScenarioErrors
from sim.scenario.reading.load import load
from sim.scenario.schema import Scenario
from sim.study.breakeven_costs import Cost, months
from sim.study.capacity import FleetCapacity
from sim.study.monte_carlo import drawn_inputs, inputs_of
from sim.study.order_timing import OrderTime, OrderTiming, drawn_outlook, timing_of_candidates
from sim.study.plan import FleetPlanOutlook, outlook
from sim.study.plan_units import Quantities
from sim.yamlio import dump

CATALOG = load_catalog()
FIXED = {"distribution": "fixed", "value": 100}
BASIS: dict[str, Any] = {
    "name": "timing",
    "model": "llama3.1-8b",
    "workload": {"arrivals": {"process": "constant", "rate_rps": 2}, "lengths": {"prompt": FIXED, "output": FIXED}},
    "horizon_s": 120,
    "fleets": [
        {
            "name": "own",
            "pools": [{"gpu": "rtx-4090", "replicas": 2, "server": "workstation-4x4090"}],
            "cost": {"acquisition": "buy"},
        }
    ],
    "site": {"electricity_usd_per_kwh": 0.2, "pue": 1.2},
    "finance": {"method": "straight_line", "life_years": 4, "discount_rate": 0.1, "residual_fraction": 0.2},
    "plan": {
        "years": 0.5,
        "starts": "2027-01",
        "bridge": {"own": {"acquisition": "rent", "quotes": {"rtx-4090": 0.4}}},
    },
}
MOVING = {
    "hardware": {"decline_per_year": 0.1, "volatility": 0.15},
    "rent": {"volatility": 0.4, "half_life_months": 6},
    "resale": {"volatility": 0.2},
    "electricity": {"volatility": 0.3},
}
TIED = [{"between": ["price_paths.hardware", "price_paths.rent"], "rank": 0.7}]


def planned(paths: dict[str, Any] | None, plan: dict[str, Any] | None = None, **changes: Any) -> FleetPlanOutlook:
    wanted = Scenario.model_validate(BASIS | {"price_paths": paths, "plan": BASIS["plan"] | (plan or {})} | changes)
    metered = Interval("rtx-4090", "workstation-4x4090", 0, "serving", 0, 3600, gpu_s=7200, output_tokens=720_000)
    metered.server_energy_j = metered.idle_energy_j = 1.8e6
    window = MeteredWindow(1.0, {"rtx-4090": [metered]})
    units, one = Quantities((0.0, 2.0), (window, window), (0.0, 2.0)), FleetCapacity("own", 2.0, None, ())
    assert wanted.plan is not None
    return outlook(wanted, wanted.plan, wanted.fleets[0], CATALOG, one, units, (100.0, 100.0), 2.0)


def test_without_paths_there_is_no_timing_and_flat_paths_change_no_row() -> None:
    plain, flat = planned(None), planned({"hardware": {}, "rent": {"decline_per_year": 0}})
    assert plain.timing is None
    assert flat.rows == plain.rows
    timing = flat.timing
    assert timing is not None
    assert timing.draws == 0
    assert timing.times[0].expected_usd == timing.means_usd[0] == pytest.approx(plain.present_usd, rel=1e-12)
    assert [one.month for one in timing.times] == [*range(6), None]
    assert [one.meanwhile for one in timing.times] == ["", *["rent"] * 6]


def test_the_best_month_is_that_of_the_launch_and_waiting_saves_what_the_plans_differ_by() -> None:
    found = planned({"hardware": {"steps": {"2027-06": -0.6}}})
    timing = found.timing
    assert timing is not None
    assert timing.times[timing.best].month == 5
    saved = timing.times[0].expected_usd - timing.times[timing.best].expected_usd
    assert timing.values_of_waiting_usd[timing.best] == pytest.approx(saved)
    assert saved > 0
    assert list(timing.cheapest_shares) == [float(i == timing.best) for i in range(len(timing.times))]
    first, *more = timing_sentences({"own": timing}, "2027-01")
    assert first.startswith("own: renting and ordering in 2027-06 costs least, $")
    assert more == []


def test_waiting_without_rent_or_api_is_left_out_and_an_api_serves_until_delivery() -> None:
    assert planned({"hardware": {}}, {"bridge": {}}).timing is None
    found = planned({"hardware": {}}, {"bridge": {}, "lead_time_months": 2}, api={"input": 0.3, "output": 0.9}).timing
    assert found is not None
    assert {one.meanwhile for one in found.times} == {"api"}
    assert len(found.times) == 5
    tokens = 2 * 730 * 3600 * 100
    paid_usd = sum((0.3 + 0.9) * tokens / 1e6 * 1.1 ** (-(month + 1) / 12) for month in range(6))
    assert found.times[-1].expected_usd == pytest.approx(paid_usd)


@pytest.mark.slow
@pytest.mark.parametrize("dependence", ["gaussian_copula", "iman_conover"])
def test_draws_have_the_expected_cost_as_their_mean_and_regrets_add_up(dependence: str) -> None:
    """Costs are linear in prices, except for a used machine that would sell for more than a new one."""
    finance = {"method": "straight_line", "life_years": 2, "resale": {"by_age": {0.01: 0.3, 2: 0.2}}}
    draws = {"draws": 400, "correlations": TIED, "dependence": dependence}
    timing = planned(MOVING, {"years": 1}, futures=draws, finance=finance).timing
    assert timing is not None
    assert timing.draws == 400
    table = np.array([one.drawn_usd for one in timing.times])
    for one, mean in zip(timing.times, timing.means_usd, strict=True):
        error = 4 * one.drawn_usd.std() / np.sqrt(400)
        assert mean == pytest.approx(one.expected_usd, abs=error + 0.01 * one.expected_usd)
    assert timing.cheapest_shares.sum() == pytest.approx(1)
    assert timing.regrets_usd == pytest.approx(timing.means_usd - table.min(axis=0).mean())
    assert timing.regrets_usd.min() == timing.regrets_usd[timing.best] > 0
    assert timing.shares_below_now[0] == 0
    texts = list(timing_sentences({"own": timing}, "2027-01"))
    assert len(texts) == 2
    rows = timing_rows({"own": timing}, "fleet", "2027-01")
    assert (rows[0]["order_month"], rows[0]["order_date"], rows[-1]["order_month"]) == (1, "2027-01", "never")
    assert len(timing_table({"own": timing}, None).rows) == len(rows) == 13


def test_shocks_are_correlated_in_every_month_and_a_longer_plan_keeps_them() -> None:
    scenario = Scenario.model_validate(BASIS | {"price_paths": MOVING, "futures": {"correlations": TIED}})
    short, long = (drawn_outlook(scenario, "2027-01", months) for months in (3, 8))
    assert short is not None
    assert long is not None
    for name in ("hardware", "rent"):
        assert (short.factor(name, 3) == long.factor(name, 3)).all()
    hardware, rent, resale = (np.log(long.factor(name, 1)) for name in ("hardware", "rent", "resale"))
    assert rank_correlation(hardware, rent)[0, 1] == pytest.approx(0.7, abs=0.04)
    assert rank_correlation(hardware, resale)[0, 1] == pytest.approx(0, abs=0.07)


def cost(capital_usd: float, line: str, usd_per_month: float, finance: Annuity | StraightLine, **changes: Any) -> Cost:
    monthly = {line: usd_per_month / 730}
    rent = monthly if line == "rental" else {}
    capital = {"gpu_capital": capital_usd} if capital_usd else {}
    flows = CashFlows(
        monthly,
        capital,
        monthly,
        resold_usd=capital_usd,
        rent_usd_per_h=sum(rent.values()),
        rent_monthly_usd_per_h=rent,
        **changes,
    )
    return Cost(1.0, 1, flows, finance, Horizon(24, 0.1), 1e6, None)


TERMS = Annuity(method="annuity", discount_rate=0.1, life_years=2, residual_fraction=0.25)


def test_candidates_at_flat_prices_cost_what_breakeven_computes() -> None:
    falling = [1.5] * 12 + [0.5] * 12
    moved = {(0, -1): 480, (0, 2): -480}
    own = cost(4800, "insurance", 30, TERMS, moved_usd=moved, profiles={"insurance": falling})
    hired = cost(0, "rental", 250, TERMS, moved_usd={(6, 0): 1500, (6, 3): -1500})
    timing = timing_of_candidates(own, hired, 24, 0.1, PriceOutlook(PricePaths(), "2027-01"), None)
    for one, candidate in ((timing.times[0], own), (timing.times[-1], hired)):
        assert one.expected_usd == pytest.approx(months(candidate.flows, TERMS, 0.1, 24)[-1].net_present_usd)


def test_a_purchase_after_a_year_is_the_sum_worked_by_hand() -> None:
    """12 months of rent that falls by 19 % a year, then hardware at 0.8 of its price, resold after one year of life."""
    free = StraightLine(method="straight_line", life_years=2, residual_fraction=0.25)
    own, hired = cost(4800, "energy", 30, free), cost(0, "rental", 250, free)
    paths = PricePaths(
        hardware=PricePath(steps={"2028-01": -0.2}),
        rent=PricePath(decline_per_year=0.19),
        electricity=PricePath(by_month={"2027-12": 1.0, "2028-01": 2.0}),
        resale=PricePath(steps={"2028-06": -0.1}),
    )
    timing = timing_of_candidates(own, hired, 24, 0.0, PriceOutlook(paths, "2027-01"), None)
    rent = sum(250 * 0.81 ** (month / 12) for month in range(12))
    expected = rent + 4800 * 0.8 + 12 * 60 - 4800 * 0.8 * 0.625 * 0.9
    assert timing.times[12].expected_usd == pytest.approx(expected)
    assert timing.times[12].meanwhile == "rent"


def test_shares_and_regrets_of_made_up_draws() -> None:
    now, wait = (OrderTime(i, "", 0.0, np.array(usd)) for i, usd in enumerate(([3.0, 5, 4, 9], [4.0, 4, 4, 4])))
    timing = OrderTiming((now, wait))
    assert (timing.best, list(timing.cheapest_shares), list(timing.shares_below_now)) == (1, [0.5, 0.5], [0, 0.5])
    assert list(timing.regrets_usd) == [1.5, 0.25]
    assert list(timing.values_of_waiting_usd) == [0, 1.25]


def refused(folder: Path, text: str) -> str:
    file = folder / "s.yaml"
    file.write_text(dump(BASIS) + text)
    with pytest.raises(ScenarioErrors) as caught:
        load(file, catalog=CATALOG)
    return "\n".join(str(one) for one in caught.value.errors)


PATHS = (
    "price_paths: {hardware: {volatility: 0.2}, rent: {volatility: 0.2}, resale: {volatility: 0.1}, electricity: {}}\n"
)


@pytest.mark.parametrize(
    ("pairs", "text"),
    [
        ([("hardware", "rent", 0.9), ("hardware", "resale", 0.9), ("rent", "resale", -0.9)], "multiply each by 0.53"),
        ([("hardware", "rents", 0.9)], "did you mean price_paths.rent"),
        ([("hardware", "electricity", 0.9)], "neither a distribution nor a path with volatility"),
        ([("hardware", "hardware", 0.9)], "two different inputs"),
        ([("hardware", "rent", 0.9), ("rent", "hardware", 0.1)], "given twice"),
        ([("hardware", "rent", 1.2)], "must be at most 1"),
    ],
)
def test_correlations_that_cannot_be_are_refused_at_their_line(
    tmp_path: Path, pairs: list[tuple[str, str, float]], text: str
) -> None:
    listed = "".join(f"    - {{between: [price_paths.{a}, price_paths.{b}], rank: {rank}}}\n" for a, b, rank in pairs)
    told = refused(tmp_path, "seed: many\n" + PATHS + "futures:\n  correlations:\n" + listed)
    assert text in told
    assert "seed" in told  # beside mistakes elsewhere
    assert "s.yaml:" in told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("price_paths: {hardware: {steps: {2026-12: -0.2}}}", "state a later month"),
        ("price_paths: {starts: 2027-02}", "plan.starts is 2027-01"),
        ("price_paths: {hardware: {volatility: 0}}", "must be above 0"),
        ("price_paths: {hardwares: {}}", "did you mean hardware"),
    ],
)
def test_paths_that_contradict_the_plan_are_refused(tmp_path: Path, text: str, told: str) -> None:
    assert told in refused(tmp_path, text + "\n")


def test_prices_stated_twice_are_refused(tmp_path: Path) -> None:
    twice = {
        "plan": BASIS["plan"] | {"price_decline_per_year": 0.1},
        "finance": BASIS["finance"] | {"inflation": {"energy": 0.02}},
        "price_paths": {"hardware": {}, "electricity": {}},
    }
    (tmp_path / "s.yaml").write_text(dump(BASIS | twice))
    with pytest.raises(ScenarioErrors) as caught:
        load(tmp_path / "s.yaml", catalog=CATALOG)
    assert [str(one).count("states too: remove one") for one in caught.value.errors] == [1, 1]


def test_distributions_may_be_parameters_of_paths(tmp_path: Path) -> None:
    text = (
        "price_paths: {hardware: {decline_per_year: {uniform: [0.1, 0.3]}, steps: {2027-06: {uniform: [-0.4, 0]}}}}\n"
        "futures:\n  draws: 150\n  correlations:\n"
        "    - {between: [price_paths.hardware.decline_per_year, price_paths.hardware.steps.2027-06], rank: 0.5}\n"
    )
    file = tmp_path / "s.yaml"
    file.write_text(dump(BASIS) + text)
    scenario = load(file, catalog=CATALOG)
    assert inputs_of(scenario) == ()
    found = drawn_outlook(scenario, "2027-01", 12)
    assert found is not None
    assert found.factor("hardware", 12).min() > 0.7 * 0.6
    assert found.factor("hardware", 12).max() < 0.9
    drawn = drawn_inputs(scenario, inputs_of(scenario, of_paths=True)).values()
    assert rank_correlation(*drawn)[0, 1] == pytest.approx(0.5, abs=0.15)


def test_inputs_of_run_are_correlated_and_others_keep_their_draws(tmp_path: Path) -> None:
    staff, pue = "operations.staff.usd_per_fte_year", "site.pue"
    file = tmp_path / "s.yaml"
    file.write_text(dump(BASIS | {"operations": {"staff": {"fte": 1, "usd_per_fte_year": 9e4, "over_gpus": 9}}}))
    sets = [
        f"{staff}={{uniform: [9e4, 1e5]}}",
        "site.pue={uniform: [1.1, 1.5]}",
        "finance.life_years={uniform: [3, 5]}",
    ]
    ties = f"futures.correlations=[{{between: [{staff}, {pue}], rank: -0.6}}]"
    plain, tied = (load(file, each, catalog=CATALOG) for each in (sets, [*sets, ties]))
    before, after = (drawn_inputs(one, inputs_of(one)) for one in (plain, tied))
    assert (before["finance", "life_years"] == after["finance", "life_years"]).all()
    found = rank_correlation(after["operations", "staff", "usd_per_fte_year"], after["site", "pue"])
    assert found[0, 1] == pytest.approx(-0.6, abs=0.04)
    with pytest.raises(ScenarioErrors, match="correlate two inputs of the same kind"):
        load(
            file,
            [*sets, "price_paths={rent: {volatility: 0.1}}", ties.replace(pue, "price_paths.rent")],
            catalog=CATALOG,
        )


def test_times_of_order_are_worded_for_sentences() -> None:
    worded = [order_text(month, "rent", starts) for month, starts in [(None, "2027-01"), (0, None), (13, "2027-01")]]
    assert worded == ["renting throughout", "ordering now", "renting and ordering in 2028-02"]
    assert order_text(2, "", None) == "ordering in month 3"
