"""Engines that get their requests from an API server with one thread: `IntakeEngine`, `SequentialIntakeEngine`."""

from collections.abc import Callable
from math import inf

from sim.engine.kv.blocks import BlockPool
from sim.engine.lora import AdapterSlots
from sim.engine.protocol import KvTransit, ReplicaEngine
from sim.engine.sequence import Sequence
from sim.records import Meters, ReplicaProgress, Request, StepSpan

PendingRequest = tuple[Request, bool]
"""A request, and whether only its prompt is wanted."""


class IntakeEngine:
    """Engine behind an API server whose event loop reads requests in turns; reading a request takes *intake_s*.

    A turn reads all requests that have arrived when it begins; the engine gets them together at its end. Requests that
    arrive during a turn form the next one: an event loop handles everything that is ready before it polls again. Of a
    thousand simultaneous requests, none reaches the engine before the last has been read.
    """

    def __init__(self, engine: ReplicaEngine, intake_s: float, serves: Callable[[Sequence], bool]) -> None:
        self.engine = engine
        self._intake_s = intake_s
        self._serves = serves
        self._turn: list[PendingRequest] = []
        self._next: list[PendingRequest] = []
        self._turn_end_s = inf
        self._engine_end_s = inf
        self._with_kv: set[Request] = set()
        """Requests that came with the KV of their prompts from another replica, past the API server."""

    def offer(self, request: Request, now: float, prompt_only: bool = False) -> bool:
        """See `ReplicaEngine.offer`."""
        if request in self._with_kv:
            self._with_kv.discard(request)
            return self.engine.offer(request, now, prompt_only)
        if not self._serves(Sequence(request, prompt_only)):
            request.rejected = True
            return False
        self._next.append((request, prompt_only))
        if self._turn_end_s < inf:
            return False
        self._begin_turn(now)
        return True

    def _begin_turn(self, now: float) -> None:
        self._turn, self._next = self._next, []
        self._turn_end_s = now + self._intake_s * len(self._turn) if self._turn else inf

    def kv_transit(self) -> KvTransit | None:
        """See `ReplicaEngine.kv_transit`."""
        return None if self.engine.kv_transit() is None else self

    def reserve(self, request: Request, now: float) -> bool:
        """See `KvTransit.reserve`."""
        transit = self.engine.kv_transit()
        if transit is None or not transit.reserve(request, now):
            return False
        self._with_kv.add(request)
        return True

    def release_kv(self, request: Request, now: float) -> None:
        """See `KvTransit.release_kv`."""
        self._with_kv.discard(request)
        if (transit := self.engine.kv_transit()) is not None:
            transit.release_kv(request, now)

    def evict(self, request: Request, now: float) -> ReplicaProgress:
        """See `ReplicaEngine.evict`. Evicting a request does not shorten the turn in which it would have been read."""
        for held in (self._turn, self._next):
            for taken in held:
                if taken[0] is request:
                    held.remove(taken)
                    return ReplicaProgress(0, 0)
        return self.engine.evict(request, now)

    def crash(self, now: float) -> None:
        """See `ReplicaEngine.crash`."""
        self._turn, self._next, self._turn_end_s = [], [], inf
        self._with_kv.clear()
        self.engine.crash(now)

    def plan(self, now: float) -> float:
        """See `ReplicaEngine.plan`."""
        self._engine_end_s = self.engine.plan(now)
        return min(self._engine_end_s, self._turn_end_s)

    def advance(self) -> list[Request]:
        """See `ReplicaEngine.advance`."""
        turn_end_s, engine_end_s = self._turn_end_s, self._engine_end_s
        if turn_end_s <= engine_end_s:
            for request, prompt_only in self._turn:
                self.engine.offer(request, turn_end_s, prompt_only)
            self._begin_turn(turn_end_s)
        return self.engine.advance() if engine_end_s <= turn_end_s else []

    def meters(self, now: float) -> Meters:
        """See `ReplicaEngine.meters`."""
        return self.engine.meters(now)

    def share_time(self, on: bool, now: float) -> None:
        """See `ReplicaEngine.share_time`."""
        self.engine.share_time(on, now)

    def under_way(self, request_index: int = -1) -> list[StepSpan]:
        """See `ReplicaEngine.under_way`."""
        return self.engine.under_way(request_index)

    def caches(self) -> list[BlockPool]:
        """See `ReplicaEngine.caches`."""
        return self.engine.caches()

    def kv_usage(self, now: float) -> float:
        """See `ReplicaEngine.kv_usage`."""
        return self.engine.kv_usage(now)

    def adapters(self) -> list[AdapterSlots]:
        """See `ReplicaEngine.adapters`."""
        return self.engine.adapters()

    def last_waiting(self) -> Request | None:
        """See `ReplicaEngine.last_waiting`. Only requests that the engine has are considered."""
        return self.engine.last_waiting()

    def waiting(self) -> int:
        """See `ReplicaEngine.waiting`. Requests that have yet to be read count."""
        return len(self._turn) + len(self._next) + self.engine.waiting()


class SequentialIntakeEngine(IntakeEngine):
    """Engine behind an API server that reads requests one after another and passes each on as soon as it is read.

    A request that arrives alone is not delayed here: its reading time is part of the overhead that the fleet adds to
    its time to first token. Simultaneous requests, such as those of a benchmark's clients, reach the engine *intake_s*
    apart: the engine starts the first while the others are read, and clients that started together desynchronise.
    """

    def __init__(self, engine: ReplicaEngine, intake_s: float, serves: Callable[[Sequence], bool]) -> None:
        super().__init__(engine, intake_s, serves)
        self._free_s = -inf
        """Time at which the thread has read all requests so far [s]."""

    def offer(self, request: Request, now: float, prompt_only: bool = False) -> bool:
        """See `ReplicaEngine.offer`."""
        if request in self._with_kv or self._turn_end_s < inf or now < self._free_s:
            return super().offer(request, now, prompt_only)
        if self._serves(Sequence(request, prompt_only)):
            self._free_s = now + self._intake_s
        return self.engine.offer(request, now, prompt_only)

    def _begin_turn(self, now: float) -> None:
        self._turn, self._next = self._next[:1], self._next[1:]
        self._turn_end_s = self._free_s if self._turn else inf

    def advance(self) -> list[Request]:
        """See `ReplicaEngine.advance`."""
        if self._turn_end_s <= self._engine_end_s and self._turn:
            self._free_s = self._turn_end_s + self._intake_s
        return super().advance()

    def crash(self, now: float) -> None:
        """See `ReplicaEngine.crash`."""
        super().crash(now)
        self._free_s = -inf
