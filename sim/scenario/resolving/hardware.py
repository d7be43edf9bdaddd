"""Hardware of a fleet and its replicas: machines, links, starts, adapters, models that share GPUs, failures.

Machines: GPUs and slices of them, servers, power. Links within a replica: lanes of its server's slots, and network
adapters between servers. Links between pools with roles: the rate and latency of a KV transfer, and which replicas
share the ports of a server. Replicas: a start loads weights over the links of the server, by the means of the engine;
adapters take time to load and add to a step; services that share a pool share its replicas' memory; failures come from
published rates, with the replicas placed in servers and racks.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache, partial
from math import ceil, inf
from pathlib import Path

from sim.batching.sharing import Swapped
from sim.catalogue.catalog import Catalog
from sim.catalogue.gpu import Gpu
from sim.catalogue.link import Link
from sim.catalogue.server import Server
from sim.catalogue.value import Value
from sim.coldstart import (
    ColdStart,
    ColdStartFigures,
    ReplicaStart,
    StartingReplica,
    fixed_start,
    load_figures,
    start_of,
)
from sim.cost.cost_plan import Cost
from sim.cost.hardware import PoolFacts, servers_needed
from sim.failures import ServerLayout, domains_of
from sim.memory.fit import MemoryFit
from sim.memory.kv_cache import SequenceCache
from sim.memory.lora import LoraAdapters, adapter_bytes, projections
from sim.message import Message
from sim.power import PoolPower, pool_power
from sim.routing.kv_transfer import PoolPorts, TransferPlan
from sim.scenario.experiment import Experiment, Fleet, Pool
from sim.scenario.resolving.bind import BoundPool, bind, host_link_of, power_coefficients
from sim.scenario.resolving.resolved import AdapterPlan, FailurePlan, PoolPlan, Slices, place_slices
from sim.scenario.resolving.scheduler import AHEAD_SWITCHES
from sim.spec import Spec
from sim.steptime.collective import ReplicaNetwork
from sim.steptime.drafting import AdapterStepTime, AdapterWork, DraftHeadStepTime, DraftModelStepTime
from sim.steptime.pcie_lanes import PcieLanes, Ring
from sim.steptime.roofline import RooflineStepTime
from sim.units import GB, SECONDS_PER_HOUR
from sim.yamlio import read


def joined_gpus(server: Server) -> int:
    """Return the GPUs that the link of *server* joins: its own, or those of a domain of several servers."""
    return int((server.linked_gpus or server.gpu_slots).value)


def communicating_gpus(pool: BoundPool) -> int:
    """Return the GPUs of a replica that communicate, within layers or between pipeline stages."""
    layout = pool.layout
    return layout.gpus if layout.enable_expert_parallel else layout.tensor_parallel_size * layout.pipeline_parallel_size


def lanes_of(pool: BoundPool, catalog: Catalog) -> PcieLanes | None:
    """Return the PCIe lanes of the pool's server; None if unknown."""
    if pool.server is None or not pool.server.pcie:
        return None
    return PcieLanes.of(pool.server, partial(_x16_bytes_per_s, catalog))


def lanes_stretch(pool: BoundPool, catalog: Catalog) -> float:
    """Return the ratio of the link's rate to the share of it that the narrowest lanes leave each ring (1 or more)."""
    lanes = lanes_of(pool, catalog)
    if lanes is None or pool.link is None or not pool.link.over_pcie:
        return 1.0
    share = lanes.ring_bytes_per_s(_rings(pool), staged=not pool.link.peer_to_peer)
    return max(1.0, pool.link.theoretical_bytes_per_s.value / share)


def link_of(pool: BoundPool) -> Link | None:
    """Return the link between the GPUs of a replica, across sockets if some are attached to different CPUs."""
    if pool.link is None or pool.server is None or not pool.link.over_pcie:
        return pool.link
    cpus = [group.cpu for group in pool.server.pcie for _ in range(group.slots)]
    crossed = any(len({cpus[slot] for slot in ring if slot < len(cpus)}) > 1 for ring in _rings(pool))
    return pool.link.across_sockets() if crossed else pool.link


def host_bytes_per_s(pool: BoundPool, catalog: Catalog) -> float:
    """Return the rate between each GPU and host memory while all GPUs of a server transfer; inf if unknown."""
    lanes = lanes_of(pool, catalog)
    return inf if lanes is None else lanes.host_bytes_per_s(frozenset(range(_used_slots(pool))))


def host_stretch(pool: BoundPool, catalog: Catalog) -> float:
    """Return the ratio of a GPU's lane rate to its share of it while all GPUs of a server load (1 or more)."""
    own = host_link_of(pool.gpu, catalog)
    return 1.0 if own is None else max(1.0, own.theoretical_bytes_per_s.value / host_bytes_per_s(pool, catalog))


def network_of(pool: BoundPool, catalog: Catalog) -> ReplicaNetwork | None:
    """Return the network between the servers of a replica; None if one server or link joins all of its GPUs."""
    spec, server = pool.spec.network, pool.server
    if spec is None or server is None or communicating_gpus(pool) <= joined_gpus(server):
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
    return ReplicaNetwork(link, slots, adapters, spec.oversubscription, stretch)


def network_facts(pool: BoundPool, catalog: Catalog) -> Iterator[tuple[str, Value]]:
    """Yield the name and value of each figure behind the exchanges between servers."""
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
    """Return the number of GPU slots of a server that the pool fills."""
    slots = int(pool.server.gpu_slots.value) if pool.server is not None else 0
    return min(slots, pool.spec.most_replicas * pool.layout.gpus)


def _rings(pool: BoundPool) -> list[Ring]:
    """Return the slots of a full server in groups that communicate, within layers or between pipeline stages."""
    layout, used = pool.layout, _used_slots(pool)
    ranks = layout.gpus if layout.enable_expert_parallel else layout.tensor_parallel_size
    size = min(used, ranks if ranks > 1 else communicating_gpus(pool))
    return [frozenset(range(first, first + size)) for first in range(0, used - size + 1, size)]


def slices_of(bound: Sequence[BoundPool], fleet: Fleet, names: Sequence[str]) -> list[Slices | None]:
    """Return the MIG slices of each pool, cut together with those of pools with the same server, GPU and cost."""
    groups: list[tuple[tuple[Server | None, Gpu, Cost | None], list[int]]] = []
    for position, (pool, cost) in enumerate(zip(bound, fleet.costs, strict=True)):
        if pool.slicing is not None:
            key = (pool.server, pool.slicing.card, cost)
            members = next((members for known, members in groups if known == key), None)
            if members is None:
                groups.append((key, members := []))
            members.append(position)
    found: list[Slices | None] = [None] * len(bound)
    for _, members in groups:
        wanted = [(str(bound[i].spec.mig), bound[i].spec.most_replicas) for i in members]
        for i in members:
            slicing = bound[i].slicing
            assert slicing is not None
            found[i] = place_slices(slicing, wanted, ", ".join(names[j] for j in members))
    return found


def servers_per_replica(bound: Sequence[BoundPool], fleet: Fleet, slices: Sequence[Slices | None]) -> list[float]:
    """Return each replica's share of the servers that pools of the same server, GPU and cost fill together."""
    shares = []
    each = [gpus_per_replica(*one) for one in zip(bound, slices, strict=True)]
    for pool, cost, own in zip(bound, fleet.costs, each, strict=True):
        if pool.server is None:
            shares.append(0.0)
            continue
        shared = cost is not None and cost.share
        gpus = sum(
            its_gpus * other.spec.most_replicas
            for other, its, its_gpus in zip(bound, fleet.costs, each, strict=True)
            if (other.server, _card(other), its) == (pool.server, _card(pool), cost)
        )
        servers_paid = servers_needed(int(gpus), int(pool.server.gpu_slots.value), shared)
        shares.append(float(servers_paid * own / gpus))
    return shares


def gpus_per_replica(pool: BoundPool, slices: Slices | None) -> int | Fraction:
    """Return the GPUs of all ranks of a replica; for a MIG slice, its fraction of a GPU."""
    return pool.layout.gpus if slices is None else slices.gpus_per_slice


def power_of(pool: BoundPool, slices: Slices | None, servers: float, catalog: Catalog) -> PoolPower | None:
    """Return the power of one replica with its share of *servers*; None if that of GPU or server is unknown."""
    card = _card(pool)
    if card is None:
        return None
    gpus, reach = gpus_per_replica(pool, slices), 1.0 if slices is None else slices.power_reach
    return pool_power(pool.power, card, power_coefficients(catalog), gpus, pool.server, servers, reach)


def facts_of(pool: BoundPool, plan: PoolPlan) -> PoolFacts:
    """Return the properties of a pool's hardware that its bill depends on."""
    card = _card(pool)
    tdp_w = card.tdp_w.value if card and card.tdp_w else None
    return PoolFacts(
        plan.name,
        plan.gpu,
        plan.gpus_per_replica,
        plan.replicas,
        pool.server,
        nameplate_w=_nameplate_w(pool),
        gpu_tdp_w=tdp_w,
        scheduled=plan.scaled,
        fails=plan.failures is not None,
        gpu_mtbf_h=_gpu_mtbf_h(plan),
        least_replicas=_least_replicas(plan),
    )


def _least_replicas(plan: PoolPlan) -> int:
    """Return the smallest number of replicas that the pool's autoscaler runs; 0 without one, or where some fail."""
    return plan.autoscaling.min_replicas if plan.autoscaling is not None and plan.failures is None else 0


def _gpu_mtbf_h(plan: PoolPlan) -> float | None:
    """Return the mean uptime of a GPU from the pool's `failures` [h]; a slice fails with its GPU."""
    domains = plan.failures.domains if plan.failures is not None else ()
    return next((one.law.mtbf_s / SECONDS_PER_HOUR for one in domains if one.name.startswith("gpu ")), None)


def _card(pool: BoundPool) -> Gpu | None:
    """Return the whole GPU of the pool."""
    return pool.slicing.card if pool.slicing else pool.gpu


def _nameplate_w(pool: BoundPool) -> float | None:
    """Return the nameplate power of one full server at the wall [W]; None if unknown.

    It is the scenario's value, else the manufacturer's, else the sum of the parts.
    """
    if pool.power.nameplate_w is not None:
        return pool.power.nameplate_w
    if pool.server is None:
        return None
    if pool.server.max_power_w is not None:
        return pool.server.max_power_w.value
    card = _card(pool)
    if card is None or card.tdp_w is None:
        return None
    if pool.server.base_power_w is None:
        return None
    gpus_w = pool.server.gpu_slots.value * card.tdp_w.value
    return (gpus_w + pool.server.base_power_w.value) / pool.server.psu_efficiency.value


def sequence_cache(pool: BoundPool) -> SequenceCache:
    """Return the bytes of a sequence in the caches of *pool*, stored once; 0 if unknown."""
    if pool.model is not None:
        return SequenceCache.of(pool.model, pool.kv_cache_dtype)
    return SequenceCache(pool.spec.kv_bytes_per_token or 0.0)


def transfer_of(fleet: Fleet, bound: Sequence[BoundPool], catalog: Catalog) -> TransferPlan | None:
    """Return the KV transfer between the pools of *fleet*; None if no pool has a role. Raises UnknownId."""
    spec = fleet.kv_transfer
    if spec is None:
        return None
    latency_s = spec.latency_s or 0.0
    pools = tuple(PoolPorts(spec.bytes_per_s or 0.0, _engines(pool)) for pool in bound)
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
    """Return the number of engines of a replica, which share its port."""
    layout = pool.layout
    return 1 if layout.enable_expert_parallel and layout.data_parallel_size > 1 else layout.data_parallel_size


def _ports(pool: BoundPool, link: Link) -> PoolPorts:
    """Return the network ports of *pool*.

    The adapters of a server are divided evenly among its GPUs. A link that joins GPUs inside a server is a port of each
    GPU.
    """
    server, gpus, engines, rate = pool.server, pool.layout.gpus, _engines(pool), link.bulk_bytes_per_s.value
    if link.over_pcie or (server is not None and link.id == server.link):
        return PoolPorts(rate * gpus, engines)
    if server is None or server.nics is None:
        return PoolPorts(rate, engines)
    slots, nics = int(server.gpu_slots.value), int(server.nics.value)
    own = gpus * nics // slots
    return PoolPorts(rate * own, engines) if own else PoolPorts(rate, max(1, slots // (nics * gpus)) * engines)


def _within_lanes(ports: PoolPorts, pool: BoundPool, catalog: Catalog) -> PoolPorts:
    """Limit the rate of *ports* to that of the lanes of the GPUs on a port, while all GPUs of their server send."""
    most_bytes_per_s = host_bytes_per_s(pool, catalog) * pool.layout.gpus * ports.replicas_per_port
    return replace(ports, bytes_per_s=min(ports.bytes_per_s, most_bytes_per_s))


def transfer_facts(fleet: Fleet, catalog: Catalog) -> Iterator[tuple[str, Value]]:
    """Yield the path below the fleet and the value of each figure behind KV transfers."""
    if fleet.kv_transfer is None or fleet.kv_transfer.link is None:
        return
    link = catalog.link(fleet.kv_transfer.link)
    path = f"kv_transfer.link.{link.id}"
    yield f"{path}.bytes_per_s", link.bulk_bytes_per_s
    if fleet.kv_transfer.latency_s is None:
        yield f"{path}.latency_s", link.allreduce_latency_s[min(link.allreduce_latency_s)]


def start_figures(catalog: Catalog) -> ColdStartFigures:
    """Return the sourced figures of cold starts (data/coldstart.yaml)."""
    return _read_start_figures(catalog.root)


@cache
def _read_start_figures(root: Path) -> ColdStartFigures:
    return load_figures(root / "coldstart.yaml")


def start_of_pool(pool: BoundPool, memory: MemoryFit | None, catalog: Catalog) -> ReplicaStart:
    """Return the start stages of a replica of *pool*. Raises StartUnknown for a stage without a known duration."""
    spec, schedule = described_start(pool.spec), pool.spec.schedule
    if spec is not None and (memory is None or memory.fits):
        weights_bytes = memory.weights_bytes * memory.gpus if memory is not None else 0.0
        return start_of(spec, starting_replica(pool, weights_bytes, catalog), start_figures(catalog))
    return ReplicaStart(fixed_start(schedule.starting_s or 0.0 if schedule is not None else 0.0))


def described_start(pool: Pool) -> ColdStart | None:
    """Return the cold-start keys of *pool*; an autoscaled pool without them gets the defaults."""
    return ColdStart() if pool.cold_start is None and pool.autoscaling is not None else pool.cold_start


def starting_replica(pool: BoundPool, weights_bytes: float, catalog: Catalog) -> StartingReplica:
    """Return the properties of a replica of *pool* that its start time depends on."""
    peer = pool.spec.cold_start.link if pool.spec.cold_start is not None else None
    return StartingReplica(
        engine=pool.engine.id,
        layers=pool.model.layers if pool.model is not None else 0,
        gpus=pool.layout.gpus,
        weights_bytes=weights_bytes,
        host_link=host_link_of(pool.gpu, catalog),
        peer_link=catalog.link(peer) if peer is not None else None,
        lanes_bytes_per_s=host_bytes_per_s(pool, catalog) * pool.layout.gpus,
    )


DRIVE = "local_nvme"
"""Source in data/coldstart.yaml from which adapters are read by default."""


class AdapterFigures(Spec):
    """Sourced figures of LoRA adapters (data/adapters.yaml)."""

    projection_s: Value
    """Time that one adapted matrix adds to a step, beside reading the adapters and the activations."""


def adapter_figures(catalog: Catalog) -> AdapterFigures:
    """Return the sourced figures of LoRA adapters (data/adapters.yaml)."""
    return _read_adapter_figures(catalog.root)


@cache
def _read_adapter_figures(root: Path) -> AdapterFigures:
    return AdapterFigures.model_validate(read(root / "adapters.yaml").data)


def read_rate(catalog: Catalog) -> Value:
    """Return the default rate at which adapters are read from storage [B/s]."""
    drive = start_figures(catalog).weights[DRIVE]
    return drive.bytes_per_s_per_gpu or drive.source_bytes_per_s


def adapter_facts(pool: BoundPool, catalog: Catalog) -> Iterator[tuple[str, Value]]:
    """Yield the name and value of each figure behind LoRA adapters."""
    if pool.spec.lora is None or (link := host_link_of(pool.gpu, catalog)) is None:
        return
    yield "projection_s", adapter_figures(catalog).projection_s
    yield "host_bytes_per_s", link.bulk_bytes_per_s
    if pool.spec.lora.read_bytes_per_s is None:
        yield "read_bytes_per_s", read_rate(catalog)


def adapters_of(pool: BoundPool, catalog: Catalog) -> AdapterPlan | None:
    """Return the adapter slots of an engine of *pool*; None without adapters.

    An adapter is stored whole, and is copied to all GPUs of a replica at once, over separate lanes.
    """
    lora, link = pool.spec.lora, host_link_of(pool.gpu, catalog)
    if lora is None or pool.model is None or link is None:
        return None
    stored = adapter_bytes(pool.model, lora)
    rate = min(link.bulk_bytes_per_s.value, host_bytes_per_s(pool, catalog))
    fetch_s = stored / (lora.read_bytes_per_s or read_rate(catalog).value)
    swap_s = stored / pool.layout.tensor_parallel_size / rate
    return AdapterPlan(lora.max_loras, lora.in_host, swap_s, fetch_s)


def adapted(
    built: RooflineStepTime | DraftHeadStepTime | DraftModelStepTime, lora: LoraAdapters, catalog: Catalog
) -> AdapterStepTime:
    """Return *built* with the work of the adapters of *lora* added."""
    model, ranks = built.inputs.model, built.inputs.tensor_parallel_size
    rank = lora.max_lora_rank
    pairs = [(one.layers, one.inputs, one.outputs) for one in projections(model, lora)]
    work = AdapterWork(
        projections=sum(layers for layers, _, _ in pairs),
        parameters=sum(layers * rank * (inputs + outputs) for layers, inputs, outputs in pairs) / ranks,
        activations=sum(layers * (inputs + 2 * outputs + 2 * rank) for layers, inputs, outputs in pairs) / ranks,
        projection_s=adapter_figures(catalog).projection_s,
    )
    return AdapterStepTime(built, work)


def models_of(scenario: Experiment, fleet: Fleet, pool: Pool, catalog: Catalog) -> list[BoundPool]:
    """Return *pool* bound to each of its models, with the services of that model.

    The list has one entry where all services run the same model.

    Raises UnknownId (a ValueError); ValueError for a config.json that cannot be read.
    """
    groups: list[tuple[BoundPool, list[str]]] = []
    for name in pool.services:
        bound = bind(scenario, fleet, _of_services(pool, (name,)), catalog)
        alike = next((names for one, names in groups if replace(one, spec=pool) == replace(bound, spec=pool)), None)
        if alike is None:
            groups.append((bound, [name]))
        else:
            alike.append(name)
    if len(groups) == 1:
        return [replace(groups[0][0], spec=pool)]
    several = [bind(scenario, fleet, bound.spec, catalog, beside_others=True) for bound, _ in groups]
    return [
        _with_its_memory(bound, tuple(names), pool, len(groups))
        for bound, (_, names) in zip(several, groups, strict=True)
    ]


def _of_services(pool: Pool, names: tuple[str, ...]) -> Pool:
    return pool.model_copy(update={"service": None, "services": names})


def _with_its_memory(bound: BoundPool, names: tuple[str, ...], pool: Pool, models: int) -> BoundPool:
    """Return *bound* with the services *names*, and its engine's share of the memory beside other *models*."""
    batching, sharing = bound.batching, pool.sharing
    whole = getattr(batching, "gpu_memory_utilization", None)
    given = {} if sharing is None or isinstance(sharing, Swapped) else sharing.gpu_memory_utilization
    share = sum(given.get(name, 0.0) for name in names)
    if not share and whole is not None:
        share = whole - _asleep(bound, models - 1) if isinstance(sharing, Swapped) else whole / models
    filled: dict[str, float | bool] = {"gpu_memory_utilization": share} if share else {}
    for name in AHEAD_SWITCHES:
        if getattr(batching, name, None) and getattr(pool.batching, name, None) is None:
            filled[name] = False
    return replace(bound, spec=_of_services(pool, names), batching=batching.model_copy(update=filled))


def _asleep(bound: BoundPool, models: int) -> float:
    """Return the fraction of the memory that *models* sleeping models keep for their CUDA contexts."""
    if bound.gpu is None or bound.engine.memory is None:
        return 0.0
    return models * bound.engine.memory.context_bytes.value / bound.gpu.memory_bytes.value


def sleep_shortfall(bound: BoundPool, fits: list[MemoryFit | None]) -> str:
    """Compose the reason why the host cannot keep the weights of all models; empty if it can, or if unknown."""
    start, server = bound.spec.cold_start, bound.server
    keeps = isinstance(bound.spec.sharing, Swapped) and start is not None and start.sleep_level == 1
    if not keeps or server is None or server.host_memory_bytes is None:
        return ""
    needed = sum(one.weights_bytes * one.gpus for one in fits if one is not None) * bound.replicas_per_host
    has = server.host_memory_bytes.value
    return (
        ""
        if needed <= has
        else Message(
            "sleeping models need {needed:.0f} GB of host memory, {server} has {available:.0f}",
            needed / GB,
            server.id,
            has / GB,
        )
    )


def failures_of(pool: BoundPool, catalog: Catalog) -> FailurePlan | None:
    """Return the failures of *pool*; None if it has none. Raises UnknownId."""
    spec = pool.spec.failures
    if spec is None:
        return None
    laws = {
        kind: one.law(catalog.failure_rate(one.rate).mtbf_h.value if one.rate else one.mtbf_h or 0.0)
        for kind, one in spec.components.items()
    }
    racks = spec.rack.servers if spec.rack is not None else 1
    layout = layout_of(pool)
    settings = (spec.detection_s, spec.crews, spec.maintenance, spec.spares)
    return FailurePlan(domains_of(laws, layout, racks), tuple(layout.servers), *settings)


def layout_of(pool: BoundPool) -> ServerLayout:
    """Return the placement of *pool*'s replicas in servers; each has its own where no server is named."""
    gpus = pool.layout.gpus
    slots = int(pool.server.gpu_slots.value) if pool.server is not None else gpus
    return ServerLayout(pool.spec.most_replicas, gpus, max(1, slots // gpus), ceil(gpus / slots))
