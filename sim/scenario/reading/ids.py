"""Names in raw scenario data that the catalogue does not know."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sim.catalogue.catalog import Catalog, UnknownId
from sim.scenario.reading.errors import Complaint, Place, did_you_mean
from sim.scenario.reading.layers import value_at


def entries(data: Any, place: Place) -> list[tuple[Any, Any]]:
    """Keys and values of the mapping at *place* of raw *data*; none where there is no mapping."""
    held = value_at(data, place)
    return list(held.items()) if isinstance(held, dict) else []


def mappings(holder: Any, key: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The mappings in the list *key* of a raw *holder*, each with its position."""
    items = holder.get(key) if isinstance(holder, dict) else None
    for i, item in enumerate(items if isinstance(items, list) else []):
        if isinstance(item, dict):
            yield i, item


def unknown_ids(holder: Any, place: Place, lookups: Mapping[str, Callable[[str], object]]) -> Iterator[Complaint]:
    """Ids in the raw *holder* at *place* that the lookup of their key raises ValueError for."""
    for key, lookup in lookups.items() if isinstance(holder, dict) else ():
        if isinstance(name := holder.get(key), str):
            try:
                lookup(name)
            except ValueError as error:
                yield Complaint((*place, key), str(error).splitlines()[0])


def unknown_prices(cost: Any, place: Place, catalog: Catalog) -> Iterator[Complaint]:
    """The offer of a raw `cost` at *place*, and items of its quotes, that the catalogue does not know."""
    if not isinstance(cost, dict):
        return
    yield from unknown_offers(cost.get("price"), (*place, "price"), catalog)
    quotes = cost.get("quotes")
    known = {*catalog.ids("gpus"), *catalog.ids("servers")}
    for item in quotes if isinstance(quotes, dict) else ():
        if item not in known:
            yield Complaint(
                (*place, "quotes", item), f"unknown gpu or server {item!r}{did_you_mean(item, sorted(known))}"
            )


def unknown_offers(name: Any, place: Place, catalog: Catalog) -> Iterator[Complaint]:
    """The offer *name*, item/offer, if the catalogue does not know it."""
    if not isinstance(name, str):
        return
    try:
        catalog.offer(name)
    except UnknownId as error:
        item = name.partition("/")[0]
        prices = None if error.suggestions else catalog.prices(item)
        known = [f"{item}/{offer}" for offer in prices.offers] if prices else []
        yield Complaint(place, str(error) + did_you_mean(name, known))
