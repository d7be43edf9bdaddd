"""Matrix products of one step on one GPU.

    C = 2 m K N / (peak * compute efficiency)       m tokens through a K x N matrix
    M = (K N w + 2 m (K + N)) / (bandwidth * memory efficiency)     w bytes per weight, 16-bit activations
    t = (C^p + M^p)^(1/p)           t = C + M for a grouped product over experts

Arithmetic comes in whole tiles of tokens where the engine's kernels say so: m is then at least a tile. Only a card with
little arithmetic for its memory (H20) feels it.

Within one matrix arithmetic hides reading. Of the experts in one launch some have few tokens and are read, others have
many and compute, one after the other: the sum misses 128 tables of measured kernels by 8.7 % in the median, p = 2.5 by
10.8 % (benchmarks/fit/kernels.py).

Tensor parallelism divides K or N; KV heads are replicated once there are more ranks than heads. Every expert of a
mixture that is touched is read once: E(1 - (1 - k/E)^(1 + d(m - 1))) of E experts, k per token. d is 1 where tokens
are routed at random and less where their choices are alike (`StepTimeCoefficients.routing_diversity`). Where GPUs hold
whole experts, all wait for the one that reads most: of R GPUs with n experts each, of which a share p is touched, p +
z sqrt(p (1 - p) / n), z the expected largest of R normal numbers.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist

from sim.catalogue.model import Matrix, Model
from sim.catalogue.quantization import covers
from sim.steptime.inputs import ACTIVATION_BYTES, FLOP_PER_WEIGHT, GpuRates

ADDED = 1.0
"""Exponent of the p-norm that adds arithmetic and reading."""


@dataclass(slots=True)
class GemmTimes:
    """Seconds of matrix products: by cause, of the arithmetic alone at the dense peak, of the memory traffic alone.

    Nobody changes one; it is not frozen because so many are made, and freezing takes longer than the arithmetic.
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
        """All parts times *factor*."""
        return GemmTimes(self.compute_s * factor, self.memory_s * factor, self.peak_s * factor, self.stream_s * factor)


def together(compute_s: float, memory_s: float, exponent: float) -> float:
    """Time of a kernel whose arithmetic and memory traffic overlap in part: their p-norm [s]."""
    return float((compute_s**exponent + memory_s**exponent) ** (1 / exponent))


@dataclass(frozen=True, slots=True)
class TokenStepCost:
    """What a step costs for a number of tokens, whatever their contexts [s]."""

    total_s: float
    peak_s: float
    stream_s: float
    compute_s: float
    memory_s: float
    link_s: float
    overhead_s: float
    host_s: float = 0.0
    still_s: float = 0.0
    """Part of it in which the GPU waits for the host."""

    @classmethod
    def of(
        cls, products: GemmTimes, link_s: float, overhead_s: float, host_s: float = 0.0, still_s: float = 0.0
    ) -> "TokenStepCost":
        """All parts with their total; *still_s* is part of *overhead_s*, and the GPU waits for *host_s* too."""
        total_s = products.compute_s + products.memory_s + link_s + overhead_s + host_s
        computed = products.compute_s, products.memory_s
        waits = host_s, still_s + host_s
        return cls(total_s, products.peak_s, products.stream_s, *computed, link_s, overhead_s, *waits)


@dataclass(frozen=True, slots=True)
class MatrixProduct:
    """`count` equal matrix products on one rank. The weight is read whole, or by experts touched."""

    count: float
    compute_s_per_token: float
    peak_s_per_token: float
    weight_s: float
    activation_s_per_token: float
    exponent: float
    tokens_factor: float = 1.0
    """Tokens in the product for each token of the rank's batch."""
    touch_probability: float = 1.0
    """Chance that one token uses a given expert; 1: an ordinary matrix."""
    routing_diversity: float = 1.0
    """A batch's tokens after the first touch as many new experts, each, as this part of one routed at random."""
    fullest_rank: float = 0.0
    """How far the share that the GPU with most touched experts reads lies above the mean p, over sqrt(p (1 - p))."""
    least_computed: float = 0.0
    """Tokens that are computed in any batch: those of a tile."""
    quantised: bool = False
    """Stored in the quantised format, so that its kernel's factors count."""
    expert: bool = False
    """A grouped product over routed experts."""

    def touched(self, tokens: float) -> float:
        """Share of the weight that a batch of *tokens* reads, on the GPU that reads most."""
        if tokens <= 1.0:
            touched = self.touch_probability * tokens
        else:
            touched = 1.0 - (1.0 - self.touch_probability) ** (1.0 + self.routing_diversity * (tokens - 1.0))
        if not self.fullest_rank:
            return touched
        return min(1.0, touched + self.fullest_rank * sqrt(touched * (1.0 - touched)))

    def times(self, tokens: int, replica_tokens: int = 0) -> GemmTimes:
        """For a batch of *tokens* on this rank, *replica_tokens* on all ranks that share experts (0: equal batches)."""
        tokens_here = replica_tokens if self.expert and replica_tokens else tokens * self.tokens_factor
        compute_s = self.compute_s_per_token * (max(tokens_here, self.least_computed) if tokens_here else 0.0)
        memory_s = self.weight_s * self.touched(tokens_here) + self.activation_s_per_token * tokens_here
        total_s = together(compute_s, memory_s, self.exponent)
        compute_share = (compute_s / total_s) ** self.exponent if total_s else 0.0
        return GemmTimes(
            self.count * total_s * compute_share,
            self.count * total_s * (1 - compute_share),
            self.count * self.peak_s_per_token * tokens_here,
            self.count * memory_s,
        )


def total(products: Iterable[MatrixProduct], tokens: int, replica_tokens: int = 0) -> GemmTimes:
    """All of *products* for such a batch; as numbers, for a search asks for many batches."""
    compute_s = memory_s = peak_s = stream_s = 0.0
    for product in products:
        one = product.times(tokens, replica_tokens)
        compute_s += one.compute_s
        memory_s += one.memory_s
        peak_s += one.peak_s
        stream_s += one.stream_s
    return GemmTimes(compute_s, memory_s, peak_s, stream_s)


def product_of(matrix: Matrix, rates: GpuRates) -> MatrixProduct:
    """All copies of *matrix* in the layers, or the LM head, on one rank."""
    return _expert_product(matrix, rates) if matrix.role == "expert" else _dense_product(matrix, rates)


def _dense_product(matrix: Matrix, rates: GpuRates) -> MatrixProduct:
    """An ordinary matrix, split over the tensor-parallel ranks."""
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
    """The routed experts of every layer, one grouped product a layer, spread evenly over the ranks.

    With expert parallelism tokens come from all data-parallel ranks; where the batch does not say how many, the others
    are taken to step with equal ones. No expert is chosen more often than others.
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
        fullest_rank=most_of(ranks) / sqrt(moe.experts / ranks) if inputs.spreads_experts else 0.0,
        quantised=covers(inputs.quantization, matrix),
        expert=True,
    )


def most_of(ranks: int) -> float:
    """How far the largest of *ranks* normal numbers lies above their mean, in standard deviations (Blom)."""
    return NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25))


def split_shape(matrix: Matrix, model: Model, tensor_parallel_size: int) -> tuple[float, float]:
    """(inputs, outputs) of *matrix* on one tensor-parallel rank."""
    rows, columns = float(matrix.inputs), float(matrix.outputs)
    if matrix.split == "inputs":
        return rows / tensor_parallel_size, columns
    if matrix.split == "kv_heads":
        return rows, columns / min(tensor_parallel_size, matrix.kv_heads or model.kv_heads)
    if matrix.split in ("outputs", "vocab"):
        return rows, columns / tensor_parallel_size
    return rows, columns
