"""Training job on given GPUs: step time, failures, checkpoints and feasibility, without prices.

Expected times follow Young and Daly. Failures of the job occur at a constant rate 1/M. Each loses the work since the
last save and delays training by R; a failure during a restart starts the restart anew. With saves of d seconds after
every t seconds of training, Ts seconds of training need (J. T. Daly, Future Generation Computer Systems 22 (2006) 303,
equation 20)

    T = M exp(R/M) (exp((t + d)/M) - 1) Ts/t

and the best t is near Young's sqrt(2 d M) (Communications of the ACM 17 (1974) 530).
"""

from dataclasses import dataclass
from math import ceil, exp, expm1, inf, isinf, sqrt

from sim.catalogue.catalog import Catalog
from sim.message import Message, joined
from sim.power import load_law
from sim.records import LoadLaw
from sim.scenario.resolving.bind import power_coefficients
from sim.training.bind import BoundJob, advice, bind_job
from sim.training.figures import peak_flops
from sim.training.network import ForwardCost
from sim.training.schema import JobFailures, JobPool, TrainingJob
from sim.training.steptime import STATE_BYTES, WEIGHT_BYTES, OptimizerStepTime, StepWork, step_work, trained_params
from sim.units import GB, HOURS_PER_YEAR, SECONDS_PER_HOUR

LARGEST_EXPONENT = 700.0
"""Largest exponent before a float overflows; the makespan of such a job is infinite."""


@dataclass(frozen=True, slots=True)
class Interruptions:
    """Failure interval of a job and durations of its saves and restarts [s]."""

    mtbf_s: float = inf
    """Mean time between failures of the whole job [s]."""
    save_s: float = 0.0
    restart_s: float = 0.0
    """Time from a failure until training continues [s]."""


@dataclass(frozen=True, slots=True)
class Makespan:
    """Expected wall-clock time from the first step to the last, by use [s]."""

    training_s: float
    """Time of steps that are not lost [s]."""
    saving_s: float
    """Time of saves that are not lost [s]."""
    lost_s: float
    """Time of training and saves between the last save and a failure [s]."""
    restarting_s: float
    failures: float
    """Expected number of failures."""
    interval_s: float
    """Training time between saves [s]."""

    @property
    def total_s(self) -> float:
        """Total time [s]; inf if failures outpace progress."""
        return self.training_s + self.saving_s + self.lost_s + self.restarting_s


def optimal_interval_s(save_s: float, mtbf_s: float) -> float:
    """Return the training time between saves that minimises the makespan [s]; inf without failures.

    References
    ----------
    .. [1] J. T. Daly, Future Generation Computer Systems 22 (2006) 303, equation 37.

    Examples
    --------
    >>> round(optimal_interval_s(save_s=40.0, mtbf_s=7 * 86400.0))
    6929

    """
    if isinf(mtbf_s):
        return inf
    if save_s >= 2 * mtbf_s:
        return mtbf_s
    share = sqrt(save_s / (2 * mtbf_s))
    return sqrt(2 * save_s * mtbf_s) * (1 + share / 3 + share * share / 9) - save_s


def makespan(training_s: float, interval_s: float, interruptions: Interruptions) -> Makespan:
    """Return the expected makespan of a job with failures and saves.

    Parameters
    ----------
    training_s
        Training time without interruptions [s].
    interval_s
        Training time between saves [s].
    interruptions
        Failure interval, and durations of a save and a restart.

    Notes
    -----
    Equation 20 of Daly (2006), see the module's docstring.

    """
    interval_s = min(interval_s, training_s)
    saving_s = interruptions.save_s * training_s / interval_s
    if isinf(interruptions.mtbf_s):
        return Makespan(training_s, saving_s, 0.0, 0.0, 0.0, interval_s)
    restart, segment = (
        interruptions.restart_s / interruptions.mtbf_s,
        (interval_s + interruptions.save_s) / interruptions.mtbf_s,
    )
    if restart + segment > LARGEST_EXPONENT:
        return Makespan(training_s, saving_s, inf, 0.0, inf, interval_s)
    total_s = interruptions.mtbf_s * exp(restart) * expm1(segment) * training_s / interval_s
    # total/M failures, each followed by a restart that the next failure may cut short
    restarting_s = -expm1(-restart) * total_s
    lost_s = max(0.0, total_s - training_s - saving_s - restarting_s)
    return Makespan(training_s, saving_s, lost_s, restarting_s, total_s / interruptions.mtbf_s, interval_s)


SAVED_BYTES = WEIGHT_BYTES + STATE_BYTES
"""Checkpoint bytes per trained parameter: weight, master weight and moments."""
ACTIVATIONS_PER_WIDTH = 18
"""Inputs and outputs of the matrix products of a transformer layer per hidden unit (Llama 3: 18, GPT: 16)."""
LONGEST_YEARS = 30.0
"""Longest job without failures that is considered feasible [years]."""


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """Training job on a given number of GPUs, with step time, makespan and GPU load."""

    spec: TrainingJob
    bound: BoundJob
    step: OptimizerStepTime
    work: StepWork
    steps: int
    makespan: Makespan
    interruptions: Interruptions
    load: float
    """Load that training puts on a GPU, from 0 (idle power) to 1 (power limit)."""
    infeasible: str
    """Reason why the job cannot run; empty if it can."""

    @property
    def gpus(self) -> int:
        """Number of GPUs."""
        return self.bound.job.parallel.gpus

    @property
    def mfu(self) -> float:
        """Model FLOP utilisation: FLOP that the model needs per step, relative to the GPUs' dense peak."""
        job = self.bound.job
        return self.work.model_flop / (self.step.step_s * self.gpus * peak_flops(job.gpu, job.precision))

    @property
    def samples_per_s(self) -> float:
        """Throughput while steps run [samples/s]."""
        return self.spec.global_batch / self.step.step_s

    @property
    def units_per_sample(self) -> float:
        """Tokens per sample; 1 if throughput is counted in samples."""
        return self.bound.job.sequence if self.counts_tokens else 1.0

    @property
    def counts_tokens(self) -> bool:
        """True if throughput is counted in tokens."""
        network = self.bound.job.network
        return network.is_transformer and not network.image_tokens


def training_run(spec: TrainingJob, pool: JobPool, catalog: Catalog) -> TrainingRun:
    """Compute the run of the job *spec* on the GPUs of *pool*. Raises UnknownId, NotTrainable."""
    one = bind_job(spec, pool, catalog)
    step, work = one.step, step_work(one.job)
    steps = ceil(_samples(spec, one.job.sequence) / spec.global_batch)
    interruptions, training_s = _interruptions(spec, one), steps * step.step_s
    time = makespan(training_s, _interval_s(spec, interruptions, training_s, step.step_s), interruptions)
    law = load_law(one.job.gpu, power_coefficients(catalog), activations_per_token=_activations(one.job.network))
    return TrainingRun(
        spec=spec,
        bound=one,
        step=step,
        work=work,
        steps=steps,
        makespan=time,
        interruptions=interruptions,
        load=_load(law, one, work, step.step_s) if law else 0.0,
        infeasible=_infeasible(one, time, interruptions, catalog),
    )


def _samples(spec: TrainingJob, sequence: float) -> float:
    return spec.samples if spec.samples is not None else (spec.tokens or 0.0) / sequence


def _interruptions(spec: TrainingJob, one: BoundJob) -> Interruptions:
    """Return the failure interval of the job and the durations of a save and a restart."""
    job, failures, saves = one.job, spec.failures or JobFailures(), spec.checkpoint
    counted = [(failures.gpu, job.parallel.gpus), (failures.node, job.nodes)]
    rates = [(count / part.mtbf_h, part.repair_h) for part, count in counted if part is not None]
    rate_per_h = sum(rate for rate, _ in rates)
    repair_h = sum(rate * repair for rate, repair in rates) / rate_per_h if rate_per_h else 0.0
    saved_bytes = trained_params(job, whole=True) * SAVED_BYTES
    transfer_s = saved_bytes / saves.bytes_per_s if saves and saves.bytes_per_s else 0.0
    save_s = (saves.save_s or transfer_s) if saves else 0.0
    return Interruptions(
        mtbf_s=SECONDS_PER_HOUR / rate_per_h if rate_per_h else inf,
        save_s=save_s,
        restart_s=repair_h * SECONDS_PER_HOUR + (saves.restart_s + transfer_s if saves else 0.0),
    )


def _interval_s(spec: TrainingJob, interruptions: Interruptions, training_s: float, step_s: float) -> float:
    """Return the training time between saves [s]: at least a step, and the whole job without checkpoints."""
    if spec.checkpoint is None:
        return training_s
    if spec.checkpoint.interval_s != "optimal":
        return max(step_s, spec.checkpoint.interval_s)
    return max(step_s, optimal_interval_s(interruptions.save_s, interruptions.mtbf_s))


def _load(law: LoadLaw, one: BoundJob, work: StepWork, step_s: float) -> float:
    job = one.job
    compute = work.gpu_flop / (peak_flops(job.gpu, job.precision) * step_s)
    traffic = work.gpu_bytes / (job.gpu.memory_bytes_per_s.value * step_s)
    tokens_per_s = job.units * job.micro_batches / (job.parallel.tensor * job.parallel.pipeline * step_s)
    return law.load(compute, traffic, tokens_per_s)


def _activations(network: ForwardCost) -> float:
    """Return the numbers that enter and leave a transformer's matrix products per token in a forward pass.

    The power of training was not measured: the backward pass is assumed to add only its operations and bytes.
    """
    return ACTIVATIONS_PER_WIDTH * network.layers * network.hidden if network.is_transformer else 0.0


def _gb(size: float) -> str:
    return f"{size / GB:,.0f}" if size >= 1000 * GB else f"{size / GB:.3g}"


def _infeasible(one: BoundJob, time: Makespan, interruptions: Interruptions, catalog: Catalog) -> str:
    capacity, memory = one.job.gpu.memory_bytes.value, one.memory
    if not one.fits:
        parts = {
            "weights": memory.weights_bytes,
            "gradients": memory.gradients_bytes,
            "optimizer states": memory.states_bytes,
            "activations": memory.activations_bytes + memory.logits_bytes,
            "reserve": memory.reserve_bytes,
        }
        by_use = joined(", ", [Message("{part} {size}", part, _gb(size)) for part, size in parts.items()])
        needs = Message(
            "needs {total_bytes} GB of memory on each GPU ({by_use}), it has {capacity}",
            _gb(memory.total_bytes),
            by_use,
            _gb(capacity),
        )
        return joined("; ", [needs, advice(one, catalog)])
    if time.training_s > LONGEST_YEARS * HOURS_PER_YEAR * SECONDS_PER_HOUR:
        years = time.training_s / SECONDS_PER_HOUR / HOURS_PER_YEAR
        return Message("takes {years:.3g} years without any failure: use more GPUs, or reduce the training work", years)
    if time.total_s == inf:
        hours = interruptions.mtbf_s / SECONDS_PER_HOUR
        often = "save at the interval optimal" if interruptions.save_s else "give checkpoint"
        return Message(
            "a failure every {hours:.3g} h loses more work than is done between two saves: {often}", hours, often
        )
    return ""
