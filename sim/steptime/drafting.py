"""Step times with additional computation: speculative drafts and LoRA adapters.

Drafts come from one more layer of the model (EAGLE heads, multi-token prediction) or from another model.
"""

from dataclasses import dataclass, replace

from sim.catalogue.value import Value
from sim.records import Batch, Leap
from sim.steptime.inputs import SIXTEEN_BIT_BYTES, GpuRates, peak_flops
from sim.steptime.roofline import RooflineStepTime


class DraftHeadStepTime:
    """Roofline whose decode steps also draft *tokens* tokens per sequence with one more layer, in sequential passes."""

    def __init__(self, target: RooflineStepTime, tokens: int) -> None:
        self._target, self._tokens = target, tokens
        self.window = target.window
        self.inputs = target.inputs
        self.values = target.values
        self.exchanges = target.exchanges

    def leap(self, batch: Batch) -> Leap:
        """Return the durations of the next steps of *batch*."""
        leap = self._target.leap(batch)
        if batch.draft_tokens:
            once = self._target.draft_pass(batch)
            leap.first_s += self._tokens * once.first_s
            leap.growth_s += self._tokens * once.growth_s
        return leap

    def breakdown(self, batch: Batch) -> dict[str, float]:
        """Return the duration of the first step by cause [s]; drafting counts as memory, which bounds it."""
        parts = self._target.breakdown(batch)
        if batch.draft_tokens:
            parts["memory"] += self._tokens * self._target.draft_pass(batch).first_s
        return parts


class DraftModelStepTime:
    """Roofline with a separate model that drafts *tokens* tokens per sequence, in sequential passes.

    The first pass also processes the tokens that the target has just computed: prompts, and the previous step's drafts.
    """

    def __init__(self, target: RooflineStepTime, drafter: RooflineStepTime, tokens: int) -> None:
        self._target, self._drafter, self._tokens = target, drafter, tokens
        self.window = target.window
        self.inputs = target.inputs
        self.values = target.values
        self.exchanges = target.exchanges

    def leap(self, batch: Batch) -> Leap:
        """Return the durations of the next steps of *batch*."""
        leap, drafts = self._target.leap(batch), self._drafts(batch)
        leap.first_s += drafts.first_s
        leap.growth_s += drafts.growth_s
        return leap

    def breakdown(self, batch: Batch) -> dict[str, float]:
        """Return the duration of the first step by cause [s]; drafting counts as memory, which bounds it."""
        parts = self._target.breakdown(batch)
        parts["memory"] += self._drafts(batch).first_s
        return parts

    def _drafts(self, batch: Batch) -> Leap:
        """Return the time of all passes of the draft model in a step."""
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
    """Work of LoRA adapters on one GPU."""

    projections: int
    """Number of adapted matrices in all layers."""
    parameters: float
    """Parameters of one adapter on one GPU; each token multiplies by all of them, and a step reads those of each
    adapter once."""
    activations: float
    """Numbers read and written per token on one GPU: inputs, intermediate products, and outputs that are added to."""
    projection_s: Value
    """Time that each adapted matrix adds to a step, independent of its tokens [s]."""


class AdapterStepTime:
    """Step-time model with the batch's LoRA adapters computed in addition (Punica's SGMV and its successors).

    Tokens that are verified use the adapter of their sequence; tokens are drafted without adapters.

    Notes
    -----
        t = adapted matrices * t_projection + (adapters * parameters + tokens * activations) * 2 bytes / bandwidth
          + 2 * tokens * parameters / FLOP rate

    where tokens are the new tokens of sequences with an adapter.

    """

    def __init__(self, target: RooflineStepTime | DraftHeadStepTime | DraftModelStepTime, work: AdapterWork) -> None:
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
        """Return the durations of the next steps of *batch*."""
        leap = self._target.leap(batch)
        if batch.adapters:
            leap.first_s += self._beside_s(batch)
        return leap

    def breakdown(self, batch: Batch) -> dict[str, float]:
        """Return the duration of the first step by cause [s]; adapters count as memory, which bounds them."""
        parts = self._target.breakdown(batch)
        if batch.adapters:
            parts["memory"] += self._beside_s(batch)
        return parts

    def _beside_s(self, batch: Batch) -> float:
        return self._fixed_s + self._adapter_s * batch.adapters + self._token_s * batch.adapted_tokens


ComputedStepTime = RooflineStepTime | DraftHeadStepTime | DraftModelStepTime | AdapterStepTime
"""Step-time models computed from the hardware, which also report the messages between GPUs."""
