"""The sourced values that jobs' times, memory, energy and money rest on."""

from collections.abc import Iterable, Iterator

from sim.catalogue.catalog import Catalog
from sim.catalogue.value import Value
from sim.scenario.job.bind import BoundJob, Hardware, job_figures
from sim.scenario.job.pool import PoolOfJobs
from sim.scenario.resolving.bind import power_coefficients
from sim.scenario.resolving.facts import cost_facts
from sim.scenario.resolving.resolved import Fact
from sim.spec import Spec

RATES = {"fp32": "fp32_flops", "tf32": "tf32_flops", "fp8": "fp8_flops", "nvfp4": "fp4_flops"}
SHARED = ("gemm_exponent", "attention_time_factor", "recompute_share", "network_efficiency")
"""Fitted figures that every job rests on, the last where it has a network."""


def hardware_facts(prefix: str, hardware: Hardware, pool: PoolOfJobs, catalog: Catalog) -> Iterator[Fact]:
    """Of power and money; *prefix* names the fleet."""
    place, gpu = f"{prefix}.pools.0", hardware.gpu
    idle = "loaded_idle_w" if gpu.loaded_idle_w is not None else "idle_w"
    yield from _values(f"{place}.gpu", gpu, ("tdp_w", idle))
    if hardware.server is not None:
        names = ["gpu_slots", "base_power_w", "max_power_w", "psu_efficiency", *(["rack_units"] * pool.by_height)]
        yield from _values(f"{place}.server", hardware.server, names)
    yield from cost_facts(f"{prefix}.cost", pool.costs)
    if pool.carbon is not None and pool.carbon.grid is not None:
        yield Fact(f"carbon.grid.{pool.carbon.grid.id}.g_per_kwh", pool.carbon.grid.g_per_kwh)


def training_facts(prefix: str, one: BoundJob, hardware: Hardware, catalog: Catalog) -> Iterator[Fact]:
    """Of the time of a step, of memory and of the load on the GPUs."""
    place, gpu, job = f"{prefix}.pools.0", hardware.gpu, one.job
    rate = RATES.get(job.precision, "fp16_flops")
    yield from _values(f"{place}.gpu", gpu, ("memory_bytes", "memory_bytes_per_s", "fp16_flops", rate))
    if job.parallel.gpus > 1:
        yield from _values(f"{place}.link", hardware.link, ("theoretical_bytes_per_s", "measured_bytes_per_s"))
    if hardware.network is not None:
        yield from _values(f"{place}.network", hardware.network, ("theoretical_bytes_per_s",))
    yield from _fitted(place, one, catalog)
    if gpu.tdp_w is not None:
        power = power_coefficients(catalog)
        yield from _values(f"{place}.power", power, ("computing", "per_byte_j", "per_activation_j"))
        yield Fact(f"{place}.power.running", power.running_of(gpu))


def _fitted(place: str, one: BoundJob, catalog: Catalog) -> Iterator[Fact]:
    """Fitted figures of card, framework, link and network."""
    data, kernels, job = job_figures(catalog).data, job_figures(catalog).kernels, one.job
    efficiency, figures = kernels.efficiency(job.gpu), data.figures
    yield Fact(f"{place}.steptime.compute", efficiency.compute)
    yield Fact(f"{place}.steptime.memory", efficiency.memory)
    yield from _values(f"{place}.training", figures, SHARED if job.nodes > 1 else SHARED[:-1])
    yield from _values(f"{place}.training.gpu", figures.gpu(job.gpu))
    yield from _values(f"{place}.training.{one.framework}", figures.stacks[one.framework])
    if job.parallel.gpus > 1:
        yield Fact(f"{place}.training.link.{job.link.id}", figures.link_factor(job.link))
    if (own := figures.networks.get(job.network.id)) is not None:
        yield from _values(f"{place}.training.network", own)
    if (trained := data.networks.get(job.network.id)) is not None:
        yield from _values(f"job.model.{job.network.id}", trained)


def _values(prefix: str, spec: Spec, names: Iterable[str] = ()) -> Iterator[Fact]:
    for name in dict.fromkeys(names or type(spec).model_fields):
        value = getattr(spec, name)
        if isinstance(value, Value):
            yield Fact(f"{prefix}.{name}", value)
