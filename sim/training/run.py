"""A training job on its GPUs: time of a step, failures and checkpoints, and whether it can be done; no prices.

Expected times are those of Young and Daly. Failures of a job come at rate 1/M whatever it does. Each loses the work
since the last save and takes R until training goes on; a failure meanwhile begins the restart anew. With saves of d
seconds after every t seconds of training, Ts seconds of training take (J. T. Daly, Future Generation Computer Systems
22 (2006) 303, equation 20)

    T = M exp(R/M) (exp((t + d)/M) - 1) Ts/t

and the best t is near Young's sqrt(2 d M) (Communications of the ACM 17 (1974) 530).
"""

from dataclasses import dataclass
from math import ceil, exp, expm1, inf, isinf, sqrt

from sim.catalogue.catalog import Catalog
from sim.power import LoadLaw
from sim.scenario.resolving.bind import power_coefficients
from sim.training.bind import BoundJob, advice, bound
from sim.training.figures import peak_flops
from sim.training.network import ForwardCost
from sim.training.schema import JobFailures, JobPool, TrainingJob
from sim.training.steptime import STATE_BYTES, WEIGHT_BYTES, OptimizerStepTime, StepWork, step_work, trained_params
from sim.units import GB, HOURS_PER_YEAR, SECONDS_PER_HOUR

LARGEST_EXPONENT = 700.0
"""Beyond, a float overflows: nobody sees the end of such a job."""


@dataclass(frozen=True, slots=True)
class Interruptions:
    """What interrupts a job."""

    mtbf_s: float = inf
    """Mean time between failures of the whole job [s]."""
    save_s: float = 0.0
    restart_s: float = 0.0
    """From a failure until training goes on [s]."""


@dataclass(frozen=True, slots=True)
class Makespan:
    """Expected wall-clock time from the first step to the last [s], and where it goes."""

    training_s: float
    """Steps that count."""
    saving_s: float
    """Saves that were of use."""
    lost_s: float
    """Training and saves between the last save and a failure."""
    restarting_s: float
    failures: float
    interval_s: float
    """Training time between saves."""

    @property
    def total_s(self) -> float:
        """All of it; inf where failures come faster than the job gets on."""
        return self.training_s + self.saving_s + self.lost_s + self.restarting_s


def optimal_interval_s(save_s: float, mtbf_s: float) -> float:
    """Training time between saves that makes the job shortest (Daly, equation 37) [s]; inf where nothing fails.

    >>> round(optimal_interval_s(save_s=40.0, mtbf_s=7 * 86400.0))
    6929
    """
    if isinf(mtbf_s):
        return inf
    if save_s >= 2 * mtbf_s:
        return mtbf_s
    share = sqrt(save_s / (2 * mtbf_s))
    return sqrt(2 * save_s * mtbf_s) * (1 + share / 3 + share * share / 9) - save_s


def makespan(training_s: float, interval_s: float, stops: Interruptions) -> Makespan:
    """What *training_s* of undisturbed training take when the job saves after every *interval_s* [s]."""
    interval_s = min(interval_s, training_s)
    saving_s = stops.save_s * training_s / interval_s
    if isinf(stops.mtbf_s):
        return Makespan(training_s, saving_s, 0.0, 0.0, 0.0, interval_s)
    restart, segment = stops.restart_s / stops.mtbf_s, (interval_s + stops.save_s) / stops.mtbf_s
    if restart + segment > LARGEST_EXPONENT:
        return Makespan(training_s, saving_s, inf, 0.0, inf, interval_s)
    total_s = stops.mtbf_s * exp(restart) * expm1(segment) * training_s / interval_s
    restarting_s = -expm1(-restart) * total_s  # each of total/M failures: a restart, cut short by the next failure
    lost_s = max(0.0, total_s - training_s - saving_s - restarting_s)
    return Makespan(training_s, saving_s, lost_s, restarting_s, total_s / stops.mtbf_s, interval_s)


SAVED_BYTES = WEIGHT_BYTES + STATE_BYTES
"""Per trained parameter: weights, master weights, moments."""
ACTIVATIONS_PER_WIDTH = 18
"""Numbers in and out of the products of a transformer's layer, over its hidden size: 18 of Llama 3, 16 of GPT."""
LONGEST_YEARS = 30.0
"""Machines do not last longer."""


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """A training job on a given number of GPUs."""

    spec: TrainingJob
    bound: BoundJob
    step: OptimizerStepTime
    work: StepWork
    steps: int
    makespan: Makespan
    stops: Interruptions
    load: float
    """How hard training works a GPU, from 0 at idle power to 1 at its limit."""
    infeasible: str
    """Why it cannot be done; empty if it can."""

    @property
    def gpus(self) -> int:
        """All ranks."""
        return self.bound.job.parallel.gpus

    @property
    def mfu(self) -> float:
        """Model FLOP of a step over what the GPUs could compute meanwhile at their dense peak."""
        job = self.bound.job
        return self.work.model_flop / (self.step.step_s * self.gpus * peak_flops(job.gpu, job.precision))

    @property
    def samples_per_s(self) -> float:
        """While steps run."""
        return self.spec.global_batch / self.step.step_s

    @property
    def units_per_sample(self) -> float:
        """Tokens of a sample; 1 where samples are counted."""
        return self.bound.job.sequence if self.counts_tokens else 1.0

    @property
    def counts_tokens(self) -> bool:
        """Whether throughput is one of tokens."""
        return self.bound.job.network.is_transformer


def training_run(spec: TrainingJob, pool: JobPool, catalog: Catalog) -> TrainingRun:
    """*spec* on the GPUs of *pool*."""
    one = bound(spec, pool, catalog)
    step, work = one.step, step_work(one.job)
    steps = ceil(_samples(spec, one.job.sequence) / spec.global_batch)
    stops, training_s = _interruptions(spec, one), steps * step.step_s
    time = makespan(training_s, _interval_s(spec, stops, training_s, step.step_s), stops)
    law = LoadLaw.of(one.job.gpu, power_coefficients(catalog), activations_per_token=_activations(one.job.network))
    return TrainingRun(
        spec=spec,
        bound=one,
        step=step,
        work=work,
        steps=steps,
        makespan=time,
        stops=stops,
        load=_load(law, one, work, step.step_s) if law else 0.0,
        infeasible=_infeasible(one, time, stops, catalog),
    )


def _samples(spec: TrainingJob, sequence: float) -> float:
    return spec.samples if spec.samples is not None else (spec.tokens or 0.0) / sequence


def _interruptions(spec: TrainingJob, one: BoundJob) -> Interruptions:
    """How often something stops the job, how long a save and a restart take."""
    job, failures, saves = one.job, spec.failures or JobFailures(), spec.checkpoint
    counted = [(failures.gpu, job.parallel.gpus), (failures.node, job.nodes)]
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
    tokens_per_s = job.units * job.micro_batches / (job.parallel.tensor * job.parallel.pipeline * step_s)
    return law(compute, traffic, tokens_per_s)


def _activations(network: ForwardCost) -> float:
    """Numbers that go into and come out of a transformer's matrix products in one pass, per token.

    No watts of training were measured: the backward pass is taken to add nothing to them but its operations and bytes.
    """
    return ACTIVATIONS_PER_WIDTH * network.layers * network.hidden if network.is_transformer else 0.0


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
        often = "save at the interval optimal" if stops.save_s else "give checkpoint"
        return f"a failure every {hours:.3g} h undoes more than is done between two saves: {often}"
    return ""
