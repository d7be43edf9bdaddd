"""What SGLang believes that those who run will still make: the new token ratio (`NewTokenRatioTracker`).

A share of what their answers may at most still be. It begins at 0.7 times `schedule_conservativeness`, falls in 600
decode steps to 14 % of that, and starts again where the server is idle; when KV blocks have run out, it becomes what
the requests that stay have made of their answers so far, and 20 tokens more for each.
"""

INITIAL, LEAST, DECAY_STEPS, RETRACT_STEPS = 0.7, 0.14, 600, 20
"""Defaults of SGLANG_INIT_NEW_TOKEN_RATIO, SGLANG_MIN_NEW_TOKEN_RATIO_FACTOR, SGLANG_NEW_TOKEN_RATIO_DECAY_STEPS and
SGLANG_RETRACT_DECODE_STEPS."""


class NewTokenRatio:
    """The ratio after any number of decode steps."""

    def __init__(self, conservativeness: float) -> None:
        self._initial = self._from = min(INITIAL * conservativeness, 1.0)
        self._least = self._initial * LEAST
        self._steps = 0
        """Decode steps since the ratio was set."""

    @property
    def value(self) -> float:
        """The share of the rest of all answers that is counted on."""
        if not self._steps:
            return self._from
        return max(self._from - (self._initial - self._least) / DECAY_STEPS * self._steps, self._least)

    def decay(self, steps: int) -> None:
        """Counts *steps* more decode steps."""
        self._steps += steps

    def idle(self) -> None:
        """Nothing runs and nobody waits."""
        self._from, self._steps = self._initial, 0

    def retracted(self, made: int, at_most: int, running: int) -> None:
        """After a retraction *running* requests go on, which have made *made* tokens of *at_most*."""
        self._from, self._steps = min(1.0, (made + RETRACT_STEPS * running) / (at_most + 1)), 0
