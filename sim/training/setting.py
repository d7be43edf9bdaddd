"""From fitted figures to the rates of one job."""

from sim.catalogue.entries.gpu import Gpu
from sim.catalogue.entries.link import Link
from sim.steptime.coefficients import Coefficients
from sim.training.figures import TrainingData
from sim.training.job import Precision
from sim.training.memory import MemoryHabits
from sim.training.network import Network
from sim.training.rates import Rates
from sim.training.steptime import FOUR_BIT_BYTES

NO_RESERVE = 1.5e9
"""Where a stack's reserve is not known: CUDA context and communication buffers [bytes]."""


def peak_flops(gpu: Gpu, precision: Precision) -> float:
    """Dense rate of matrix products in that precision, or at 16 bit where the card lacks it [FLOP/s]."""
    wide = gpu.fp32_flops or gpu.fp16_flops
    rate = {
        "fp32": wide,
        "tf32": gpu.tf32_flops or wide,
        "fp8": gpu.fp8_flops,
        "nvfp4": gpu.fp4_flops or gpu.fp8_flops,
    }.get(precision)
    return (rate or gpu.fp16_flops).value


def older_kernels_suffer(gpu: Gpu) -> bool:
    """Whether the card's tensor cores need kernels of their own to reach their rate."""
    return gpu.hopper or gpu.architecture in ("Blackwell", "Blackwell Ultra")


def rates(
    data: TrainingData, kernels: Coefficients, gpu: Gpu, link: Link, network: Network, precision: Precision, stack: str
) -> Rates:
    """What training *network* reaches on *gpu* cards over *link* in a *stack* of data/training/stacks.yaml."""
    figures, efficiency = data.figures, kernels.efficiency(gpu)
    card, habit, facts = figures.gpu(gpu), figures.stacks[stack], data.stacks[stack]
    own = figures.networks.get(network.id)
    wide = precision in ("fp32", "tf32")
    factor = {"fp8": figures.fp8_time_factor, "nvfp4": figures.fp4_time_factor}.get(precision)
    if wide:
        factor = figures.fp32_time_factor
    slowdown = card.compute_time_factor if network.is_transformer else card.convolution_time_factor
    reached = efficiency.compute.value / slowdown.value
    plain = peak_flops(gpu, precision) if wide else gpu.fp16_flops.value
    stream = habit.stream_time_factor.value * (own.stream_time_factor.value if own else 1.0)
    compute = 1.0 if own is None else own.compute_time_factor.value
    peak = peak_flops(gpu, precision) / (factor.value if factor else 1.0)
    attention = figures.attention_time_factor.value
    if facts.older_attention and older_kernels_suffer(gpu):
        attention *= figures.older_attention_time_factor.value
    return Rates(
        matrix_flop_per_s=reached * peak / habit.compute_time_factor.value / compute,
        plain_flop_per_s=reached * plain / habit.compute_time_factor.value,
        bytes_per_s=efficiency.memory.value * gpu.memory_bytes_per_s.value / card.memory_time_factor.value,
        exponent=figures.gemm_exponent.value,
        attention_time_factor=attention,
        recompute_share=figures.recompute_share.value,
        expert_time_factor=figures.expert_time_factor.value,
        stream_time_factor=stream,
        keeps_scores=facts.keeps_scores,
        layer_s=habit.layer_s.value,
        step_s=habit.step_s.value,
        exposed_share=habit.exposed_share.value,
        tensor_exposed_share=habit.tensor_exposed_share.value,
        expert_exposed_share=figures.expert_exposed_share.value,
        link_time_factor=figures.link_factor(link).value,
        network_efficiency=figures.network_efficiency.value,
    )


def habits(data: TrainingData, stack: str) -> MemoryHabits:
    """How a *stack* holds things in memory."""
    facts = data.stacks[stack]
    return MemoryHabits(
        gradient_bytes=facts.gradient_bytes,
        state_bytes=facts.state_bytes,
        keeps_scores=facts.keeps_scores,
        eight_bit_weights=facts.eight_bit_weights,
        four_bit_bytes=facts.four_bit_bytes.value if facts.four_bit_bytes else FOUR_BIT_BYTES,
        whole_weights=facts.whole_weights,
        activation_factor=facts.activation_factor.value if facts.activation_factor else 1.0,
        reserve_bytes=facts.reserve_bytes.value if facts.reserve_bytes else NO_RESERVE,
    )
