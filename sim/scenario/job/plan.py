"""What a job on one fleet at one sweep point comes to once every id is a sourced value."""

from dataclasses import dataclass
from math import ceil, inf
from typing import Any

from sim.catalogue.catalog import Catalog
from sim.cost import CarbonPlan, Clock, CostPlan, PoolFacts
from sim.cost.hardware import boxes_needed
from sim.power import LoadLaw, PoolPower, Power, pool_power
from sim.scenario.job.bind import BoundJob, Hardware, advice, bound
from sim.scenario.job.facts import facts_of
from sim.scenario.job.schema import Failures, JobFleet, JobScenario, TrainingJob
from sim.scenario.resolving.bind import power_coefficients
from sim.scenario.resolving.resolved import Fact
from sim.scenario.resolving.terms import FleetTerms, Machines
from sim.training.interruptions import Interruptions, Makespan, makespan, optimal_interval_s
from sim.training.setting import peak_flops
from sim.training.steptime import STATE_BYTES, WEIGHT_BYTES, StepTime, trained_params
from sim.training.work import StepWork, step_work
from sim.units import GB, HOURS_PER_YEAR, SECONDS_PER_HOUR

SAVED_BYTES = WEIGHT_BYTES + STATE_BYTES
"""Per trained parameter: weights, master weights, moments."""
LONGEST_YEARS = 30.0
"""Machines do not last longer."""


@dataclass(frozen=True, slots=True)
class JobPlan:
    """A job on one fleet."""

    fleet: str
    axes: dict[str, Any]
    """Sweep axis -> value."""
    pool: str
    gpu: str
    server: str
    gpus: int
    servers: int
    """Whole ones that the GPUs fill; 0 without a server."""
    spec: TrainingJob
    bound: BoundJob
    step: StepTime
    work: StepWork
    steps: int
    peak_flops: float
    """Of one GPU, dense, in the job's precision [FLOP/s]."""
    makespan: Makespan
    stops: Interruptions
    power: PoolPower | None
    load: float
    """How hard training works a GPU, from 0 at idle power to 1 at its limit."""
    costs: CostPlan | None
    carbon: CarbonPlan | None
    clock: Clock | None
    pue: float
    infeasible: str
    """Why it cannot be done here; empty if it can."""
    facts: tuple[Fact, ...]

    @property
    def mfu(self) -> float:
        """Model FLOP of a step over what the GPUs could compute meanwhile at their dense peak."""
        return self.work.model_flop / (self.step.step_s * self.gpus * self.peak_flops)

    @property
    def samples_per_s(self) -> float:
        """While steps run."""
        return self.spec.global_batch / self.step.step_s

    @property
    def units_per_sample(self) -> float:
        """Tokens of a sample; 1 where samples are counted."""
        job = self.bound.job
        return job.sequence if self.counts_tokens else 1.0

    @property
    def counts_tokens(self) -> bool:
        """Whether throughput is one of tokens."""
        return self.bound.job.network.is_transformer


def resolve_job(scenario: JobScenario, fleet: JobFleet, axes: dict[str, Any], catalog: Catalog) -> JobPlan:
    """The plan of *scenario*'s job on *fleet*. Raises CostError with every price that is missing."""
    spec, pool = scenario.job, fleet.pools[0]
    hardware, one = Hardware.of(pool, catalog), bound(spec, pool, catalog)
    job, step, work = one.job, one.step, step_work(one.job)
    gpus, server = job.parallel.gpus, hardware.server
    cost = pool.cost or fleet.cost
    boxes = boxes_needed(gpus, int(server.gpu_slots.value), cost is not None and cost.share) if server else 0.0
    power = pool.power or Power()
    coefficients = power_coefficients(catalog)
    facts = PoolFacts(
        pool.name or hardware.gpu.id,
        hardware.gpu.id,
        gpus,
        1,
        server,
        nameplate_w=_nameplate_w(hardware, power),
        gpu_tdp_w=hardware.gpu.tdp_w.value if hardware.gpu.tdp_w else None,
    )
    terms = terms_of(scenario, fleet)
    machines = Machines((facts,), boxes)
    costs, carbon = terms.costs(machines, catalog), terms.carbon_plan(machines, catalog)
    steps = ceil(_samples(spec, job.sequence) / spec.global_batch)
    stops = _interruptions(spec, one, gpus)
    time = makespan(steps * step.step_s, _interval_s(spec, stops, steps * step.step_s, step.step_s), stops)
    law = LoadLaw.of(hardware.gpu, coefficients)
    return JobPlan(
        fleet=fleet.name,
        axes=axes,
        pool=facts.name,
        gpu=hardware.gpu.id,
        server=server.id if server else "",
        gpus=gpus,
        servers=ceil(boxes),
        spec=spec,
        bound=one,
        step=step,
        work=work,
        steps=steps,
        peak_flops=peak_flops(hardware.gpu, job.precision),
        makespan=time,
        stops=stops,
        power=pool_power(power, hardware.gpu, coefficients, gpus, server, boxes),
        load=_load(law, one, work, step.step_s) if law else 0.0,
        costs=costs,
        carbon=carbon,
        clock=terms.clock,
        pue=terms.facility_factor,
        infeasible=_infeasible(one, time, stops, catalog),
        facts=tuple(facts_of(f"fleets.{fleet.name}", one, hardware, costs, carbon, catalog, terms.by_height)),
    )


def terms_of(scenario: JobScenario, fleet: JobFleet) -> FleetTerms:
    """What is paid for *fleet*: its own sections, else the scenario's."""
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


def _samples(spec: TrainingJob, sequence: float) -> float:
    return spec.samples if spec.samples is not None else (spec.tokens or 0.0) / sequence


def _interruptions(spec: TrainingJob, one: BoundJob, gpus: int) -> Interruptions:
    """How often something stops the job, how long a save and a restart take."""
    job, failures, saves = one.job, spec.failures or Failures(), spec.checkpoint
    counted = [(failures.gpu, gpus), (failures.node, job.nodes)]
    rates = [(count / part.mtbf_h, part.repair_h) for part, count in counted if part is not None]
    rate_per_h = sum(rate for rate, _ in rates)
    repair_h = sum(rate * repair for rate, repair in rates) / rate_per_h if rate_per_h else 0.0
    saved_bytes = trained_params(job) * SAVED_BYTES
    transfer_s = saved_bytes / saves.bytes_per_s if saves and saves.bytes_per_s else 0.0
    save_s = (saves.save_s or transfer_s) if saves else 0.0
    return Interruptions(
        mtbf_s=SECONDS_PER_HOUR / rate_per_h if rate_per_h else inf,
        save_s=save_s,
        restart_s=repair_h * SECONDS_PER_HOUR + (saves.restart_s + transfer_s if saves else 0.0),
    )


def _interval_s(spec: TrainingJob, stops: Interruptions, training_s: float, step_s: float) -> float:
    """Training time between saves: whole steps at least; without checkpoints the whole job."""
    if spec.checkpoint is None:
        return training_s
    if spec.checkpoint.interval_s != "optimal":
        return max(step_s, spec.checkpoint.interval_s)
    return max(step_s, optimal_interval_s(stops.save_s, stops.mtbf_s))


def _load(law: LoadLaw, one: BoundJob, work: StepWork, step_s: float) -> float:
    job = one.job
    compute = work.gpu_flop / (peak_flops(job.gpu, job.precision) * step_s)
    traffic = work.gpu_bytes / (job.gpu.memory_bytes_per_s.value * step_s)
    return law(compute, traffic, max(1, round(job.units)))


def _nameplate_w(hardware: Hardware, power: Power) -> float | None:
    """One server with all slots filled, at the wall [W]."""
    server, tdp = hardware.server, hardware.gpu.tdp_w
    if power.nameplate_w is not None or server is None:
        return power.nameplate_w
    if server.max_power_w is not None:
        return server.max_power_w.value
    if tdp is None or server.base_power_w is None:
        return None
    return (server.gpu_slots.value * tdp.value + server.base_power_w.value) / server.psu_efficiency.value


def _infeasible(one: BoundJob, time: Makespan, stops: Interruptions, catalog: Catalog) -> str:
    held, memory = one.job.gpu.memory_bytes.value, one.memory
    if not one.fits:
        parts = {
            "weights": memory.weights_bytes,
            "gradients": memory.gradients_bytes,
            "optimizer states": memory.states_bytes,
            "activations": memory.activations_bytes + memory.logits_bytes,
            "reserve": memory.reserve_bytes,
        }
        told = ", ".join(f"{name} {size / GB:.3g}" for name, size in parts.items())
        needs = f"needs {memory.total_bytes / GB:.3g} GB of memory on each GPU ({told}), it has {held / GB:.3g}"
        return f"{needs}; {advice(one, catalog)}"
    if time.training_s > LONGEST_YEARS * HOURS_PER_YEAR * SECONDS_PER_HOUR:
        years = time.training_s / SECONDS_PER_HOUR / HOURS_PER_YEAR
        return f"takes {years:.3g} years without any failure: give it more GPUs, or less to train on"
    if time.total_s == inf:
        hours = stops.mtbf_s / SECONDS_PER_HOUR
        return f"a failure every {hours:.3g} h undoes more than is done between two saves: give job.checkpoint"
    return ""
