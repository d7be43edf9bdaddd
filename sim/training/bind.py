"""Binding of a training job to one pool: ids become catalogue entries, and left-out sizes get their defaults."""

from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path

from sim.catalogue.catalog import Catalog
from sim.catalogue.gpu import Gpu
from sim.catalogue.link import Link
from sim.catalogue.server import Server
from sim.message import Message, joined
from sim.steptime.coefficients import StepTimeCoefficients, load_coefficients
from sim.training.figures import TrainingData, framework_memory, load_training, network_named, rates
from sim.training.job import Method, OptimizerStep, Parallel, Precision, Recompute
from sim.training.memory import TrainingMemory, memory
from sim.training.network import ForwardCost
from sim.training.schema import JobPool, ParallelSpec, TrainingJob, divisors
from sim.training.steptime import OptimizerStepTime, TrainingRates, step_time

DEFAULT_NODE_GPUS = 8
"""Assumed number of GPUs in a server that the scenario does not name."""
NVL72 = "nvlink5-nvl72"
NVL72_GPUS = 72


@dataclass(frozen=True, slots=True)
class JobFigures:
    """Fitted figures from which step times and memory of training jobs are computed."""

    data: TrainingData
    kernels: StepTimeCoefficients


def job_figures(catalog: Catalog) -> JobFigures:
    """Return the fitted figures in the data folder of *catalog*, read once per folder."""
    return _figures(catalog.root)


@cache
def _figures(root: Path) -> JobFigures:
    return JobFigures(load_training(root), load_coefficients(root / "steptime.yaml"))


@dataclass(frozen=True, slots=True)
class JobHardware:
    """Catalogue entries that a pool refers to: GPU, link, server and network between servers."""

    gpu: Gpu
    link: Link
    server: Server | None
    network: Link | None

    @classmethod
    def of(cls, pool: JobPool, catalog: Catalog) -> "JobHardware":
        """Look up every id of *pool* in *catalog*. Raises UnknownId."""
        gpu = catalog.gpu(pool.gpu)
        server = catalog.server(pool.server) if pool.server is not None else None
        link = catalog.link(pool.link or (server.link if server else gpu.link))
        return cls(gpu, link, server, catalog.link(pool.network.link) if pool.network else None)

    @property
    def gpus_per_node(self) -> int:
        """Number of GPUs that share `link`."""
        if self.link.id == NVL72:
            return NVL72_GPUS
        return int(self.server.gpu_slots.value) if self.server else DEFAULT_NODE_GPUS


@dataclass(frozen=True, slots=True)
class BoundJob:
    """Optimizer step of a job on its hardware, with the rates and the memory that follow from both."""

    job: OptimizerStep
    framework: str
    rates: TrainingRates
    memory: TrainingMemory

    @property
    def step(self) -> OptimizerStepTime:
        """Time of one optimizer step."""
        return step_time(self.job, self.rates)

    @property
    def fits(self) -> bool:
        """True if the job's memory fits into that of one GPU."""
        return self.memory.total_bytes <= self.job.gpu.memory_bytes.value


def default_precision(gpu: Gpu) -> Precision:
    """Return the precision that training on *gpu* usually uses."""
    return "fp16" if gpu.before_ampere else "bf16"


def method_of(job: TrainingJob) -> Method:
    """Return the training method that the section `lora` of *job* selects."""
    return "full" if job.lora is None else "lora" if job.lora.weights == "16bit" else "qlora"


def default_framework(network: ForwardCost, method: Method, parallel: ParallelSpec) -> str:
    """Return the id of the framework on which such jobs usually run (a key of data/training/stacks.yaml)."""
    if network.image_tokens:  # its scripts fuse attention, those of ngc-2024 (BERT) do not
        return "pytorch"
    if not (network.is_transformer and network.causal):
        return "ngc-2024"
    if method != "full":
        return "huggingface" if method == "lora" else "fsdp-qlora"
    return "nemo" if (parallel.tp or 1) * (parallel.pp or 1) * (parallel.ep or 1) > 1 else "fsdp"


def gpus_of(parallel: ParallelSpec, pool: JobPool) -> int:
    """Return the number of GPUs of *pool*; without `gpus`, the number of ranks in *parallel*."""
    ranks = (parallel.tp or 1) * (parallel.pp or 1) * (parallel.cp or 1)
    return pool.gpus or ranks * (parallel.dp or 1)


def bind_job(spec: TrainingJob, pool: JobPool, catalog: Catalog) -> BoundJob:
    """Bind the job *spec* to the GPUs of *pool*.

    Without `micro_batch`, the fastest micro-batch that fits the memory is used, or one sample if none fits. Sizes must
    divide: `job_issues` reports those that do not.

    Raises
    ------
    UnknownId
        An id of the job or pool is not in the catalogue.
    NotTrainable
        The training cost of the model is not known.

    """
    hardware, figures = JobHardware.of(pool, catalog), job_figures(catalog)
    network, method = network_named(spec.model, catalog, figures.data), method_of(spec)
    wanted = pool.parallel.over(spec.parallel)
    framework = pool.framework or spec.framework or default_framework(network, method, wanted)
    gpus = gpus_of(wanted, pool)
    parallel = _parallel(wanted, gpus, figures.data.stacks[framework].sequence_parallel)
    per_node = min(gpus, hardware.gpus_per_node)
    mine = spec.global_batch // parallel.data
    precision = pool.precision or spec.precision or default_precision(hardware.gpu)
    first = wanted.micro_batch or 1
    job = OptimizerStep(
        gpu=hardware.gpu,
        link=hardware.link,
        network=network,
        parallel=parallel,
        micro_batch=first,
        micro_batches=mine // first,
        sequence=spec.sequence or network.image_tokens or 1,
        precision=precision,
        method=method,
        recompute=wanted.recompute or "none",
        gpus_per_node=per_node,
        node_bytes_per_s=_node_bytes_per_s(pool, hardware, per_node),
    )
    reached = rates(figures.data, figures.kernels, job.gpu, job.link, network, precision, framework)

    def with_batch(samples: int) -> BoundJob:
        sized = replace(job, micro_batch=samples, micro_batches=mine // samples)
        return BoundJob(sized, framework, reached, memory(sized, framework_memory(figures.data, framework)))

    if wanted.micro_batch is not None:
        return with_batch(wanted.micro_batch)
    candidates = [with_batch(samples) for samples in divisors(mine)]
    fitting = [one for one in candidates if one.fits]
    return min(fitting, key=lambda one: one.step.step_s) if fitting else candidates[0]


def _parallel(wanted: ParallelSpec, gpus: int, sequence_parallel: bool) -> Parallel:
    tensor, pipeline, context = wanted.tp or 1, wanted.pp or 1, wanted.cp or 1
    return Parallel(
        tensor=tensor,
        pipeline=pipeline,
        data=gpus // (tensor * pipeline * context),
        context=context,
        expert=wanted.ep or 1,
        virtual_stages=wanted.virtual_stages or 1,
        zero=wanted.zero or 0,
        sequence=sequence_parallel if wanted.sequence_parallel is None else wanted.sequence_parallel,
    )


def _node_bytes_per_s(pool: JobPool, hardware: JobHardware, per_node: int) -> float:
    if pool.network is None or hardware.network is None:
        return 0.0
    # an NVL72 rack is as many servers as its GPUs fill
    servers = per_node / (hardware.server.gpu_slots.value if hardware.server else per_node)
    return hardware.network.theoretical_bytes_per_s.value * pool.network.adapters * max(1.0, servers)


def advice(bound_job: BoundJob, catalog: Catalog) -> str:
    """Describe the smallest change that makes a job fit into the memory of the same GPUs.

    More recomputation is tried first, then higher ZeRO stages, then micro-batches of one sample. If none of them
    suffices, the text states the missing memory and names changes of the hardware or the method.
    """
    job = bound_job.job
    layout = framework_memory(job_figures(catalog).data, bound_job.framework)
    stages: tuple[Recompute, ...] = ("none", "selective", "full")
    mine = job.micro_batch * job.micro_batches
    sharding = range(job.parallel.zero, 4) if job.parallel.data * job.parallel.context > 1 else (job.parallel.zero,)
    least = bound_job
    for batch, zero, recompute in product(
        dict.fromkeys((job.micro_batch, 1)), sharding, stages[stages.index(job.recompute) :]
    ):
        parallel = replace(job.parallel, zero=zero)
        candidate = replace(job, micro_batch=batch, micro_batches=mine // batch, parallel=parallel, recompute=recompute)
        least = replace(bound_job, job=candidate, memory=memory(candidate, layout))
        if least.fits:
            return Message("it fits with {changes}", _changes(job, candidate))
    needed = least.memory.total_bytes / job.gpu.memory_bytes.value
    shortfall = (
        Message("with {changes} it still needs {needed:.1f} times the memory", _changes(job, least.job), needed)
        if least is not bound_job
        else ""
    )
    more = "more GPUs to share it (tp, pp, zero), lora, or a larger GPU" if job.method == "full" else "a larger GPU"
    return joined("; ", filter(None, [shortfall, Message("it takes {more}", more)]))


def _changes(job: OptimizerStep, candidate: OptimizerStep) -> str:
    changed = [
        f"{key}: {now}"
        for key, was, now in (
            ("zero", job.parallel.zero, candidate.parallel.zero),
            ("recompute", job.recompute, candidate.recompute),
            ("micro_batch", job.micro_batch, candidate.micro_batch),
        )
        if was != now
    ]
    return ", ".join(changed) or "these settings"
