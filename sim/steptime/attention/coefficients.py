"""What kernels of attention reach: data/attention.yaml."""

from typing import Self

from pydantic import Field, model_validator

from sim.catalogue.entries.gpu import Gpu
from sim.catalogue.value import Value
from sim.spec import Spec


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
