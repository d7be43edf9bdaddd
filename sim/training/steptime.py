"""Seconds of one optimizer step, by cause, and the arithmetic and traffic that it asks of the GPUs.

    stage  = (C^p + W^p)^(1/p) + attention + element-wise traffic + tensor-parallel exchange     one micro-batch
    micro  = (stage^4 + launches^4)^(1/4)
    step   = micro * (micro-batches + (stages - 1) / chunks) + exposed exchange + optimizer + constant

C: 2 FLOP per weight and token forward, 4 backward, 2 more where the forward pass is repeated; with LoRA the backward
pass has only the gradients of the activations. The bubble is that of 1F1B with interleaving (Narayanan et al., arXiv
2104.04473, 2.2). ZeRO's exchanges are those of Rajbhandari et al. (arXiv 1910.02054, 7).

Exchanges are within a layer, between stages, and of gradients and weights. An all-reduce moves 2(n-1)/n of its bytes
over the bus, a reduce-scatter or an all-gather half of that. Data-parallel ranks on several nodes exchange over both
the link and the network; the slower one decides, since the rings are pipelined.
"""

from dataclasses import dataclass
from math import ceil

from sim.steptime.collective import AllReduce, Send, ring_traffic
from sim.training.job import OptimizerStep


@dataclass(frozen=True, slots=True)
class TrainingRates:
    """All that the step time multiplies or divides by. Times grow with a factor, rates with an efficiency."""

    matrix_flop_per_s: float
    """Reached by large matrix products in the job's precision."""
    plain_flop_per_s: float
    """Reached by what stays at 16 bit in an 8-bit run: attention and output layer."""
    bytes_per_s: float
    """Reached by streaming kernels on device memory."""
    exponent: float
    """p of (C^p + M^p)^(1/p)."""
    attention_time_factor: float
    """Time of attention's arithmetic against a matrix product's."""
    recompute_share: float
    """Time of the repeated forward pass against the first one."""
    expert_time_factor: float
    """Time of routed experts' products against a dense one's."""
    stream_time_factor: float
    """Time of element-wise kernels against one transfer of the activations kept."""
    keeps_scores: bool
    """Attention writes its scores to memory (before fused kernels)."""
    layer_s: float
    """Host time to launch the kernels of a layer, both passes."""
    step_s: float
    """Time of a step that depends on nothing: data, logging, the optimizer's launches."""
    exposed_share: float
    """Of the exchange between data-parallel ranks: never hidden behind the backward pass."""
    tensor_exposed_share: float
    """Of the exchange between tensor-parallel ranks: not hidden behind matrix products."""
    expert_exposed_share: float
    """Of the exchange of tokens between experts: not hidden."""
    link_time_factor: float
    """Collectives inside a training step against the link's measured curve."""
    network_efficiency: float
    """Share of the adapters' rate that collectives between nodes reach."""


ACTIVATION_BYTES = 2
REDUCES_PER_PASS = 2
"""All-reduces that tensor parallelism needs per layer and pass: after attention and after the feed-forward block."""


def tensor_exchange_s(job: OptimizerStep, rates: TrainingRates, passes: float) -> float:
    """All-reduces of one stage in one micro-batch [s]; *passes* over the layers, the backward pass counted once."""
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
    """Activations to the next stage and gradients back, per micro-batch [s]."""
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
    """Tokens to their experts and back, forward and backward, one micro-batch of one stage [s].

    Within a node the link carries all copies; beyond it a token crosses the network once for each node that it is
    needed on.
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
    """One all-reduce of *gpu_bytes* per rank between the data-parallel ranks [s]."""
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
"""The host launches ahead of the GPU: nearly the longer of both."""
BACKWARD_PASSES = 2
"""Gradients of activations and of weights."""
FUSED_ATTENTION_BACKWARD = 2.5
"""FlashAttention's backward pass has five products to its forward pass' two (arXiv 2205.14135)."""
GRADIENT_BYTES, WEIGHT_BYTES, FOUR_BIT_BYTES = 2.0, 2.0, 0.53
"""16-bit gradients and weights as they are exchanged; 4-bit weights with their scales."""
FULL_GRADIENT_BYTES = 4.0
"""Gradients of an fp32 run."""
OPTIMIZER_BYTES = 30.0
"""Adam per parameter: master weight, both moments read and written, gradient read, 16-bit weight written."""
STATE_BYTES = 12.0
"""Master weight and both moments, where they live in host memory."""
LORA_SHARE = 0.005
"""Trained parameters of LoRA against the model's (rank 8 to 16 on the attention's matrices)."""


@dataclass(frozen=True, slots=True)
class OptimizerStepTime:
    """Seconds of one optimizer step, by cause."""

    matrix_s: float
    attention_s: float
    stream_s: float
    tensor_exchange_s: float
    expert_exchange_s: float
    stage_exchange_s: float
    launch_s: float
    """What launches add to the work of the GPU."""
    bubble_s: float
    data_exchange_s: float
    """What of it is not hidden."""
    optimizer_s: float
    constant_s: float

    @property
    def step_s(self) -> float:
        """All of it."""
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
    """The step of *job* on hardware that reaches *rates*."""
    parallel = job.parallel
    ranks = parallel.tensor * parallel.pipeline
    again = rates.recompute_share if job.recompute == "full" else 0.0
    passes = backward_passes(job) + 1 + again
    matrix = _matrix_s(job, rates, passes) / ranks
    attention = _attention_s(job, rates) / ranks
    stream = _stream_s(job, rates) / ranks
    # the backward pass needs as many all-reduces as the forward pass
    tensor = tensor_exchange_s(job, rates, 2 + again) * rates.tensor_exposed_share
    experts = expert_exchange_s(job, rates) * rates.expert_exposed_share
    between = stage_exchange_s(job, rates)
    gpu_s = matrix + attention + stream + tensor + experts + between
    host_s = job.network.layers / parallel.pipeline * rates.layer_s * passes / 3
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
    """Passes' worth of arithmetic in the backward pass: frozen weights need no gradient of their own."""
    return BACKWARD_PASSES if job.method == "full" else 1


def trained_params(job: OptimizerStep) -> float:
    """Parameters with gradients and optimizer states on one copy of the model."""
    return job.held_params * (1.0 if job.method == "full" else LORA_SHARE)


def _matrix_s(job: OptimizerStep, rates: TrainingRates, passes: float) -> float:
    """All layers and the output layer, one micro-batch, all model-parallel ranks together [s]."""
    network = job.network
    dense_s = (network.forward_flop - network.expert_flop) / rates.matrix_flop_per_s
    # grouped products over experts gain nothing from 8-bit arithmetic
    experts_s = network.expert_flop * rates.expert_time_factor / rates.plain_flop_per_s
    compute_s = (dense_s + experts_s) * passes * job.units
    weight_bytes = WEIGHT_BYTES if job.method != "qlora" else FOUR_BIT_BYTES + 2 * WEIGHT_BYTES
    weights_s = weight_bytes * job.held_params * passes / rates.bytes_per_s
    layers_s = float((compute_s**rates.exponent + weights_s**rates.exponent) ** (1 / rates.exponent))
    head_s = network.head_flop * (1 + backward_passes(job)) * job.units / rates.plain_flop_per_s
    return layers_s + head_s


def _attention_s(job: OptimizerStep, rates: TrainingRates) -> float:
    flop = 4 * job.network.attention_width * (job.context if not rates.keeps_scores else job.sequence * job.fill)
    passes = 1 + (BACKWARD_PASSES if rates.keeps_scores else FUSED_ATTENTION_BACKWARD)
    passes += 0 if job.recompute == "none" else rates.recompute_share
    return flop * passes * job.units * rates.attention_time_factor / rates.plain_flop_per_s


def _stream_s(job: OptimizerStep, rates: TrainingRates) -> float:
    """Element-wise kernels: a transfer of the activations forward, two backward."""
    width = 2 if job.precision in ("fp32", "tf32") else 1
    passes = 3 + (rates.recompute_share if job.recompute == "full" else 0.0)
    moved = job.network.stream_bytes * passes
    if rates.keeps_scores:
        moved += job.network.score_bytes * job.sequence * job.fill * (passes + (job.recompute == "selective"))
    return moved * width * job.units * rates.stream_time_factor / rates.bytes_per_s


def _exposed_s(job: OptimizerStep, rates: TrainingRates, micro_s: float, passes: float) -> float:
    """Exchange between data-parallel ranks that computation does not hide.

    Gradients travel during the last backward pass. ZeRO 3 gathers weights before each pass over them, and the whole
    computation may hide that.
    """
    parallel = job.parallel
    if parallel.data * parallel.context == 1:
        return 0.0
    ranks = parallel.tensor * parallel.pipeline
    wide = FULL_GRADIENT_BYTES if job.precision in ("fp32", "tf32") else GRADIENT_BYTES
    gradients_s = reduce_s(job, rates, trained_params(job) * wide / ranks)
    window_s = micro_s * (passes - 1) / passes
    if parallel.zero == 3:
        stored = FOUR_BIT_BYTES if job.method == "qlora" else wide
        gather_s = reduce_s(job, rates, job.held_params * stored / ranks) / 2
        # a pipeline keeps its gathered weights until all micro-batches have passed
        gradients_s = (gradients_s / 2 + gather_s * 2) * (job.micro_batches if parallel.pipeline == 1 else 1)
        window_s = micro_s * job.micro_batches
    hidden_s = gradients_s * (1 - rates.exposed_share)
    return gradients_s - hidden_s + max(0.0, hidden_s - window_s)


def _optimizer_s(job: OptimizerStep, rates: TrainingRates) -> float:
    parallel = job.parallel
    shards = parallel.tensor * parallel.pipeline * (parallel.data * parallel.context if parallel.zero else 1)
    share = trained_params(job) / shards
    seconds = share * OPTIMIZER_BYTES / rates.bytes_per_s
    if job.host_bytes_per_s:
        seconds += 2 * share * STATE_BYTES / job.host_bytes_per_s
    return seconds


@dataclass(frozen=True, slots=True)
class StepWork:
    """One optimizer step."""

    model_flop: float
    """What the network needs, on all GPUs together: nothing that is computed twice counts (MFU, arXiv 2204.02311)."""
    gpu_flop: float
    """What one GPU computes, repeated forward passes included."""
    gpu_bytes: float
    """What one GPU moves to and from its memory."""


def step_work(job: OptimizerStep) -> StepWork:
    """Arithmetic and traffic of one step of *job*."""
    network, parallel = job.network, job.parallel
    ranks, backward = parallel.tensor * parallel.pipeline, backward_passes(job)
    again = job.recompute == "full"
    pass_flop = network.forward_flop + network.head_flop
    attention_flop = 4 * network.attention_width * job.context
    needed = (pass_flop + attention_flop) * (1 + backward)
    flop = network.forward_flop * (1 + backward + again) + network.head_flop * (1 + backward)
    flop += attention_flop * (1 + FUSED_ATTENTION_BACKWARD + (job.recompute != "none"))
    wide = 2 if job.precision in ("fp32", "tf32") else 1
    weights = WEIGHT_BYTES * job.held_params * (1 + backward + again)
    moved = weights * wide + network.stream_bytes * wide * (3 + again) * job.units
    shards = ranks * (parallel.data * parallel.context if parallel.zero else 1)
    return StepWork(
        model_flop=needed * job.global_batch * job.sequence * job.fill,
        gpu_flop=flop * job.units * job.micro_batches / ranks,
        gpu_bytes=moved * job.micro_batches / ranks + OPTIMIZER_BYTES * trained_params(job) / shards,
    )
