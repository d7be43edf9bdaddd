"""Prompt pacing of vLLM's scheduler: which steps compute prompts, and how many tokens of one prompt per step."""

from collections.abc import Callable

from sim.engine.limits import SchedulerLimits


class PromptPacing:
    """State of `prefill_schedule_interval` and `long_prefill_token_threshold`."""

    __slots__ = (
        "_computed_at", "_interval", "_left_waiting", "_long_prefill", "_max_model_len", "limited", "longest_chunk",
        "spaced", "wait",
    )  # fmt: skip

    def __init__(self, limits: SchedulerLimits) -> None:
        self._interval = limits.options.prefill_schedule_interval
        self._long_prefill = limits.options.long_prefill_token_threshold
        self._max_model_len = limits.max_model_len
        self.spaced = self._interval > 1
        """True if prompts wait for an interval at all."""
        self.limited = self.spaced or self._long_prefill > 0
        """True if `begin_step` changes anything."""
        self.longest_chunk = limits.max_model_len
        """Most tokens of one prompt in the step being formed."""
        self.wait = False
        """True if the step being formed computes no prompts, because of the interval."""
        self._computed_at = -self._interval
        """Counter of the last step that computed prompts; requests with a single token to compute at admission do not
        count."""
        self._left_waiting = False
        """True if the last step that computed prompts left requests in the queue: then the next step may compute
        prompts."""

    def begin_step(self, step: int, requests: int, decodes: Callable[[], bool]) -> None:
        """Set the limits of the step at counter *step*, with *requests* running or waiting.

        *decodes* returns whether any of them decodes.
        """
        if self.spaced:
            soon = step - self._computed_at < self._interval
            self.wait = soon and not self._left_waiting and decodes()
        if self._long_prefill:
            self.longest_chunk = self._max_model_len if requests == 1 else self._long_prefill

    def admitted(self, left: bool) -> None:
        """Record the end of admission; *left*: whether requests stay in the queue, apart from those passed over."""
        if not self.wait:
            self._left_waiting = left

    def computes(self, step: int) -> None:
        """Record that the step at counter *step* computes prompts."""
        self._computed_at = step

    def steps_to_wait(self, step: int) -> int:
        """Return how many steps from counter *step* on pass before prompts are computed again."""
        return self._computed_at + self._interval - step

    def most_now(self, tokens: int) -> int:
        """Return how many of the *tokens* left of a prompt the step being formed may compute, whatever its budget."""
        return 0 if self.wait and tokens > 1 else min(tokens, self.longest_chunk)

    def most_of_first(self, tokens: int) -> int:
        """Return how many of a prompt's *tokens* its first chunk may have where it is not alone."""
        return min(tokens, self._long_prefill or tokens)


_UNLIMITED: dict[int, PromptPacing] = {}
"""Pacing without limits, whose counters are never read, by `max_model_len`."""


def pacing_of(limits: SchedulerLimits) -> PromptPacing:
    """Return the pacing of one rank; ranks without limits share it, so that it stays in the CPU's caches."""
    pacing = PromptPacing(limits)
    return pacing if pacing.limited else _UNLIMITED.setdefault(limits.max_model_len, pacing)
