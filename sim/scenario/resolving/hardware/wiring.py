"""What joins the GPUs of a replica: lanes of its server's slots, and adapters between servers."""

from collections.abc import Iterator
from functools import partial
from math import inf

from sim.catalogue.catalog import Catalog
from sim.catalogue.entries.link import Link
from sim.catalogue.entries.server import Server
from sim.catalogue.value import Value
from sim.scenario.resolving.bind import BoundPool
from sim.scenario.resolving.offload import host_link_of
from sim.steptime.links.lanes import Lanes, Ring
from sim.steptime.links.network import Network


def joined_gpus(server: Server) -> int:
    """GPUs that the link of *server* joins: its own, or those of a domain of several servers."""
    return int((server.linked_gpus or server.gpu_slots).value)


def spread(pool: BoundPool) -> int:
    """GPUs of a replica that exchange with one another, within layers or from stage to stage."""
    layout = pool.layout
    return layout.gpus if layout.enable_expert_parallel else layout.tensor_parallel_size * layout.pipeline_parallel_size


def lanes_of(pool: BoundPool, catalog: Catalog) -> Lanes | None:
    """The lanes of the pool's server; None where nobody knows them."""
    if pool.server is None or not pool.server.pcie:
        return None
    return Lanes.of(pool.server, partial(_x16_bytes_per_s, catalog))


def lanes_stretch(pool: BoundPool, catalog: Catalog) -> float:
    """Rate of the link over what the narrowest lanes leave of it to each ring of a server; at least 1."""
    lanes = lanes_of(pool, catalog)
    if lanes is None or pool.link is None or not pool.link.over_pcie:
        return 1.0
    share = lanes.ring_bytes_per_s(_rings(pool), staged=not pool.link.peer_to_peer)
    return max(1.0, pool.link.theoretical_bytes_per_s.value / share)


def link_of(pool: BoundPool) -> Link | None:
    """The link as the GPUs of a replica meet it: where some of them hang on another CPU, what they sum crosses over."""
    if pool.link is None or pool.server is None or not pool.link.over_pcie:
        return pool.link
    cpus = [group.cpu for group in pool.server.pcie for _ in range(group.slots)]
    crossed = any(len({cpus[slot] for slot in ring if slot < len(cpus)}) > 1 for ring in _rings(pool))
    return pool.link.across_sockets() if crossed else pool.link


def host_bytes_per_s(pool: BoundPool, catalog: Catalog) -> float:
    """What the lanes leave to each GPU of a server, to or from host memory, while all do the same; inf if not known."""
    lanes = lanes_of(pool, catalog)
    return inf if lanes is None else lanes.host_bytes_per_s(frozenset(range(_used_slots(pool))))


def host_stretch(pool: BoundPool, catalog: Catalog) -> float:
    """Rate of a GPU's own lanes over what is left of them while all GPUs of a server load; at least 1."""
    own = host_link_of(pool.gpu, catalog)
    return 1.0 if own is None else max(1.0, own.theoretical_bytes_per_s.value / host_bytes_per_s(pool, catalog))


def network_of(pool: BoundPool, catalog: Catalog) -> Network | None:
    """The adapters between the servers of a replica; None where one server, or one link, joins all of its GPUs."""
    spec, server = pool.spec.network, pool.server
    if spec is None or server is None or spread(pool) <= joined_gpus(server):
        return None
    slots = int(server.gpu_slots.value)
    link = catalog.link(spec.link)
    adapters = spec.adapters or (int(server.nics.value) if server.nics is not None else 1)
    direct = link.peer_to_peer if spec.gpudirect is None else spec.gpudirect
    own = host_link_of(pool.gpu, catalog)
    stretch = 1.0
    if own is not None:
        lane = own.theoretical_bytes_per_s.value if direct else own.bulk_bytes_per_s.value / host_stretch(pool, catalog)
        stretch = max(1.0, adapters * link.bulk_bytes_per_s.value / (slots * lane))
    return Network(link, slots, adapters, spec.oversubscription, stretch)


def network_facts(pool: BoundPool, catalog: Catalog) -> Iterator[tuple[str, Value]]:
    """What exchanges between servers rest on: name and value."""
    network = network_of(pool, catalog)
    if network is None:
        return
    link = network.link
    yield "bytes_per_s", link.bulk_bytes_per_s
    yield "allreduce_latency_s.2", link.allreduce_latency_s[2]
    yield "allreduce_bus_bytes_per_s.2", link.allreduce_bus_bytes_per_s[2]


def _x16_bytes_per_s(catalog: Catalog, generation: int) -> float:
    return catalog.link(f"pcie{generation}-x16").theoretical_bytes_per_s.value


def _used_slots(pool: BoundPool) -> int:
    """Slots of a server that the pool fills."""
    slots = int(pool.server.gpu_slots.value) if pool.server is not None else 0
    return min(slots, pool.spec.most_replicas * pool.layout.gpus)


def _rings(pool: BoundPool) -> list[Ring]:
    """Slots of a full server, by who exchanges with whom: within layers, else from stage to stage."""
    layout, used = pool.layout, _used_slots(pool)
    together = layout.gpus if layout.enable_expert_parallel else layout.tensor_parallel_size
    size = min(used, together if together > 1 else spread(pool))
    return [frozenset(range(first, first + size)) for first in range(0, used - size + 1, size)]
