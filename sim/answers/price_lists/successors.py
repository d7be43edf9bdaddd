"""Newest offer of the catalogue for each price that a finished run was billed at."""

from collections.abc import Iterator
from typing import Any

from sim.catalogue.catalog import Catalog
from sim.catalogue.market import Offer
from sim.scenario.schema import Scenario
from sim.scenario.sweep import as_data


def successor_of(name: str, catalog: Catalog) -> str:
    """Return the newest offer on the terms of the offer *name*: same GPU, provider, region, terms and unit.

    The result is *name* itself if there is no newer one. Raises UnknownId for an unknown offer.
    """
    item, offer = catalog.price_list(name.partition("/")[0]).item, catalog.offer(name)
    found = [(offer.price.as_of, name)]
    for list_id in catalog.ids("prices"):
        prices = catalog.price_list(list_id)
        if prices.item == item:
            alike = {key: other for key, other in prices.offers.items() if _like(other) == _like(offer)}
            found += [(other.price.as_of, f"{list_id}/{key}") for key, other in alike.items()]
    return max(found, key=lambda one: (str(one[0]), one[1] == name))[1]


def _like(offer: Offer) -> tuple[str, ...]:
    provider = offer.provider.lower().split(" ")[0] if offer.provider else ""
    return offer.what, offer.unit, offer.currency, provider, offer.region.lower(), offer.terms.lower()


def settings_for(scenario: Scenario, catalog: Catalog) -> list[tuple[str, str, str]]:
    """Return (setting, offer, successor) for each offer of *scenario* that has a newer one."""
    found = []
    for place, name in _offers(as_data(scenario).get("fleets", ()), "fleets"):
        newer = successor_of(name, catalog)
        if newer != name:
            found.append((f"{place}={newer}", name, newer))
    return found


def _offers(holder: Any, place: str) -> Iterator[tuple[str, str]]:
    """Yield (dotted path, offer) of each price that a cost section names."""
    if isinstance(holder, list):
        for index, one in enumerate(holder):
            yield from _offers(one, f"{place}.{index}")
    elif isinstance(holder, dict):
        for key, value in holder.items():
            if key == "price" and place.endswith(".cost") and isinstance(value, str) and "/" in value:
                yield f"{place}.{key}", value
            else:
                yield from _offers(value, f"{place}.{key}")
