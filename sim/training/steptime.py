"""Time of an optimizer step by cause, and the arithmetic and memory traffic that it causes on the GPUs.

    stage  = (C^p + W^p)^(1/p) + attention + element-wise traffic + tensor-parallel exchange     one micro-batch
    micro  = (stage^4 + launches^4)^(1/4)
    step   = micro * (micro-batches + (stages - 1) / chunks) + exposed exchange + optimizer + constant

C is the time of 2 FLOP per weight and token forward, 4 backward, and 2 more if the forward pass is repeated; with LoRA
the backward pass computes only the gradients of the activations. W is the time to read the weights. The bubble is that
of 1F1B with interleaving (Narayanan et al., arXiv 2104.04473, 2.2). ZeRO's exchanges are those of Rajbhandari et al.
(arXiv 1910.02054, 7).

Exchanges occur within a layer, between stages, and for gradients and weights. An all-reduce moves 2(n-1)/n of its
bytes over the bus, a reduce-scatter or an all-gather half of that. Data-parallel ranks on several nodes exchange over
both the link and the network; the slower of the two determines the time, since the rings are pipelined.
"""

from dataclasses import dataclass
from math import ceil

from sim.steptime.collective import AllReduce, Send, ring_traffic
from sim.training.job import OptimizerStep


@dataclass(frozen=True, slots=True)
class TrainingRates:
    """Rates and factors of the step-time model. Time is proportional to a factor, rate to an efficiency."""

    matrix_flop_per_s: float
    """Rate of large matrix products in the job's precision [FLOP/s]."""
    plain_flop_per_s: float
    """Rate of attention and output layer, which stay at 16 bit in an 8-bit run [FLOP/s]."""
    expert_flop_per_s: float
    """Rate of products over routed experts before `expert_time_factor` [FLOP/s]."""
    bytes_per_s: float
    """Rate at which streaming kernels access device memory [bytes/s]."""
    exponent: float
    """Exponent p of (C^p + W^p)^(1/p)."""
    attention_time_factor: float
    """Time of attention's arithmetic, relative to matrix products."""
    eight_bit_attention_time_factor: float
    """Time of attention in 8 bits, relative to 16 bits."""
    recompute_share: float
    """Time of the repeated forward pass, relative to the first."""
    expert_time_factor: float
    """Time of the products of routed experts, relative to dense products."""
    stream_time_factor: float
    """Time of element-wise kernels, relative to one transfer of the stored activations."""
    keeps_scores: bool
    """True if attention writes its scores to memory (before fused kernels)."""
    layer_s: float
    """Host time to launch the kernels of a layer in both passes [s]."""
    step_s: float
    """Constant time per step: data loading, logging, launches of the optimizer [s]."""
    exposed_share: float
    """Fraction of the data-parallel exchange that the backward pass never hides."""
    tensor_exposed_share: float
    """Fraction of the tensor-parallel exchange that matrix products do not hide."""
    expert_exposed_share: float
    """Fraction of the exchange of tokens between experts that is not hidden."""
    link_time_factor: float
    """Time of collectives inside a step, relative to the link's measured curve."""
    network_efficiency: float
    """Fraction of the adapters' rate that collectives between nodes reach."""


ACTIVATION_BYTES = 2
REDUCES_PER_PASS = 2
"""All-reduces of tensor parallelism per layer and pass: after attention and after the feed-forward block."""


def tensor_exchange_s(job: OptimizerStep, rates: TrainingRates, passes: float) -> float:
    """Return the time of a stage's tensor-parallel all-reduces in a micro-batch [s].

    *passes* is the number of passes over the layers; the backward pass counts once.
    """
    ranks = job.parallel.tensor
    if ranks == 1:
        return 0.0
    message = job.units * job.network.hidden * ACTIVATION_BYTES
    layers = job.network.layers / job.parallel.pipeline
    inside = min(ranks, job.gpus_per_node)
    seconds = AllReduce.over(job.link, inside, rates.link_time_factor).time_s(message)
    if ranks > inside:
        nodes = ranks / inside
        seconds += ring_traffic(ceil(nodes)) * message / (job.node_bytes_per_s * rates.network_efficiency)
    return layers * REDUCES_PER_PASS * passes * seconds


def stage_exchange_s(job: OptimizerStep, rates: TrainingRates) -> float:
    """Return the time to send activations to the next stage and gradients back, per micro-batch [s]."""
    parallel = job.parallel
    if parallel.pipeline == 1:
        return 0.0
    message = job.units * job.network.hidden * ACTIVATION_BYTES / parallel.tensor
    if job.nodes == 1:
        one_way = Send.over(job.link).time_s(message) * rates.link_time_factor
    else:
        one_way = message * job.gpus_per_node / (job.node_bytes_per_s * rates.network_efficiency)
    return 2 * parallel.virtual_stages * one_way


def expert_exchange_s(job: OptimizerStep, rates: TrainingRates) -> float:
    """Return the time to send tokens to their experts and back in both passes, per micro-batch of a stage [s].

    Within a node the link carries all copies. Between nodes a token crosses the network once per node with an expert
    of it.
    """
    ranks, network = job.parallel.expert, job.network
    if ranks == 1 or not network.routed_copies:
        return 0.0
    sent = job.units / job.parallel.tensor * network.routed_width * ACTIVATION_BYTES / job.parallel.pipeline
    exchanges = 2 * 2
    inside = sent * exchanges * (1 - 1 / ranks) * rates.link_time_factor / Send.over(job.link).bytes_per_s
    nodes = ceil(ranks / job.gpus_per_node)
    if nodes == 1:
        return inside
    copies = min(network.routed_copies, nodes) / network.routed_copies * (1 - 1 / nodes)
    per_gpu = job.node_bytes_per_s / job.gpus_per_node * rates.network_efficiency
    return max(inside, sent * exchanges * copies / per_gpu)


def reduce_s(job: OptimizerStep, rates: TrainingRates, gpu_bytes: float) -> float:
    """Return the time of an all-reduce of *gpu_bytes* per rank between the data-parallel ranks [s]."""
    parallel = job.parallel
    ranks = parallel.data * parallel.context
    if ranks == 1:
        return 0.0
    model_ranks = parallel.tensor * parallel.pipeline
    inside = max(1, min(ranks, job.gpus_per_node // min(model_ranks, job.gpus_per_node)))
    seconds = 0.0
    if inside > 1:
        seconds = AllReduce.over(job.link, inside, rates.link_time_factor).time_s(gpu_bytes)
    if ranks > inside:
        groups = job.gpus_per_node / inside
        network = ring_traffic(ceil(ranks / inside)) * gpu_bytes * groups
        seconds = max(seconds, network / (job.node_bytes_per_s * rates.network_efficiency))
    return seconds


LAUNCH_EXPONENT = 4
"""Exponent that combines GPU and host time; the host launches ahead, so the sum is close to the longer of both."""
BACKWARD_PASSES = 2
"""Arithmetic of the backward pass in forward passes: gradients of activations and of weights."""
FUSED_ATTENTION_BACKWARD = 2.5
"""Attention arithmetic of the backward pass in forward passes: five matrix products against two in FlashAttention
(arXiv 2205.14135).
"""
GRADIENT_BYTES, WEIGHT_BYTES, FOUR_BIT_BYTES = 2.0, 2.0, 0.53
"""Bytes per exchanged 16-bit gradient, per 16-bit weight, and per 4-bit weight with its scale."""
FULL_GRADIENT_BYTES = 4.0
"""Bytes per gradient of an fp32 run."""
CAST_TRANSFERS = 0.63
"""Traffic of casts to 8 bits and fewer relative to the stored activations: seven hidden widths of inputs and nine of
gradients per layer of GPT, each read at 16 bits and written twice at 8, over three transfers of 34 bytes.
"""
OPTIMIZER_BYTES = 30.0
"""Bytes that Adam moves per parameter: master weight and both moments read and written, gradient read, weight written.
"""
STATE_BYTES = 12.0
"""Bytes of master weight and both moments per parameter, if they are in host memory."""
ADAPTER_LAUNCHES, DEQUANTISATION_LAUNCHES = 0.5, 0.2
"""Kernel launches of adapters and of dequantisation relative to those of a layer: without fused kernels it has about
45; seven adapted products add about 21, and their dequantisation 7 to 14.
"""
LORA_SHARE = 0.005
"""Trained parameters of LoRA relative to the model's (rank 8 to 16 on the attention's matrices)."""


@dataclass(frozen=True, slots=True)
class OptimizerStepTime:
    """Time of an optimizer step by cause [s]."""

    matrix_s: float
    attention_s: float
    stream_s: float
    tensor_exchange_s: float
    expert_exchange_s: float
    stage_exchange_s: float
    launch_s: float
    """Time that kernel launches add to the work of the GPU [s]."""
    bubble_s: float
    data_exchange_s: float
    """Time of the data-parallel exchange that is not hidden [s]."""
    optimizer_s: float
    constant_s: float

    @property
    def step_s(self) -> float:
        """Total time [s]."""
        return (
            self.matrix_s
            + self.attention_s
            + self.stream_s
            + self.tensor_exchange_s
            + self.expert_exchange_s
            + self.stage_exchange_s
            + self.launch_s
            + self.bubble_s
            + self.data_exchange_s
            + self.optimizer_s
            + self.constant_s
        )


def step_time(job: OptimizerStep, rates: TrainingRates) -> OptimizerStepTime:
    """Return the time of an optimizer step of *job* on hardware with the given *rates*.

    Notes
    -----
    The module's docstring has the equations.

    """
    parallel = job.parallel
    ranks = parallel.tensor * parallel.pipeline
    again = repeated_passes(job, rates)
    passes = backward_passes(job) + 1 + again
    matrix = _matrix_s(job, rates, passes) / ranks
    attention = _attention_s(job, rates) / ranks
    stream = _stream_s(job, rates) / ranks
    # the backward pass needs as many all-reduces as the forward pass
    tensor = tensor_exchange_s(job, rates, 2 + again) * rates.tensor_exposed_share
    experts = expert_exchange_s(job, rates) * rates.expert_exposed_share
    between = stage_exchange_s(job, rates)
    gpu_s = matrix + attention + stream + tensor + experts + between
    host_s = job.network.layers / parallel.pipeline * rates.layer_s * launch_passes(job)
    micro_s = (gpu_s**LAUNCH_EXPONENT + host_s**LAUNCH_EXPONENT) ** (1 / LAUNCH_EXPONENT)
    count = job.micro_batches
    bubble_s = micro_s * (parallel.pipeline - 1) / parallel.virtual_stages
    return OptimizerStepTime(
        matrix * count,
        attention * count,
        stream * count,
        tensor * count,
        experts * count,
        between * count,
        (micro_s - gpu_s) * count,
        bubble_s,
        _exposed_s(job, rates, micro_s, passes),
        _optimizer_s(job, rates),
        rates.step_s,
    )


def backward_passes(job: OptimizerStep) -> int:
    """Return the arithmetic of the backward pass in forward passes; frozen weights need no gradient."""
    return BACKWARD_PASSES if job.method == "full" else 1


def launch_passes(job: OptimizerStep) -> float:
    """Return the kernel launches of a layer relative to a step that trains all weights without recomputation.

    The backward pass has two kernels for each of the forward pass. An adapted product of LoRA has two more products
    and an addition; 4-bit weights are dequantised before each product.
    """
    adapted = 0.0 if job.method == "full" else ADAPTER_LAUNCHES
    dequantised = DEQUANTISATION_LAUNCHES if job.method == "qlora" else 0.0
    return (1 + BACKWARD_PASSES + job.repeated_layers) / (1 + BACKWARD_PASSES) * (1 + adapted + dequantised)


def repeated_passes(job: OptimizerStep, rates: TrainingRates) -> float:
    """Return the time of the forward passes that full recomputation repeats, in forward passes."""
    return rates.recompute_share * job.repeated_layers


def trained_params(job: OptimizerStep, whole: bool = False) -> float:
    """Return the number of parameters with gradients and optimizer states, on the ranks of one copy of the model.

    *whole*: with all routed experts, also those on other data-parallel ranks: what ZeRO shards over all of these.
    """
    return (job.network.params if whole else job.held_params) * (1.0 if job.method == "full" else LORA_SHARE)


def _matrix_s(job: OptimizerStep, rates: TrainingRates, passes: float) -> float:
    """Return the time of the matrix products of a micro-batch [s], on all model-parallel ranks together."""
    network = job.network
    dense_s = (network.forward_flop - network.expert_flop) / rates.matrix_flop_per_s
    experts_s = network.expert_flop * rates.expert_time_factor / rates.expert_flop_per_s
    compute_s = (dense_s + experts_s) * passes * job.units
    weight_bytes = WEIGHT_BYTES if job.method != "qlora" else FOUR_BIT_BYTES + 2 * WEIGHT_BYTES
    weights_s = weight_bytes * (job.held_params - network.lookup_params) * passes / rates.bytes_per_s
    layers_s = float((compute_s**rates.exponent + weights_s**rates.exponent) ** (1 / rates.exponent))
    head_s = network.head_flop * (1 + backward_passes(job)) * job.units / rates.plain_flop_per_s
    return layers_s + head_s


def _attention_s(job: OptimizerStep, rates: TrainingRates) -> float:
    flop = 4 * job.network.attention_width * (job.context if not rates.keeps_scores else job.sequence * job.fill)
    passes = 1 + (BACKWARD_PASSES if rates.keeps_scores else FUSED_ATTENTION_BACKWARD)
    passes += rates.recompute_share if job.recompute == "selective" else repeated_passes(job, rates)
    factor = rates.attention_time_factor * (rates.eight_bit_attention_time_factor if job.eight_bit_attention else 1.0)
    return flop * passes * job.units * factor / rates.plain_flop_per_s


def _stream_s(job: OptimizerStep, rates: TrainingRates) -> float:
    """Return the time of element-wise kernels: one transfer of the activations forward, two backward [s]."""
    width = 2 if job.precision in ("fp32", "tf32") else 1
    passes = 3 + repeated_passes(job, rates)
    moved = job.network.stream_bytes * passes
    if rates.keeps_scores:
        moved += job.network.score_bytes * job.sequence * job.fill * (passes + (job.recompute == "selective"))
    moved *= width * rates.stream_time_factor
    if job.precision in ("fp8", "nvfp4"):
        moved += job.network.stream_bytes * passes * CAST_TRANSFERS
    return moved * job.units / rates.bytes_per_s


def _micro_batches_beside(job: OptimizerStep) -> float:
    """Return the number of micro-batches that a stage computes beside the exchange of its gradients.

    Interleaved stages compute as many micro-batches as there are stages with one chunk of layers before the next, and
    exchange a chunk while they compute the others. Megatron-LM starts the exchange on all stages at once, when the last
    stage has computed the chunk (pipeline_parallel/schedules.py, grad_sync_virtual_microbatch_id).
    """
    stages, chunks = job.parallel.pipeline, job.parallel.virtual_stages
    if chunks == 1:
        return 1.0
    return max(1.0, min(stages, job.micro_batches) * (chunks - 1) - (stages - 1)) / chunks


def _exposed_s(job: OptimizerStep, rates: TrainingRates, micro_s: float, passes: float) -> float:
    """Return the data-parallel exchange that computation does not hide [s].

    Gradients are exchanged during the last backward pass; with interleaved stages, ZeRO 1 and 2 gather the updated
    weights during the first forward pass. ZeRO 3 gathers weights before each pass over them, which the whole
    computation may hide.
    """
    parallel = job.parallel
    if parallel.data * parallel.context == 1:
        return 0.0
    ranks = parallel.tensor * parallel.pipeline
    wide = FULL_GRADIENT_BYTES if job.precision in ("fp32", "tf32") else GRADIENT_BYTES
    gradients_s = reduce_s(job, rates, trained_params(job) * wide / ranks)
    beside = _micro_batches_beside(job)
    window_s = micro_s * (passes - 1) / passes * beside
    if parallel.zero in (1, 2) and parallel.virtual_stages > 1:
        hidden_s = gradients_s / 2 * (1 - rates.exposed_share)
        gathered_s = max(0.0, hidden_s - micro_s / passes * beside)
        return gradients_s - 2 * hidden_s + max(0.0, hidden_s - window_s) + gathered_s
    if parallel.zero == 3:
        stored = FOUR_BIT_BYTES if job.method == "qlora" else wide
        gather_s = reduce_s(job, rates, job.held_params * stored / ranks) / 2
        # a pipeline keeps its gathered weights until all micro-batches have passed
        gradients_s = (gradients_s / 2 + gather_s * 2) * (job.micro_batches if parallel.pipeline == 1 else 1)
        window_s = micro_s * job.micro_batches
    hidden_s = gradients_s * (1 - rates.exposed_share)
    return gradients_s - hidden_s + max(0.0, hidden_s - window_s)


def updated_params(job: OptimizerStep) -> float:
    """Return the number of parameters that the optimizer updates on one GPU."""
    parallel = job.parallel
    shards = parallel.tensor * parallel.pipeline * (parallel.data * parallel.context if parallel.zero else 1)
    return trained_params(job, whole=parallel.zero > 0) / shards


def _optimizer_s(job: OptimizerStep, rates: TrainingRates) -> float:
    share = updated_params(job)
    seconds = share * OPTIMIZER_BYTES / rates.bytes_per_s
    if job.host_bytes_per_s:
        seconds += 2 * share * STATE_BYTES / job.host_bytes_per_s
    return seconds


@dataclass(frozen=True, slots=True)
class StepWork:
    """Arithmetic and memory traffic of an optimizer step."""

    model_flop: float
    """FLOP that the network needs on all GPUs, without recomputation (for MFU, arXiv 2204.02311)."""
    gpu_flop: float
    """FLOP that one GPU computes, including repeated forward passes."""
    gpu_bytes: float
    """Bytes that one GPU reads from and writes to its memory."""


def step_work(job: OptimizerStep) -> StepWork:
    """Return the arithmetic and memory traffic of an optimizer step of *job*."""
    network, parallel = job.network, job.parallel
    ranks, backward = parallel.tensor * parallel.pipeline, backward_passes(job)
    again = job.repeated_layers
    pass_flop = network.forward_flop + network.head_flop
    attention_flop = 4 * network.attention_width * job.context
    needed = (pass_flop + attention_flop) * (1 + backward)
    flop = network.forward_flop * (1 + backward + again) + network.head_flop * (1 + backward)
    flop += attention_flop * (1 + FUSED_ATTENTION_BACKWARD + (1.0 if job.recompute == "selective" else again))
    wide = 2 if job.precision in ("fp32", "tf32") else 1
    weights = WEIGHT_BYTES * (job.held_params - network.lookup_params) * (1 + backward + again)
    moved = weights * wide + network.stream_bytes * wide * (3 + again) * job.units
    return StepWork(
        model_flop=needed * job.global_batch * job.sequence * job.fill,
        gpu_flop=flop * job.units * job.micro_batches / ranks,
        gpu_bytes=moved * job.micro_batches / ranks + OPTIMIZER_BYTES * updated_params(job),
    )
