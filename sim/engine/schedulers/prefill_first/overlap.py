"""Prompts before tokens where the next step is formed while one runs: SGLang's overlap scheduler.

In `managers/scheduler.py` (`event_loop_overlap`) a step is launched before the result of the one before it is looked
at, so it is formed when that one begins: a request that arrives meanwhile waits one step more, and seat and KV blocks
of a finished one are free one step later. SGLang computes such a request once more in the step that was formed
meanwhile; that row is left out here.
"""

from sim.engine.schedulers.ahead import AsyncRank, Flight
from sim.engine.schedulers.prefill_first.rank import PrefillFirstRank
from sim.engine.sequence import Sequence


class OverlapRank(PrefillFirstRank, AsyncRank):
    """One rank on which prompts go first and steps are formed one ahead."""

    def form(self, now: float) -> int:
        """See `Schedule.form`."""
        return AsyncRank.form(self, now)

    def close(self, flight: Flight) -> None:
        """See `AsyncRank.close`."""
        super().close(flight)
        self._inbox.passed(flight.steps, flight.prompts_only)

    def _known(self, sequence: Sequence, computed: int, new: int) -> int:
        return computed
