"""What can be moved on the page without a simulation: limits, prices and terms that the scenario has, each a number."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from sim.catalogue.catalog import Catalog
from sim.cost.purchase.buying import Buy
from sim.cost.rent.rental import Rent
from sim.scenario.job.load import AnyScenario
from sim.scenario.job.schema import JobFleet
from sim.scenario.reading.layers import place_of
from sim.scenario.schema import Fleet, Scenario
from sim.scenario.sections.slo import LATENCIES
from sim.scenario.sweep import as_data, points
from sim.study.money.breakeven.tipping import INPUTS, in_stated_currency, number_of

USD = "USD"
LIMITS = {"ttft_s": "TTFT at most", "tpot_s": "TPOT at most", "e2e_s": "E2E at most"}
AROUND = 3.0
"""A slider reaches from the value over this to the value times this."""
SPANS = {"per year": (0.0, 0.25), "of the price": (0.0, 1.0), "years": (1.0, 10.0)}
"""Unit -> where its slider begins and ends, whatever the value."""

Paid = Mapping[str, Collection[str]]
"""Fleet -> components of its bill."""


@dataclass(frozen=True, slots=True)
class Knob:
    """One number to move."""

    path: str
    """What `--set` calls it."""
    label: str
    unit: str
    value: float | None
    """None: nothing is asked for, as of a limit that the scenario does not have."""
    least: float
    most: float


def knobs(scenario: Scenario | AnyScenario, catalog: Catalog, paid: Paid) -> list[Knob]:
    """Those of *scenario*; none that its sweep varies."""
    data = as_data(scenario)
    swept = {place_of(data, axis) for point in points(scenario.sweep) for axis in point}
    limits = _limits(scenario) if isinstance(scenario, Scenario) else ()
    found = [*limits, *_terms(data), *_prices(scenario, catalog, paid)]
    places = [(one, place_of(data, one.path) if not one.path.startswith("slo.") else ("slo",)) for one in found]
    return [one for one, place in places if not any(place[: len(axis)] == axis[: len(place)] for axis in swept)]


def _limits(scenario: Scenario) -> Iterator[Knob]:
    if scenario.services:
        return  # each has limits of its own
    for name in LATENCIES:
        limit = getattr(scenario.slo, name)
        if not isinstance(limit, dict):
            most = 3 * limit if limit else 10.0
            yield Knob(f"slo.{name}", LIMITS[name], "s", limit, most / 300, most)
    if scenario.slo.per_request:
        yield Knob("slo.attainment", "for at least", "of the requests", scenario.slo.attainment, 0.5, 1.0)


def _terms(data: dict[str, Any]) -> Iterator[Knob]:
    for usual, (name, unit, low, high) in INPUTS.items():
        held = number_of(data, usual)
        if held is not None:
            path, now = held
            yield _around(path, name, in_stated_currency(data, path, unit), now, low, high)


def _prices(scenario: Scenario | AnyScenario, catalog: Catalog, paid: Paid) -> Iterator[Knob]:
    fleets: Sequence[Fleet | JobFleet] = scenario.fleets
    for position, fleet in enumerate(fleets):
        cost = fleet.cost
        if not isinstance(cost, Buy | Rent):
            continue
        unit, what = ("USD each", "price of") if isinstance(cost, Buy) else ("USD per GPU-hour", "rent of")
        by_gpu = isinstance(cost, Rent) or "gpu_capital" in paid.get(fleet.name, ())
        for item in _items(fleet, by_gpu):
            now = _price(cost, item, catalog)
            if now is not None and "." not in item:
                path = f"fleets.{position}.cost.quotes.{item}"
                yield _around(path, f"{what} {item}, {fleet.name}", unit, now, 0.0, inf)


def _items(fleet: Fleet | JobFleet, by_gpu: bool) -> list[str]:
    """What a quote may be about: what is quoted, and the GPUs that are paid for one by one."""
    quoted = list(getattr(fleet.cost, "quotes", {}))
    gpus = [pool.gpu for pool in fleet.pools if by_gpu and pool.gpu and not getattr(pool, "mig", None)]
    return list(dict.fromkeys([*quoted, *gpus]))


def _price(cost: Buy | Rent, item: str, catalog: Catalog) -> float | None:
    """What is paid for one *item* now [USD]; None where no quote could stand in place of it."""
    if item in cost.quotes:
        quote = cost.quotes[item]
        return quote.price if quote.currency == USD and quote.unit is None and quote.includes_gpus is None else None
    if isinstance(cost, Rent):
        list_id, _, offer = (cost.price or "").partition("/")
        unit = "gpu_hour"
    else:
        list_id, offer, unit = item, "", "each"
    held = catalog.prices(list_id) if list_id else None
    if held is None:
        return None
    found = held.offers.get(offer or held.default_purchase or "")
    return found.price.value if found is not None and (found.currency, found.unit) == (USD, unit) else None


def _around(path: str, label: str, unit: str, now: float, low: float, high: float) -> Knob:
    least, most = SPANS.get(unit, (now / AROUND, now * AROUND if now else 1.0))
    return Knob(path, label, unit, now, max(low, min(least, now)), min(high, max(most, now)))
