"""Resolved plan of a training job on one fleet at one sweep point.

Contains the pool of GPUs with its servers, power and cost, the sourced values behind time, memory, energy and cost,
and the plan as plain data for resolved.yaml, `gpufleet check` and the report.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import ceil
from typing import Any

from sim.catalogue.catalog import Catalog
from sim.catalogue.value import Value
from sim.cost.carbon import CarbonPlan
from sim.cost.clock import SiteClock
from sim.cost.cost_plan import CostPlan
from sim.cost.hardware import PoolFacts, servers_needed
from sim.power import PoolPower, Power, pool_power
from sim.scenario.resolving.bind import power_coefficients
from sim.scenario.resolving.describe import charges_of, sources_of, values_of
from sim.scenario.resolving.resolve import cost_facts
from sim.scenario.resolving.resolved import Fact
from sim.scenario.resolving.terms import FleetTerms, Machines
from sim.spec import Spec
from sim.training.bind import BoundJob, JobHardware, job_figures
from sim.training.figures import needs_new_kernels
from sim.training.job import OptimizerStep
from sim.training.run import TrainingRun, training_run
from sim.training.schema import JobFleet, JobScenario, WorkScenario
from sim.units import GB


@dataclass(frozen=True, slots=True)
class PoolOfJobs:
    """GPUs of one kind with their servers, power, cost and emissions."""

    name: str
    gpu: str
    server: str
    gpus: int
    servers: int
    """Number of whole servers that the GPUs fill; 0 without a server."""
    power: PoolPower | None
    costs: CostPlan | None
    carbon: CarbonPlan | None
    clock: SiteClock | None
    pue: float
    """Power usage effectiveness of the site."""
    by_height: bool
    """True if the cost depends on the height of servers."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on cost and emissions for the reader of the results."""
        return (*(self.costs.notes if self.costs else ()), *(self.carbon.notes if self.carbon else ()))


def pool_of_jobs(
    scenario: WorkScenario, fleet: JobFleet, hardware: JobHardware, gpus: int, catalog: Catalog
) -> PoolOfJobs:
    """Resolve the pool of *fleet* with *gpus* GPUs.

    Raises
    ------
    CostError
        Prices are missing; the message lists all of them.

    """
    pool, server, gpu = fleet.pools[0], hardware.server, hardware.gpu
    cost, power = pool.cost or fleet.cost, pool.power or Power()
    servers_paid = servers_needed(gpus, int(server.gpu_slots.value), cost is not None and cost.share) if server else 0.0
    facts = PoolFacts(
        pool.name or gpu.id,
        gpu.id,
        gpus,
        1,
        server,
        nameplate_w=_nameplate_w(hardware, power),
        gpu_tdp_w=gpu.tdp_w.value if gpu.tdp_w else None,
    )
    terms, machines = _terms(scenario, fleet), Machines((facts,), servers_paid)
    return PoolOfJobs(
        name=facts.name,
        gpu=gpu.id,
        server=facts.server_id,
        gpus=gpus,
        servers=ceil(servers_paid),
        power=pool_power(power, gpu, power_coefficients(catalog), gpus, server, servers_paid),
        costs=terms.costs(machines, catalog),
        carbon=terms.carbon_plan(machines, catalog),
        clock=terms.clock,
        pue=terms.facility_factor,
        by_height=terms.by_height,
    )


def clock_of(scenario: WorkScenario, fleet: JobFleet) -> SiteClock | None:
    """Return the local time at the site of *fleet*, or None without `starts_at`. Raises ClockError."""
    return _terms(scenario, fleet).clock


def _terms(scenario: WorkScenario, fleet: JobFleet) -> FleetTerms:
    """Return the cost terms of *fleet*: its own sections, else the scenario's."""
    return FleetTerms(
        cost=fleet.cost,
        own_costs=tuple(pool.cost for pool in fleet.pools),
        site=fleet.site or scenario.site,
        finance=fleet.finance or scenario.finance,
        operations=fleet.operations or scenario.operations,
        api=None,
        carbon=fleet.carbon or scenario.carbon,
        starts_at=scenario.starts_at,
    )


def _nameplate_w(hardware: JobHardware, power: Power) -> float | None:
    """Return the wall power of a server with all GPU slots filled [W]; None if not known."""
    server, tdp = hardware.server, hardware.gpu.tdp_w
    if power.nameplate_w is not None or server is None:
        return power.nameplate_w
    if server.max_power_w is not None:
        return server.max_power_w.value
    if tdp is None or server.base_power_w is None:
        return None
    return (server.gpu_slots.value * tdp.value + server.base_power_w.value) / server.psu_efficiency.value


RATES = {"fp32": "fp32_flops", "tf32": "tf32_flops", "fp8": "fp8_flops", "nvfp4": "fp4_flops"}


def hardware_facts(prefix: str, hardware: JobHardware, pool: PoolOfJobs, catalog: Catalog) -> Iterator[Fact]:
    """Yield the sourced values of power and cost; *prefix* names the fleet."""
    place, gpu = f"{prefix}.pools.0", hardware.gpu
    idle = "loaded_idle_w" if gpu.loaded_idle_w is not None else "idle_w"
    yield from _values(f"{place}.gpu", gpu, ("tdp_w", idle))
    if hardware.server is not None:
        names = ["gpu_slots", "base_power_w", "max_power_w", "psu_efficiency", *(["rack_units"] * pool.by_height)]
        yield from _values(f"{place}.server", hardware.server, names)
    yield from cost_facts(f"{prefix}.cost", pool.costs)
    if pool.carbon is not None and pool.carbon.grid is not None:
        yield Fact(f"carbon.grid.{pool.carbon.grid.id}.g_per_kwh", pool.carbon.grid.g_per_kwh)


def training_facts(prefix: str, one: BoundJob, hardware: JobHardware, catalog: Catalog) -> Iterator[Fact]:
    """Yield the sourced values of step time, memory and GPU load; *prefix* names the fleet."""
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
    """Yield the fitted figures of card, framework, link and network."""
    data, kernels, job = job_figures(catalog).data, job_figures(catalog).kernels, one.job
    efficiency, figures = kernels.efficiency(job.gpu), data.figures
    yield Fact(f"{place}.steptime.compute", efficiency.compute)
    yield Fact(f"{place}.steptime.memory", efficiency.memory)
    older = data.stacks[one.framework].older_attention and needs_new_kernels(job.gpu)
    yield from _values(f"{place}.training", figures, _shared(job, older))
    other = "compute_time_factor" if job.network.convolutional else "convolution_time_factor"
    card = figures.gpu(job.gpu)
    yield from _values(f"{place}.training.gpu", card, [name for name in type(card).model_fields if name != other])
    yield from _values(f"{place}.training.{one.framework}", figures.stacks[one.framework])
    if job.parallel.gpus > 1:
        yield Fact(f"{place}.training.link.{job.link.id}", figures.link_factor(job.link))
    if (own := figures.networks.get(job.network.id)) is not None:
        yield from _values(f"{place}.training.network", own)
    if (trained := data.networks.get(job.network.id)) is not None:
        yield from _values(f"job.model.{job.network.id}", trained)


def _shared(job: OptimizerStep, older: bool) -> list[str]:
    """Return the figures of every card and framework that *job* uses; *older*: its attention kernels are Ampere's."""
    network, wide = job.network, job.precision in ("fp32", "tf32")
    used = {
        "gemm_exponent": True,
        "attention_time_factor": network.attention_width > 0,
        "older_attention_time_factor": older and network.attention_width > 0,
        "recompute_share": job.recompute == "full" or (job.recompute == "selective" and network.attention_width > 0),
        "fp32_time_factor": wide,
        "fp8_time_factor": job.precision == "fp8",
        "fp4_time_factor": job.precision == "nvfp4",
        "expert_time_factor": network.expert_flop > 0,
        "expert_exposed_share": network.routed_copies > 0 and job.parallel.expert > 1,
        "network_efficiency": job.nodes > 1,
    }
    return [name for name, has in used.items() if has]


def _values(prefix: str, spec: Spec, names: Iterable[str] = ()) -> Iterator[Fact]:
    for name in dict.fromkeys(names or type(spec).model_fields):
        value = getattr(spec, name)
        if isinstance(value, Value):
            yield Fact(f"{prefix}.{name}", value)


@dataclass(frozen=True, slots=True)
class JobPlan:
    """Resolved training job on one fleet at one sweep point."""

    fleet: str
    axes: dict[str, Any]
    """Values of the sweep axes, keyed by axis."""
    run: TrainingRun
    pool: PoolOfJobs
    facts: tuple[Fact, ...]

    @property
    def infeasible(self) -> str:
        """Reason why the job cannot run on this fleet; empty if it can."""
        return self.run.infeasible


def resolve_job(scenario: JobScenario, fleet: JobFleet, axes: dict[str, Any], catalog: Catalog) -> JobPlan:
    """Resolve the job of *scenario* on *fleet*.

    Raises
    ------
    CostError
        Prices are missing; the message lists all of them.

    """
    hardware = JobHardware.of(fleet.pools[0], catalog)
    run = training_run(scenario.job, fleet.pools[0], catalog)
    pool = pool_of_jobs(scenario, fleet, hardware, run.gpus, catalog)
    prefix = f"fleets.{fleet.name}"
    facts = [*hardware_facts(prefix, hardware, pool, catalog), *training_facts(prefix, run.bound, hardware, catalog)]
    return JobPlan(fleet.name, axes, run, pool, tuple(dict.fromkeys(facts)))


PARTS = ("weights", "gradients", "states", "activations", "logits", "reserve", "total")


def described_pool(pool: PoolOfJobs) -> dict[str, Any]:
    """Return GPUs, servers and peak power of *pool* as plain data."""
    return {
        "name": pool.name,
        "gpu": pool.gpu,
        "gpus": pool.gpus,
        "server": pool.server,
        "servers": pool.servers,
        "peak_w": pool.power.peak_w if pool.power else None,
    }


def describe_job(plan: JobPlan, catalog: Catalog) -> dict[str, Any]:
    """Return the plan as plain data: settings, memory, catalogue values with their origin, and sources."""
    job, memory = plan.run.bound.job, plan.run.bound.memory
    values = values_of(plan.fleet, plan.facts, plan.pool.costs, plan.pool.carbon, catalog)
    return {
        "fleet": plan.fleet,
        "job": plan.run.spec.model_dump(mode="json", exclude_none=True, exclude={"parallel"}),
        "infeasible": plan.infeasible,
        "notes": list(plan.pool.notes),
        "pool": {
            **described_pool(plan.pool),
            "gpus_per_node": job.gpus_per_node,
            "link": job.link.id,
            "network_bytes_per_s": job.node_bytes_per_s or None,
        },
        "parallel": {
            "dp": job.parallel.data,
            "tp": job.parallel.tensor,
            "pp": job.parallel.pipeline,
            "cp": job.parallel.context,
            "ep": job.parallel.expert,
            "virtual_stages": job.parallel.virtual_stages,
            "zero": job.parallel.zero,
            "sequence_parallel": job.parallel.sequence,
            "recompute": job.recompute,
            "micro_batch": job.micro_batch,
            "micro_batches": job.micro_batches,
        },
        "precision": job.precision,
        "framework": plan.run.bound.framework,
        "steps": plan.run.steps,
        "mtbf_h": None if not plan.run.makespan.failures else plan.run.interruptions.mtbf_s / 3600,
        "save_s": plan.run.interruptions.save_s or None,
        "restart_s": plan.run.interruptions.restart_s or None,
        "memory_gb_per_gpu": {name: round(getattr(memory, f"{name}_bytes") / GB, 3) for name in PARTS}
        | {"available": round(job.gpu.memory_bytes.value / GB, 3)},
        "capex_usd": plan.pool.costs.capex_usd if plan.pool.costs else None,
        "charges": charges_of(plan.pool.costs),
        "values": values,
        "sources": sources_of(values, catalog),
    }
