"""Serving engines by version: data/engines/<id>.yaml.

Includes the engine's handling of weights that stay in host memory (`EngineOffload`) and the selection of those weights
(`HostWeights`).
"""

import re
from dataclasses import dataclass
from typing import Literal, Self

from pydantic import Field, model_validator

from sim.catalogue.gpu import Gpu, Vendor
from sim.catalogue.model import Matrix, Model
from sim.catalogue.stages import PipelineSplit
from sim.catalogue.value import Sourced, Value
from sim.message import Message
from sim.spec import Count, Positive, Spec

OffloadOption = Literal["cpu_offload_gb", "n_gpu_layers", "n_cpu_moe"]


class EngineOffload(Sourced):
    """Rules by which an engine offloads weights to host memory; the source and `where` are those of the rules."""

    options: tuple[OffloadOption, ...]
    """Offload options that the operator may set."""
    experts_in_host: bool = False
    """True if all routed experts lie in host memory by default."""
    streaming: Literal["copied", "in_place", "none"]
    """GPU access to offloaded weights. copied: copied to the GPU before use; in_place: read over the link by the GPU's
    kernels; none: never, the CPU computes with them."""
    stream_from_tokens: Value | None = None
    """Minimum tokens of a step for which weights are streamed to the GPU; for smaller steps the CPU multiplies them.
    None: all steps stream."""
    micro_batch_tokens: Value | None = None
    """Tokens that share one pass over the weights; None: all tokens of the step."""
    link_efficiency: Value | None = None
    """Fraction of the link's rate achieved when weights are streamed."""
    memory_efficiency: Value | None = None
    """Fraction of the host memory's rate achieved when the CPU reads weights."""
    expert_memory_efficiency: Value | None = None
    """Fraction of the host memory's rate achieved when the CPU reads routed experts, which are read in pieces."""


@dataclass(frozen=True, slots=True)
class Offload:
    """Weights that an operator leaves in host memory, under the engines' own option names."""

    cpu_offload_gb: float | None = None
    """Layer weights in host memory, per GPU [GiB]."""
    n_gpu_layers: int | None = None
    """Number of layers on the GPU, counted from the last; the LM head counts as one more and is placed first."""
    n_cpu_moe: int | None = None
    """Number of leading layers whose routed experts stay in host memory."""

    @property
    def given(self) -> dict[OffloadOption, float]:
        """Options that are set, by name."""
        found: dict[OffloadOption, float | None] = {
            "cpu_offload_gb": self.cpu_offload_gb,
            "n_gpu_layers": self.n_gpu_layers,
            "n_cpu_moe": self.n_cpu_moe,
        }
        return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True, slots=True)
class HostWeights:
    """Weights of a model that lie in host memory."""

    layer_share: float = 0.0
    """Fraction of every layer's weights in host memory; an even share stands for the leading layers of a model with
    equal layers."""
    layers: int = 0
    """Number of leading layers in host memory, with all their weights and their part of the KV cache."""
    expert_layers: int = 0
    """Number of leading layers whose routed experts lie in host memory."""
    head: bool = False
    """True if the LM head lies in host memory."""
    embedding: bool = False
    """True if the token embedding lies in host memory, unless it is tied to the LM head."""

    def share(self, matrix: Matrix, model: Model) -> float:
        """Return the fraction of the copies of *matrix* that lie in host memory."""
        if matrix.last_layer == 0:
            return float(self._outside(matrix, model))
        layers = max(self.layers, self.expert_layers if matrix.role == "expert" else 0)
        if model.linear_attention is not None and matrix.role == "attention":
            return max(self.layer_share, layers / model.layers)  # layers with and without attention alternate
        in_host = max(0, min(layers, matrix.last_layer) - matrix.first_layer)
        return max(self.layer_share, in_host / (matrix.last_layer - matrix.first_layer))

    def _outside(self, matrix: Matrix, model: Model) -> bool:
        if matrix.role == "embedding" and not (model.tie_embeddings and matrix.split == "vocab"):
            return self.embedding
        return self.head and matrix.role in ("embedding", "lm_head")

    @classmethod
    def of(cls, offload: Offload, model: Model, layer_bytes: float) -> "HostWeights":
        """Return the placement that *offload* gives the weights of *model*.

        *layer_bytes* is the size of all layers on one GPU. llama.cpp assigns the LM head to the GPU first, then the
        layers from the last one on.
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
    """Cards on which the engine's kernels reach another memory rate than on others."""

    gpus: tuple[str, ...]
    """Prefixes of the GPU ids."""
    factor: Value
    """Factor on the time to read weights."""

    def matches(self, gpu: Gpu) -> bool:
        """Return whether *gpu* is one of these cards."""
        return gpu.id.startswith(self.gpus)


class PromptKernels(Spec):
    """Work of an engine's prompt kernels beyond matrix products on stored weights and fused attention (llama.cpp)."""

    micro_batch_tokens: Value
    """Maximum tokens of a pass through the layers (`--ubatch-size`)."""
    vendors: tuple[Vendor, ...] = ()
    """Vendors to which `activation_bytes` and `dequantised_bytes` apply; empty: all. The arithmetic efficiency of other
    vendors' GPUs was measured with these kernels."""
    activation_bytes: Value
    """Memory traffic of norms, conversions and other kernels between products, per input and output of a product."""
    score_bytes: Value | None = None
    """Memory traffic per query-key pair and head where scores are stored between kernels, masked pairs included; None:
    attention is fused."""
    dequantised_bytes: Value | None = None
    """Memory traffic per quantised weight and pass where weights are converted to 16 bit first; None: never."""
    half_accumulation_factor: Value | None = None
    """Rate of 16-bit products on GeForce cards with sums in 16 bit, relative to sums in 32 bit."""
    int8_share: Value | None = None
    """Rate of quantised products in 8-bit integers, relative to the efficiency of 16-bit products times the dense 8-bit
    peak; None: they compute in 16 bit."""
    hopper_share: Value | None = None
    """Further factor on that rate on H100, H200 and related cards."""


class SlowWeights(Spec):
    """Format whose dense weights the engine's kernels read more slowly on graphics cards of the Blackwell family."""

    kernel: str
    """Id of the format's kernel, in data/kernels."""
    factor: Value
    """Factor on the time to read weights."""


class SlowProducts(Spec):
    """Format whose dense products take longer in this engine on B200, B300 and related cards than on other GPUs."""

    kernel: str
    """Id of the format's kernel, in data/kernels."""
    factor: Value
    """Factor on the time of the products' arithmetic."""


class DenseKernel(Spec):
    """Kernel of the dense products of a format that a server may choose, on B200, B300 and related cards."""

    backend: str
    """Value of `fp8_gemm_backend` that chooses the kernel."""
    kernel: str
    """Id of the format's kernel, in data/kernels."""
    reached: Value
    """Fraction of the dense peak that its products reach with many tokens."""


class FastExperts(Spec):
    """Faster kernels of a format's grouped products over experts, on B200, B300 and related cards."""

    kernel: str
    """Id of the format's kernel, in data/kernels."""
    versions: str
    """Releases with the faster kernels."""
    backend: str
    """Value of `moe_backend` that chooses them."""
    default: bool = False
    """True if the engine chooses them where the server states no backend, or auto."""
    measured_as: str = ""
    """Column `kernel` in kernels/measured.csv, if the engine's other kernels of the format were measured as well."""
    factor: Value
    """Factor on the time of the products' arithmetic."""


class TunedTiles(Spec):
    """Shapes of grouped products for which an engine's release contains tuned tile sizes."""

    experts: int
    """Number of experts on a GPU."""
    widths: tuple[int, ...] = ()
    """Inner widths of an expert on a GPU; empty: all widths."""
    gpus: tuple[str, ...]
    """Prefixes of the GPU ids."""

    def matches(self, gpu: Gpu, experts: int, width: float) -> bool:
        """Return whether a product of *experts* experts of inner *width* on *gpu* has tuned tiles."""
        return experts == self.experts and gpu.id.startswith(self.gpus) and (not self.widths or width in self.widths)


class DefaultTiles(Spec):
    """Slowdown of grouped expert products whose shape has no tuned tiles for the card; default tiles are small."""

    kernel: str
    """Id of the kernel of the experts' format, in data/kernels."""
    architectures: tuple[str, ...]
    """Values of `Gpu.architecture` for which the slowdown was measured."""
    factor: Value
    """Factor on the time of the products' arithmetic, relative to tuned tiles."""
    read_factor: Value | None = None
    """Factor on the time to read weights on a GPU with at most `read_experts` experts; None: 1."""
    read_experts: int = 0
    tuned: tuple[TunedTiles, ...]
    """Shapes that are tuned and therefore exempt."""


class PaddedExperts(Spec):
    """Grouped expert products that pad the tokens of each expert to whole tiles and load empty tiles as well."""

    quantizations: tuple[str, ...]
    """Ids of the weight formats, in data/quantizations."""
    architectures: tuple[str, ...]
    """Values of `Gpu.architecture` on which the engine selects the kernel."""
    split_below: Count
    """Number of GPUs that share an expert from which on the engine selects another kernel."""
    tile_tokens: Value
    """Number of tokens per tile; the kernel's buffer holds the largest padding, a tile less one token per expert."""
    efficiency: Value
    """Rate at which the kernel passes over padding, as a fraction of the dense peak."""


class Overheads(Spec):
    """Host time of an engine, and factors on its kernels' times."""

    per_layer_s: Value
    per_step_s: Value
    """Host time per step, behind an API server as well as when called as a library (offline) [s]."""
    per_sequence_s: Value
    """Host time to sample, detokenise and stream one sequence in one step, behind an API server [s]."""
    per_sequence_in_process_s: Value
    standing_share: Value | None = None
    """Host time of a step per request in another batch in flight over pipeline stages, relative to
    `per_sequence_in_process_s`, where the scheduler goes through the requests of all batches; None: 1."""
    per_request_s: Value
    """API-server time before a request's first token, which does not block the engine [s]."""
    tokenising_s: Value | None = None
    """API-server time to tokenise a prompt, per token, before the engine gets the request [s]; None: 0."""
    request_turn_s: Value | None = None
    """API-server time between the arrivals at the engine of requests that arrive together [s]; None: 0."""
    chat_template_s: Value | None = None
    """API-server time to parse the model's chat template for each request, one request at a time [s]; None: the
    template is parsed once."""
    moe_layer_factor: Value
    mla_layer_factor: Value
    blackwell_layer_factor: Value
    hopper_layer_factor: Value
    ada_layer_factor: Value | None = None
    """Factor on Ada Lovelace cards, whose clocks are 1.8 times an A100's; None: 1."""
    cdna_layer_factor: Value | None = None
    """Factor on AMD Instinct cards; None: 1. The layer factors multiply `per_layer_s`, and this one `launch_layer_s` as
    well."""
    graph_layer_factor: Value | None = None
    """Factor on NVIDIA cards from Ampere on, whose steps run from CUDA graphs; None: 1."""
    linear_layer_factor: Value | None = None
    """Factor on layers with linear attention that run from no CUDA graph; None: 1."""
    recent_host_factor: Value
    """Factor on the time per step and per sequence."""
    tp_request_factor: Value
    """Factor on `per_request_s` when tensor_parallel_size > 1."""
    hopper_request_factor: Value | None = None
    """Factor on `per_request_s` in servers with H100, H200 and related cards; None: 1."""
    moe_request_factor: Value
    kv_read_time_factor: Value
    """Time for decode attention to read a byte of the KV cache, relative to a byte of weights."""
    kv_8bit_read_time_factor: Value | None = None
    """Time to read a byte of an 8-bit KV cache, relative to a byte of a 16-bit cache; None: 1."""
    slow_cards: SlowCards | None = None
    """Cards on which the engine reads weights more slowly than on others; None: none."""
    moe_gemm_time_factor: Value
    """Factor on the arithmetic time of grouped matrix products over experts; reading weights is not affected."""
    slow_weights: tuple[SlowWeights, ...] = ()
    slow_products: tuple[SlowProducts, ...] = ()
    dense_kernels: tuple[DenseKernel, ...] = ()
    """Kernels of formats scaled by blocks in place of the default one."""
    fast_experts: tuple[FastExperts, ...] = ()
    gathered_bits: dict[str, Value] = Field(default_factory=dict)
    """Bits per element of the hidden states that data-parallel ranks gather before the experts, by the kernel of the
    weight format; other formats: 16, as of the sums that they scatter after the experts."""
    default_tiles: DefaultTiles | None = None
    padded_experts: PaddedExperts | None = None
    experts_by_kernel: dict[str, Value] = Field(default_factory=dict)
    """Factor on the arithmetic time of grouped products over experts, by the kernel of the weight format; other
    formats: 1. Reading weights is not affected: measured kernels differ in arithmetic (benchmarks/fit/releases.py)."""
    per_prompt_token_s: Value | None = None
    """Host time of a step behind an API server, per prompt token in it, independent of model and GPUs [s]; None: 0."""
    per_boundary_s: Value | None = None
    """Host time to pass a step from one pipeline stage's GPUs to the next's [s]; None: 0."""
    launch_layer_s: Value | None = None
    """Host time to launch the kernels of a dense layer one by one, in a step that no CUDA graph covers [s]; hidden
    where the GPU works longer. None: always hidden."""
    launch_linear_factor: Value | None = None
    """Factor on `launch_layer_s` for layers with linear attention by a delta rule; None: 1, as for others. For experts,
    `moe_layer_factor` applies."""
    launch_latent_factor: Value | None = None
    """Factor on `launch_layer_s` for layers with latent attention; None: `mla_layer_factor`."""
    launch_indexer_factor: Value | None = None
    """Factor on `launch_layer_s` for layers whose indexer selects tokens; None: 1."""
    prompt_kernels: PromptKernels | None = None
    """Kernels of prompts beyond products and attention; None: none."""
    draft_layer_s: Value | None = None
    """Host time to launch a layer of a draft model, in parallel with the GPU's work on it [s]; None: `per_layer_s`."""


class EngineMemory(Spec):
    """Memory that an engine reserves on each GPU besides weights and KV cache."""

    gpu_memory_utilization: Value
    """Default `gpu_memory_utilization` (fraction of the memory that `share` describes)."""
    share: Literal["everything", "weights_and_kv", "rest"]
    """Memory that the fraction covers. everything: weights, activations, libraries and cache, out of the device's
    memory (vLLM); weights_and_kv: weights and cache, out of the memory free before loading (SGLang); rest: the cache,
    out of the memory left by everything else (TensorRT-LLM)."""
    driver_reserved_bytes: Value
    """Part of the memory reported by nvidia-smi that no process can allocate [bytes]."""
    context_bytes: Value
    """Size of a process's CUDA context, which is outside the share [bytes]."""
    library_bytes: Value
    """Memory that libraries allocate at the first step, outside the framework's allocator [bytes]."""
    comms_bytes: Value
    """Communication buffers of a replica on several GPUs with NVLink or a similar link [bytes]."""
    comms_bytes_pcie: Value
    """Communication buffers on PCIe cards, which have no multicast buffers and mostly no custom all-reduce [bytes]."""
    forward_hidden_rows: Value
    """Number of live tensors of width `hidden` per token of the step's budget at the peak of the forward pass."""
    expert_chunk_tokens: Value | None = None
    """Maximum tokens processed by routed experts at once; None: all tokens of a step."""
    sampling_bytes_per_logit: Value
    """Bytes per sequence and vocabulary entry while tokens are sampled: logits, their sort and sums."""
    sampling_hidden_rows: Value
    """Number of live tensors of width `hidden` per token of the budget during sampling."""
    graph_bytes_per_layer: Value
    """Size of captured CUDA graphs per layer [bytes]."""
    graphs_in_share: bool
    """True if CUDA graphs count towards the share, rather than the rest of the device."""


class OwnAllReduce(Sourced):
    """All-reduce kernels of the engine itself, in one or two steps, inside one server; NCCL runs the others."""

    max_bytes: dict[int, Positive]
    """Maximum message size by number of GPUs [bytes]; NCCL runs larger messages and other numbers of GPUs."""
    pcie_pairs: bool
    """True if the kernels run between two GPUs connected over PCIe; more than two need NVLink or a similar link."""

    def largest(self, ranks: int, over_pcie: bool) -> float:
        """Return the maximum message size between *ranks* GPUs [bytes]; 0 if the kernels do not apply."""
        if over_pcie and (ranks > 2 or not self.pcie_pairs):
            return 0.0
        return self.max_bytes.get(ranks, 0.0)


class PipelineStages(Sourced):
    """Division of a model's layers among pipeline stages."""

    split: PipelineSplit


class LargerGpus(Spec):
    """Default limits on GPUs with at least `from_bytes` of memory."""

    from_bytes: Value
    max_num_seqs: Value | None = None
    max_num_batched_tokens: Value | None = None
    max_num_batched_tokens_in_process: Value | None = None
    chunked_prefill_size: Value | None = None
    max_model_len: Value | None = None
    graph_tokens: Value | None = None
    kept_free_bytes: Value | None = None
    gpus_except: tuple[str, ...] = ()
    """Ids of GPUs that keep the smaller limits despite their memory."""
    architectures: tuple[str, ...] = ()
    """Values of `Gpu.architecture` that the limits apply to; empty: all."""

    def applies(self, gpu: Gpu) -> bool:
        """Return True if *gpu* has these limits."""
        fits = gpu.memory_bytes.value >= self.from_bytes.value and gpu.id not in self.gpus_except
        return fits and gpu.architecture in (self.architectures or (gpu.architecture,))


class EngineLimits(Spec):
    """Default scheduler limits, and the limits on GPUs with more memory."""

    max_num_seqs: Value
    max_num_batched_tokens: Value
    max_num_batched_tokens_in_process: Value | None = None
    """Default of `max_num_batched_tokens` where the engine is called as a library (offline); None: as behind an API
    server."""
    chunked_prefill_size: Value | None = None
    """Maximum prompt tokens per step in an engine that computes prompts first; None: prompts are computed whole."""
    max_model_len: Value | None = None
    """Default context length of a slot."""
    whole_prompts_up_to: Value | None = None
    """Bound on `max_model_len` below which the default token budget is at least `max_model_len`."""
    enable_prefix_caching: Value | None = None
    """Default of prefix caching: 1: on; 0 or None: off."""
    async_scheduling: Value | None = None
    """Default of asynchronous scheduling: 1: the next step is formed while a step runs; 0 or None: after it."""
    hybrid_kv_cache_manager: Value | None = None
    """Default of the hybrid KV cache manager: 1: layers with a sliding window and layers that keep all tokens have
    separate KV blocks from one pool; 0 or None: common blocks."""
    scheduler_reserve_full_isl: Value | None = None
    """Default of full reservation at admission: 0: a request is admitted once the KV blocks of its first chunk are
    free; 1 or None: once those of all its tokens are."""
    async_drafts: Value | None = None
    """Default of `async_scheduling` with EAGLE or multi-token-prediction drafts: 1: on; 0 or None: off."""
    overlap_schedule: Value | None = None
    """Default of `async_scheduling` in an engine that computes prompts first (SGLang's name)."""
    overlap_scheduler: Value | None = None
    """Default of `async_scheduling` in an engine that reserves KV blocks (TensorRT-LLM's name)."""
    overlap_context_chunks: Value | None = None
    """Chunks of one prompt in pipeline stages: 1: a chunk follows the one before it from stage to stage; 0 or None: it
    waits until that has left the last stage. vLLM and SGLang always work in the first way."""
    overlap_micro_batches: Value | None = None
    """Batches in flight over pipeline stages, in vLLM with asynchronous scheduling: 0: they take turns, and a batch
    enters the first stage when the one before it has left the last; 1 or None: it enters when the first is free."""
    schedule_conservativeness: Value | None = None
    """SGLang's schedule_conservativeness; None: an engine that computes prompts first leaves a watermark of KV blocks
    free."""
    graph_tokens: Value | None = None
    """Maximum tokens of a step with prompts that runs from CUDA graphs; None: no such step does. In vLLM also that of
    a step without prompts, and at most twice the tokens that max_num_seqs sequences decode."""
    graph_tokens_by_family: dict[str, Value] = Field(default_factory=dict)
    """Least value of `graph_tokens` for families of models, whatever max_num_seqs."""
    graphs_count_drafts: Value | None = None
    """1: drafted tokens count among those that max_num_seqs sequences decode (`graph_tokens`); 0 or None: they do
    not."""
    graph_size_multiple: Value | None = None
    """CUDA graphs are captured for 1, 2, 4, ... and for multiples of this number of tokens, a power of two, and a step
    is padded to the next of these sizes; None: the padding is not known."""
    pads_all_steps: Value | None = None
    """1: data-parallel ranks that step together are padded to the fullest rank in all steps; 0 or None: in steps that
    run from CUDA graphs."""
    hopper_tile_tokens: Value | None = None
    """Tokens per tile of dense matrix products on Hopper cards; partial tiles cost whole ones. None: no rounding."""
    mamba_full_memory_ratio: Value | None = None
    """Memory of the recurrent-state cache divided by that of the KV cache, for engines with a separate state cache
    (SGLang); None: no separate cache."""
    state_bits: Value | None = None
    """Default bits of a number in a recurrent state; None: the model's own."""
    states_per_request: Value | None = None
    """State-cache slots per running request with prefix caching; without it, 1."""
    states_ahead: Value | None = None
    """Additional state-cache slots per running request where the next step is formed while a step runs."""
    overlap_with_states: Value | None = None
    """Default of `overlap_schedule` where the prefix cache holds states: 0: off; 1 or None: as for other models."""
    overlap_with_states_by_family: dict[str, Value] = Field(default_factory=dict)
    """Values of `overlap_with_states` of families of models that differ, whatever the release."""
    kept_free_bytes: Value | None = None
    """Memory of a GPU left free, which determines the default share (SGLang) [bytes]; None: the share is
    `gpu_memory_utilization`."""
    larger_gpus: tuple[LargerGpus, ...] = ()
    """Limits for GPUs with more memory, in ascending order; the last entry that fits the GPU and states a limit
    applies."""


class ReleaseDefaults(Spec):
    """Defaults that differ in some of the engine's releases, by field name."""

    versions: str
    """Releases that the changes apply to."""
    limits: dict[str, Value] = Field(default={})
    """Changed limits."""
    larger_gpus: tuple[LargerGpus, ...] | None = None
    """Changed entries for larger GPUs; None: as in the engine's entry."""
    memory: dict[str, Value | bool] = Field(default={})
    """Changed figures of memory."""
    overheads: dict[str, Value] = Field(default={})
    """Changed overheads."""
    slow_weights: tuple[SlowWeights, ...] = ()
    """Slow weight formats in addition to those of the engine's entry."""
    default_tiles: DefaultTiles | None = None
    """Changed default tiles; None: as in the engine's entry."""
    padded_experts: PaddedExperts | None = None
    """Changed kernel that pads experts; None: as in the engine's entry."""
    prompt_kernels: PromptKernels | None = None
    """Changed kernels of prompts; None: as in the engine's entry."""

    @model_validator(mode="after")
    def _names_fields(self) -> Self:
        stated = (self.limits, EngineLimits), (self.memory, EngineMemory), (self.overheads, Overheads)
        for changes, spec in stated:
            if unknown := set(changes) - set(spec.model_fields):
                raise ValueError(Message("there is no {name}", min(unknown)))
        return self


class Engine(Spec):
    """Serving engine; without measured overheads it holds facts only, as `note` explains."""

    id: str
    name: str
    aliases: tuple[str, ...] = ()
    versions: str = ""
    """Releases that the figures apply to."""
    changed: tuple[ReleaseDefaults, ...] = ()
    """Limits and memory figures that differ in some of these releases."""
    note: str = ""
    vendors: tuple[Vendor, ...] = ()
    """Vendors whose GPUs the engine supports; empty: all vendors."""
    batching: Literal["vllm", "prefill_first", "reserve", "slots", "static"]
    """Default scheduling policy of a pool (a policy in sim/batching)."""
    prefill: Literal["chunked", "whole", "unknown"]
    """Prefill handling. chunked: prompts share steps with decodes; whole: a prompt runs alone while decodes wait."""
    overheads: Overheads | None = None
    memory: EngineMemory | None = None
    limits: EngineLimits | None = None
    own_all_reduce: OwnAllReduce | None = None
    """All-reduce kernels of the engine itself; None: NCCL runs all collectives."""
    offload: EngineOffload | None = None
    """Rules of weight offloading; None: all weights lie on the GPUs."""
    pipeline: PipelineStages | None = None
    """Division of layers among pipeline stages; None: as in vLLM."""

    @property
    def pipeline_split(self) -> PipelineSplit:
        """Placement of layers that remain if pipeline stages do not divide them."""
        return self.pipeline.split if self.pipeline is not None else "before_last"


Version = tuple[int, ...]


def family_of(engine: str) -> str:
    """Return the engine's id without its version.

    >>> family_of("tensorrt-llm-1.0"), family_of("llama.cpp")
    ('tensorrt-llm', 'llama.cpp')
    """
    return re.sub(r"-\d[\d.]*$", "", engine)


def version_of(text: str) -> Version:
    """Return the first version number in *text*, 0.N for build bN of llama.cpp; empty if there is none.

    >>> version_of("v0.17.1rc2"), version_of("b9601"), version_of("latest")
    ((0, 17, 1), (0, 9601), ())
    """
    found = re.search(r"\d+(?:\.\d+)+", text) or re.fullmatch(r"b(\d+)", text)
    number = found and (f"0.{found[1]}" if found.re.groups else found[0])
    return tuple(int(part) for part in number.split(".")) if number else ()


def version_distance(versions: str, wanted: Version) -> tuple[int, ...]:
    """Return the distance of *wanted* from the range *versions*, per version part; (0, 0) if inside.

    *versions* is a range such as "0.14 to 0.18" or a single version. The comparison is as exact as *versions* is
    written: 0.17.1 is in "0.14 to 0.17", but not in "0.14.0 to 0.17.0". Results sort by major, then minor versions.

    >>> version_distance("0.14 to 0.18", (0, 17, 1)), version_distance("0.5", (0, 4))
    ((0, 0), (0, 1))
    >>> version_distance("1.0 to 1.3", (0, 20))
    (1, 20)
    >>> version_distance("0.5.3 to 0.5.18", (0, 5, 2)), version_distance("0.5.3 to 0.5.18", (0, 5, 9, 2))
    ((0, 0, 1), (0, 0, 0))
    """
    ends = [version_of(part) for part in versions.split(" to ")]
    parts = max(2, *(len(end) for end in ends))
    low, high, at = (_padded_version(version, parts) for version in (ends[0], ends[-1], wanted))
    near = min(max(at, low), high)
    return tuple(abs(mine - its) for mine, its in zip(at, near, strict=True))


def _padded_version(version: Version, parts: int) -> Version:
    return (*version, *(0,) * parts)[:parts]


def at_version(engine: Engine, version: Version) -> Engine:
    """Return *engine* with the defaults of release *version*, where *version* is specific enough to distinguish it."""
    specific = [one for one in engine.changed if len(version) >= len(version_of(one.versions))]
    changes = [one for one in specific if not any(version_distance(one.versions, version))]
    limits: dict[str, Value | tuple[LargerGpus, ...]] = {}
    for one in changes:
        limits |= one.limits | ({} if one.larger_gpus is None else {"larger_gpus": one.larger_gpus})
    memory = {name: value for one in changes for name, value in one.memory.items()}
    own = engine.overheads
    fast = tuple(one for one in own.fast_experts if not any(version_distance(one.versions, version))) if own else ()
    slow = (*own.slow_weights, *(weights for one in changes for weights in one.slow_weights)) if own else ()
    kernels: dict[str, object] = {name: value for one in changes for name, value in one.overheads.items()}
    kernels |= {"fast_experts": fast, "slow_weights": slow}
    for one in changes:
        kernels |= {"default_tiles": one.default_tiles} if one.default_tiles else {}
        kernels |= {"padded_experts": one.padded_experts} if one.padded_experts else {}
        kernels |= {"prompt_kernels": one.prompt_kernels} if one.prompt_kernels else {}
    return engine.model_copy(
        update={
            "overheads": own.model_copy(update=kernels) if own else None,
            "limits": engine.limits.model_copy(update=limits) if engine.limits else None,
            "memory": engine.memory.model_copy(update=memory) if engine.memory else None,
        }
    )


def default_limit(engine: Engine, gpu: Gpu | None, name: str, in_process: bool = False) -> Value | None:
    """Return the engine's default of limit *name* on *gpu*; None if unknown. Without *gpu*, a small GPU is assumed.

    With *in_process*, the default is that of an engine called as a library, where it differs.
    """
    if in_process and name == "max_num_batched_tokens":
        return default_limit(engine, gpu, f"{name}_in_process") or default_limit(engine, gpu, name)
    limits = engine.limits
    if limits is None:
        return None
    found: Value | None = getattr(limits, name)
    for larger in limits.larger_gpus:
        if gpu is not None and larger.applies(gpu):
            found = getattr(larger, name, None) or found
    return found


def default_share(engine: Engine, memory: EngineMemory, gpu: Gpu) -> float:
    """Return the default fraction of the memory of *gpu* that *engine* uses."""
    free = default_limit(engine, gpu, "kept_free_bytes")
    return memory.gpu_memory_utilization.value if free is None else 1 - free.value / gpu.memory_bytes.value
