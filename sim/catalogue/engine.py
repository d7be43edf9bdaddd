"""A serving engine and its version: data/engines/<id>.yaml.

That includes what the engine does with weights that stay in the host's memory (`EngineOffload`), and which of a
model's weights those are (`HostWeights`).
"""

import re
from dataclasses import dataclass
from typing import Literal, Self

from pydantic import Field, model_validator

from sim.catalogue.gpu import Gpu, Vendor
from sim.catalogue.model import Matrix, Model
from sim.catalogue.value import Sourced, Value
from sim.spec import Positive, Spec

OffloadOption = Literal["cpu_offload_gb", "n_gpu_layers", "n_cpu_moe"]


class EngineOffload(Sourced):
    """How an engine works with weights in host memory; source and `where` are those of its rules."""

    options: tuple[OffloadOption, ...]
    """What its operator may set."""
    experts_in_host: bool = False
    """All routed experts lie in host memory where the operator says nothing."""
    streaming: Literal["copied", "in_place", "none"]
    """How the GPU gets at them: copied before they are used, read over the link by its kernels, or never."""
    stream_from_tokens: Value | None = None
    """Smallest step whose weights go to the GPU; smaller ones are multiplied by the CPU. Absent: all steps."""
    micro_batch_tokens: Value | None = None
    """Tokens that share one pass over the weights; absent: those of the step."""
    link_efficiency: Value | None = None
    """Share of the link's rate that weights stream at."""
    memory_efficiency: Value | None = None
    """Share of the host memory's rate that the CPU reads weights at."""
    expert_memory_efficiency: Value | None = None
    """The same share for routed experts, which are read in pieces."""


@dataclass(frozen=True, slots=True)
class Offload:
    """What an operator leaves in host memory, under the engines' own names."""

    cpu_offload_gb: float | None = None
    """Weights of the layers, per GPU [GiB]."""
    n_gpu_layers: int | None = None
    """Layers on the GPU, the last ones; the LM head counts as one more, before all others."""
    n_cpu_moe: int | None = None
    """Leading layers whose routed experts stay in host memory."""

    @property
    def given(self) -> dict[OffloadOption, float]:
        """The options that are set."""
        found: dict[OffloadOption, float | None] = {
            "cpu_offload_gb": self.cpu_offload_gb,
            "n_gpu_layers": self.n_gpu_layers,
            "n_cpu_moe": self.n_cpu_moe,
        }
        return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True, slots=True)
class HostWeights:
    """Which of a model's weights lie in host memory."""

    layer_share: float = 0.0
    """Of every layer's weights: an even share stands for the leading layers of a model whose layers are alike."""
    layers: int = 0
    """Leading layers, all of their weights and their part of the KV cache."""
    expert_layers: int = 0
    """Leading layers whose routed experts lie there."""
    head: bool = False
    """The LM head, too."""
    embedding: bool = False
    """The table that token ids are looked up in, unless it is the LM head as well."""

    def share(self, matrix: Matrix, model: Model) -> float:
        """Share of the copies of *matrix* that lie in host memory."""
        if matrix.last_layer == 0:
            return float(self._outside(matrix, model))
        layers = max(self.layers, self.expert_layers if matrix.role == "expert" else 0)
        if model.linear_attention is not None and matrix.role == "attention":
            return max(self.layer_share, layers / model.layers)  # both kinds of layers alternate
        held = max(0, min(layers, matrix.last_layer) - matrix.first_layer)
        return max(self.layer_share, held / (matrix.last_layer - matrix.first_layer))

    def _outside(self, matrix: Matrix, model: Model) -> bool:
        if matrix.role == "embedding" and not (model.tie_embeddings and matrix.split == "vocab"):
            return self.embedding
        return self.head and matrix.role in ("embedding", "lm_head")

    @classmethod
    def of(cls, offload: Offload, model: Model, layer_bytes: float) -> "HostWeights":
        """Where *offload* puts the weights of *model*, whose layers take *layer_bytes* on one GPU.

        llama.cpp deals the LM head to the GPU first, then the layers from the last one on.
        """
        if offload.cpu_offload_gb is not None:
            return cls(layer_share=min(1.0, offload.cpu_offload_gb * 2**30 / layer_bytes))
        on_gpu = model.layers + 1 if offload.n_gpu_layers is None else offload.n_gpu_layers
        return cls(
            layers=min(model.layers, model.layers + 1 - on_gpu),
            expert_layers=offload.n_cpu_moe or 0,
            head=on_gpu == 0,
            embedding=True,
        )


class SlowCards(Spec):
    """Cards whose memory the engine's kernels keep less busy than others'."""

    gpus: tuple[str, ...]
    """Beginnings of GPU ids."""
    factor: Value
    """On the time to read weights."""

    def holds(self, gpu: Gpu) -> bool:
        """Whether *gpu* is one of them."""
        return gpu.id.startswith(self.gpus)


class SlowWeights(Spec):
    """A format whose dense weights the engine's kernels read more slowly on graphics cards of the Blackwell family."""

    kernel: str
    """Its id in data/kernels."""
    factor: Value
    """On the time to read weights."""


class SlowProducts(Spec):
    """A format in which the engine's dense products take longer on B200, B300 and their kin than elsewhere."""

    kernel: str
    """Its id in data/kernels."""
    factor: Value
    """On the time of their arithmetic."""


class FastExperts(Spec):
    """Grouped products that the engine runs with faster kernels on B200, B300 and their kin than it has for others."""

    kernel: str
    """Their id in data/kernels."""
    versions: str
    """Releases that do."""
    factor: Value
    """On the time of their arithmetic."""


class TunedTiles(Spec):
    """Shapes of grouped products that an engine's release carries tuned tiles for."""

    experts: int
    """On a GPU."""
    widths: tuple[int, ...] = ()
    """Inner widths of an expert on a GPU; none: all."""
    gpus: tuple[str, ...]
    """Beginnings of GPU ids."""

    def holds(self, gpu: Gpu, experts: int, width: float) -> bool:
        """Whether *experts* of that *width* on *gpu* are among them."""
        return experts == self.experts and gpu.id.startswith(self.gpus) and (not self.widths or width in self.widths)


class DefaultTiles(Spec):
    """Grouped products over experts whose shape nobody tuned for the card: the tiles are small for any shape."""

    kernel: str
    """The experts' format, by its id in data/kernels."""
    architectures: tuple[str, ...]
    """`Gpu.architecture`, on which that was measured to matter."""
    factor: Value
    """On the time of their arithmetic, against tuned tiles."""
    tuned: tuple[TunedTiles, ...]
    """Which do not have them."""


class Overheads(Spec):
    """Host time that adds to the GPU's time."""

    per_layer_s: Value
    per_step_s: Value
    """Behind an API server and called as a library (offline)."""
    per_sequence_s: Value
    """Sampling, detokenising and streaming of one sequence in one step, behind an API server."""
    per_sequence_in_process_s: Value
    per_request_s: Value
    """API-server time before a request's first token; it does not hold the engine."""
    request_turn_s: Value | None = None
    """API-server time by which requests that come together reach the engine apart; None: 0."""
    chat_template_s: Value | None = None
    """API-server time in which it reads a model's chat template anew for each request, one after another; None: the
    template is read once."""
    moe_layer_factor: Value
    mla_layer_factor: Value
    blackwell_layer_factor: Value
    hopper_layer_factor: Value
    ada_layer_factor: Value | None = None
    """On cards of Ada Lovelace, whose clocks are 1.8 times an A100's; None: 1."""
    cdna_layer_factor: Value | None = None
    """On AMD's Instinct cards; None: 1. It and the five before multiply `per_layer_s`, it `launch_layer_s` as well."""
    recent_host_factor: Value
    """Multiplies the time per step and per sequence."""
    tp_request_factor: Value
    """Multiplies `per_request_s` when tensor_parallel_size > 1."""
    hopper_request_factor: Value | None = None
    """Multiplies `per_request_s` in servers of H100, H200 and their kin; None: 1."""
    moe_request_factor: Value
    kv_read_time_factor: Value
    """Decode attention's time to read the cache, against weights."""
    kv_8bit_read_time_factor: Value | None = None
    """Time to read a byte of an 8-bit cache against one of a 16-bit cache; None: the same."""
    slow_cards: SlowCards | None = None
    """Cards on which the engine reads weights more slowly than others do; None: none."""
    moe_gemm_time_factor: Value
    """Arithmetic of grouped matrix products over experts; weights are read as in any engine."""
    slow_weights: tuple[SlowWeights, ...] = ()
    slow_products: tuple[SlowProducts, ...] = ()
    fast_experts: tuple[FastExperts, ...] = ()
    default_tiles: DefaultTiles | None = None
    experts_by_kernel: dict[str, Value] = Field(default_factory=dict)
    """By a format's kernel: arithmetic of grouped products over experts, against the usual; others: 1. Weights are read
    as in any kernel: measured ones differ in arithmetic (benchmarks/fit/releases.py)."""
    per_prompt_token_s: Value | None = None
    """Behind an API server: of a step, for each prompt token in it, whatever the model and the GPUs; None: 0."""
    per_boundary_s: Value | None = None
    """Host time to pass a step from one stage's cards to the next's; None: 0."""
    launch_layer_s: Value | None = None
    """Host time to launch the kernels of a dense layer one by one, in a step with prompts that no CUDA graph covers; it
    is hidden where the GPU works for longer. None: it always is."""
    launch_linear_factor: Value | None = None
    """Multiplies `launch_layer_s` in layers with linear attention; None: 1. Experts and latent attention have as many
    kernels more as `moe_layer_factor` and `mla_layer_factor` say."""
    draft_layer_s: Value | None = None
    """Host time to launch a layer of a model that drafts for another one, beside the GPU's work on it; None: its layers
    take `per_layer_s` as those of any model."""


class EngineMemory(Spec):
    """What an engine keeps on each GPU beside weights and KV cache."""

    gpu_memory_utilization: Value
    """The default share."""
    share: Literal["everything", "weights_and_kv", "rest"]
    """everything: the share of the device holds weights, activations, libraries and cache (vLLM);
    weights_and_kv: the share of what is free before the weights load holds them and the cache (SGLang);
    rest: the cache takes the share of what all else leaves (TensorRT-LLM)."""
    driver_reserved_bytes: Value
    """Of the memory that nvidia-smi reports, what no process is given."""
    context_bytes: Value
    """CUDA context of one process; outside the share."""
    library_bytes: Value
    """What libraries take at the first step, outside the framework's allocator."""
    comms_bytes: Value
    """Communication buffers when more than one GPU serves a replica, on boards with NVLink or its like."""
    comms_bytes_pcie: Value
    """Communication buffers on PCIe cards, which have no multicast buffers and mostly no custom all-reduce."""
    forward_hidden_rows: Value
    """Live tensors as wide as `hidden`, for each token of the step's budget, at the forward pass's peak."""
    expert_chunk_tokens: Value | None = None
    """Tokens that go through routed experts at once; None: all of a step."""
    sampling_bytes_per_logit: Value
    """Per sequence and vocabulary entry while tokens are sampled: logits, their sort and sums."""
    sampling_hidden_rows: Value
    """Live tensors as wide as `hidden`, for each token of the budget, during sampling."""
    graph_bytes_per_layer: Value
    """Captured CUDA graphs."""
    graphs_in_share: bool
    """Whether the graphs come out of the share or out of the rest of the device."""


class OwnAllReduce(Sourced):
    """Kernels of the engine's own for all-reduces inside one server, in one or two steps; NCCL does the others."""

    max_bytes: dict[int, Positive]
    """Largest message by number of GPUs; NCCL does it for others."""
    pcie_pairs: bool
    """Whether it serves two GPUs that reach each other over PCIe; more than two need NVLink or its like."""

    def largest(self, ranks: int, over_pcie: bool) -> float:
        """Bytes of the largest message between *ranks* GPUs; 0: none."""
        if over_pcie and (ranks > 2 or not self.pcie_pairs):
            return 0.0
        return self.max_bytes.get(ranks, 0.0)


class LargerGpus(Spec):
    """What is otherwise on GPUs with at least so much memory."""

    from_bytes: Value
    max_num_seqs: Value | None = None
    max_num_batched_tokens: Value | None = None
    chunked_prefill_size: Value | None = None
    kept_free_bytes: Value | None = None
    gpus_except: tuple[str, ...] = ()
    """Ids of GPUs that keep the smaller limits in spite of their memory."""


class EngineLimits(Spec):
    """Default scheduler limits, and others on GPUs with more memory."""

    max_num_seqs: Value
    max_num_batched_tokens: Value
    chunked_prefill_size: Value | None = None
    """Prompt tokens in a step of an engine that computes prompts first; None: prompts are computed whole."""
    max_model_len: Value | None = None
    """The context of a slot where the operator sets none."""
    whole_prompts_up_to: Value | None = None
    """Where max_model_len is at most this, the token budget left open is at least max_model_len."""
    enable_prefix_caching: Value | None = None
    """1: on where the operator leaves it open; 0 or None: off."""
    async_scheduling: Value | None = None
    """1: the next step is formed while one runs, where the operator leaves it open; 0 or None: after it."""
    hybrid_kv_cache_manager: Value | None = None
    """1: layers with a sliding window and those that keep all tokens have KV blocks of their own out of one pool; 0 or
    None: they do not."""
    scheduler_reserve_full_isl: Value | None = None
    """0: a request joins once the KV blocks of its first chunk are free; 1 or None: of all its tokens."""
    async_drafts: Value | None = None
    """1: `async_scheduling` is also on with drafts of an EAGLE head or of multi-token prediction; 0 or None: not."""
    overlap_schedule: Value | None = None
    """1: as `async_scheduling`, for an engine that computes prompts first."""
    overlap_scheduler: Value | None = None
    """1: the host works beside the GPU in an engine that reserves KV blocks; 0 or None: before and after it."""
    schedule_conservativeness: Value | None = None
    """SGLang's; None: an engine that computes prompts first leaves a watermark of the KV blocks free."""
    graph_tokens: Value | None = None
    """Steps with prompts of at most so many tokens run from CUDA graphs, on NVIDIA's GPUs; None: none does."""
    hopper_tile_tokens: Value | None = None
    """Dense matrix products on Hopper cards compute whole tiles of so many tokens; None: a tile costs nothing."""
    padded_tokens: Value | None = None
    """Ranks that step together are padded to the fullest one in steps of at most so many tokens, and of at most twice
    max_num_seqs; 0: in all steps; None: in steps without prompts."""
    mamba_full_memory_ratio: Value | None = None
    """Memory of recurrent states over that of the KV cache, where they have a cache of their own (SGLang); None: they
    have none."""
    state_bits: Value | None = None
    """Of a number in a recurrent state, where the operator sets none; None: as the model has it."""
    states_per_request: Value | None = None
    """Places of that cache that a running request counts for, where prefixes are cached; elsewhere one."""
    states_ahead: Value | None = None
    """So many more where the next step is formed while one runs."""
    overlap_with_states: Value | None = None
    """0: `overlap_schedule` is off where the prefix cache holds states; 1 or None: it is as for other models."""
    kept_free_bytes: Value | None = None
    """Of a GPU's memory: the rest is the default share (SGLang); None: the share is `gpu_memory_utilization`."""
    larger_gpus: tuple[LargerGpus, ...] = ()
    """From the smallest on; the last that a GPU is large enough for and that states a limit counts."""


class ReleaseDefaults(Spec):
    """Defaults that some of the releases have otherwise, by the names of their fields."""

    versions: str
    """Which releases."""
    limits: dict[str, Value] = Field(default={})
    larger_gpus: tuple[LargerGpus, ...] | None = None
    """None: as in the entry."""
    memory: dict[str, Value | bool] = Field(default={})
    slow_weights: tuple[SlowWeights, ...] = ()
    """Beside those of the entry."""
    default_tiles: DefaultTiles | None = None
    """None: as in the entry."""

    @model_validator(mode="after")
    def _names_fields(self) -> Self:
        for said, spec in ((self.limits, EngineLimits), (self.memory, EngineMemory)):
            if unknown := set(said) - set(spec.model_fields):
                raise ValueError(f"there is no {min(unknown)}")
        return self


class Engine(Spec):
    """An engine. Without measurements of its overheads it holds facts only, and `note` says so."""

    id: str
    name: str
    aliases: tuple[str, ...] = ()
    versions: str = ""
    """Which releases these figures stand for."""
    changed: tuple[ReleaseDefaults, ...] = ()
    """What the limits and the memory of some of these releases are instead."""
    note: str = ""
    vendors: tuple[Vendor, ...] = ()
    """Whose GPUs it runs on; empty: anybody's."""
    batching: Literal["vllm", "prefill_first", "reserve", "slots", "static"]
    """The policy in sim/batching that a pool runs on where it names none."""
    prefill: Literal["chunked", "whole", "unknown"]
    """chunked: prompts share steps with decodes; whole: a prompt runs by itself and decodes wait."""
    overheads: Overheads | None = None
    memory: EngineMemory | None = None
    limits: EngineLimits | None = None
    own_all_reduce: OwnAllReduce | None = None
    """None: all collectives are NCCL's."""
    offload: EngineOffload | None = None
    """What it does with weights in host memory; absent: all weights lie on the GPUs."""


Version = tuple[int, ...]


def family_of(engine: str) -> str:
    """The engine's id without its version.

    >>> family_of("tensorrt-llm-1.0"), family_of("llama.cpp")
    ('tensorrt-llm', 'llama.cpp')
    """
    return re.sub(r"-\d[\d.]*$", "", engine)


def version_of(text: str) -> Version:
    """The first version in *text*, empty if there is none.

    >>> version_of("v0.17.1rc2"), version_of("latest")
    ((0, 17, 1), ())
    """
    found = re.search(r"\d+(?:\.\d+)+", text)
    return tuple(int(part) for part in found.group().split(".")) if found else ()


def outside(versions: str, wanted: Version) -> tuple[int, ...]:
    """How far *wanted* lies outside of *versions* ("0.14 to 0.18"), major versions before minor ones; (0, 0): inside.
    As exactly as *versions* are written: 0.17.1 is in "0.14 to 0.17", and not in "0.14.0 to 0.17.0".

    >>> outside("0.14 to 0.18", (0, 17, 1)), outside("0.5", (0, 4)), outside("1.0 to 1.3", (0, 20))
    ((0, 0), (0, 1), (1, 20))
    >>> outside("0.5.3 to 0.5.18", (0, 5, 2)), outside("0.5.3 to 0.5.18", (0, 5, 9, 2))
    ((0, 0, 1), (0, 0, 0))
    """
    ends = [version_of(part) for part in versions.split(" to ")]
    parts = max(2, *(len(end) for end in ends))
    low, high, at = (_padded(version, parts) for version in (ends[0], ends[-1], wanted))
    near = min(max(at, low), high)
    return tuple(abs(mine - its) for mine, its in zip(at, near, strict=True))


def _padded(version: Version, parts: int) -> Version:
    return (*version, *(0,) * parts)[:parts]


def at_version(engine: Engine, version: Version) -> Engine:
    """*engine* with the defaults of that release, where *version* tells it apart from others."""
    said = [one for one in engine.changed if len(version) >= len(version_of(one.versions))]
    changes = [one for one in said if not any(outside(one.versions, version))]
    limits: dict[str, Value | tuple[LargerGpus, ...]] = {}
    for one in changes:
        limits |= one.limits | ({} if one.larger_gpus is None else {"larger_gpus": one.larger_gpus})
    memory = {name: value for one in changes for name, value in one.memory.items()}
    own = engine.overheads
    fast = tuple(one for one in own.fast_experts if not any(outside(one.versions, version))) if own else ()
    slow = (*own.slow_weights, *(weights for one in changes for weights in one.slow_weights)) if own else ()
    kernels: dict[str, object] = {"fast_experts": fast, "slow_weights": slow}
    for one in changes:
        kernels |= {"default_tiles": one.default_tiles} if one.default_tiles else {}
    return engine.model_copy(
        update={
            "overheads": own.model_copy(update=kernels) if own else None,
            "limits": engine.limits.model_copy(update=limits) if engine.limits else None,
            "memory": engine.memory.model_copy(update=memory) if engine.memory else None,
        }
    )


def default_limit(engine: Engine, gpu: Gpu | None, name: str) -> Value | None:
    """The engine's own limit of that *name* on *gpu*, of a small one where None; None where it is unknown."""
    limits = engine.limits
    if limits is None:
        return None
    found: Value | None = getattr(limits, name)
    for larger in limits.larger_gpus:
        if gpu is not None and gpu.memory_bytes.value >= larger.from_bytes.value and gpu.id not in larger.gpus_except:
            found = getattr(larger, name, None) or found
    return found


def default_share(engine: Engine, memory: EngineMemory, gpu: Gpu) -> float:
    """Share of the memory of *gpu* that *engine* uses where the operator leaves it open."""
    free = default_limit(engine, gpu, "kept_free_bytes")
    return memory.gpu_memory_utilization.value if free is None else 1 - free.value / gpu.memory_bytes.value
