"""An engine behind an API server whose one thread takes requests in, one turn of its event loop after another."""

from collections.abc import Callable
from math import inf

from sim.engine.kv.adapters import AdapterSlots
from sim.engine.kv.blocks import BlockPool
from sim.engine.protocol import ReplicaEngine
from sim.engine.sequence import Sequence
from sim.records import Meters, Progress, Request, Span

Taken = tuple[Request, bool]
"""A request, and whether only its prompt is wanted."""


class IntakeEngine:
    """Requests that have come when a turn begins are taken in together, *intake_s* each; the engine gets them all at
    the turn's end, and those that came meanwhile make the next turn.

    An event loop works through all that is ready before it looks for what has become so: of a thousand requests that
    come at once none reaches the engine before the last has been read.
    """

    def __init__(self, engine: ReplicaEngine, intake_s: float, serves: Callable[[Sequence], bool]) -> None:
        self.engine = engine
        self._intake_s = intake_s
        self._serves = serves
        self._turn: list[Taken] = []
        self._next: list[Taken] = []
        self._turn_end_s = inf
        self._engine_end_s = inf
        self._brought: set[Request] = set()
        """Come with the KV of their prompts, past the API server."""

    def offer(self, request: Request, now: float, prompt_only: bool = False) -> bool:
        """See `ReplicaEngine.offer`."""
        if request in self._brought:
            self._brought.discard(request)
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

    def reserve(self, request: Request, now: float) -> bool:
        """See `ReplicaEngine.reserve`."""
        reserved = self.engine.reserve(request, now)
        if reserved:
            self._brought.add(request)
        return reserved

    def let_go(self, request: Request, now: float) -> None:
        """See `ReplicaEngine.let_go`."""
        self._brought.discard(request)
        self.engine.let_go(request, now)

    def evict(self, request: Request, now: float) -> Progress:
        """See `ReplicaEngine.evict`: the thread's turn takes as long as it would have."""
        for held in (self._turn, self._next):
            for taken in held:
                if taken[0] is request:
                    held.remove(taken)
                    return Progress(0, 0)
        return self.engine.evict(request, now)

    def crash(self, now: float) -> None:
        """See `ReplicaEngine.crash`."""
        self._turn, self._next, self._turn_end_s = [], [], inf
        self._brought.clear()
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

    def under_way(self, asked: int = -1) -> list[Span]:
        """See `ReplicaEngine.under_way`."""
        return self.engine.under_way(asked)

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
        """See `ReplicaEngine.last_waiting`: of those that the engine has."""
        return self.engine.last_waiting()

    def waiting(self) -> int:
        """See `ReplicaEngine.waiting`: also who has yet to be read in."""
        return len(self._turn) + len(self._next) + self.engine.waiting()


class TakingTurns(IntakeEngine):
    """Requests are read one after another, and the engine gets each as soon as it has been read.

    One that comes alone is not held up here: what reading it takes is part of the time before its first token. Those
    that come together, as the clients of a benchmark do, get there *intake_s* apart, so that the engine begins with the
    first while the others are read. Clients that began together fall out of step so.
    """

    def __init__(self, engine: ReplicaEngine, intake_s: float, serves: Callable[[Sequence], bool]) -> None:
        super().__init__(engine, intake_s, serves)
        self._free_s = -inf
        """When the thread has read all that it was given."""

    def offer(self, request: Request, now: float, prompt_only: bool = False) -> bool:
        """See `ReplicaEngine.offer`."""
        if request in self._brought or self._turn_end_s < inf or now < self._free_s:
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
