"""What one job reaches of its hardware: the figures of data/training, brought together for one GPU, link and stack."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rates:
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
