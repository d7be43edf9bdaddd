"""Servers for GPUs that a scenario buys without naming one: every one in the catalogue that could carry them."""

from dataclasses import dataclass

from sim.catalogue.catalog import Catalog
from sim.catalogue.entries.gpu import Gpu
from sim.catalogue.entries.server import Server


@dataclass(frozen=True, slots=True)
class Host:
    """What a replica's GPUs stand in."""

    server: str | None
    """Id in data/servers; None where the GPU is a host itself, or where its owner has one."""
    link: str | None = None
    """Between the GPUs, where it is not the server's own."""
    most_gpus: int | None = None
    """In all; None: as many as one likes, in several servers."""


class NoHost(ValueError):
    """No server of the catalogue carries the GPUs; the message says why."""


def hosts(gpu: Gpu, gpus: int, cap_w: float | None, catalog: Catalog) -> list[Host]:
    """Servers with slots, power and link for replicas of *gpus* each, run at *cap_w* at most. Raises NoHost.

    A server that is built for the GPU suits it. One for any GPU takes PCIe cards: they use the slower of its link and
    their own, and no more of them are bought than its power supply feeds in one box.
    """
    found = [Host(None)] if gpu.is_host else []
    reasons = []
    for server in map(catalog.server, catalog.ids("servers")):
        if server.gpu == gpu.id or (server.gpu is None and gpu.pcie_card):
            try:
                found.append(_host(server, gpu, gpus, cap_w, catalog))
            except NoHost as error:
                reasons.append(f"{server.id} {error}")
    if not found:
        why = f": {'; '.join(reasons)}" if reasons else ""
        raise NoHost(f"no server in data/servers carries {gpus}x {gpu.id}{why}")
    return found


def _host(server: Server, gpu: Gpu, gpus: int, cap_w: float | None, catalog: Catalog) -> Host:
    """*server* as a host. Raises NoHost with the rest of a sentence."""
    slots = int(server.gpu_slots.value)
    if slots < gpus:
        raise NoHost(f"has {slots} slot{'s' * (slots > 1)}")
    if server.base_power_w is None and not gpu.is_host:
        raise NoHost("draws an unknown power")
    if server.gpu is not None:
        return Host(server.id)
    fed = _fed(server, gpu, cap_w)
    if fed < gpus:
        raise NoHost(f"has power for {fed} of them")
    return Host(server.id, _link(server, gpu, catalog), fed if fed < slots else None)


def _fed(server: Server, gpu: Gpu, cap_w: float | None) -> int:
    """GPUs that the server's power supply feeds, at most its slots."""
    slots = int(server.gpu_slots.value)
    if server.max_power_w is None or server.base_power_w is None:
        return slots
    if gpu.tdp_w is None:
        raise NoHost(f"may not feed them: the power limit of {gpu.id} is not known")
    left_w = server.max_power_w.value * server.psu_efficiency.value - server.base_power_w.value
    return min(slots, int(left_w // min(gpu.tdp_w.value, cap_w or gpu.tdp_w.value)))


def _link(server: Server, gpu: Gpu, catalog: Catalog) -> str | None:
    """The card's own where the server's is as fast; else the server's, if the card can use all of it."""
    own, its = catalog.link(gpu.link), catalog.link(server.link)
    if its.theoretical_bytes_per_s.value >= own.theoretical_bytes_per_s.value:
        return gpu.link
    if its.peer_to_peer and not own.peer_to_peer:
        raise NoHost(f"has {its.name}, of which the card cannot use all: that link is not in data/links")
    return None
