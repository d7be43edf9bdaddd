"""The replicas of a pool: how they start, which LoRA adapters and models they load, and how they fail.

A start loads weights over the links of its server, by the means of its engine. Adapters take time to load and add to a
step. Services that share a pool share its replicas' memory. Failures come from published rates, with the replicas
placed in servers and racks.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from math import ceil
from pathlib import Path

from sim.batching.sharing import Swapped
from sim.catalogue.catalog import Catalog
from sim.catalogue.value import Value
from sim.coldstart import ColdStart, Figures, Loaded, Start, at_once, load_figures, start_of
from sim.failures import Layout, domains_of
from sim.memory import Lora, MemoryFit, adapter_bytes, projections
from sim.scenario.experiment import Experiment, Fleet, Pool
from sim.scenario.resolving.bind import BoundPool, bind, host_link_of
from sim.scenario.resolving.hardware import host_bytes_per_s
from sim.scenario.resolving.resolved import AdapterPlan, FailurePlan
from sim.scenario.resolving.scheduler import AHEAD
from sim.spec import Spec
from sim.steptime import Adapted, AdapterWork, Drafting, DraftModel, RooflineStepTime
from sim.units import GB
from sim.yamlio import read


def start_figures(catalog: Catalog) -> Figures:
    """How fast replicas start: data/coldstart.yaml."""
    return _read_start_figures(catalog.root)


@cache
def _read_start_figures(root: Path) -> Figures:
    return load_figures(root / "coldstart.yaml")


def start_of_pool(pool: BoundPool, memory: MemoryFit | None, catalog: Catalog) -> Start:
    """What a replica of *pool* goes through.

    Raises StartUnknown for a part that nobody has measured.
    """
    spec, schedule = described_start(pool.spec), pool.spec.schedule
    if spec is not None and (memory is None or memory.fits):
        weights_bytes = memory.weights_bytes * memory.gpus if memory is not None else 0.0
        return start_of(spec, loaded(pool, weights_bytes, catalog), start_figures(catalog))
    return Start(at_once(schedule.starting_s or 0.0 if schedule is not None else 0.0))


def described_start(pool: Pool) -> ColdStart | None:
    """What is said of a start; of an autoscaled pool that says nothing, all is computed."""
    return ColdStart() if pool.cold_start is None and pool.autoscaling is not None else pool.cold_start


def loaded(pool: BoundPool, weights_bytes: float, catalog: Catalog) -> Loaded:
    """What a replica of *pool* is, as far as its start goes."""
    peer = pool.spec.cold_start.link if pool.spec.cold_start is not None else None
    return Loaded(
        engine=pool.engine.id,
        layers=pool.model.layers if pool.model is not None else 0,
        gpus=pool.layout.gpus,
        weights_bytes=weights_bytes,
        host_link=host_link_of(pool.gpu, catalog),
        peer_link=catalog.link(peer) if peer is not None else None,
        lanes_bytes_per_s=host_bytes_per_s(pool, catalog) * pool.layout.gpus,
    )


DRIVE = "local_nvme"
"""Of data/coldstart.yaml: where adapters are stored."""


class AdapterFigures(Spec):
    """Sourced figures of LoRA adapters: data/adapters.yaml."""

    projection_s: Value
    """What one adapted matrix adds to a step, beside reading the adapters and the activations."""


def adapter_figures(catalog: Catalog) -> AdapterFigures:
    """The figures of the catalogue."""
    return _read_adapter_figures(catalog.root)


@cache
def _read_adapter_figures(root: Path) -> AdapterFigures:
    return AdapterFigures.model_validate(read(root / "adapters.yaml").data)


def read_rate(catalog: Catalog) -> Value:
    """How fast adapters come from where they are stored, where the scenario is silent [B/s]."""
    drive = start_figures(catalog).weights[DRIVE]
    return drive.bytes_per_s_per_gpu or drive.source_bytes_per_s


def adapter_facts(pool: BoundPool, catalog: Catalog) -> Iterator[tuple[str, Value]]:
    """What adapters rest on: name and value."""
    if pool.spec.lora is None or (link := host_link_of(pool.gpu, catalog)) is None:
        return
    yield "projection_s", adapter_figures(catalog).projection_s
    yield "host_bytes_per_s", link.bulk_bytes_per_s
    if pool.spec.lora.read_bytes_per_s is None:
        yield "read_bytes_per_s", read_rate(catalog)


def adapters_of(pool: BoundPool, catalog: Catalog) -> AdapterPlan | None:
    """The slots of an engine of *pool*; None where it has none.

    An adapter is stored whole, and comes to each GPU of a replica over lanes of its own, all at once.
    """
    lora, link = pool.spec.lora, host_link_of(pool.gpu, catalog)
    if lora is None or pool.model is None or link is None:
        return None
    stored = adapter_bytes(pool.model, lora)
    rate = min(link.bulk_bytes_per_s.value, host_bytes_per_s(pool, catalog))
    fetch_s = stored / (lora.read_bytes_per_s or read_rate(catalog).value)
    swap_s = stored / pool.layout.tensor_parallel_size / rate
    return AdapterPlan(lora.max_loras, lora.in_host, swap_s, fetch_s)


def adapted(built: RooflineStepTime | Drafting | DraftModel, lora: Lora, catalog: Catalog) -> Adapted:
    """*built* with the adapters of *lora* beside it."""
    model, ranks = built.inputs.model, built.inputs.tensor_parallel_size
    rank = lora.max_lora_rank
    pairs = [(one.layers, one.inputs, one.outputs) for one in projections(model, lora)]
    work = AdapterWork(
        projections=sum(layers for layers, _, _ in pairs),
        parameters=sum(layers * rank * (inputs + outputs) for layers, inputs, outputs in pairs) / ranks,
        activations=sum(layers * (inputs + 2 * outputs + 2 * rank) for layers, inputs, outputs in pairs) / ranks,
        projection_s=adapter_figures(catalog).projection_s,
    )
    return Adapted(built, work)


def models_of(scenario: Experiment, fleet: Fleet, pool: Pool, catalog: Catalog) -> list[BoundPool]:
    """*pool* as it is with each of the models that it runs, with the services of that model; one where all services
    run the same.

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
    """*bound* with the services *names*, and the share of the memory that its engine has beside the other *models*."""
    batching, sharing = bound.batching, pool.sharing
    whole = getattr(batching, "gpu_memory_utilization", None)
    given = {} if sharing is None or isinstance(sharing, Swapped) else sharing.gpu_memory_utilization
    share = sum(given.get(name, 0.0) for name in names)
    if not share and whole is not None:
        share = whole - _asleep(bound, models - 1) if isinstance(sharing, Swapped) else whole / models
    filled: dict[str, float | bool] = {"gpu_memory_utilization": share} if share else {}
    for name in AHEAD:
        if getattr(batching, name, None) and getattr(pool.batching, name, None) is None:
            filled[name] = False
    return replace(bound, spec=_of_services(pool, names), batching=batching.model_copy(update=filled))


def _asleep(bound: BoundPool, models: int) -> float:
    """Share of the memory that *models* asleep keep: their CUDA contexts."""
    if bound.gpu is None or bound.engine.memory is None:
        return 0.0
    return models * bound.engine.memory.context_bytes.value / bound.gpu.memory_bytes.value


def why_no_sleep(bound: BoundPool, fits: list[MemoryFit | None]) -> str:
    """Why the host cannot keep the weights of all models; empty if it can, or where its memory is not known."""
    start, server = bound.spec.cold_start, bound.server
    keeps = isinstance(bound.spec.sharing, Swapped) and start is not None and start.sleep_level == 1
    if not keeps or server is None or server.host_memory_bytes is None:
        return ""
    needed = sum(one.weights_bytes * one.gpus for one in fits if one is not None) * bound.replicas_per_host
    has = server.host_memory_bytes.value
    return (
        ""
        if needed <= has
        else f"sleeping models need {needed / GB:.0f} GB of host memory, {server.id} has {has / GB:.0f}"
    )


def failures_of(pool: BoundPool, catalog: Catalog) -> FailurePlan | None:
    """What fails in *pool*; None where nothing does. Raises UnknownId."""
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


def layout_of(pool: BoundPool) -> Layout:
    """How the replicas of *pool* stand in servers: one in each where no server is named."""
    gpus = pool.layout.gpus
    slots = int(pool.server.gpu_slots.value) if pool.server is not None else gpus
    return Layout(pool.spec.most_replicas, gpus, max(1, slots // gpus), ceil(gpus / slots))
