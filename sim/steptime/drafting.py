"""The time of steps that compute something beside the model: drafts, of one more layer of the model (EAGLE heads,
multi-token prediction) or of another model; LoRA adapters.
"""

from dataclasses import dataclass, replace

from sim.catalogue.value import Value
from sim.records import Batch, Leap
from sim.steptime.inputs import SIXTEEN_BIT_BYTES, GpuRates, peak_flops
from sim.steptime.roofline import RooflineStepTime


class Drafting:
    """A roofline whose decode steps also draft *tokens* for each sequence, one pass after the other."""

    def __init__(self, target: RooflineStepTime, tokens: int) -> None:
        self._target, self._tokens = target, tokens
        self.window = target.window
        self.inputs = target.inputs
        self.values = target.values
        self.exchanges = target.exchanges

    def leap(self, batch: Batch) -> Leap:
        """Duration of the next steps of *batch*."""
        leap = self._target.leap(batch)
        if batch.draft_tokens:
            once = self._target.draft_pass(batch)
            leap.first_s += self._tokens * once.first_s
            leap.growth_s += self._tokens * once.growth_s
        return leap

    def breakdown(self, batch: Batch) -> dict[str, float]:
        """The first step's seconds by cause; drafting counts as memory, which it reads."""
        parts = self._target.breakdown(batch)
        if batch.draft_tokens:
            parts["memory"] += self._tokens * self._target.draft_pass(batch).first_s
        return parts


class DraftModel:
    """A roofline beside which another model drafts *tokens* for each sequence, one pass after the other.

    The first pass also computes what the target has just computed: prompts, and the drafts of the step before.
    """

    def __init__(self, target: RooflineStepTime, drafter: RooflineStepTime, tokens: int) -> None:
        self._target, self._drafter, self._tokens = target, drafter, tokens
        self.window = target.window
        self.inputs = target.inputs
        self.values = target.values
        self.exchanges = target.exchanges

    def leap(self, batch: Batch) -> Leap:
        """Duration of the next steps of *batch*."""
        leap, drafts = self._target.leap(batch), self._drafts(batch)
        leap.first_s += drafts.first_s
        leap.growth_s += drafts.growth_s
        return leap

    def breakdown(self, batch: Batch) -> dict[str, float]:
        """The first step's seconds by cause; drafting counts as memory, which it reads."""
        parts = self._target.breakdown(batch)
        parts["memory"] += self._drafts(batch).first_s
        return parts

    def _drafts(self, batch: Batch) -> Leap:
        """All passes of the drafting model in a step."""
        first = replace(batch, draft_tokens=0, prefill_tokens=batch.prefill_tokens + batch.draft_tokens)
        again = Batch(
            decode_seqs=batch.sampled_seqs,
            kv_tokens=batch.kv_tokens,
            windowed_kv_tokens=batch.windowed_kv_tokens,
            windowed_growing_seqs=batch.windowed_growing_seqs,
            sampled_seqs=batch.sampled_seqs,
        )
        drafts = self._drafter.pass_inside(first)
        if batch.sampled_seqs and self._tokens > 1:
            each = self._drafter.pass_inside(again)
            drafts.first_s += (self._tokens - 1) * each.first_s
            drafts.growth_s += (self._tokens - 1) * each.growth_s
        return drafts


@dataclass(frozen=True, slots=True)
class AdapterWork:
    """What LoRA adapters have a GPU do."""

    projections: int
    """Adapted matrices, of all layers."""
    parameters: float
    """Of one adapter, on one GPU: a token multiplies by all of them, a step reads those of each adapter once."""
    activations: float
    """Read and written per token, on one GPU: inputs, intermediate products, and outputs that are added to."""
    projection_s: Value
    """What each adapted matrix adds to a step, whatever is in it."""


class Adapted:
    """A roofline, with its drafts, beside which the batch's LoRA adapters are computed (Punica's SGMV, its followers).

    Tokens that are verified ask for the adapter of their sequence; who drafts them asks for none.

    t = adapted matrices * their time + (adapters * parameters + tokens * activations) * 2 bytes / bandwidth
      + 2 * tokens * parameters / rate                  where tokens are those of sequences that ask for an adapter
    """

    def __init__(self, target: RooflineStepTime | Drafting | DraftModel, work: AdapterWork) -> None:
        self._target = target
        self.window = target.window
        self.inputs = target.inputs
        self.exchanges = target.exchanges
        self.values = target.values | {"adapter_projection_s": work.projection_s}
        rates = GpuRates.of(target.inputs)
        self._fixed_s = work.projections * work.projection_s.value
        self._adapter_s = work.parameters * SIXTEEN_BIT_BYTES / rates.bytes_per_s
        self._token_s = work.activations * SIXTEEN_BIT_BYTES / rates.bytes_per_s
        self._token_s += 2 * work.parameters / (peak_flops(target.inputs.gpu, "fp16") * rates.compute_efficiency)

    def leap(self, batch: Batch) -> Leap:
        """Duration of the next steps of *batch*."""
        leap = self._target.leap(batch)
        if batch.adapters:
            leap.first_s += self._beside_s(batch)
        return leap

    def breakdown(self, batch: Batch) -> dict[str, float]:
        """The first step's seconds by cause; adapters count as memory, which they read."""
        parts = self._target.breakdown(batch)
        if batch.adapters:
            parts["memory"] += self._beside_s(batch)
        return parts

    def _beside_s(self, batch: Batch) -> float:
        return self._fixed_s + self._adapter_s * batch.adapters + self._token_s * batch.adapted_tokens


ComputedStepTime = RooflineStepTime | Drafting | DraftModel | Adapted
"""Step-time models worked out from the hardware; they know what GPUs send one another."""
