"""Greenhouse gases against the worked examples of those who defined the accounts."""

from datetime import datetime

import pytest
from pydantic import ValidationError

from sim.catalogue.catalog import load_catalog
from sim.cost.carbon import Carbon
from sim.cost.clock import MIDNIGHT, SiteClock
from sim.cost.ledger import Ledger
from sim.cost.metering import MeteredWindow
from sim.cost.power_contract import ContractBook, PowerContract
from sim.cost.prices import CostError
from sim.records import Interval
from sim.scenario.resolving.resolve import resolve_fleet
from sim.scenario.schema import Scenario


def carbon(grid=400, **embodied):
    return Carbon.model_validate({"grid_g_per_kwh": grid, "embodied": embodied or None})


def at(hour, minute=0):
    return SiteClock(datetime(2026, 1, 1, hour, minute))


def test_the_example_of_the_ml_co2_calculator(make_interval):
    # 283 W x 8 h = 2.26 kWh; x 0.57 kg CO2e/kWh = 1.29 kg (model cards that cite mlco2.github.io/impact)
    plan = carbon(570).plan({"card": 1}, 1, 1.0, MIDNIGHT)
    assert plan.operational_kg([make_interval(0, 8 * 3600, wall_w=283.0)]) == pytest.approx(1.29, abs=0.005)


def test_embodied_carbon_of_the_green_software_foundation():
    # sci-m: 200 g over four years, used for 30 days: 4.1096 g
    plan = carbon(gpu_kg=0.0, server_kg=0.2, life_years=4).plan({"card": 1}, 1, 1.0, MIDNIGHT)
    assert plan.embodied_kg_per_h * 24 * 30 * 1000 == pytest.approx(4.10958904109589)


def test_ecologits_figures_for_an_eight_gpu_server():
    # 5,700 kg the server and 164 kg each H100: 7,012 kg, over 3 years
    plan = carbon(gpu_kg=164, server_kg=5700, life_years=3).plan({"h100": 8}, 1, 1.2, MIDNIGHT)
    assert plan.embodied_kg_per_h * 3 * 8760 == pytest.approx(7012)
    by_id = carbon(gpu_kg={"h100": 164}, server_kg=5700, life_years=3)
    assert by_id.plan({"h100": 8}, 1, 1.2, MIDNIGHT).embodied_kg_per_h == plan.embodied_kg_per_h
    with pytest.raises(CostError, match="no figure for a40"):
        by_id.plan({"a40": 1}, 1, 1.2, MIDNIGHT)


def test_the_hour_of_the_day_decides(make_interval):
    hourly = [100] * 12 + [700] * 12
    noon = carbon(hourly).plan({}, 1, 2.0, at(12))
    assert noon.operational_kg([make_interval(0, 3600, wall_w=1000.0)]) == pytest.approx(2 * 0.7)
    morning = carbon(hourly).plan({}, 1, 1.0, at(11, 30))
    assert morning.operational_kg([make_interval(0, 3600, wall_w=1000.0)]) == pytest.approx(0.4)
    day = carbon(hourly).plan({}, 1, 1.0, at(3, 15))
    assert day.operational_kg([make_interval(0, 86400, wall_w=1000.0)]) == pytest.approx(24 * 0.4)


def test_omissions_are_reported():
    assert "electricity only" in carbon().plan({"card": 1}, 1, 1.0, MIDNIGHT).notes[0]
    named = carbon(gpu_kg=1, server_kg=2, life_years=3)
    assert "names no server" in named.plan({"card": 1}, 0, 1.0, MIDNIGHT).notes[0]
    assert named.plan({"card": 1}, 1, 1.0, MIDNIGHT).notes == ()


def test_reading_twice_changes_nothing():
    for grid in (400, list(range(24))):
        once = carbon(grid)
        assert Carbon.model_validate(once.model_dump()) == once


@pytest.mark.parametrize("grid", [[1, 2, 3], -1, [], "much"])
def test_one_intensity_or_twenty_four(grid):
    with pytest.raises(ValidationError):
        Carbon.model_validate({"grid_g_per_kwh": grid})


def test_a_grid_of_the_catalogue_is_its_figure():
    catalog = load_catalog()
    plan = Carbon(grid="Germany").plan({}, 0, 1.0, MIDNIGHT, catalog.grid("Germany"))
    same = Carbon(grid_g_per_kwh=365.477).plan({}, 0, 1.0, MIDNIGHT)
    hour = Interval("p", "", 0, "serving", 0.0, 3600.0, 3600.0, server_energy_j=3.6e6)
    assert plan.operational_kg([hour]) == same.operational_kg([hour]) == pytest.approx(0.365477)


@pytest.mark.parametrize("fields", [{}, {"grid": "usa", "grid_g_per_kwh": 400}])
def test_one_grid(fields):
    with pytest.raises(ValidationError, match="either grid"):
        Carbon.model_validate(fields)


def scoped(rented=(), contracts=None, **keys):
    terms = Carbon.model_validate({"grid_g_per_kwh": 400, "market": {}} | keys)
    return terms.plan({"card": 4}, 1, 1.5, MIDNIGHT, rented=rented, contracts=contracts)


EMBODIED = {"gpu_kg": 100, "server_kg": 600, "life_years": 2}


def test_scopes_of_owned_and_rented_machines(make_interval):
    """3 kWh each at the meter; the owned pool is scope 2, the rented one and the making of machines scope 3."""
    hour = [make_interval(0, 3600, pool=pool, wall_w=2000.0) for pool in ("own", "hired")]
    window = MeteredWindow.of(hour, 0.0, 3600.0)
    plan = scoped(["hired"], embodied=EMBODIED)
    assert plan.scope_2_kg(window, by_market=False) == pytest.approx(3 * 0.4)
    assert plan.scope_2_kg(window, by_market=True) == pytest.approx(3 * 0.4)
    made_kg = 1000 / (2 * 8760)
    assert plan.scope_3_kg(window) == pytest.approx(3 * 0.4 + made_kg)
    assert plan.operational_kg(hour) + plan.embodied_kg(hour, 1.0) == pytest.approx(2 * 3 * 0.4 + made_kg)


@pytest.mark.parametrize(
    ("market", "contract", "kg"),
    [
        ({}, None, 3 * 0.4),
        ({"residual_g_per_kwh": 600}, None, 3 * 0.6),
        ({"residual_g_per_kwh": 600, "certified": 0.25}, None, 3 * 0.75 * 0.6),
        ({"residual_g_per_kwh": 600, "certified": 0.5}, {"kw": 2, "g_per_kwh": 30}, 2 * 0.03 + 0.5 * 0.6),
        ({}, {"kw": 5}, 0.0),
    ],
)
def test_the_market_account_follows_contracts_and_certificates(make_interval, market, contract, kg):
    window = MeteredWindow.of([make_interval(0, 3600, wall_w=2000.0)], 0.0, 3600.0)
    contracts = contract and (PowerContract.model_validate({"usd_per_kwh": 0.1} | contract),)
    plan = scoped(contracts=contracts and ContractBook(contracts, ("p",), 1.5), market=market)
    assert plan.scope_2_kg(window, by_market=True) == pytest.approx(kg)
    assert plan.scope_2_kg(window, by_market=False) == pytest.approx(3 * 0.4)


def test_embodied_emissions_by_use_count_busy_time(make_interval):
    plan = scoped(embodied=EMBODIED | {"busy_fraction": 0.5})
    by_time_kg = 1000 / (2 * 8760)
    for busy in (0.0, 0.25, 0.5, 1.0):
        hour = [make_interval(0, 3600, busy=busy, prefill=0.5)]
        assert plan.embodied_kg(hour, 1.0) == pytest.approx(by_time_kg * busy / 0.5)


PRICED = {
    "name": "priced",
    "model": "llama3.1-8b",
    "workload": {
        "arrivals": {"process": "constant", "rate_rps": 1},
        "lengths": {side: {"distribution": "fixed", "value": 60} for side in ("prompt", "output")},
    },
    "horizon_s": 60,
    "fleets": [
        {
            "name": "own",
            "pools": [{"gpu": "rtx-4090", "server": "workstation-4x4090", "replicas": 2}],
            "cost": {"acquisition": "buy"},
        }
    ],
    "site": {"electricity_usd_per_kwh": 0.1, "pue": 1.5},
    "finance": {"method": "straight_line", "life_years": 3, "fx": {"EUR": 1.25}},
}


@pytest.mark.parametrize("busy", [None, 0.4])
@pytest.mark.parametrize("priced", ["location", "market"])
def test_the_carbon_price_is_that_of_the_reported_emissions(make_interval, busy, priced):
    market = {"residual_g_per_kwh": 600, "certified": 0.1}
    embodied = EMBODIED | ({} if busy is None else {"busy_fraction": busy})
    keys = {"grid_g_per_kwh": 400, "embodied": embodied, "market": market, "priced": priced}
    keys["usd_per_t"] = {"price": 80, "currency": "EUR"}
    scenario = Scenario.model_validate(PRICED | {"carbon": keys})
    built = resolve_fleet(scenario, scenario.fleets[0], load_catalog())
    hours = [
        make_interval(0, 1800, pool="rtx-4090", gpus=2, busy=0.3),
        make_interval(1800, 3600, pool="rtx-4090", gpus=2, busy=0.9),
    ]
    window = MeteredWindow.of(hours, 0.0, 3600.0)
    plan, ledger = built.carbon, Ledger.of(hours, built.costs, 0.0, 3600.0)
    kg = plan.scope_2_kg(window, by_market=priced == "market") + plan.scope_3_kg(window)
    assert ledger.by_component()["carbon_price"] / 1e9 == pytest.approx(kg / 1000 * 80 * 1.25)
    assert {row.unit for row in ledger.rows if row.component == "carbon_price"} == {"kg CO2e"}
    plain = Scenario.model_validate(PRICED | {"carbon": {"grid_g_per_kwh": 400}})
    assert "carbon_price" not in {
        one.component for one in resolve_fleet(plain, plain.fleets[0], load_catalog()).costs.charges
    }


def test_the_price_by_the_hour_is_a_mean_in_averages(make_interval):
    keys = {"grid_g_per_kwh": [100] * 12 + [700] * 12, "usd_per_t": 100}
    scenario = Scenario.model_validate(PRICED | {"carbon": keys, "starts_at": "2026-07-01T12:00:00"})
    costs = resolve_fleet(scenario, scenario.fleets[0], load_catalog()).costs
    hour = [make_interval(0, 3600, pool="rtx-4090", wall_w=1000.0)]
    for plan, grams in (
        (costs, 700),
        (costs.averaged(), 400),
        (costs.averaged(by_hour=[1.0] * 12 + [0.0] * 12), 100),
    ):
        found = Ledger.of(hour, plan, 0.0, 3600.0).by_component()
        assert found["carbon_price"] / 1e9 == pytest.approx(1.5 * grams / 1e6 * 100)


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"usd_per_t": 50, "priced": "market"}, "needs market"),
        ({"usd_per_t": -1}, "must be 0 or more"),
        ({"market": {"certified": 1.2}}, "less than or equal to 1"),
        ({"embodied": EMBODIED | {"busy_fraction": 0}}, "greater than 0"),
    ],
)
def test_terms_of_scopes_that_cannot_be_are_refused(keys, text):
    with pytest.raises(ValidationError, match=text):
        Carbon.model_validate({"grid_g_per_kwh": 400} | keys)


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"grid_g_per_kwh": [100] * 24, "usd_per_t": 50}, "needs starts_at"),
        ({"grid_g_per_kwh": 400, "usd_per_t": {"price": 50, "currency": "GBP"}}, "GBP"),
    ],
)
def test_a_price_without_hours_or_a_rate_is_a_problem_of_the_fleet(keys, text):
    scenario = Scenario.model_validate(PRICED | {"carbon": keys})
    with pytest.raises(CostError, match=text):
        resolve_fleet(scenario, scenario.fleets[0], load_catalog())
