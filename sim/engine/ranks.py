"""What an engine is asked about its ranks, whatever the rules by which they step."""

from abc import ABC, abstractmethod
from copy import copy
from math import inf
from typing import Generic, TypeVar

from sim.engine.kv.adapters import AdapterSlots
from sim.engine.kv.blocks import BlockPool
from sim.engine.limits import RankLimits
from sim.engine.schedulers.queues.waiting import EntryQueue
from sim.engine.schedulers.rank_schedule import RankSchedule
from sim.engine.sequence import Sequence
from sim.records import Meters, Request, StepTime

R = TypeVar("R", bound=RankSchedule)


class RankEngine(ABC, Generic[R]):
    """One replica, of one rank (tensor parallelism included: its GPUs step together) or of several."""

    __slots__ = ("_end_s", "_limits", "_meters", "_ranks", "_sharing", "_steptime")

    def __init__(self, steptime: StepTime, limits: RankLimits, ranks: list[R]) -> None:
        self._steptime = steptime
        self._limits = limits
        self._ranks = ranks
        self._meters = Meters()
        self._end_s = inf
        self._sharing = False

    @abstractmethod
    def _rank_for(self, request: Request) -> R:
        """Where *request* is served."""

    @abstractmethod
    def _steps_begun(self, now: float) -> int:
        """Of the steps under way, how many have their KV blocks at *now*; 1 where none are under way."""

    def serves(self, request: Request) -> bool:
        """Whether *request* can ever fit."""
        return self._limits.serves(Sequence(request))

    def _totals(self) -> Meters:
        """What the steps made so far have left in the meters."""
        totals = copy(self._meters)
        totals.preemptions = sum(rank.preemptions for rank in self._ranks)
        totals.kv_peak_blocks = max(rank.pool.peak for rank in self._ranks)
        return totals

    def _accepted(self, totals: Meters) -> int:
        """Drafted tokens among *totals* that answers have kept."""
        return round(totals.accepted_tokens - sum(rank.overshoot for rank in self._ranks))

    def caches(self) -> list[BlockPool]:
        """See `Engine.caches`."""
        return [rank.pool for rank in self._ranks]

    def kv_usage(self, now: float) -> float:
        """See `Engine.kv_usage`."""
        begun = self._steps_begun(now)
        used = sum(rank.pool.usable - rank.pool.free + rank.blocks_ahead(begun) for rank in self._ranks)
        return used / sum(rank.pool.usable for rank in self._ranks)

    def adapters(self) -> list[AdapterSlots]:
        """See `Engine.adapters`."""
        return [rank.adapters for rank in self._ranks if rank.adapters is not None]

    def last_waiting(self) -> Request | None:
        """See `Engine.last_waiting`: nobody, where ranks have queues of their own."""
        if len(self._ranks) > 1:
            return None
        waiting = self._ranks[0].waiting
        return waiting.last() if isinstance(waiting, EntryQueue) else None

    def waiting(self) -> int:
        """See `Engine.waiting`."""
        return sum(rank.queued() for rank in self._ranks)


def emptiest(ranks: list[R], request: Request) -> R:
    """The rank where KV blocks were reserved for *request*, else the one with the fewest outstanding requests."""
    reserved = next((rank for rank in ranks if request in rank.transit.reserved), None)
    return reserved or min(ranks, key=lambda rank: rank.queued() + len(rank.running))
