"""Tipping points are where fresh bills at the tipping value are equal, whatever the terms.

An input whose price is in another currency tips, too: at the same money, shown in the currency that is stated.
"""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from coarse_answers import answer_coarsely
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from sim.catalogue.catalog import load_catalog
from sim.cli import app
from sim.scenario.reading.errors import ScenarioErrors
from sim.scenario.reading.load import load
from sim.scenario.schema import Scenario
from sim.study import breakeven
from sim.study.breakeven import TippingPoints, tipping_points
from sim.study.breakeven_costs import CandidateLedgers
from sim.study.capacity import FleetCapacity
from sim.study.execution.cores import ProcessPool
from sim.study.sensitivity import inputs
from sim.yamlio import dump

pytestmark = pytest.mark.slow

CATALOG = load_catalog()
FIXED = {"distribution": "fixed", "value": 60}
POOL = {
    "gpu": "rtx-4090",
    "server": "workstation-4x4090",
    "steptime": {"model": "affine", "base_s": 0.01, "per_token_s": 1e-5, "per_context_token_s": 1e-8},
    "batching": {"policy": "vllm", "num_gpu_blocks": 999, "max_num_seqs": 8},
}
SCENARIO: dict[str, Any] = {
    "name": "tips",
    "workload": {"arrivals": {"process": "constant", "rate_rps": 1}, "lengths": {"prompt": FIXED, "output": FIXED}},
    "horizon_s": 12,
    "slo": {"ttft_s": 1},
}
SITE = {"electricity_usd_per_kwh": 0.15, "pue": 1.3, "hosting": {"per": "kw_month", "usd": 90}}
WITHIN = 1e-3


@pytest.fixture(scope="module")
def ledgers_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[dict[str, Any]], CandidateLedgers]:
    """Return a maker of ledgers under any terms: the points are simulated once."""
    folder = tmp_path_factory.mktemp("tips")

    def make(terms: dict[str, Any]) -> CandidateLedgers:
        scenario = Scenario.model_validate(SCENARIO | terms)
        capacities = [FleetCapacity(fleet.name, 4.0, None, ()) for fleet in scenario.fleets]
        return CandidateLedgers(scenario, CATALOG, folder, ProcessPool(1), capacities)

    return make


def bought(factor: float = 1.0, server: float = 3000, gpu: float = 2400) -> dict[str, Any]:
    return {"acquisition": "buy", "quotes": {"workstation-4x4090": factor * server, "rtx-4090": factor * gpu}}


def rented(factor: float = 1.0, usd: float = 0.55, **more: Any) -> dict[str, Any]:
    return {"acquisition": "rent", "quotes": {"rtx-4090": factor * usd}, **more}


def scenario_of(own: dict[str, Any], let: dict[str, Any], **terms: Any) -> dict[str, Any]:
    fleets = [{"name": "own", "pools": [POOL], "cost": own}, {"name": "let", "pools": [POOL], "cost": let}]
    return {"fleets": fleets, "site": SITE, **terms}


def tips(ledgers: CandidateLedgers, *names: str, halvings: int = 12) -> dict[str, TippingPoints]:
    """Return the tipping points of the inputs *names*, or of all; to one part in five thousand with 12 halvings."""
    every = breakeven._inputs
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(breakeven, "HALVINGS", halvings)
        patched.setattr(breakeven, "STEPS", 6)
        if names:
            patched.setattr(breakeven, "_inputs", lambda of: (one for one in every(of) if one.name in names))
        return {one.name: one for one in tipping_points(ledgers)}


def fresh(ledgers: CandidateLedgers) -> dict[str, float]:
    return {one.name: ledgers.cost(one, ledgers.load).usd_per_h for one in ledgers.candidates}


def crossing(one: TippingPoints) -> float:
    (value,) = {one.below, one.above} - {None}
    assert value is not None
    return value


AUDITED = {
    "finance": {
        "method": "annuity",
        "discount_rate": 0.08,
        "life_years": 5,
        "inflation": {"maintenance": 0.15, "failures": 0.15, "energy": 0.1, "hosting": 0.05},
    },
    "operations": {
        "maintenance": {"fraction_per_year": 0.12},
        "failures": {"per_gpu_year": 0.3, "handling_usd": 200},
    },
}


def test_the_price_of_hardware_tips_where_fresh_bills_are_equal(ledgers_of: Any) -> None:
    """Maintenance and failures follow the price and get dearer: their later years count in the crossing."""
    ledgers = ledgers_of(scenario_of(bought(), rented(), **AUDITED))
    found = tips(ledgers, "hardware price of own")["hardware price of own"]
    assert found.now == pytest.approx(5400)
    costs = fresh(ledgers_of(scenario_of(bought(crossing(found) / 5400), rented(), **AUDITED)))
    assert costs["own"] == pytest.approx(costs["let"], rel=WITHIN)
    first = ledgers.cost(ledgers.candidates[0], ledgers.load)
    assert first.hardware_usd_per_h > 1.05 * first.flows.hardware_usd_per_h


@pytest.mark.parametrize("growth", [0.1, 0.03])
def test_a_rent_that_rises_tips_at_the_rent_of_today(ledgers_of: Any, growth: float) -> None:
    finance = {"method": "annuity", "discount_rate": 0.08, "life_years": 5, "inflation": {"rental": growth}}
    ledgers = ledgers_of(scenario_of(bought(), rented(usd=0.2), finance=finance))
    found = tips(ledgers, "rent of let")["rent of let"]
    assert found.now == pytest.approx(0.2)
    costs = fresh(ledgers_of(scenario_of(bought(), rented(usd=crossing(found)), finance=finance)))
    assert costs["own"] == pytest.approx(costs["let"], rel=WITHIN)


@pytest.mark.parametrize(("years", "usd", "own_first"), [(20.0, 0.431, True), (0.25, 2.0, False)])
def test_life_outside_the_range_is_searched_towards_it(
    ledgers_of: Any, years: float, usd: float, own_first: bool
) -> None:
    """Lives of 0.5 to 15 years are searched: 20 years can only be too long, and a quarter of a year too short."""
    finance = {"method": "straight_line", "life_years": years}
    ledgers = ledgers_of(scenario_of(bought(), rented(usd=usd), finance=finance))
    costs, found = fresh(ledgers), tips(ledgers, "life")["life"]
    assert (costs["own"] < costs["let"]) == own_first
    assert found.searched[0] <= found.now <= found.searched[1]
    assert found.below is None or found.below < found.now
    assert found.above is None or found.above > found.now
    assert found.then_above == ("" if own_first else "own")


share = st.floats(0, 1).map(lambda x: round(x, 3))
growth = st.floats(-0.2, 0.25).map(lambda x: round(x, 3))
LINES = ["energy", "hosting", "maintenance", "failures", "staff", "rental", "rental_reserved", "unused commitment"]
RESALES: list[dict[str, Any]] = [
    {},
    {"residual_fraction": 0.35},
    {"resale": {"loss_per_year": 0.3}},
]
TERMS = st.fixed_dictionaries(
    {
        "method": st.sampled_from(["annuity", "straight_line"]),
        "discount_rate": st.floats(0, 0.3).map(lambda x: round(x, 3)),
        "life_years": st.sampled_from([0.5, 2, 3.5, 5]),
        "inflation": st.dictionaries(st.sampled_from(LINES), growth, max_size=4),
    }
)
OPERATIONS = st.fixed_dictionaries(
    {},
    optional={
        "network_storage": st.fixed_dictionaries({"fraction_of_hardware": share}),
        "sales_tax": st.fixed_dictionaries({"fraction_of_purchases": share}),
        "maintenance": st.fixed_dictionaries({"fraction_per_year": share}),
        "failures": st.fixed_dictionaries(
            {"per_gpu_year": share, "covered_fraction": share, "handling_usd": st.sampled_from([0, 200])}
        ),
        "spares": st.fixed_dictionaries({"fraction_of_gpus": share}),
        "deployment": st.just({"usd_per_server": 700}),
        "decommissioning": st.just({"usd_per_server": 150}),
        "staff": st.just({"fte": 0.1, "usd_per_fte_year": 9000, "over_gpus": 16}),
    },
)
RENTS = [
    {},
    {"spot": {"availability": 0.8, "discount": 0.3}},
    {"commitment": {"gpus": 1, "months": 12, "discount": 0.4}},
    {"commitment": {"gpus": 3, "months": 18, "discount": 0.6}},
]


@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    finance=TERMS,
    resale=st.sampled_from(RESALES),
    operations=OPERATIONS,
    rent=st.sampled_from(RENTS),
    usd=st.sampled_from([0.1, 0.3, 0.9]),
    api=st.sampled_from([None, {"input": 0.4, "output": 1.6}]),
)
def test_fresh_bills_at_a_tipping_value_are_equal(
    ledgers_of: Any,
    finance: dict[str, Any],
    resale: dict[str, Any],
    operations: dict[str, Any],
    rent: dict[str, Any],
    usd: float,
    api: dict[str, Any] | None,
) -> None:
    terms = {"finance": finance | resale, "operations": operations, "api": api}
    ledgers = ledgers_of(scenario_of(bought(), rented(usd=usd, **rent), **terms))
    every = {**fresh(ledgers)}
    for name, one in tips(ledgers).items():
        for value, then in ((one.below, one.then_below), (one.above, one.then_above)):
            if value is None or name == "load":
                continue
            own, let, changed = bought(), rented(usd=usd, **rent), dict(terms)
            if name == "hardware price of own":
                own = bought(value / one.now)
            elif name == "rent of let":
                let = rented(value / one.now, usd, **rent)
            else:
                changed |= at(name, value, changed)
            again = ledgers_of(scenario_of(own, let, **changed))
            costs = fresh(again)
            hosted = again.api([again.cost(candidate, again.load) for candidate in again.candidates])
            every = costs | ({"the API": hosted.usd_per_h} if hosted is not None else {})
            least, second = sorted(every.values())[:2]
            assert second == pytest.approx(least, rel=WITHIN), (name, value, then, every)


PATHS = {
    "electricity": ("site", "electricity_usd_per_kwh"),
    "PUE": ("site", "pue"),
    "hosting": ("site", "hosting", "usd"),
    "discount rate": ("finance", "discount_rate"),
    "life": ("finance", "life_years"),
    "residual value": ("finance", "residual_fraction"),
}


def at(name: str, value: float, terms: dict[str, Any]) -> dict[str, Any]:
    """Return the section of *terms* that has the input *name*, with *value* there."""
    section, *path = PATHS[name]
    held = dict(SITE if section == "site" else terms[section])
    if len(path) == 2:
        held[path[0]] = held[path[0]] | {path[1]: value}
    else:
        held[path[0]] = value
    return {section: held}


def test_tipping_load_costs_equal_those_of_a_fresh_run(ledgers_of: Any) -> None:
    """Random arrivals: between two simulated loads the straight line is off, so the load itself is simulated."""
    finance = {"method": "annuity", "discount_rate": 0.08, "life_years": 4}
    site = SITE | {"electricity_usd_per_kwh": 0.8}
    terms = scenario_of(bought(), rented(usd=9), finance=finance, api={"input": 0.4, "output": 2.0}) | {"site": site}

    def poisson(rate_rps: float) -> dict[str, Any]:
        arrivals = {"process": "poisson", "rate_rps": rate_rps}
        return {"workload": SCENARIO["workload"] | {"arrivals": arrivals}}

    load = crossing(tips(ledgers_of(terms | poisson(1)), "load")["load"])
    again = ledgers_of(terms | poisson(load))
    own = again.cost(again.candidates[0], again.load)
    hosted = again.api([own])
    assert hosted is not None
    assert own.usd_per_h == pytest.approx(hosted.usd_per_h, rel=WITHIN)


def test_the_api_has_one_crossing(ledgers_of: Any) -> None:
    """One unit costs as much as the API at the load that tips the verdict, in every sentence that states it."""
    finance = {"method": "annuity", "discount_rate": 0.08, "life_years": 4, "inflation": {"api": 0.1, "energy": 0.05}}
    ledgers = ledgers_of(scenario_of(bought(), rented(usd=5), finance=finance, api={"input": 0.4, "output": 0.8}))
    (own, _) = ledgers.candidates
    ((start, end),) = ledgers.cheaper(own)["the API"]
    assert end == 1.0
    assert start * own.capacity == pytest.approx(crossing(tips(ledgers, "load", halvings=24)["load"]), rel=1e-6)


RATE = 1.25
EURO_POOL = {
    "gpu": "rtx-4090",
    "server": "workstation-1x4090",
    "steptime": {"model": "affine", "base_s": 0.01, "per_token_s": 1e-5, "per_context_token_s": 1e-8},
    "batching": {"policy": "vllm", "num_gpu_blocks": 999, "max_num_seqs": 8},
}


def scenario(price: Any) -> dict[str, Any]:
    """Bought machines, dearer than rented ones where electricity is dear."""
    return {
        "name": "tips",
        "workload": {"arrivals": {"process": "constant", "rate_rps": 2}, "lengths": {"prompt": FIXED, "output": FIXED}},
        "horizon_s": 12,
        "slo": {"ttft_s": 1, "tpot_s": 0.05},
        "fleets": [{"name": "own", "pools": [EURO_POOL], "cost": {"acquisition": "buy"}}],
        "site": {"electricity_usd_per_kwh": price(0.2), "pue": 1.2, "hosting": {"per": "kw_month", "usd": price(50)}},
        "finance": {"method": "annuity", "discount_rate": 0.1, "life_years": 3, "fx": {"EUR": RATE}},
        "breakeven": {"also": {"own": {"rented": {"acquisition": "rent", "quotes": {"rtx-4090": 0.35}}}}},
    }


def tipping(folder: Path, price: Any) -> tuple[dict[str, dict[str, str]], str]:
    folder.mkdir()
    (folder / "s.yaml").write_text(dump(scenario(price)))
    done = CliRunner().invoke(app, ["breakeven", str(folder / "s.yaml"), "--out", str(folder / "out"), "--no-report"])
    assert done.exit_code == 0, done.output
    with (folder / "out/tipping.csv").open() as file:
        return {row["input"]: row for row in csv.DictReader(file)}, done.stdout


def euros(usd: float) -> dict[str, Any]:
    return {"price": usd / RATE, "currency": "EUR"}


def test_price_in_euros_tips_at_the_equivalent_dollars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer_coarsely(monkeypatch.setattr)
    monkeypatch.setattr(breakeven, "STEPS", 6)
    monkeypatch.setattr(breakeven, "HALVINGS", 6)
    every, kept = breakeven._inputs, ("electricity", "hosting", "discount rate")
    monkeypatch.setattr(breakeven, "_inputs", lambda of: (one for one in every(of) if one.name in kept))
    dollar, _ = tipping(tmp_path / "dollar", lambda usd: usd)
    euro, said = tipping(tmp_path / "euro", euros)
    assert list(euro) == list(dollar) == ["electricity", "hosting", "discount rate"]
    assert (euro["electricity"]["unit"], euro["hosting"]["unit"]) == ("EUR/kWh", "EUR per kW and month")
    for name, row in euro.items():
        rate = RATE if name in ("electricity", "hosting") else 1.0
        assert rate * float(row["now"]) == pytest.approx(float(dollar[name]["now"]))
        for side in ("below", "above"):
            assert row[f"then_{side}"] == dollar[name][f"then_{side}"]
            if row[f"tips_{side}"]:
                assert rate * float(row[f"tips_{side}"]) == pytest.approx(float(dollar[name][f"tips_{side}"]), rel=1e-4)
    assert euro["electricity"]["tips_above"] or euro["electricity"]["tips_below"]
    assert "electricity, now 0.16 EUR/kWh" in said


def test_sensitivity_moves_it_in_that_currency(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(dump(scenario(euros)))
    catalog = load_catalog()
    found = {one.name: one for one in inputs(load(tmp_path / "s.yaml", catalog=catalog), catalog)}
    assert (found["electricity"].unit, found["electricity"].now) == ("EUR/kWh", pytest.approx(0.16))
    assert found["hosting"].unit == "EUR per kW and month"


def test_contradictory_finance_gives_one_error(root: Path, tmp_path: Path) -> None:
    """Fleets are not reported to need finance: they have it once the contradiction is removed."""
    base = root / "scenarios" / "4x4090-vs-2xa100.yaml"
    (tmp_path / "s.yaml").write_text(f"base: {base}\nfinance: {{resale: {{loss_per_year: 0.3}}}}\n")
    with pytest.raises(ScenarioErrors) as caught:
        load(tmp_path / "s.yaml", catalog=load_catalog())
    [told] = caught.value.errors
    assert (told.where, told.message.partition(":")[0]) == (
        "finance",
        "residual_fraction and resale both give the resale value",
    )
    (tmp_path / "s.yaml").write_text(f"base: {base}\nfinance: {{life_years: null}}\nsite: null\n")
    with pytest.raises(ScenarioErrors) as caught:
        load(tmp_path / "s.yaml", catalog=load_catalog())
    assert {one.where for one in caught.value.errors} == {"finance.life_years", "fleets.0.site", "fleets.1.site"}
