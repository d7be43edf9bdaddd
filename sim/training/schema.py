"""Schema of a scenario with a `job`: the job, its parallelism, the candidate fleets and their cost terms."""

from math import isqrt
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from sim.cost.carbon import Carbon
from sim.cost.clock import Moment
from sim.cost.cost_plan import Cost
from sim.cost.finance import Finance
from sim.cost.operations import Operations
from sim.cost.site import Site
from sim.message import Message
from sim.power import Power
from sim.scenario.claim import Claim
from sim.scenario.experiment import GridSweep, Name, PointSweep
from sim.spec import Count, NonNegative, Positive, Spec, WholeNumber
from sim.training.job import Precision, Recompute
from sim.yamlio import MOST_CHARACTERS


class ParallelSpec(Spec):
    """Number of ranks per kind of parallelism, sharding, and micro-batch."""

    dp: Count | None = None
    """Data-parallel ranks, each with its own samples. Default: the pool's GPUs / (tp x pp x cp)."""
    tp: Count | None = None
    """Tensor-parallel ranks: GPUs that share every layer. Default: 1."""
    pp: Count | None = None
    """Pipeline stages, each with a part of the layers. Default: 1."""
    cp: Count | None = None
    """Context-parallel ranks, which share a sequence. Default: 1."""
    ep: Count | None = None
    """Data- and tensor-parallel ranks over which routed experts are spread. Default: 1."""
    virtual_stages: Count | None = None
    """Layer chunks per pipeline rank (interleaved schedule). Default: 1."""
    zero: Annotated[WholeNumber, Field(le=3)] | None = None
    """ZeRO stage (FSDP is 3): 1 shards optimizer states over data-parallel ranks, 2 gradients too, 3 weights too."""
    sequence_parallel: bool | None = None
    """True if tensor-parallel ranks divide all activations. Default: as the framework does."""
    recompute: Recompute | None = None
    """Activations to recompute in the backward pass: none, selective or full. Default: none."""
    micro_batch: Count | None = None
    """Samples that a data-parallel rank computes at once. Default: the fastest that fits the memory."""

    def over(self, below: "ParallelSpec") -> "ParallelSpec":
        """Return these keys, completed from *below* where they are not set."""
        mine = self.model_dump(exclude_none=True)
        return ParallelSpec.model_validate(below.model_dump(exclude_none=True) | mine)


def divisors(whole: int) -> list[int]:
    """Return all divisors of *whole*, ascending.

    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    low = [size for size in range(1, isqrt(whole) + 1) if whole % size == 0]
    return sorted({*low, *(whole // size for size in low)})


class FailingPart(Spec):
    """Component with exponentially distributed times between failures."""

    mtbf_h: Positive
    """Mean time between failures of one component [h]."""
    repair_h: NonNegative = 0.0
    """Time until the job has all its GPUs again [h]; 0 if a spare takes over."""


class JobFailures(Spec):
    """Components whose failure stops the whole job; their rates add up."""

    gpu: FailingPart | None = None
    """Failures of a GPU."""
    node: FailingPart | None = None
    """Failures of a server with all its components."""


class Checkpoint(Spec):
    """Periodic saves of the training state. Without `failures` the job saves but never restarts."""

    interval_s: Positive | Literal["optimal"] = "optimal"
    """Training time between saves [s]; optimal: the interval of Daly (2006) for the save time and the failure rate."""
    save_s: Positive | None = None
    """Time that training pauses for a save [s]. Default: size of the state / `bytes_per_s`."""
    bytes_per_s: Positive | None = None
    """Rate at which all ranks together write the state and read it back [bytes/s]."""
    restart_s: NonNegative = 0.0
    """Time from the repair until training continues, without reading the state: scheduling, start, compilation [s]."""


class LoraTraining(Spec):
    """Training of LoRA adapters with frozen model weights."""

    weights: Literal["16bit", "4bit"] = "16bit"
    """Format of the frozen weights; 4bit: QLoRA."""


class TrainingSetup(Spec):
    """Settings that a job or a pool may have; those of the pool take precedence, in `parallel` key by key."""

    precision: Precision | None = None
    """Precision of matrix products. Default: bf16, or fp16 on cards without bf16."""
    framework: str | None = None
    """Id in data/training/stacks.yaml. Default: nemo if a model is split by tensors or layers, fsdp for other
    language models (huggingface with LoRA, fsdp-qlora with 4-bit weights), pytorch for vision transformers, ngc-2024
    for all other networks.
    """
    parallel: ParallelSpec = ParallelSpec()
    """Parallelism over the pool's GPUs."""


class TrainingJob(TrainingSetup):
    """Training run from its first step to its last."""

    kind: Literal["training"]
    """Kind of the job."""
    model: str
    """Language model of data/models, network of data/training/networks.yaml (resnet-50, bert-large, ssd, ...), or
    path of a Hugging Face config.json (relative to the scenario).
    """
    tokens: Positive | None = None
    """Total number of tokens to train on, including repetitions; alternative to `samples`."""
    samples: Positive | None = None
    """Total number of samples to train on, including repetitions; alternative to `tokens`."""
    global_batch: Annotated[Count, Field(le=10**9)]
    """Samples per optimizer step over all GPUs."""
    sequence: Count | None = None
    """Tokens per sample; not for convolutional networks. Default for vision transformers: patches of 224 x 224 pixels
    and one token more.
    """
    lora: LoraTraining | None = None
    """LoRA adapters to train. Default: all weights are trained."""
    checkpoint: Checkpoint | None = None
    """Periodic saves. Default: none before the end."""
    failures: JobFailures | None = None
    """Failures of GPUs and servers. Default: none."""


class NodeNetwork(Spec):
    """Network between servers."""

    link: str
    """Id in data/links of an adapter."""
    adapters: Count = 1
    """Number of adapters per server."""


class JobPool(TrainingSetup):
    """GPUs of one kind that run the job."""

    name: Name | None = None
    """Name in the outputs. Default: the GPU's id."""
    gpu: str
    """Id in data/gpus."""
    gpus: Count | None = None
    """Number of GPUs. Default: the number of ranks in `parallel`."""
    replicas: Count | None = None
    """Data-parallel copies of the model: a synonym of `parallel.dp`, as in serving pools."""
    server: str | None = None
    """Id in data/servers. Default: eight GPUs per server, without a chassis to buy or to power."""
    link: str | None = None
    """Id in data/links. Default: the server's link, else the GPU's own."""
    network: NodeNetwork | None = None
    """Network between servers; required if the GPUs fill more than one."""
    power: Power | None = None
    """Power model. Default: power follows the load of the GPUs."""
    cost: Cost | None = None
    """Cost terms of this pool, if they differ from the fleet's `cost`."""

    @model_validator(mode="after")
    def _replicas_are_data_parallel(self) -> Self:
        copies = self.replicas or 1
        if copies == 1 or self.parallel.dp == copies:
            return self
        if self.parallel.dp is not None:
            raise ValueError(
                Message(
                    "replicas and parallel.dp both count copies of the model: {copies} or {dp}?",
                    copies,
                    self.parallel.dp,
                )
            )
        return self.model_copy(update={"parallel": self.parallel.model_copy(update={"dp": copies})})


class JobFleet(Spec):
    """Candidate fleet to compare."""

    name: Name
    """Name in the outputs."""
    pools: Annotated[tuple[JobPool, ...], Field(min_length=1, max_length=1)]
    """A single pool: the GPUs of a job are all alike."""
    cost: Cost | None = None
    """Cost terms. Default: no cost columns, unless the pool has a cost of its own."""
    site: Site | None = None
    """Site that overrides the scenario's."""
    finance: Finance | None = None
    """Finance terms that override the scenario's."""
    operations: Operations | None = None
    """Operating costs that override the scenario's."""
    carbon: Carbon | None = None
    """Emission terms that override the scenario's."""


class WorkScenario(Spec):
    """Sections common to scenarios with a `job` or with `jobs`."""

    name: Name
    """Name of the scenario and of its output folder. Default: the file's name."""
    question: Annotated[str, Field(max_length=MOST_CHARACTERS)] = ""
    """Question that the scenario answers. Default: the comment at the top of the file."""
    seed: WholeNumber = 0
    """Random seed; has no effect, as times are given or expected values."""
    replications: Count = 1
    """Number of replications; has no effect, as all would be equal and one is computed."""
    starts_at: Moment | None = None
    """Date and time of day at time 0, for electricity by the hour."""
    site: Site | None = None
    """Electricity price, PUE, hosting."""
    finance: Finance | None = None
    """Finance terms that turn capital cost into an hourly rate."""
    operations: Operations | None = None
    """Operating costs: network, maintenance, staff, software and others."""
    carbon: Carbon | None = None
    """Greenhouse gas emissions of electricity and of manufacturing."""
    fleets: Annotated[tuple[JobFleet, ...], Field(min_length=1)]
    """Candidate fleets to compare."""
    sweep: GridSweep | PointSweep | None = None
    """Dotted paths to lists of values (a grid), or a list of explicit points."""
    claim: Claim | None = None
    """Published statement that `gpufleet claims` checks; all other commands ignore it."""


class JobScenario(WorkScenario):
    """Scenario with a training job and the fleets and sweep points that could run it."""

    job: TrainingJob
    """Training job to run."""
