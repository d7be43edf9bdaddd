"""Time of the matrix products of one step on one GPU: dense ones, and grouped products over experts."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist

from sim.catalogue.model import Matrix, Model
from sim.catalogue.quantization import covers
from sim.steptime.inputs import ACTIVATION_BYTES, FLOP_PER_WEIGHT, GpuRates

ADDED = 1.0
"""Exponent of the p-norm that adds arithmetic and memory time."""


@dataclass(slots=True)
class GemmTimes:
    """Time of matrix products by cause: arithmetic, memory, arithmetic at the dense peak, memory traffic alone [s].

    Instances are never modified. The class is not frozen because many are created, and freezing costs more than the
    arithmetic.
    """

    compute_s: float = 0.0
    memory_s: float = 0.0
    peak_s: float = 0.0
    stream_s: float = 0.0

    def __add__(self, other: "GemmTimes") -> "GemmTimes":
        return GemmTimes(
            self.compute_s + other.compute_s,
            self.memory_s + other.memory_s,
            self.peak_s + other.peak_s,
            self.stream_s + other.stream_s,
        )

    def scaled(self, factor: float) -> "GemmTimes":
        """Return all parts multiplied by *factor*."""
        return GemmTimes(self.compute_s * factor, self.memory_s * factor, self.peak_s * factor, self.stream_s * factor)


def p_norm_s(compute_s: float, memory_s: float, exponent: float) -> float:
    """Return the time of a kernel whose arithmetic and memory traffic overlap in part [s].

    Notes
    -----
    t = (C^p + M^p)^(1/p), with *exponent* p: 1 adds both, infinity takes the larger.

    """
    return float((compute_s**exponent + memory_s**exponent) ** (1 / exponent))


@dataclass(slots=True)
class TokenStepCost:
    """Cost of a step that depends on its number of tokens only, not on their contexts [s].

    Instances are never modified; the class is not frozen for the reason of `GemmTimes`.
    """

    total_s: float
    peak_s: float
    stream_s: float
    compute_s: float
    memory_s: float
    link_s: float
    overhead_s: float
    host_s: float = 0.0
    gpu_waits_s: float = 0.0
    """Part of the total in which the GPU waits for the host [s]."""

    @classmethod
    def of(
        cls, products: GemmTimes, link_s: float, overhead_s: float, host_s: float = 0.0, gpu_waits_s: float = 0.0
    ) -> "TokenStepCost":
        """Return the cost with its total; *gpu_waits_s* is part of *overhead_s*; the GPU also waits for *host_s*."""
        total_s = products.compute_s + products.memory_s + link_s + overhead_s + host_s
        computed = products.compute_s, products.memory_s
        waits = host_s, gpu_waits_s + host_s
        return cls(total_s, products.peak_s, products.stream_s, *computed, link_s, overhead_s, *waits)


@dataclass(frozen=True, slots=True)
class MatrixProduct:
    """Equal matrix products on one rank, *count* of them; the weight is read whole, or per selected expert.

    Notes
    -----
        C = 2 m K N / (peak * compute efficiency)                        m tokens through a K x N matrix
        M = (K N w + 2 m (K + N)) / (bandwidth * memory efficiency)      w bytes per weight, 16-bit activations
        t = (C^p + M^p)^(1/p)                                            t = C + M for a grouped product over experts

    Arithmetic comes in whole tiles of tokens where the engine's kernels compute so: m is then at least a tile, which
    only matters on a card with little arithmetic for its memory bandwidth (H20).

    Within one matrix, arithmetic hides reading. Of the experts in one launch, some have few tokens and are bound by
    reading, others have many and are bound by arithmetic, one after the other: the sum deviates from 128 tables of
    measured kernels by 8.7 % in the median, p = 2.5 by 10.8 % (benchmarks/fit/kernels.py).

    """

    count: float
    compute_s_per_token: float
    peak_s_per_token: float
    weight_s: float
    activation_s_per_token: float
    exponent: float
    tokens_factor: float = 1.0
    """Tokens in the product per token of the rank's batch."""
    touch_probability: float = 1.0
    """Probability that one token uses a given expert; 1 for an ordinary matrix."""
    routing_diversity: float = 1.0
    """New experts selected by each token after the first, as a fraction of those of a randomly routed token."""
    fullest_rank: float = 0.0
    """Excess over the mean of the selected fraction p, on the GPU with most selected experts, over sqrt(p (1 - p))."""
    least_computed: float = 0.0
    """Minimum number of tokens computed in any batch: those of a tile."""
    quantised: bool = False
    """True if the weight is stored in the quantised format, so that its kernel's factors apply."""
    expert: bool = False
    """True for a grouped product over routed experts."""

    def touched(self, tokens: float) -> float:
        """Return the fraction of the weight that a batch of *tokens* reads, on the GPU that reads most.

        Notes
        -----
            experts read = E (1 - (1 - k/E)^(1 + d (m - 1)))         of E experts, k per token, m tokens
            fraction     = p + z sqrt(p (1 - p) / n)                 on the GPU that reads most

        The diversity d is 1 where tokens are routed at random, and less where their selections are alike
        (`StepTimeCoefficients.routing_diversity`). Where GPUs hold whole experts, n on each of R GPUs, all wait for the
        GPU that reads most: p is the mean fraction read, z the expected maximum of R standard normal numbers.

        """
        if tokens <= 1.0:
            touched = self.touch_probability * tokens
        else:
            touched = 1.0 - (1.0 - self.touch_probability) ** (1.0 + self.routing_diversity * (tokens - 1.0))
        if not self.fullest_rank:
            return touched
        return min(1.0, touched + self.fullest_rank * sqrt(touched * (1.0 - touched)))

    def times(self, tokens: int, replica_tokens: int = 0) -> GemmTimes:
        """Return the time for a batch of *tokens* on this rank.

        *replica_tokens* is the total over all ranks that share experts; 0: equal batches.
        """
        tokens_here = replica_tokens if self.expert and replica_tokens else tokens * self.tokens_factor
        compute_s = self.compute_s_per_token * (max(tokens_here, self.least_computed) if tokens_here else 0.0)
        memory_s = self.weight_s * self.touched(tokens_here) + self.activation_s_per_token * tokens_here
        total_s = p_norm_s(compute_s, memory_s, self.exponent)
        compute_share = (compute_s / total_s) ** self.exponent if total_s else 0.0
        return GemmTimes(
            self.count * total_s * compute_share,
            self.count * total_s * (1 - compute_share),
            self.count * self.peak_s_per_token * tokens_here,
            self.count * memory_s,
        )


def total(products: Iterable[MatrixProduct], tokens: int, replica_tokens: int = 0) -> GemmTimes:
    """Return the summed time of *products* for a batch, accumulated as numbers for speed in searches."""
    compute_s = memory_s = peak_s = stream_s = 0.0
    for product in products:
        one = product.times(tokens, replica_tokens)
        compute_s += one.compute_s
        memory_s += one.memory_s
        peak_s += one.peak_s
        stream_s += one.stream_s
    return GemmTimes(compute_s, memory_s, peak_s, stream_s)


def product_of(matrix: Matrix, rates: GpuRates) -> MatrixProduct:
    """Return the products of all copies of *matrix* in the layers, or of the LM head, on one rank."""
    return _expert_product(matrix, rates) if matrix.role == "expert" else _dense_product(matrix, rates)


def _dense_product(matrix: Matrix, rates: GpuRates) -> MatrixProduct:
    """Return the product of an ordinary matrix, split over the tensor-parallel ranks.

    Tensor parallelism divides the inputs or the outputs; KV heads are replicated once there are more ranks than heads.
    """
    rows, columns = split_shape(matrix, rates.inputs.model, rates.inputs.tensor_parallel_size)
    share = rows * columns / (matrix.inputs * matrix.outputs)
    peak_s = FLOP_PER_WEIGHT * rows * columns / rates.peak_flops(matrix)
    return MatrixProduct(
        count=matrix.count,
        compute_s_per_token=peak_s / rates.compute_efficiency * rates.compute_time_factor(matrix),
        peak_s_per_token=peak_s,
        weight_s=rates.weight_bytes(matrix) * share / rates.bytes_per_s * rates.weight_time_factor(matrix),
        activation_s_per_token=ACTIVATION_BYTES * (rows + columns) / rates.bytes_per_s,
        exponent=rates.inputs.coefficients.gemm_exponent.value,
        least_computed=rates.inputs.tile_tokens,
        quantised=covers(rates.inputs.quantization, matrix),
    )


def _expert_product(matrix: Matrix, rates: GpuRates) -> MatrixProduct:
    """Return the grouped products over the routed experts, one per layer, spread evenly over the ranks.

    With expert parallelism, tokens come from all data-parallel ranks; if the batch does not state their number, the
    other ranks are assumed to have equal batches. All experts are selected equally often.
    """
    inputs, moe = rates.inputs, rates.inputs.model.moe
    assert moe is not None  # only a mixture of experts has expert matrices
    ranks, tokens_factor = inputs.expert_ranks, inputs.expert_ranks / inputs.tensor_parallel_size
    weights = matrix.inputs * matrix.outputs
    peak_s = moe.experts_per_token * FLOP_PER_WEIGHT * weights / rates.peak_flops(matrix) / ranks
    weight_s = moe.experts * rates.weight_bytes(matrix) / ranks / rates.bytes_per_s
    activations = moe.experts_per_token * (matrix.inputs + matrix.outputs) / ranks
    return MatrixProduct(
        count=matrix.count / moe.experts,
        compute_s_per_token=peak_s / rates.compute_efficiency * rates.compute_time_factor(matrix),
        peak_s_per_token=peak_s,
        weight_s=weight_s * rates.weight_time_factor(matrix),
        activation_s_per_token=ACTIVATION_BYTES * activations / rates.bytes_per_s,
        exponent=ADDED,
        tokens_factor=tokens_factor,
        touch_probability=moe.experts_per_token / moe.experts,
        routing_diversity=inputs.coefficients.routing_diversity(inputs.model),
        fullest_rank=expected_maximum(ranks) / sqrt(moe.experts / ranks) if inputs.spreads_experts else 0.0,
        quantised=covers(inputs.quantization, matrix),
        expert=True,
    )


def expected_maximum(ranks: int) -> float:
    """Return the expected maximum of *ranks* standard normal numbers (Blom's approximation)."""
    return NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25))


def split_shape(matrix: Matrix, model: Model, tensor_parallel_size: int) -> tuple[float, float]:
    """Return (inputs, outputs) of *matrix* on one tensor-parallel rank."""
    rows, columns = float(matrix.inputs), float(matrix.outputs)
    if matrix.split == "inputs":
        return rows / tensor_parallel_size, columns
    if matrix.split == "kv_heads":
        return rows, columns / min(tensor_parallel_size, matrix.kv_heads or model.kv_heads)
    if matrix.split in ("outputs", "vocab"):
        return rows, columns / tensor_parallel_size
    return rows, columns
