"""Data-parallel ranks that step together, and whose next step is formed while one runs: vLLM's asynchronous
scheduling of a mixture of experts.

All ranks form the next step when the one before it begins, and the slowest decides how long it lasts. A rank with
nothing to do steps along.
"""

from math import inf

from sim.engine.asynchronous import AheadEngine
from sim.engine.limits import RankLimits
from sim.engine.parallel.lockstep import gathered_tokens, slowest
from sim.engine.ranks import emptiest
from sim.engine.schedulers.ahead import AsyncRank, Flight, Steps
from sim.records import Leap, Progress, Request, StepTime


class Together(Steps):
    """Steps that all ranks take at once."""

    __slots__ = ("_flights",)

    def __init__(self, flights: list[Flight], lead: Leap, steps: int) -> None:
        super().__init__(steps, lead)
        self._flights = flights

    def _settled(self) -> list[Flight]:
        """All ranks' flights, each with as many steps as there are now."""
        for one in self._flights:
            one.steps, one.start_s = self.steps, self.start_s
        return self._flights

    def working(self) -> list[Flight]:
        """See `Steps.working`."""
        return [one for one in self._settled() if one.batch.decode_seqs + one.batch.prefill_tokens]

    def close(self) -> None:
        """See `Steps.close`."""
        self.closed = True
        for one in self._settled():
            one.close()

    def finish(self, end_s: float) -> tuple[list[Request], bool]:
        """See `Steps.finish`."""
        left, changed = zip(*(one.finish(end_s) for one in self._flights), strict=True)
        return [request for requests in left for request in requests], any(changed)

    def give_up(self, request: Request, whole: int) -> Progress:
        """See `Steps.give_up`."""
        return next(one for one in self._settled() if _has(one, request)).give_up(request, whole)


class AsyncLockstepEngine(AheadEngine):
    """Each rank has its own queue and KV blocks; a request goes to the rank with the fewest outstanding ones."""

    def __init__(self, steptime: StepTime, limits: RankLimits, ranks: int) -> None:
        own = [AsyncRank(limits, limits.new_pool(), limits.new_queue()) for _ in range(ranks)]
        super().__init__(steptime, limits, own)

    def _rank_for(self, request: Request) -> AsyncRank:
        return emptiest(self._ranks, request)

    def _form(self, begins_s: float) -> Together | None:
        possible = [rank.form(begins_s) for rank in self._ranks]
        if not any(possible):
            return None
        gathered = gathered_tokens([rank.batch for rank in self._ranks], self._limits.padded_tokens)
        leaps = [
            self._leap(rank, gathered) if steps else Leap(0.0)
            for rank, steps in zip(self._ranks, possible, strict=True)
        ]
        lead = slowest([leap for leap, steps in zip(leaps, possible, strict=True) if steps])
        # an idle rank whose queue waits for what runs looks again after one step
        most = min(steps or (1 if rank.queued() else inf) for rank, steps in zip(self._ranks, possible, strict=True))
        steps = max(1, int(min(most, lead.valid_steps)))
        pairs = zip(self._ranks, leaps, strict=True)
        return Together([Flight(rank, steps, _stretched(leap, lead)) for rank, leap in pairs], lead, steps)

    def _leap(self, rank: AsyncRank, gathered: int) -> Leap:
        rank.batch.replica_tokens = gathered
        self._meters.cached_tokens += rank.cached_in_step
        leap = self._steptime.leap(rank.batch)
        return Leap(leap.first_s + rank.read_s, leap.growth_s, leap.valid_steps, leap.load)


def _has(flight: Flight, request: Request) -> bool:
    rank = flight.rank
    known = (*rank.running, *rank.joining, *flight.finished)
    return rank.waiting.has(request.index) or any(one.request is request for one in known)


def _stretched(leap: Leap, lead: Leap) -> Leap:
    """*lead*'s steps, in which a rank works as hard as it would alone, for the part that it would take alone."""
    load = leap.load * leap.first_s / lead.first_s if lead.first_s else 0.0
    return Leap(lead.first_s, lead.growth_s, lead.valid_steps, load)
