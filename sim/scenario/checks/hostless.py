"""GPUs without a server, though they need one: their hosts are in no bill, and in no energy."""

from collections.abc import Iterator

from sim.catalogue.catalog import Catalog
from sim.catalogue.entries.gpu import Gpu
from sim.catalogue.entries.server import Server
from sim.cost import Cost
from sim.cost.purchase.buying import Buy
from sim.scenario.experiment import Pool
from sim.scenario.schema import Fleet, Scenario
from sim.scenario.sweep import at_point, points


def hostless_notes(scenario: Scenario, catalog: Catalog) -> list[str]:
    """Sentences for every fleet of *scenario*, at any point of its sweep, whose bill or power leaves hosts out.

    Rented GPUs come with their hosts' power in the rent.
    """
    touched = (
        {path: value for path, value in at.items() if path.startswith("fleets.")} for at in points(scenario.sweep)
    )
    distinct = {repr(one): one for one in touched}
    found: dict[str, None] = {}
    for overrides in distinct.values():
        at = at_point(scenario, overrides)
        for fleet in at.fleets:
            bought, unpaid = _hostless(fleet, _other_ways(at, fleet), catalog)
            if bought:
                gpus = " and ".join(dict.fromkeys(bought))
                found[
                    f"Host not included: {fleet.name} buys {gpus} without a server, so neither its price nor its power "
                    "is on the bill: give the pool a server."
                ] = None
            elif unpaid:
                gpus = " and ".join(dict.fromkeys(unpaid))
                unknown = " and ".join(gpu for gpu in dict.fromkeys(unpaid) if catalog.gpu(gpu).tdp_w is None)
                found[
                    f"The power of {fleet.name} is not known: the catalogue has none of {unknown}."
                    if unknown
                    else f"Host not included: the power of {fleet.name} is that of {gpus} alone: give the pool a "
                    "server."
                ] = None
            for gpu in dict.fromkeys([*bought, *unpaid]):
                found |= dict.fromkeys(_watts(catalog.gpu(gpu), catalog))
    return list(found)


def _hostless(fleet: Fleet, also: tuple[Cost, ...], catalog: Catalog) -> tuple[list[str], list[str]]:
    """(GPUs that are bought, GPUs that nobody pays for) without a server."""
    bought, unpaid = [], []
    for pool, cost in zip(fleet.pools, fleet.costs, strict=True):
        if not _needs_host(pool, catalog):
            continue
        assert pool.gpu is not None
        if any(isinstance(way, Buy) for way in (cost, *also)):
            bought.append(pool.gpu)
        elif cost is None:
            unpaid.append(pool.gpu)
    return bought, unpaid


def _needs_host(pool: Pool, catalog: Catalog) -> bool:
    return pool.gpu is not None and pool.server is None and not catalog.gpu(pool.gpu).is_host


def _watts(gpu: Gpu, catalog: Catalog) -> Iterator[str]:
    """What the smallest server of the catalogue for such cards takes without them."""
    hosts = [server for server in map(catalog.server, catalog.ids("servers")) if _carries(server, gpu)]
    if not hosts:
        return
    host = min(hosts, key=lambda server: (server.gpu_slots.value, server.id))
    assert host.base_power_w is not None
    low_w, high_w = host.base_power_w.range or (host.base_power_w.value, host.base_power_w.value)
    yield (
        f"A host of {gpu.id}: {host.id} (GPU slots: {host.gpu_slots.value:g}) takes {host.base_power_w.value:g} W, "
        f"{low_w:g} to {high_w:g} W, beside its GPUs."
    )


def _carries(server: Server, gpu: Gpu) -> bool:
    built_for = server.gpu == gpu.id or (server.gpu is None and gpu.pcie_card)
    return built_for and server.base_power_w is not None


def _other_ways(scenario: Scenario, fleet: Fleet) -> tuple[Cost, ...]:
    """To pay for the fleet, which `breakeven` compares."""
    return tuple(scenario.breakeven.also.get(fleet.name, {}).values()) if scenario.breakeven is not None else ()
