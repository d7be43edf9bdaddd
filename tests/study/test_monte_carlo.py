"""Futures: laws that hold whatever the numbers are, and shares that can be computed by hand.

What draws come to, from draws that were made up.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sim.catalogue.catalog import Catalog, load_catalog
from sim.scenario.reading.load import load
from sim.scenario.schema import Scenario
from sim.scenario.sweep import Case, at_point, cases
from sim.study.execution.cases import limits, run_points
from sim.study.execution.cores import ProcessPool
from sim.study.execution.store import StoredCase
from sim.study.metrics.statistics import wilson
from sim.study.monte_carlo import (
    API,
    CARBON,
    MILLION,
    MONTH,
    DrawnSetting,
    FleetDraws,
    MonteCarloStudy,
    QuantileEffect,
    cheapest,
    cheapest_share,
    input_effects,
    monte_carlo_study,
    spread_of,
)
from sim.study.points import summarize
from sim.study.rebill import Rebilling
from sim.units import HOURS_PER_MONTH
from sim.yamlio import dump

POOL = {
    "gpu": "rtx-4090",
    "replicas": 2,
    "server": "workstation-4x4090",
    "batching": {"policy": "vllm", "max_num_seqs": 16, "max_num_batched_tokens": 512, "num_gpu_blocks": 200},
}
SCENARIO = {
    "name": "futures",
    "model": "qwen2.5-7b",
    "workload": {
        "arrivals": {"process": "poisson", "rate_rps": 3},
        "lengths": {side: {"distribution": "geometric", "mean": 150} for side in ("prompt", "output")},
    },
    "horizon_s": 45,
    "warmup_s": 7,
    "meter_interval_s": 13,
    "starts_at": "2026-07-01T08:59:30",
    "requests": "none",
    "fleets": [
        {"name": "own", "pools": [POOL], "cost": {"acquisition": "buy"}},
        {"name": "rented", "pools": [POOL], "cost": {"acquisition": "rent", "quotes": {"rtx-4090": 0.4}}},
    ],
    "site": {"electricity": {"hourly_usd_per_kwh": [0.1 + hour / 100 for hour in range(24)]}, "pue": 1.4},
    "finance": {"method": "annuity", "discount_rate": 0.08, "life_years": 4},
    "operations": {
        "egress": {"usd_per_gb": 0.05, "bytes_per_output_token": 200},
        "staff": {"fte": 1, "usd_per_fte_year": 110000, "over_gpus": 400},
        "maintenance": {"fraction_per_year": 0.05},
    },
    "api": {"input": 0.3, "output": 0.9},
    "carbon": {"grid_g_per_kwh": [300 + hour for hour in range(24)]},
    "sweep": {"workload.arrivals.rate_rps": [2, 6]},
}
DRAWN = (
    "site.pue={uniform: [1.1, 1.6]}",
    "site.electricity.hourly_usd_per_kwh.8={uniform: [0.1, 0.3]}",
    "site.electricity.hourly_usd_per_kwh.9={uniform: [0.2, 0.6]}",
    "finance.life_years={triangular: [3, 4, 6]}",
    "fleets.own.cost.quotes.rtx-4090={lognormal: [1900, 0.3]}",
    "fleets.rented.cost.quotes.rtx-4090={price: {normal: [0.4, 0.05]}, currency: EUR}",
    "finance.fx={EUR: {uniform: [1, 1.2]}}",
    "operations.egress.usd_per_gb={uniform: [0, 0.2]}",
    "operations.staff.usd_per_fte_year={normal: [110000, 9000]}",
    "api.input={uniform: [0.1, 0.5]}",
    "carbon.grid_g_per_kwh.9={uniform: [200, 600]}",
    "futures.draws=100",
)


class Run:
    """Stored cases, and scenarios whose money alone differs."""

    def __init__(self, folder: Path) -> None:
        self.catalog: Catalog = load_catalog()
        self.path = folder / "futures.yaml"
        self.path.write_text(dump(SCENARIO))
        self.out = folder / "out"
        self.stored = run_points(self.scenario(), self.catalog, self.out, ProcessPool(1), lambda *_: None)

    def scenario(self, *sets: str) -> Scenario:
        return load(self.path, sets, catalog=self.catalog)

    def study(self, *sets: str, draws: int = 20) -> MonteCarloStudy:
        """Return the study of *draws*: a scenario has 100 or more, and each bills every fleet."""
        scenario = self.scenario(*sets)
        scenario = scenario.model_copy(update={"futures": scenario.futures.model_copy(update={"draws": draws})})
        cases = run_points(scenario, self.catalog, self.out, ProcessPool(1), lambda *_: None)
        study = monte_carlo_study(scenario, self.catalog, cases)
        assert study is not None
        return study


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run(tmp_path_factory.mktemp("futures"))


@pytest.mark.slow
def test_without_spread_every_future_is_the_plain_run_to_the_last_digit(run: Run) -> None:
    study = run.study("site.pue={uniform: [1.4, 1.4]}", "finance.life_years={normal: [4, 0]}", "futures.draws=100")
    scenario = run.scenario()
    rows = {
        (point.fleet, point.axes["rate_rps"]): point.row
        for point in summarize(run.stored, ["rate_rps"], limits(scenario))
    }
    assert len(study.outcomes) == 4
    for one in study.outcomes:
        row = rows[one.fleet, one.axes["rate_rps"]]
        names = {MONTH: "cost_usd_per_month", MILLION: MILLION, API: API, CARBON: CARBON}
        for measure, column in names.items():
            assert one.central[measure] == row[column]
            assert set(one.draws[measure]) == {row[column]}
            assert set(one.low[measure]) == set(one.high[measure]) == {row[column]}


@pytest.mark.slow
def test_draw_costs_equal_the_ledger_at_its_values(run: Run) -> None:
    study = agrees_with_the_ledger(run, DRAWN)
    assert len(study.drawn) == len(DRAWN) - 1


@pytest.mark.slow
def test_scheduled_rent_of_a_draw_equals_the_ledger(run: Run) -> None:
    schedule = '{replicas: {"00:00": 2, "09:00": 1}, starting_s: 5}'
    pool = _pool().replace("replicas: 4", f"replicas: 2, schedule: {schedule}")
    cost = "{acquisition: rent, quotes: {rtx-4090: {uniform: [0.3, 0.6]}}, billing: {granularity_s: 3600}}"
    agrees_with_the_ledger(run, (f"fleets=[{{name: switched, pools: [{pool}], cost: {cost}}}]", "futures.draws=100"))


def agrees_with_the_ledger(run: Run, sets: tuple[str, ...]) -> MonteCarloStudy:
    """Return the study of *sets*, three draws of which cost as much as their bills."""
    scenario, study = run.scenario(*sets), run.study(*sets)
    billing = Rebilling(scenario, run.catalog, list(zip(cases(scenario), _stored(run, scenario), strict=True)))
    for draw in (0, 7, 19):
        world = {
            path: float(study.drawn[place][draw])
            for one in study.inputs
            for path, place in zip(one.paths, one.places, strict=True)
        }
        for bill in billing.bills(world):
            one = next(o for o in study.outcomes if (o.fleet, o.axes) == (bill.fleet, bill.axes))
            # each component of the ledger, and of the stored one, is rounded to a nano-dollar
            nanos = 2 * len(bill.flows.booked_usd_per_h)
            tolerance = nanos * 1e-9 / bill.window_h * HOURS_PER_MONTH
            assert one.draws[MONTH][draw] == pytest.approx(bill.usd_per_h * HOURS_PER_MONTH, rel=0, abs=tolerance)
            assert bill.api_usd_per_h is not None
            api = 1e6 * bill.api_usd_per_h * bill.window_h / bill.output_tokens
            assert one.draws[API][draw] == pytest.approx(api, rel=1e-12)
    return study


@pytest.mark.slow
def test_draw_carbon_equals_that_of_its_plan(run: Run) -> None:
    drawn = ("carbon.grid_g_per_kwh=[{uniform: [200, 600]}]", "site.pue={uniform: [1.1, 1.6]}")
    study = run.study(*drawn, "sweep=null", "futures.draws=100")
    scenario = run.scenario("sweep=null", "carbon.grid_g_per_kwh=[400]")
    grid, pue = (study.drawn[place] for place in (("carbon", "grid_g_per_kwh", 0), ("site", "pue")))
    plain = run_points(scenario, run.catalog, run.out, ProcessPool(1), lambda *_: None)
    kg_per_million = plain[0].metrics["operational_kg_co2e"] / plain[0].metrics["output_tokens"] * 1e6
    assert study.outcomes[0].draws[CARBON] == pytest.approx(kg_per_million * grid / 400 * pue / 1.4)


def _stored(run: Run, scenario: Scenario) -> list[StoredCase]:
    return run_points(scenario, run.catalog, run.out, ProcessPool(1), lambda *_: None)


@pytest.mark.slow
def test_all_fleets_share_the_same_draws(run: Run) -> None:
    fleets = [
        {
            "name": name,
            "pools": [POOL],
            "cost": {"acquisition": "buy", "quotes": {"rtx-4090": {"uniform": [1500, 2500]}}},
        }
        for name in ("one", "other")
    ]
    sets = ("site.pue={uniform: [1.1, 1.6]}", "sweep=null", "futures.draws=100")
    study = run.study(*sets, f"fleets={fleets}".replace("'", ""))
    one, other = (next(o for o in study.outcomes if o.fleet == name) for name in ("one", "other"))
    assert np.array_equal(one.draws[MONTH], other.draws[MONTH])
    assert len(set(one.draws[MONTH])) > 18
    assert sorted(cheapest([one, other]).values()) == [0, 0]
    quotes = next(each for each in study.inputs if each.name == "price of rtx-4090")
    assert len(quotes.paths) == 2


@pytest.mark.slow
def test_independent_uniforms_are_compared_as_by_hand(run: Run) -> None:
    # rents of 0.4 (1 - x): X of 0.5 to 1 times the price, Y of 0.4 to 0.8 times;
    # P(X < Y) = integral over y from 0.5 to 0.8 of (y - 0.5) / 0.5 dy / 0.4 = (0.3^2 / 2) / 0.5 / 0.4 = 0.225
    term = "commitment: {gpus: 4, months: 12, discount: {uniform: [%s]}}"
    cost = "{acquisition: rent, quotes: {rtx-4090: 0.4}, %s}"
    fleets = [
        f"{{name: {n}, pools: [{_pool()}], cost: {cost % (term % d)}}}" for n, d in (("x", "0, 0.5"), ("y", "0.2, 0.6"))
    ]
    study = run.study(f"fleets=[{', '.join(fleets)}]", "operations=null", "futures.draws=300", "sweep=null", draws=300)
    wins = cheapest(study.outcomes)
    assert wins["x"] + wins["y"] == study.draws == 300
    low, high = wilson(wins["x"], study.draws)
    assert low < 0.225 < high


def _pool() -> str:
    batching = "{policy: vllm, max_num_seqs: 16, max_num_batched_tokens: 512, num_gpu_blocks: 200}"
    return f"{{gpu: rtx-4090, replicas: 4, server: workstation-4x4090, batching: {batching}}}"


@pytest.mark.slow
def test_more_draws_extend_fewer(run: Run) -> None:
    pue = ("site.pue={uniform: [1.1, 1.6]}", "sweep=null", "futures.draws=100")
    few, many = (run.study(*pue, draws=draws) for draws in (20, 30))
    for one, other in zip(few.outcomes, many.outcomes, strict=True):
        assert np.array_equal(one.draws[MONTH], other.draws[MONTH][:20])


@pytest.mark.slow
def test_adding_an_input_keeps_the_draws_of_the_first(run: Run) -> None:
    pue = ("site.pue={uniform: [1.1, 1.6]}", "sweep=null", "futures.draws=100")
    alone, joined = run.study(*pue), run.study("finance.life_years={uniform: [3, 5]}", *pue)
    place = ("site", "pue")
    assert np.array_equal(alone.drawn[place], joined.drawn[place])


@pytest.mark.slow
def test_drawn_load_is_interpolated_linearly(run: Run) -> None:
    study = run.study("workload.arrivals.rate_rps={uniform: [2, 6]}", "futures.draws=100")
    assert [one.axes for one in study.outcomes] == [{}, {}]
    rates = study.drawn["workload", "arrivals", "rate_rps"]
    metrics = [case.metrics for case in run.stored if case.fleet == "own"]
    usd_per_h, tokens_per_h = ([m[name] / m["window_h"] for m in metrics] for name in ("cost_usd", "output_tokens"))
    usd, tokens = (np.interp(rates, [2, 6], ends) for ends in (usd_per_h, tokens_per_h))
    assert study.outcomes[0].draws[MONTH] == pytest.approx(usd * HOURS_PER_MONTH)
    assert study.outcomes[0].draws[MILLION] == pytest.approx(1e6 * usd / tokens)


@pytest.mark.slow
def test_a_tornado_moves_one_input_at_a_time(run: Run) -> None:
    drawn = ("site.pue={uniform: [1, 2]}", "finance.discount_rate={uniform: [0, 0.2]}")
    study = run.study(*drawn, "futures.draws=100")
    scenario = run.scenario()
    for index, (path, low, high) in enumerate((("site.pue", 1.1, 1.9), ("finance.discount_rate", 0.02, 0.18))):
        for value, table in ((low, "low"), (high, "high")):
            values = {"site.pue": 1.5, "finance.discount_rate": 0.1} | {path: value}
            found = getattr(study.outcomes[0], table)[MONTH][index]
            assert found == pytest.approx(_month(run, at_point(scenario, values)), rel=1e-6)


def _month(run: Run, scenario: Scenario) -> float:
    case = Case("own", {"rate_rps": 2}, {"workload.arrivals.rate_rps": 2}, 0)
    [bill] = Rebilling(scenario, run.catalog, [(case, run.stored[0])]).bills()
    return bill.usd_per_h * HOURS_PER_MONTH


def test_the_interval_of_a_share_is_wilsons() -> None:
    # Newcombe, "Two-sided confidence intervals for the single proportion", Statistics in Medicine 17, 1998, table I
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson(15, 148) == pytest.approx((0.0624, 0.1605), abs=5e-5)
    assert wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)
    assert wilson(1, 29) == pytest.approx((0.0061, 0.1718), abs=5e-5)


def fleet(name: str, draws: list[float], low: float, high: float) -> FleetDraws:
    values = np.array(draws)
    central = float(np.median(values))
    return FleetDraws(
        name, {}, {MILLION: central}, {MILLION: values}, {MILLION: np.array([low])}, {MILLION: np.array([high])}
    )


OWN, RENTED = fleet("own", [1.0, 2.0, 3.0], 1.5, 2.5), fleet("rented", [4.0, 1.5, 5.0], 3.0, 6.0)
SETTING = DrawnSetting({}, (OWN, RENTED))


def test_shares_and_quantiles_by_hand() -> None:
    assert cheapest_share(SETTING, "own", 3).value == 2 / 3
    spread = spread_of(OWN, MILLION, [0.25, 0.75])
    assert (spread.central, spread.mean, spread.quantiles) == (2.0, 2.0, (1.5, 2.5))


def test_the_difference_of_the_first_two_comes_first() -> None:
    study: Any = SimpleNamespace(inputs=["price of power"], models={})
    found = list(input_effects(study, SETTING, [MILLION]))
    assert [one.of for one in found] == ["rented minus own", "own", "rented"]
    assert found[0].measures[MILLION] == QuantileEffect(1.5, 3.5, 2.0)


def test_fleets_of_different_models_are_ranked_apart() -> None:
    study: Any = SimpleNamespace(inputs=["price of power"], models={"own": "small", "rented": "large"})
    assert [(one.model, one.outcomes) for one in SETTING.apart(study.models)] == [
        ("small", (OWN,)),
        ("large", (RENTED,)),
    ]
    assert [one.of for one in input_effects(study, SETTING, [MILLION])] == ["own", "rented"]
