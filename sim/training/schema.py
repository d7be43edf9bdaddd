"""What a scenario with a `job` may say: the job, how it is spread over GPUs, the fleets that could do it, terms."""

from math import isqrt
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from sim.cost.carbon import Carbon
from sim.cost.clock import Moment
from sim.cost.cost_plan import Cost
from sim.cost.finance import Finance
from sim.cost.operations import Operations
from sim.cost.site import Site
from sim.power import Power
from sim.scenario.claim import Claim
from sim.scenario.experiment import GridSweep, Name, PointSweep
from sim.spec import Count, NonNegative, Positive, Spec, WholeNumber
from sim.training.job import Precision, Recompute
from sim.yamlio import MOST_CHARACTERS


class ParallelSpec(Spec):
    """Ranks by kind of parallelism, what they share, and the batch of each."""

    dp: Count | None = None
    """Data-parallel ranks, each with its own samples; left out: what tp x pp x cp leave of the pool's GPUs."""
    tp: Count | None = None
    """Tensor-parallel ranks: GPUs that share every layer. Left out: 1."""
    pp: Count | None = None
    """Pipeline stages, which hold the layers in turn. Left out: 1."""
    cp: Count | None = None
    """Ranks that share one sequence. Left out: 1."""
    ep: Count | None = None
    """Ranks, among those of data and tensor parallelism, that routed experts are spread over. Left out: 1."""
    virtual_stages: Count | None = None
    """Chunks of layers per pipeline rank (interleaved schedule). Left out: 1."""
    zero: Annotated[WholeNumber, Field(le=3)] | None = None
    """ZeRO stage (FSDP is 3): 1 shards optimizer states over data-parallel ranks, 2 gradients too, 3 weights too."""
    sequence_parallel: bool | None = None
    """Tensor-parallel ranks divide all activations; left out: as the framework does."""
    recompute: Recompute | None = None
    """Activations computed again in the backward pass: none, selective or full. Left out: none."""
    micro_batch: Count | None = None
    """Samples that a data-parallel rank takes at once; left out: the fastest that fits the memory."""

    def over(self, below: "ParallelSpec") -> "ParallelSpec":
        """These keys, and those of *below* that are not set here."""
        mine = self.model_dump(exclude_none=True)
        return ParallelSpec.model_validate(below.model_dump(exclude_none=True) | mine)


def divisors(whole: int) -> list[int]:
    """All of *whole*, rising.

    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    low = [size for size in range(1, isqrt(whole) + 1) if whole % size == 0]
    return sorted({*low, *(whole // size for size in low)})


class FailingPart(Spec):
    """A component that fails, exponentially distributed."""

    mtbf_h: Positive
    """Mean time between failures of one of them [h]."""
    repair_h: NonNegative = 0.0
    """Until the job has as many GPUs as before [h]; 0: a spare takes over."""


class JobFailures(Spec):
    """What stops the whole job when one of its parts fails; rates add up."""

    gpu: FailingPart | None = None
    node: FailingPart | None = None
    """A server with all in it."""


class Checkpoint(Spec):
    """Saving what a restart needs. Without `failures` the job saves at its interval and never restarts."""

    interval_s: Positive | Literal["optimal"] = "optimal"
    """Training time between saves [s]; optimal: the one of Daly (2006), from the time to save and the failures."""
    save_s: Positive | None = None
    """Time that training stands still for a save [s]; left out: the state over `bytes_per_s`."""
    bytes_per_s: Positive | None = None
    """Rate at which all ranks together write the state, and read it back [bytes/s]."""
    restart_s: NonNegative = 0.0
    """From the repair until training goes on, the reading of the state apart: scheduling, start, compilation [s]."""


class LoraTraining(Spec):
    """Adapters are trained, the model's own weights are not."""

    weights: Literal["16bit", "4bit"] = "16bit"
    """Of the frozen model; 4bit: QLoRA."""


class TrainingSetup(Spec):
    """What may stand in the job or in a pool: the nearest wins, in `parallel` key by key."""

    precision: Precision | None = None
    """Of matrix products; left out: bf16, or fp16 on cards without it."""
    framework: str | None = None
    """Id in data/training/stacks.yaml; left out: nemo where a model is split by tensors or layers, fsdp for other
    language models (huggingface with LoRA, fsdp-qlora over 4-bit weights), ngc-2024 for all else."""
    parallel: ParallelSpec = ParallelSpec()
    """How the job is spread over the pool's GPUs."""


class TrainingJob(TrainingSetup):
    """One training run from its first step to its last."""

    kind: Literal["training"]
    model: str
    """A language model of data/models, a network of data/training/networks.yaml (resnet-50, bert-large, ssd, ...), or
    the path of a Hugging Face config.json (relative to the scenario)."""
    tokens: Positive | None = None
    """To train on in all, repetitions included; or `samples`."""
    samples: Positive | None = None
    global_batch: Annotated[Count, Field(le=10**9)]
    """Samples of one optimizer step over all GPUs."""
    sequence: Count | None = None
    """Tokens of a sample; images have none."""
    lora: LoraTraining | None = None
    """Left out: all weights are trained."""
    checkpoint: Checkpoint | None = None
    """Left out: nothing is saved before the end."""
    failures: JobFailures | None = None
    """Left out: nothing fails."""


class NodeNetwork(Spec):
    """The network between servers."""

    link: str
    """Id in data/links, of one adapter."""
    adapters: Count = 1
    """Of each server."""


class JobPool(TrainingSetup):
    """The GPUs that do the job: all of one kind."""

    name: Name | None = None
    """In the outputs; left out: the GPU's id."""
    gpu: str
    """Id in data/gpus."""
    gpus: Count | None = None
    """Left out: as many as `parallel` needs."""
    replicas: Count | None = None
    """Copies of the model that train in step, as other pools call them: `parallel.dp`, where that is left out."""
    server: str | None = None
    """Id in data/servers. Left out: GPUs without a chassis to buy or to power, eight in a server."""
    link: str | None = None
    """Id in data/links. Left out: the server's, else the GPU's own."""
    network: NodeNetwork | None = None
    """Needed where the GPUs fill more than one server."""
    power: Power | None = None
    """How power is counted; left out: by what the GPUs do."""
    cost: Cost | None = None
    """How this pool is paid for, where that is not as the fleet's `cost` says."""

    @model_validator(mode="after")
    def _replicas_are_data_parallel(self) -> Self:
        copies = self.replicas or 1
        if copies == 1 or self.parallel.dp == copies:
            return self
        if self.parallel.dp is not None:
            raise ValueError(
                f"replicas and parallel.dp both count copies of the model: {copies} or {self.parallel.dp}?"
            )
        return self.model_copy(update={"parallel": self.parallel.model_copy(update={"dp": copies})})


class JobFleet(Spec):
    """One candidate to compare."""

    name: Name
    """In the outputs."""
    pools: Annotated[tuple[JobPool, ...], Field(min_length=1, max_length=1)]
    """One: a job's GPUs are all alike."""
    cost: Cost | None = None
    """Left out: no money columns, unless the pool has a cost of its own."""
    site: Site | None = None
    """In place of the scenario's."""
    finance: Finance | None = None
    """In place of the scenario's."""
    operations: Operations | None = None
    """In place of the scenario's."""
    carbon: Carbon | None = None
    """In place of the scenario's."""


class WorkScenario(Spec):
    """What every scenario about work to be done says."""

    name: Name
    """Also names the out folder. Left out: the file's name."""
    question: Annotated[str, Field(max_length=MOST_CHARACTERS)] = ""
    """What the scenario answers. Left out: the comment that opens the file."""
    seed: WholeNumber = 0
    """Nothing is drawn: times are given or expected values."""
    replications: Count = 1
    """As `seed`: all would be alike, and one is computed."""
    starts_at: Moment | None = None
    """Date and time of day at time 0, for electricity by the hour."""
    site: Site | None = None
    """Electricity price, PUE, hosting."""
    finance: Finance | None = None
    """How capital becomes a rate."""
    operations: Operations | None = None
    """Network, maintenance, staff, software and what else is paid."""
    carbon: Carbon | None = None
    """Greenhouse gases of the electricity and of making the machines."""
    fleets: Annotated[tuple[JobFleet, ...], Field(min_length=1)]
    """The candidates to compare."""
    sweep: GridSweep | PointSweep | None = None
    """Dotted paths to lists of values (a grid), or a list of explicit points."""
    claim: Claim | None = None
    """What somebody has stated and how `gpufleet claims` checks it; nothing else reads it."""


class JobScenario(WorkScenario):
    """A job, and fleets x sweep points that could do it."""

    job: TrainingJob
    """What is to be done."""
