"""Coefficients of real kernels relative to the datasheet: data/steptime.yaml, and for attention data/attention.yaml."""

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
    """Rule about the kernels of some engines on some GPU architectures."""

    engines: tuple[str, ...] = ()
    """Prefixes of engine ids; empty: any engine."""
    architectures: tuple[str, ...] = ()
    """Prefixes of `Gpu.architecture`; empty: any architecture."""

    def matches(self, engine: str, architecture: str) -> bool:
        """Return whether the rule applies to *engine* on cards of *architecture*."""
        return (not self.engines or engine.startswith(self.engines)) and (
            not self.architectures or architecture.startswith(self.architectures)
        )


class ScanEfficiency(KernelRule):
    """Efficiency of a prompt's scan through linear attention, as a fraction of the dense 16-bit peak."""

    rules: tuple[str, ...] = ()
    """Update rules of `LinearAttention`; empty: any rule."""
    share: Value
    layer_token_s: Value | None = None
    """Time per prompt token and layer of a kernel that scans one token after the other, in place of `share` [s]."""

    def applies(self, rule: str, engine: str, architecture: str) -> bool:
        """Return whether the rule applies to update rule *rule* in *engine* on cards of *architecture*."""
        return (not self.rules or rule in self.rules) and self.matches(engine, architecture)


class OneCallAttention(Spec):
    """Cost of decodes and prompts that share one call of FlashAttention 2."""

    engines: tuple[str, ...]
    """Ids of engines with the shared call."""
    architectures: tuple[str, ...]
    """Prefixes of `Gpu.architecture` with the shared call."""
    tile_rows: Value
    """Queries that a thread block computes, even if the sequence has fewer."""
    idle_block_s: Value
    """Time that a thread block without queries occupies a multiprocessor [s]."""

    def applies(self, engine: str, architecture: str) -> bool:
        """Return whether *engine* uses the shared call on cards of *architecture*."""
        return engine in self.engines and architecture.startswith(self.architectures)


class CacheReading(KernelRule):
    """Rate at which decodes read a 16-bit KV cache, where the rule applies."""

    gpus: tuple[str, ...] = ()
    """Prefixes of GPU ids; empty: any GPU."""
    factor: Value
    """Time per byte relative to the engine's usual time."""

    def applies(self, engine: str, gpu: Gpu) -> bool:
        """Return whether the rule applies to *engine* on *gpu*."""
        return (not self.gpus or gpu.id.startswith(self.gpus)) and self.matches(engine, gpu.architecture)


class AttentionCoefficients(Spec):
    """Measured constants of attention kernels."""

    one_call: OneCallAttention
    """Rule for decodes that share a call with prompts."""
    cache_reading: tuple[CacheReading, ...] = ()
    """Rules for reading the KV cache; the first that applies counts, others read at the engine's usual rate."""
    small_heads: dict[str, Value] = Field(default_factory=dict)
    """Time of a prompt's query-key pair with heads of at most 64 numbers relative to its arithmetic, by prefix of the
    card's architecture (first match); others: 1."""
    window_margin_tokens: Value
    """Additional tokens, besides the sliding window, that each query of a prompt costs."""
    state_time_factor: Value
    """Time to move linear-attention states relative to their bytes at the rate at which the card reads weights."""
    scan_efficiencies: tuple[ScanEfficiency, ...]
    """Rules for prompt scans; the first that applies counts, and the last applies to everything."""
    index_read_time_factor: Value
    """Time of an indexer while decoding relative to its bytes at the rate at which the card reads weights."""
    index_arithmetic_efficiency: Value
    """Efficiency of an indexer's arithmetic in prompts, as a fraction of the dense peak."""
    choice_bytes_per_pair: Value
    """Memory traffic equivalent to selecting the best tokens for a prompt's query, per token selected from, at the
    card's bandwidth [bytes]."""
    sparse_arithmetic_efficiency: Value
    """Efficiency of latent attention in prompts where each query attends to its own tokens, as a fraction of the dense
    16-bit peak."""
    sparse_kernel_heads: dict[str, Value]
    """Minimum number of heads that a sparse kernel computes on a GPU, by prefix of its architecture; others: the
    model's heads."""
    sparse_least_places: dict[str, Value] = Field(default_factory=dict)
    """Minimum fraction of the best-token slots that a sparse kernel processes per prompt token, by engine id; others:
    as many as there are preceding tokens."""
    hyper_connection_passes: Value
    """Number of times that hyper-connections read or write a token's residual streams per layer, at the card's
    bandwidth."""
    hyper_connection_s: Value
    """Time of hyper-connections per layer for few tokens [s]."""

    @model_validator(mode="after")
    def _last_rule_is_general(self) -> Self:
        last = self.scan_efficiencies[-1] if self.scan_efficiencies else None
        if last is None or last.rules or last.engines or last.architectures:
            raise ValueError("the last of scan_efficiencies must name no rule, no engine and no architecture")
        return self

    def cache_reading_factor(self, engine: str, gpu: Gpu) -> Value | None:
        """Return the factor on reading a KV cache byte in decodes of *engine* on *gpu*; None: 1."""
        return next((one.factor for one in self.cache_reading if one.applies(engine, gpu)), None)

    def scan(self, rule: str, engine: str, architecture: str) -> ScanEfficiency:
        """Return the efficiency of prompt scans with update rule *rule*: the first rule that applies."""
        return next(one for one in self.scan_efficiencies if one.applies(rule, engine, architecture))

    def kernel_heads(self, architecture: str) -> Value | None:
        """Return the minimum number of heads of sparse kernels on cards of *architecture*; None: no minimum."""
        return _by_prefix(self.sparse_kernel_heads, architecture)

    def small_heads_factor(self, architecture: str) -> Value | None:
        """Return the factor on prompts with small heads on cards of *architecture*; None: 1."""
        return _by_prefix(self.small_heads, architecture)


def _by_prefix(stated: dict[str, Value], architecture: str) -> Value | None:
    return next((value for name, value in stated.items() if architecture.startswith(name)), None)


class Efficiency(Spec):
    """Efficiencies of large kernels: arithmetic over the dense peak, reading weights over the memory bandwidth."""

    compute: Value
    memory: Value


class AllReduceFactor(Spec):
    """All-reduce time inside a serving engine relative to the link's measured curve, where the rule applies."""

    links: tuple[str, ...] = ()
    """Ids of links; empty: any link."""
    gpus: tuple[str, ...] = ()
    """Ids of GPUs, for effects of their usual hosts; empty: any GPU."""
    factor: Value

    def applies(self, gpu: Gpu, link: Link) -> bool:
        """Return whether the rule applies to *gpu* cards over *link*."""
        return (not self.links or link.id in self.links) and (not self.gpus or gpu.id in self.gpus)


class StepTimeCoefficients(Spec):
    """Coefficients of the roofline step time, all measured or fitted."""

    gpus: dict[str, Efficiency]
    """Efficiencies of cards with kernel measurements, by GPU id."""
    architectures: dict[str, Efficiency]
    """Efficiencies of cards without kernel measurements, by `Gpu.architecture`."""
    geforce: dict[str, Efficiency]
    """Efficiencies of consumer cards without kernel measurements, by `Gpu.architecture`; their halved tensor rate is
    easier to reach."""
    other: Efficiency
    """Efficiencies of all other cards."""
    gemm_exponent: Value
    """Exponent p in (C^p + M^p)^(1/p): 1 adds compute and memory time, infinity takes the larger."""
    serving_compute_time_factor: Value
    """Compute time inside a server relative to the kernels in isolation."""
    prefill_attention_efficiency: Value
    """Rate of prefill attention's arithmetic relative to that of matrix products."""
    allreduce_time_factors: tuple[AllReduceFactor, ...]
    """Rules for all-reduce time; the first that applies counts, and the last applies to everything."""
    pipeline_time_factor_per_doubling: Value
    """Stage time relative to an even split, per doubling of pipeline_parallel_size."""
    experts_time_factors: dict[str, Value] = Field(default_factory=dict)
    """Arithmetic time of grouped products over experts relative to the usual card, by prefix of `Gpu.architecture`."""
    models_experts_time_factors: dict[str, Value] = Field(default_factory=dict)
    """Arithmetic time of grouped products over a model's experts relative to the usual mixture, by `Model.family`."""
    models_routing_diversity: dict[str, Value] = Field(default_factory=dict)
    """Routing diversity by `Model.family`: each token of a batch after the first selects as many new experts as this
    fraction of a randomly routed token."""
    expert_parallel_time_factor_per_doubling: Value | None = None
    """Arithmetic time of grouped products where whole experts are spread over ranks, per doubling of the ranks; the
    step waits for the rank with the most tokens."""
    exposed_share: Value
    """Fraction of the shorter of host and GPU time that adds to the longer, where a step is formed while one runs."""
    one_process_host_time_factor: Value | None = None
    """Host time per step and per sequence where the API server shares the engine's process, relative to separate
    processes."""
    indexer_layer_factor: Value | None = None
    """Time of launches and small kernels of a layer whose indexer selects tokens relative to the layer without it;
    None: 1. Launches of prompts: `launch_indexer_factor` of the engine."""
    launch_layer_s: Value | None = None
    """Host time to launch the kernels of a dense layer in a step without prompts, if no CUDA graph contains them [s].
    """
    desktop_launch_factor: Value | None = None
    """Factor on launch times in hosts of consumer cards, in place of `recent_host_factor`; None: as other hosts."""
    sorting_bytes_per_logit: Value | None = None
    """Memory traffic per logit of top-p sampling that sorts all logits [bytes]; there is a logit per sequence and
    vocabulary entry."""
    penalty_bytes_per_logit: Value | None = None
    """Memory traffic per logit of repetition, presence and frequency penalties [bytes]."""
    attention: AttentionCoefficients
    """Coefficients of attention kernels (data/attention.yaml)."""
    host_time_spread: Value | None = None
    """Standard deviation between hosts of the logarithm of host time per step, sequence and request."""

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
        """Return the factor on host time per step and per sequence where API server and engine are *one_process*."""
        factor = self.one_process_host_time_factor if one_process else None
        return factor.value if factor is not None else 1.0

    @property
    def indexer_kernels(self) -> float:
        """Time of launches and small kernels of a layer with an indexer relative to the layer without it [1]."""
        return self.indexer_layer_factor.value if self.indexer_layer_factor is not None else 1.0

    def efficiency(self, gpu: Gpu) -> Efficiency:
        """Return the efficiencies of *gpu*: its own, its architecture's, or the general ones."""
        family = self.geforce if gpu.geforce else self.architectures
        return self.gpus.get(gpu.id) or family.get(gpu.architecture) or self.other

    def experts_factor(self, gpu: Gpu) -> Value | None:
        """Return the factor on grouped products on *gpu*, by the longest listed architecture prefix; None: 1."""
        known = [name for name in self.experts_time_factors if gpu.architecture.startswith(name)]
        return self.experts_time_factors[max(known, key=len)] if known else None

    def model_experts_factor(self, model: Model) -> Value | None:
        """Return the factor on grouped products over the experts of *model*; None if its family was not measured."""
        return self.models_experts_time_factors.get(model.family or model.id)

    def routing_diversity(self, model: Model) -> float:
        """Return the routing diversity of *model*: see `models_routing_diversity`; 1 if its family was not measured."""
        known = self.models_routing_diversity.get(model.family or model.id)
        return 1.0 if known is None else known.value

    def experts_values(self, gpu: Gpu, model: Model, spread: bool) -> dict[str, Value]:
        """Return the coefficients of grouped products over the experts of *model*, by name.

        *spread*: each GPU holds whole experts.
        """
        ranks = self.expert_parallel_time_factor_per_doubling if spread else None
        values = {
            "experts_time_factor": self.experts_factor(gpu),
            "model_experts_time_factor": self.model_experts_factor(model),
            "expert_parallel_time_factor_per_doubling": ranks,
            "routing_diversity": self.models_routing_diversity.get(model.family or model.id),
        }
        return {name: value for name, value in values.items() if value is not None}

    def allreduce_factor(self, gpu: Gpu, link: Link) -> Value:
        """Return the factor on all-reduces between *gpu* cards over *link*: the first rule that applies."""
        return next(rule.factor for rule in self.allreduce_time_factors if rule.applies(gpu, link))


def load_coefficients(path: Path) -> StepTimeCoefficients:
    """Return the coefficients in data/steptime.yaml, at *path*, and in data/attention.yaml in the same folder.

    Raises pydantic.ValidationError or sim.yamlio.YamlError if a file is invalid.
    """
    return StepTimeCoefficients.model_validate(
        {**read(path).data, "attention": read(path.with_name("attention.yaml")).data}
    )
