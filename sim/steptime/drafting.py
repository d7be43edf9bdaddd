"""The time of steps with drafts that one more layer of the model makes (EAGLE heads, multi-token prediction)."""

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
