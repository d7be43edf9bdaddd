"""Layers with a state instead of a cache (Gated DeltaNet, arXiv 2412.06464; Kimi Delta Attention, 2510.26692; Mamba-2,
2405.21060).

    decode:  state bytes * (read once + written after each token) / rate
    prompt:  state read and written once a chunk; per token and value head 2 (3 K V + C (3 K + 2 V)) FLOP
             Mamba-2: 2 (2 K V + C V) FLOP, and 2 C K for each group

with K and V the sizes of a key and a value and C the tokens that are scanned together. The products are with the
state (three; two of Mamba-2, which takes nothing out of it), and among the C tokens of a block: keys with keys, queries
with keys, and the block's values; of Mamba-2 queries with keys once a group, and values.
"""

from dataclasses import dataclass

from sim.catalogue.entries.model import LinearAttention, state_bytes
from sim.records import Batch
from sim.steptime.gemm import FLOP_PER_WEIGHT
from sim.steptime.inputs import Rates, peak_flops

SCAN_TOKENS = 64
"""C: tokens that are scanned together, in vLLM, SGLang and TensorRT-LLM (flash-linear-attention's chunks)."""
MAMBA_SCAN_TOKENS = 128
"""C of Mamba-2: `chunk_size` of Nemotron 3; efficiencies are stated against it also where a config has 256."""


@dataclass(frozen=True, slots=True)
class States:
    """Costs of all such layers of a stage on one tensor-parallel rank [s]."""

    move_s: float
    """To read or write the states of one sequence once."""
    token_s: float
    """Arithmetic of a prompt's token."""
    token_peak_s: float
    """At the dense peak."""

    @classmethod
    def of(cls, rates: Rates, linear: LinearAttention, layers: float) -> "States":
        """Of so many *layers*; heads are split over the ranks."""
        inputs, coefficients = rates.inputs, rates.inputs.coefficients.attention
        share = layers / inputs.tensor_parallel_size
        peak_s = scan_flop(linear) * share / peak_flops(inputs.gpu, "fp16")
        reached = coefficients.scan_efficiency(linear.rule, inputs.engine.id, inputs.gpu.architecture)
        return cls(
            move_s=state_bytes(inputs.model) * share / rates.bytes_per_s * coefficients.state_time_factor.value,
            token_s=peak_s / reached.value / inputs.speed,
            token_peak_s=peak_s,
        )

    def times(self, batch: Batch) -> tuple[float, float]:
        """(moving states, scanning prompts) in the next step of *batch* [s]."""
        written = batch.decode_seqs + batch.draft_tokens + batch.prefill_seqs
        moves = batch.decode_seqs + batch.prefill_seqs + written
        return self.move_s * moves, self.token_s * batch.prefill_tokens


def scan_flop(linear: LinearAttention) -> float:
    """Arithmetic of one token of a prompt in one layer, its projections aside [FLOP]."""
    keys, values = linear.key_head_dim, linear.value_head_dim
    if linear.rule == "mamba2":
        in_heads = linear.value_heads * (2 * keys * values + MAMBA_SCAN_TOKENS * values)
        return FLOP_PER_WEIGHT * (in_heads + linear.key_heads * MAMBA_SCAN_TOKENS * keys)
    with_state = 3 * keys * values
    in_block = SCAN_TOKENS * (3 * keys + 2 * values)
    return FLOP_PER_WEIGHT * linear.value_heads * (with_state + in_block)
