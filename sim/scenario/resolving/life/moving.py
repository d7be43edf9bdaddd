"""The link between pools with roles: its rate and latency, and who shares the ports of a server."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sim.catalogue.catalog import Catalog
from sim.catalogue.entries.link import Link
from sim.catalogue.entries.model import kv_bytes_per_token
from sim.catalogue.entries.quantization import kv_element_bytes
from sim.catalogue.value import Value
from sim.routing.transfer import Ports, TransferPlan
from sim.scenario.experiment import Fleet
from sim.scenario.resolving.bind import BoundPool
from sim.scenario.resolving.hardware.wiring import host_bytes_per_s


def kv_bytes(pool: BoundPool) -> float:
    """Bytes of KV that a token of *pool*'s model leaves in all layers, once; 0 where nobody says it."""
    if pool.model is not None:
        return kv_bytes_per_token(pool.model, float(kv_element_bytes(pool.kv_cache_dtype)))
    return pool.spec.kv_bytes_per_token or 0.0


def transfer_of(fleet: Fleet, bound: Sequence[BoundPool], catalog: Catalog) -> TransferPlan | None:
    """How KV moves between the pools of *fleet*; None where none has a role. Raises UnknownId."""
    spec = fleet.kv_transfer
    if spec is None:
        return None
    latency_s = spec.latency_s or 0.0
    pools = tuple(Ports(spec.bytes_per_s or 0.0, _engines(pool)) for pool in bound)
    if spec.link is not None:
        link = catalog.link(spec.link)
        pools = tuple(_within_lanes(_ports(pool, link), pool, catalog) for pool in bound)
        if spec.latency_s is None:
            latency_s = link.allreduce_latency_s[min(link.allreduce_latency_s)].value
    return TransferPlan(
        pools=pools,
        sends=tuple(pool.spec.role == "prefill" for pool in bound),
        latency_s=latency_s,
        concurrent=spec.concurrent,
        oversubscription=spec.oversubscription,
        min_prompt_tokens=spec.min_prompt_tokens,
        routing=spec.routing,
        overlaps=spec.overlap == "layers",
        layers=tuple(pool.model.layers if pool.model is not None else None for pool in bound),
    )


def _engines(pool: BoundPool) -> int:
    """Engines of a replica, which share its port."""
    layout = pool.layout
    return 1 if layout.enable_expert_parallel and layout.data_parallel_size > 1 else layout.data_parallel_size


def _ports(pool: BoundPool, link: Link) -> Ports:
    """The ports of *pool*: those of its servers are shared out evenly among the GPUs. What joins GPUs inside a server
    is each GPU's own.
    """
    server, gpus, engines, rate = pool.server, pool.layout.gpus, _engines(pool), link.bulk_bytes_per_s.value
    if link.over_pcie or (server is not None and link.id == server.link):
        return Ports(rate * gpus, engines)
    if server is None or server.nics is None:
        return Ports(rate, engines)
    slots, nics = int(server.gpu_slots.value), int(server.nics.value)
    own = gpus * nics // slots
    return Ports(rate * own, engines) if own else Ports(rate, max(1, slots // (nics * gpus)) * engines)


def _within_lanes(ports: Ports, pool: BoundPool, catalog: Catalog) -> Ports:
    """*ports*, no faster than the lanes to the GPUs that share a port, while all GPUs of their server send."""
    most_bytes_per_s = host_bytes_per_s(pool, catalog) * pool.layout.gpus * ports.replicas_per_port
    return replace(ports, bytes_per_s=min(ports.bytes_per_s, most_bytes_per_s))


def transfer_facts(fleet: Fleet, catalog: Catalog) -> Iterator[tuple[str, Value]]:
    """What the transfers rest on: path below the fleet, and value."""
    if fleet.kv_transfer is None or fleet.kv_transfer.link is None:
        return
    link = catalog.link(fleet.kv_transfer.link)
    path = f"kv_transfer.link.{link.id}"
    yield f"{path}.bytes_per_s", link.bulk_bytes_per_s
    if fleet.kv_transfer.latency_s is None:
        yield f"{path}.latency_s", link.allreduce_latency_s[min(link.allreduce_latency_s)]
