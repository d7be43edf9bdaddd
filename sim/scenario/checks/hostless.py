"""GPUs that are bought without a server, though they need one."""

from collections.abc import Iterator

from sim.catalogue.catalog import Catalog
from sim.cost import Cost
from sim.cost.purchase.buying import Buy
from sim.scenario.schema import Fleet, Scenario
from sim.scenario.sweep import at_point, points


def hostless_notes(scenario: Scenario, catalog: Catalog) -> list[str]:
    """A sentence for every fleet of *scenario*, at any point of its sweep, whose bill leaves hosts out."""
    touched = (
        {path: value for path, value in at.items() if path.startswith("fleets.")} for at in points(scenario.sweep)
    )
    distinct = {repr(one): one for one in touched}
    found: dict[str, None] = {}
    for overrides in distinct.values():
        at = at_point(scenario, overrides)
        for fleet in at.fleets:
            gpus = dict.fromkeys(_hostless(fleet, _other_ways(at, fleet), catalog))
            if gpus:
                found[
                    f"Host not included: {fleet.name} buys {' and '.join(gpus)} without a server, so neither its price "
                    "nor its power is on the bill: give the pool a server."
                ] = None
    return list(found)


def _hostless(fleet: Fleet, also: tuple[Cost, ...], catalog: Catalog) -> Iterator[str]:
    for pool, cost in zip(fleet.pools, fleet.costs, strict=True):
        bought = any(isinstance(way, Buy) for way in (cost, *also))
        if bought and pool.gpu is not None and pool.server is None and not catalog.gpu(pool.gpu).is_host:
            yield pool.gpu


def _other_ways(scenario: Scenario, fleet: Fleet) -> tuple[Cost, ...]:
    """To pay for the fleet, which `breakeven` compares."""
    return tuple(scenario.breakeven.also.get(fleet.name, {}).values()) if scenario.breakeven is not None else ()
