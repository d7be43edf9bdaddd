"""Decoding sequences that share one FlashAttention-2 call with prompts (vLLM's V1 engine).

FlashAttention 2 packs the query heads of a KV head, and splits a long cache, only in a call in which every sequence has
one new token (vLLM's pull request 58013). Where one has more, each query head of each sequence is a thread block of
its own, which works through a tile of 64 rows for its single one and reads the cache of its KV head by itself:

    t = max(arithmetic of the tiles, cache read * rereads, the packed call)
    rereads = 1 while a KV head's cache of all sequences fits into L2; beyond, query heads of a KV head over those of
              them that run at the same time

A block walks a context alone, so few of them leave the GPU idle; and the longest prompt chunk sets the number of tiles
that are launched for every sequence, of which all but one have nothing to do. Drafts are not costed so: nobody has
measured those kernels, and measured gains of drafts speak against it.
"""

from dataclasses import dataclass
from math import inf

from sim.records import Batch
from sim.steptime.attention.coefficients import OneCallAttention
from sim.steptime.attention.heads import LayerAttention
from sim.steptime.gemm import ACTIVATION_BYTES
from sim.steptime.inputs import Rates, RooflineInputs

MOST_HEAD_DIM = 256
"""Widest heads that FlashAttention 2 has kernels for."""


@dataclass(frozen=True, slots=True)
class OneCall:
    """Costs of all layers of a stage that see the whole context, on one tensor-parallel rank."""

    packed_s: float
    """Per context token where all sequences have one new token [s]."""
    read_s: float
    """Per context token: its cache read once [s]."""
    tile_s: float
    """Per context token: the arithmetic of its tiles [s]."""
    idle_s: float
    """Per sequence and tile that has nothing to do [s]."""
    blocks: float
    """Thread blocks of a sequence in a layer."""
    group: float
    """Query heads of a KV head on the rank."""
    rows: float
    """Queries of a tile."""
    head_bytes: float
    """That a token has in the cache of a KV head."""
    processors: float
    """Thread blocks that the GPU runs at the same time."""
    l2_bytes: float

    @classmethod
    def of(cls, rates: Rates, whole: LayerAttention, layers: float) -> "OneCall | None":
        """Where *whole* are the *layers* that see the whole context; None: decodes have a call of their own."""
        inputs, stated = rates.inputs, one_call(rates.inputs)
        if stated is None:
            return None
        gpu, by, ranks = inputs.gpu, inputs.model.attends_by(whole=True), inputs.tensor_parallel_size
        processors = gpu.sm_count.value if gpu.sm_count else 0.0
        blocks, rows = by.heads / ranks, stated.tile_rows.value
        idle_s = stated.idle_block_s.value / processors if processors else 0.0
        return cls(
            packed_s=whole.decode_s,
            read_s=whole.read_s,
            tile_s=rows * whole.pair_s,
            idle_s=idle_s * blocks * layers,
            blocks=blocks,
            group=blocks / max(by.kv_heads / ranks, 1.0),
            rows=rows,
            head_bytes=ACTIVATION_BYTES * (by.head_dim + by.value_dim),
            processors=processors,
            l2_bytes=gpu.l2_bytes.value if gpu.l2_bytes else inf,
        )

    def parts(self, batch: Batch, prompts_s: float) -> tuple[float, float]:
        """(arithmetic, reading) of the decoding sequences, of which one is 0, beside *prompts_s* of the others [s]."""
        sequences, tokens = batch.decode_seqs, batch.kv_tokens
        idle_s = self.idle_s * sequences * max(longest_chunk(batch) / self.rows - 1.0, 0.0)
        tile_s, read_s = self.tile_s * tokens, self.read_s * tokens * self._rereads(sequences, tokens)
        read_s = max(read_s, self.packed_s * tokens)
        if read_s > tile_s:
            return 0.0, read_s + idle_s
        alone_s = tile_s * self.processors / (self.blocks * sequences)
        return max(tile_s + idle_s, alone_s - prompts_s), 0.0

    def _rereads(self, sequences: float, tokens: float) -> float:
        if not self.processors:
            return 1.0
        missed = min(max(tokens * self.head_bytes / self.l2_bytes - 1.0, 0.0), 1.0)
        apart = min(self.group, max(self.group * sequences / self.processors, 1.0))
        return 1.0 + missed * (apart - 1.0)


def longest_chunk(batch: Batch) -> float:
    """Tokens of the longest prompt chunk, as far as the batch's sums tell: that of the mean query and key.

    It is exact where chunks are alike, and never more than the longest is.
    """
    if not batch.prefill_seqs:
        return 0.0
    tokens, earlier = batch.prefill_tokens, batch.prefill_context_tokens
    squares = 2 * batch.prefill_attention_pairs - tokens  # sum of c (c + 2 k)
    return max(tokens / batch.prefill_seqs, squares / (tokens + 2 * earlier))


def one_call(inputs: RooflineInputs) -> OneCallAttention | None:
    """The statement about decodes beside prompts in the engine on that card; None: they have a call of their own.

    Other kernels run models with latents, chosen tokens or attention sinks, an 8-bit cache, and heads too wide for this
    one.
    """
    stated, model = inputs.coefficients.attention.one_call, inputs.model
    if not stated.applies(inputs.engine.id, inputs.gpu.architecture) or inputs.kv_8bit:
        return None
    if model.mla is not None or model.indexer is not None or model.attention_sinks:
        return None
    if model.attends_by(whole=True).head_dim > MOST_HEAD_DIM:
        return None
    return stated
