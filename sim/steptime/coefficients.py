"""How far real kernels are from the datasheet: data/steptime.yaml and data/attention.yaml."""

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from sim.catalogue.entries.gpu import Gpu
from sim.catalogue.entries.link import Link
from sim.catalogue.entries.model import Model
from sim.catalogue.value import Value
from sim.spec import Spec
from sim.steptime.attention.coefficients import AttentionCoefficients
from sim.yamlio import read


class Efficiency(Spec):
    """What large matrix products reach of a GPU's dense peak, and reading large weights of its bandwidth."""

    compute: Value
    memory: Value


class AllReduceFactor(Spec):
    """All-reduce time inside a serving engine against the link's measured curve, where the rule applies."""

    links: tuple[str, ...] = ()
    """Ids of links; empty: any."""
    gpus: tuple[str, ...] = ()
    """Ids of GPUs, for what is usual in the hosts of a card; empty: any."""
    factor: Value

    def applies(self, gpu: Gpu, link: Link) -> bool:
        """Whether it speaks of *gpu* cards over *link*."""
        return (not self.links or link.id in self.links) and (not self.gpus or gpu.id in self.gpus)


class Coefficients(Spec):
    """The constants of the roofline step time, all of them measured or fitted."""

    gpus: dict[str, Efficiency]
    """By GPU id: cards with kernel measurements."""
    architectures: dict[str, Efficiency]
    """By `Gpu.architecture`: cards without."""
    geforce: dict[str, Efficiency]
    """By `Gpu.architecture`: consumer cards without, whose halved tensor rate is easier to reach."""
    other: Efficiency
    """Everything else."""
    gemm_exponent: Value
    """p in (C^p + M^p)^(1/p): 1 adds compute and memory time, infinity takes the larger."""
    serving_compute_time_factor: Value
    """Compute time inside a server against the same kernels alone."""
    prefill_attention_efficiency: Value
    """Share of the matrix products' rate that prefill attention reaches."""
    allreduce_time_factors: tuple[AllReduceFactor, ...]
    """The first rule that applies counts; the last one applies to everything."""
    pipeline_time_factor_per_doubling: Value
    """Stage time against an even split, for each doubling of pipeline_parallel_size."""
    experts_time_factors: dict[str, Value] = Field(default_factory=dict)
    """By the first words of `Gpu.architecture`: arithmetic of grouped products over experts against the usual card."""
    models_experts_time_factors: dict[str, Value] = Field(default_factory=dict)
    """By `Model.family`: arithmetic of grouped products over a model's experts against that of the usual mixture."""
    models_routing_diversity: dict[str, Value] = Field(default_factory=dict)
    """By `Model.family`, where tokens of a batch choose like experts: each after the first touches as many new ones as
    this part of a token that is routed at random."""
    expert_parallel_time_factor_per_doubling: Value | None = None
    """Arithmetic of grouped products where whole experts are spread, for each doubling of the ranks: the step waits for
    the one with most tokens."""
    exposed_share: Value
    """Where a step is formed while one runs: part of the shorter of host's and GPU's time that adds to the longer."""
    one_process_host_time_factor: Value | None = None
    """Host time per step and per sequence where the API server shares the engine's process, against one of its own."""
    launch_layer_s: Value | None = None
    """Host time to launch the kernels of a dense layer in a step without prompts, where no graph holds them."""
    sorting_bytes_per_logit: Value | None = None
    """Traffic of sampling with top-p where all logits are sorted for it, of which there is one for each token of the
    vocabulary and sequence."""
    attention: AttentionCoefficients
    """Of states and indexers."""
    host_time_spread: Value | None = None
    """Standard deviation of the logarithm of one host's time per step, sequence and request against another's."""

    @model_validator(mode="after")
    def _last_rule_is_general(self) -> Self:
        if (
            not self.allreduce_time_factors
            or self.allreduce_time_factors[-1].links
            or self.allreduce_time_factors[-1].gpus
        ):
            raise ValueError("the last of allreduce_time_factors must name no link and no GPU")
        return self

    def contention(self, one_process: bool) -> float:
        """Factor on host time per step and per sequence where API server and engine are *one_process*."""
        factor = self.one_process_host_time_factor if one_process else None
        return factor.value if factor is not None else 1.0

    def efficiency(self, gpu: Gpu) -> Efficiency:
        """The nearest statement about *gpu*: its own, its architecture's, or everybody's."""
        family = self.geforce if gpu.geforce else self.architectures
        return self.gpus.get(gpu.id) or family.get(gpu.architecture) or self.other

    def experts_factor(self, gpu: Gpu) -> Value | None:
        """The statement about grouped products on *gpu*: the longest beginning of its architecture that is listed."""
        known = [name for name in self.experts_time_factors if gpu.architecture.startswith(name)]
        return self.experts_time_factors[max(known, key=len)] if known else None

    def model_experts_factor(self, model: Model) -> Value | None:
        """The statement about grouped products over the experts of *model*, if its family was measured."""
        return self.models_experts_time_factors.get(model.family or model.id)

    def routing_diversity(self, model: Model) -> float:
        """Part of a token routed at random that one after the first of a batch is, in experts of *model* it touches."""
        known = self.models_routing_diversity.get(model.family or model.id)
        return 1.0 if known is None else known.value

    def experts_values(self, gpu: Gpu, model: Model, spread: bool) -> dict[str, Value]:
        """What grouped products over the experts of *model* rest on, by name; *spread*: whole experts on a GPU."""
        ranks = self.expert_parallel_time_factor_per_doubling if spread else None
        values = {
            "experts_time_factor": self.experts_factor(gpu),
            "model_experts_time_factor": self.model_experts_factor(model),
            "expert_parallel_time_factor_per_doubling": ranks,
            "routing_diversity": self.models_routing_diversity.get(model.family or model.id),
        }
        return {name: value for name, value in values.items() if value is not None}

    def allreduce_factor(self, gpu: Gpu, link: Link) -> Value:
        """The nearest statement about all-reduces between *gpu* cards over *link*."""
        return next(rule.factor for rule in self.allreduce_time_factors if rule.applies(gpu, link))


def load_coefficients(path: Path) -> Coefficients:
    """Read data/steptime.yaml, at *path*, and data/attention.yaml beside it.

    Raises pydantic.ValidationError or sim.yamlio.YamlError if a file is not what it should be.
    """
    return Coefficients.model_validate({**read(path).data, "attention": read(path.with_name("attention.yaml")).data})
