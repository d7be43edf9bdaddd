"""What is agreed once, such as a commitment, is not multiplied by the number of units."""

from typing import Any

import pytest

from sim.catalogue.catalog import load_catalog
from sim.scenario.resolving.resolve import resolve_fleet
from sim.scenario.resolving.terms import FleetTerms
from sim.scenario.schema import Scenario

CATALOG = load_catalog()
BASIS: dict[str, Any] = {
    "name": "reserved",
    "model": "llama3.1-8b",
    "workload": {
        "arrivals": {"process": "poisson", "rate_rps": 2},
        "lengths": {
            "prompt": {"distribution": "fixed", "value": 9},
            "output": {"distribution": "fixed", "value": 9},
        },
    },
    "horizon_s": 60,
    "slo": {"ttft_s": 1},
}
COMMITTED = {
    "acquisition": "rent",
    "quotes": {"rtx-4090": 1.0},
    "commitment": {"gpus": 4, "months": 12, "discount": 0.5},
}


def usd_per_h(cost: dict[str, Any], units: int, **site: Any) -> dict[str, float]:
    pool = {"gpu": "rtx-4090", "server": "workstation-2x4090", "replicas": 2}
    scenario = Scenario.model_validate(BASIS | {"fleets": [{"name": "a", "pools": [pool], "cost": cost}]} | site)
    fleet = scenario.fleets[0]
    machines = resolve_fleet(scenario, fleet, CATALOG).machines
    costs = FleetTerms.of(scenario, fleet).costs(machines, CATALOG, units)
    assert costs is not None
    return {one.component: one.least_usd_per_h(0.0) for one in costs.charges}


@pytest.mark.parametrize(
    ("units", "bill"),
    [
        (1, {"rental_reserved": 1.0, "unused commitment": 1.0}),
        (2, {"rental_reserved": 2.0}),
        (3, {"rental_reserved": 2.0, "rental": 2.0}),
        (5, {"rental_reserved": 2.0, "rental": 6.0}),
    ],
)
def test_four_reserved_cards_are_four_whatever_the_units(units: int, bill: dict[str, float]) -> None:
    # units of 2 cards at 1 $/h; 4 cards are reserved at half of it
    assert usd_per_h(COMMITTED, units) == pytest.approx(bill)


def test_units_share_racks_but_not_servers() -> None:
    hosting = {"per": "rack", "usd_per_month": 730, "power_limit_kw": 50, "servers_per_rack": 4, "count": "whole"}
    site = {
        "site": {"electricity_usd_per_kwh": 0, "pue": 1, "hosting": hosting},
        "finance": {"method": "straight_line", "life_years": 1},
    }
    one, three, five = (usd_per_h({"acquisition": "buy"}, units, **site) for units in (1, 3, 5))
    assert (one["hosting"], three["hosting"], five["hosting"]) == pytest.approx((1, 1, 2))
    assert three["server_capital"] == pytest.approx(3 * one["server_capital"])
    assert five["gpu_capital"] == pytest.approx(5 * one["gpu_capital"])
