"""A serving engine and its version: data/engines/<id>.yaml."""

from typing import Literal

from sim.catalog.gpu import Gpu
from sim.catalog.value import Value
from sim.spec import Spec


class Overheads(Spec):
    """Host time that adds to the GPU's time."""

    per_layer_s: Value
    per_step_s: Value
    """Behind an API server."""
    per_step_in_process_s: Value
    """Called as a library (offline)."""
    per_sequence_s: Value
    """Sampling, detokenising and streaming of one sequence in one step, behind an API server."""
    per_sequence_in_process_s: Value
    per_request_s: Value
    """API-server time before a request's first token; it does not hold the engine."""
    moe_layer_factor: Value
    mla_layer_factor: Value
    blackwell_layer_factor: Value
    """These three multiply `per_layer_s`."""
    tp_request_factor: Value
    """Multiplies `per_request_s` when tensor_parallel_size > 1."""
    moe_request_factor: Value
    kv_read_time_factor: Value
    """Decode attention's time to read the cache, against weights."""
    moe_gemm_time_factor: Value
    """Grouped matrix products over experts, compute and weights alike."""


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
    """The same on PCIe cards, which go without multicast buffers and mostly without the custom all-reduce."""
    forward_hidden_rows: Value
    """Live tensors as wide as `hidden`, for each token of the step's budget, at the forward pass's peak."""
    sampling_bytes_per_logit: Value
    """Per sequence and vocabulary entry while tokens are sampled: logits, their sort and sums."""
    sampling_hidden_rows: Value
    """Live tensors as wide as `hidden`, for each token of the budget, during sampling."""
    graph_bytes_per_layer: Value
    """Captured CUDA graphs."""
    graphs_in_share: bool
    """Whether the graphs come out of the share or out of the rest of the device."""


class Limits(Spec):
    """Default scheduler limits, and the larger ones on GPUs with much memory."""

    max_num_seqs: Value
    max_num_batched_tokens: Value
    large_gpu_from_bytes: Value | None = None
    large_gpu_max_num_seqs: Value | None = None
    large_gpu_max_num_batched_tokens: Value | None = None
    large_gpu_except: tuple[str, ...] = ()
    """Ids of GPUs that keep the small limits in spite of their memory."""


class Engine(Spec):
    """An engine. One whose inner figures nobody has measured holds facts only and says so in `note`."""

    id: str
    name: str
    aliases: tuple[str, ...] = ()
    versions: str = ""
    """Which releases these figures stand for."""
    note: str = ""
    batching: Literal["continuous", "slots"]
    """continuous: any request joins at any step, paged cache; slots: a fixed number of sequences, own cache each."""
    prefill: Literal["chunked", "whole", "unknown"]
    """chunked: prompts share steps with decodes; whole: a prompt runs by itself and decodes wait."""
    overheads: Overheads | None = None
    memory: EngineMemory | None = None
    limits: Limits | None = None


def default_limits(engine: Engine, gpu: Gpu) -> tuple[int, int] | None:
    """The engine's own (max_num_seqs, max_num_batched_tokens) on *gpu*; None where they are unknown."""
    limits = engine.limits
    if limits is None:
        return None
    small = int(limits.max_num_seqs.value), int(limits.max_num_batched_tokens.value)
    if limits.large_gpu_from_bytes is None or gpu.id in limits.large_gpu_except:
        return small
    if gpu.memory_bytes.value < limits.large_gpu_from_bytes.value:
        return small
    seqs, tokens = limits.large_gpu_max_num_seqs, limits.large_gpu_max_num_batched_tokens
    return int(seqs.value) if seqs else small[0], int(tokens.value) if tokens else small[1]
