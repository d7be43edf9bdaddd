"""Greenhouse gases against the worked examples of those who defined the accounts."""

from datetime import datetime

import pytest
from pydantic import ValidationError

from sim.catalogue.catalog import load_catalog
from sim.cost.carbon import Carbon
from sim.cost.clock import MIDNIGHT, SiteClock
from sim.cost.prices import CostError
from sim.records import Interval


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
