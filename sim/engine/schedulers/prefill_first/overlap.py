"""SGLang's overlap scheduler: the next step is formed while one runs.

In `managers/scheduler.py` (`event_loop_overlap`) a step is launched before the result of the one before it is looked
at, so it is formed when that one begins: a request that arrives meanwhile waits one step more, and seat and KV blocks
of a finished one are free one step later. SGLang computes such a request once more in the step that was formed
meanwhile; that row is left out here. Who is retracted then loses the token that is being made.
"""

from sim.engine.schedulers.ahead import AsyncRank, Flight
from sim.engine.schedulers.prefill_first.sglang import LONGEST_ANSWER, SglangRank
from sim.engine.schedulers.rank import Rank
from sim.engine.sequence import Sequence


class OverlapRank(SglangRank, AsyncRank):
    """One rank under SGLang's rules whose steps are formed one ahead."""

    def form(self, now: float) -> int:
        """See `Schedule.form`."""
        steps = AsyncRank.form(self, now)
        return min(steps, 1) if self._leaving else steps  # the step after that knows who has left

    def close(self, flight: Flight) -> None:
        """See `AsyncRank.close`."""
        prompts = bool(flight.chunks)
        super().close(flight)
        self._count_steps(flight.steps, prompts, not flight.prompts_only)

    def _counted_on(self) -> int:
        runs, step = self._runs, self._step
        if runs is None:
            return super()._counted_on()
        if not runs.prompts_only:  # one more of each is coming
            return self._finishing.steps_left(step - 1, LONGEST_ANSWER) + len(self._leaving)
        coming = sum(one.decoding and one.finish_step - step < LONGEST_ANSWER for one in runs.first)
        return super()._counted_on() + coming + len(self._leaving)

    def _left(self, one: Sequence) -> int:
        if one in self._leaving:
            return 1
        return super()._left(one) + self._token_coming(one)

    def _preempt(self, sequence: Sequence, withdrawn: int) -> None:
        lost = self._token_coming(sequence)
        Rank._preempt(self, sequence, withdrawn)
        if lost and self._runs is not None:
            sequence.made -= 1
            sequence.tokens -= 1
            self._runs.lost += 1
            if sequence in self._runs.first:
                self._runs.first.remove(sequence)

    def _known(self, sequence: Sequence, computed: int, new: int) -> int:
        return computed
