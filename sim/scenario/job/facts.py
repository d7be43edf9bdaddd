"""The sourced values that a job's times, memory, energy and money rest on."""

from collections.abc import Iterator

from sim.catalogue.catalog import Catalog
from sim.catalogue.value import Value
from sim.cost import CarbonPlan, CostPlan
from sim.scenario.job.bind import BoundJob, Hardware, job_figures
from sim.scenario.resolving.bind import power_coefficients
from sim.scenario.resolving.facts import cost_facts
from sim.scenario.resolving.resolved import Fact
from sim.spec import Spec

RATES = {"fp32": "fp32_flops", "tf32": "tf32_flops", "fp8": "fp8_flops", "nvfp4": "fp4_flops"}
SHARED = ("gemm_exponent", "attention_time_factor", "recompute_share", "network_efficiency")
"""Fitted figures that every job rests on, the last where it has a network."""


def facts_of(
    prefix: str,
    one: BoundJob,
    hardware: Hardware,
    costs: CostPlan | None,
    carbon: CarbonPlan | None,
    catalog: Catalog,
    by_height: bool,
) -> Iterator[Fact]:
    """Everything that stands in the catalogue; *prefix* names the fleet."""
    pool, gpu = f"{prefix}.pools.0", hardware.gpu
    rate = RATES.get(one.job.precision, "fp16_flops")
    idle = "loaded_idle_w" if gpu.loaded_idle_w is not None else "idle_w"
    yield from _values(f"{pool}.gpu", gpu, ("memory_bytes", "memory_bytes_per_s", "fp16_flops", rate, "tdp_w", idle))
    if one.job.parallel.gpus > 1:
        yield from _values(f"{pool}.link", hardware.link, ("theoretical_bytes_per_s", "measured_bytes_per_s"))
    if hardware.network is not None:
        yield from _values(f"{pool}.network", hardware.network, ("theoretical_bytes_per_s",))
    if hardware.server is not None:
        names = ["gpu_slots", "base_power_w", "max_power_w", "psu_efficiency", *(["rack_units"] if by_height else [])]
        yield from _values(f"{pool}.server", hardware.server, names)
    yield from _training(pool, one, catalog)
    if gpu.tdp_w is not None:
        power = power_coefficients(catalog)
        yield from _values(f"{pool}.power", power, ("per_flop_j", "per_byte_j", "per_byte_growth"))
    yield from cost_facts(f"{prefix}.cost", costs)
    if carbon is not None and carbon.grid is not None:
        yield Fact(f"carbon.grid.{carbon.grid.id}.g_per_kwh", carbon.grid.g_per_kwh)


def _training(pool: str, one: BoundJob, catalog: Catalog) -> Iterator[Fact]:
    """Fitted figures of card, framework, link and network."""
    data, kernels, job = job_figures(catalog).data, job_figures(catalog).kernels, one.job
    efficiency = kernels.efficiency(job.gpu)
    yield Fact(f"{pool}.steptime.compute", efficiency.compute)
    yield Fact(f"{pool}.steptime.memory", efficiency.memory)
    figures = data.figures
    yield from _values(f"{pool}.training", figures, SHARED if job.nodes > 1 else SHARED[:-1])
    yield from _values(f"{pool}.training.gpu", figures.gpu(job.gpu))
    yield from _values(f"{pool}.training.{one.framework}", figures.stacks[one.framework])
    if job.parallel.gpus > 1:
        yield Fact(f"{pool}.training.link.{job.link.id}", figures.link_factor(job.link))
    if (own := figures.networks.get(job.network.id)) is not None:
        yield from _values(f"{pool}.training.network", own)
    if (trained := data.networks.get(job.network.id)) is not None:
        yield from _values(f"job.model.{job.network.id}", trained)


def _values(prefix: str, spec: Spec, names: tuple[str, ...] | list[str] = ()) -> Iterator[Fact]:
    for name in dict.fromkeys(names or type(spec).model_fields):
        value = getattr(spec, name)
        if isinstance(value, Value):
            yield Fact(f"{prefix}.{name}", value)
