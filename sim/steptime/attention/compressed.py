"""Attention to a compressed context (DeepSeek-V4): entries that stand for several tokens, and a window of single ones.

decode:  context / 128 entries in coarse layers; keys of context / 4 entries in fine ones, and the best of them
         window entries in every layer, for each token
prompt:  the same of query-key pairs, in latents
both:    streams of hyper-connections: a time per layer, and passes over the streams of each token
"""

from dataclasses import dataclass

from sim.catalogue.entries.model import CompressedAttention
from sim.records import Batch
from sim.steptime.attention.heads import LayerAttention
from sim.steptime.gemm import ACTIVATION_BYTES
from sim.steptime.inputs import Rates


@dataclass(frozen=True, slots=True)
class NearTokens:
    """The window and the streams of all layers of a stage on one tensor-parallel rank [s]."""

    decode_s: float
    """The window of a decoding token."""
    token_s: float
    """The window of a prompt's token."""
    token_peak_s: float
    """Its arithmetic at the dense peak."""
    stream_s: float
    """Streams of any token."""
    step_s: float
    """Streams of a step, however many tokens it has."""

    @classmethod
    def of(cls, rates: Rates, compressed: CompressedAttention, entry: LayerAttention, layers: float) -> "NearTokens":
        """Of so many *layers* whose window has entries like *entry*."""
        inputs, coefficients = rates.inputs, rates.inputs.coefficients.attention
        window, streams = compressed.window * layers, compressed.streams if compressed.streams > 1 else 0
        stream_bytes = streams * inputs.model.hidden * ACTIVATION_BYTES * coefficients.hyper_connection_passes.value
        return cls(
            decode_s=window * entry.decode_s,
            token_s=window * entry.pair_s,
            token_peak_s=window * entry.pair_peak_s,
            stream_s=layers * stream_bytes / inputs.gpu.memory_bytes_per_s.value / inputs.speed,
            step_s=layers * coefficients.hyper_connection_s.value if streams else 0.0,
        )

    def times(self, batch: Batch) -> tuple[float, float]:
        """(reading and mixing, arithmetic of prompts) in the next step of *batch* [s]."""
        decoded = batch.decode_seqs + batch.draft_tokens
        streams_s = self.step_s + self.stream_s * (decoded + batch.prefill_tokens)
        return self.decode_s * decoded + streams_s, self.token_s * batch.prefill_tokens
