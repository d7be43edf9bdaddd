"""The time of steps with drafts: of one more layer of the model (EAGLE heads, multi-token prediction), or of another
model.
"""

from dataclasses import replace

from sim.records import Batch, Leap
from sim.steptime.roofline import RooflineStepTime


class Drafting:
    """A roofline whose decode steps also draft *tokens* for each sequence, one pass after the other."""

    def __init__(self, target: RooflineStepTime, tokens: int) -> None:
        self._target, self._tokens = target, tokens
        self.window = target.window
        self.inputs = target.inputs
        self.values = target.values

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
