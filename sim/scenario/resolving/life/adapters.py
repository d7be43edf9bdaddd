"""LoRA adapters of a pool: what they add to a step, and how long they take to come."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from sim.catalogue.catalog import Catalog
from sim.catalogue.value import Value
from sim.memory import Lora, adapter_bytes, projections
from sim.scenario.resolving.bind import BoundPool
from sim.scenario.resolving.hardware.wiring import host_bytes_per_s
from sim.scenario.resolving.life.starting import start_figures
from sim.scenario.resolving.offload import host_link_of
from sim.scenario.resolving.resolved import AdapterPlan
from sim.spec import Spec
from sim.steptime import Adapted, AdapterWork, Drafting, DraftModel, RooflineStepTime
from sim.yamlio import read

DRIVE = "local_nvme"
"""Of data/coldstart.yaml: where adapters are stored."""


class AdapterFigures(Spec):
    """Sourced figures of LoRA adapters: data/adapters.yaml."""

    projection_s: Value
    """What one adapted matrix adds to a step, beside reading the adapters and the activations."""


def adapter_figures(catalog: Catalog) -> AdapterFigures:
    """The figures of the catalogue."""
    return _figures(catalog.root)


@cache
def _figures(root: Path) -> AdapterFigures:
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
