"""Prices and terms of a scenario that can be changed without a new simulation: names, units, ranges and values."""

from collections.abc import Mapping
from typing import Any

from sim.scenario.reading.layers import place_of, value_at
from sim.scenario.sections.sensitivity import number_at

INPUTS = {
    "site.electricity_usd_per_kwh": ("electricity", "USD/kWh", 0.0, float("inf")),
    "site.pue": ("PUE", "", 1.0, float("inf")),
    "site.hosting.usd": ("hosting", "USD per kW and month", 0.0, float("inf")),
    "site.hosting.usd_per_month": ("rent of a rack", "USD per month", 0.0, float("inf")),
    "finance.discount_rate": ("discount rate", "per year", 0.0, 1.0),
    "finance.life_years": ("life", "years", 0.5, 15.0),
    "finance.residual_fraction": ("residual value", "of the price", 0.0, 1.0),
}
"""Path -> (name, unit, lowest, highest value) of the scenario's own inputs.

Inputs that a scenario does not have are ignored. A price in another currency is changed in that currency.
"""


def booked_inputs(data: Mapping[str, Any]) -> dict[str, tuple[str, str, float, float]]:
    """Return the inputs that change the ledger of `run`; the discount rate only where purchases carry interest."""
    finance = data.get("finance")
    free = isinstance(finance, dict) and finance.get("method") == "straight_line"
    return {path: value_range for path, value_range in INPUTS.items() if not (free and path == "finance.discount_rate")}


def number_of(data: Mapping[str, Any], path: str) -> tuple[str, float] | None:
    """Return the number at *path* and its own path, which ends in `price` where a currency is stated."""
    try:
        return number_at(path, value_at(data, place_of(data, path)))
    except LookupError:
        return None


def in_stated_currency(data: Mapping[str, Any], path: str, unit: str) -> str:
    """Return *unit*, written for US dollars, in the currency that is stated beside the number at *path*."""
    place = place_of(data, path)
    held = value_at(data, place[:-1]) if place[-1] == "price" else None
    return unit.replace("USD", held.get("currency", "USD")) if isinstance(held, dict) else unit
