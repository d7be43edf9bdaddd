"""How far real kernels are from the datasheet: data/steptime.yaml, and for attention data/attention.yaml."""

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from sim.catalogue.gpu import Gpu
from sim.catalogue.link import Link
from sim.catalogue.model import Model
from sim.catalogue.value import Value
from sim.spec import Spec
from sim.yamlio import read


class KernelRule(Spec):
    """A statement about the kernels of some engines on some cards."""

    engines: tuple[str, ...] = ()
    """First letters of the ids of engines; empty: any."""
    architectures: tuple[str, ...] = ()
    """First words of `Gpu.architecture`; empty: any."""

    def holds(self, engine: str, architecture: str) -> bool:
        """Whether it speaks of that *engine* on cards of the *architecture*."""
        return (not self.engines or engine.startswith(self.engines)) and (
            not self.architectures or architecture.startswith(self.architectures)
        )


class ScanEfficiency(KernelRule):
    """What the scan of a prompt through linear attention reaches of the dense 16-bit peak, where the rule applies."""

    rules: tuple[str, ...] = ()
    """Of `LinearAttention`; empty: any."""
    share: Value

    def applies(self, rule: str, engine: str, architecture: str) -> bool:
        """Whether it speaks of the *rule* in that *engine* on cards of the *architecture*."""
        return (not self.rules or rule in self.rules) and self.holds(engine, architecture)


class OneCallAttention(Spec):
    """Where decodes and prompts of a batch go through one call of FlashAttention 2."""

    engines: tuple[str, ...]
    """Ids of engines."""
    architectures: tuple[str, ...]
    """First words of `Gpu.architecture`."""
    tile_rows: Value
    """Queries that a thread block computes, whether a sequence has so many or not."""
    idle_block_s: Value
    """Time of a thread block that finds no query on one of the GPU's multiprocessors [s]."""

    def applies(self, engine: str, architecture: str) -> bool:
        """Whether it speaks of that *engine* on cards of the *architecture*."""
        return engine in self.engines and architecture.startswith(self.architectures)


class CacheReading(KernelRule):
    """How fast decodes read a 16-bit cache of keys and values, where the rule applies."""

    gpus: tuple[str, ...] = ()
    """First letters of the ids of GPUs; empty: any."""
    factor: Value
    """Time for a byte against the engine's usual one."""

    def applies(self, engine: str, gpu: Gpu) -> bool:
        """Whether it speaks of that *engine* on the *gpu*."""
        return (not self.gpus or gpu.id.startswith(self.gpus)) and self.holds(engine, gpu.architecture)


class AttentionCoefficients(Spec):
    """Measured constants of kernels that are neither matrix products nor attention over a whole cache."""

    one_call: OneCallAttention
    """Of decodes in a step with prompts."""
    cache_reading: tuple[CacheReading, ...] = ()
    """The first rule that applies counts; elsewhere a byte takes the engine's usual time."""
    small_heads: dict[str, Value] = Field(default_factory=dict)
    """Time of a prompt's query-key pair with heads of at most 64 numbers against its arithmetic, by first words of a
    card's architecture, the first that fits; others: 1."""
    window_margin_tokens: Value
    """Tokens beside those of a sliding window that each query of a prompt costs."""
    state_time_factor: Value
    """Time to move states against their bytes at the rate at which the card reads weights."""
    scan_efficiencies: tuple[ScanEfficiency, ...]
    """The first rule that applies counts; the last one applies to everything."""
    index_read_time_factor: Value
    """Time of an indexer while decoding against its bytes at the rate of weights."""
    index_arithmetic_efficiency: Value
    """Share of the dense peak that an indexer reaches in prompts."""
    choice_bytes_per_pair: Value
    """Memory traffic at the card's bandwidth that takes as long as choosing the best tokens of a prompt's query, for
    each token that it chooses from [bytes]."""
    sparse_arithmetic_efficiency: Value
    """Share of the dense 16-bit peak that attention in latents reaches in prompts, each query with tokens of its own.
    """
    sparse_kernel_heads: dict[str, Value]
    """Least heads that such a kernel computes on a GPU, by the first words of its architecture; others: its own."""
    sparse_least_places: dict[str, Value] = Field(default_factory=dict)
    """Least share of the best tokens' places that such a kernel works through for each token of a prompt, by the id of
    the engine; others: as many as there are tokens before it."""
    hyper_connection_passes: Value
    """Times that hyper-connections read or write the streams of a token around the blocks of a layer, at the card's
    bandwidth."""
    hyper_connection_s: Value
    """Time of hyper-connections around the blocks of a layer for few tokens [s]."""

    @model_validator(mode="after")
    def _last_rule_is_general(self) -> Self:
        last = self.scan_efficiencies[-1] if self.scan_efficiencies else None
        if last is None or last.rules or last.engines or last.architectures:
            raise ValueError("the last of scan_efficiencies must name no rule, no engine and no architecture")
        return self

    def cache_reading_factor(self, engine: str, gpu: Gpu) -> Value | None:
        """The statement about decodes of that *engine* on the *gpu*; None: as usual."""
        return next((one.factor for one in self.cache_reading if one.applies(engine, gpu)), None)

    def scan_efficiency(self, rule: str, engine: str, architecture: str) -> Value:
        """The nearest statement about prompts through that *rule*."""
        return next(one.share for one in self.scan_efficiencies if one.applies(rule, engine, architecture))

    def kernel_heads(self, architecture: str) -> Value | None:
        """The statement about sparse kernels on cards of that *architecture*."""
        return _of(self.sparse_kernel_heads, architecture)

    def small_heads_factor(self, architecture: str) -> Value | None:
        """The statement about small heads in prompts on cards of that *architecture*."""
        return _of(self.small_heads, architecture)


def _of(stated: dict[str, Value], architecture: str) -> Value | None:
    return next((value for name, value in stated.items() if architecture.startswith(name)), None)


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


class StepTimeCoefficients(Spec):
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


def load_coefficients(path: Path) -> StepTimeCoefficients:
    """Read data/steptime.yaml, at *path*, and data/attention.yaml beside it.

    Raises pydantic.ValidationError or sim.yamlio.YamlError if a file is not what it should be.
    """
    return StepTimeCoefficients.model_validate(
        {**read(path).data, "attention": read(path.with_name("attention.yaml")).data}
    )
