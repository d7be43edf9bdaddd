"""Several models on the same GPUs, each with an engine of its own: their steps take turns."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import fields
from math import inf

from sim.engine.kv.blocks import BlockPool
from sim.engine.parallel.unsplit import Unsplit
from sim.engine.vllm import VllmEngine
from sim.records import Meters, Progress, Request, Span


class TurnsEngine(Unsplit):
    """One step of each model that has work, in turn: a step has the GPUs for itself. A model that is alone with its
    work leaps as it would without the others.
    """

    def __init__(self, engines: Sequence[VllmEngine], of_service: Mapping[str, int]) -> None:
        """*of_service* has the place among *engines* of each service's model."""
        self._engines = list(engines)
        self._of_service = dict(of_service)
        self._held = [0] * len(engines)
        """Requests of each model that wait or run."""
        self._stepping = -1
        """Whose step is under way; -1: nobody's."""
        self._last = len(engines) - 1
        """Who had the last step."""

    def offer(self, request: Request, now: float, prompt_only: bool = False) -> bool:
        """See `ReplicaEngine.offer`."""
        place = self._of_service[request.service]
        moved = self._engines[place].offer(request, now)
        if request.rejected:
            return False
        self._held[place] += 1
        if self._stepping in (-1, place):
            return moved
        return self._engines[self._stepping].pause(now)

    def evict(self, request: Request, now: float) -> Progress:
        """See `ReplicaEngine.evict`."""
        place = self._of_service[request.service]
        self._held[place] -= 1
        return self._engines[place].evict(request, now)

    def crash(self, now: float) -> None:
        """See `ReplicaEngine.crash`."""
        for engine in self._engines:
            engine.crash(now)
        self._stepping = -1

    def plan(self, now: float) -> float:
        """See `ReplicaEngine.plan`: the end of the step under way, or of the next model's."""
        if self._stepping >= 0:
            return self._engines[self._stepping].plan(now)
        count = len(self._engines)
        for further in range(1, count + 1):
            place = (self._last + further) % count
            end_s = self._begin(place, now)
            if end_s < inf:
                return end_s
        return inf

    def _begin(self, place: int, now: float) -> float:
        """The end of the step that *place* begins at *now*; inf where it has nothing to do."""
        engine = self._engines[place]
        end_s = engine.plan(now) if self._held[place] else inf
        if end_s == inf:
            return inf
        self._stepping = place
        if any(held for other, held in enumerate(self._held) if other != place):
            engine.pause(now)
        return engine.plan(now)

    def advance(self) -> list[Request]:
        """See `ReplicaEngine.advance`."""
        place, self._stepping = self._stepping, -1
        self._last = place
        left = self._engines[place].advance()
        self._held[place] -= len(left)
        return left

    def meters(self, now: float) -> Meters:
        """See `ReplicaEngine.meters`: of all models; the KV peak is the fullest cache's, in blocks of the first."""
        each = [engine.meters(now) for engine in self._engines]
        totals = copy(each[0])
        for one in fields(Meters):
            setattr(totals, one.name, sum(getattr(meters, one.name) for meters in each))
        sizes = [max(1, engine.caches()[0].usable) for engine in self._engines]
        fullest = max(meters.kv_peak_blocks / size for meters, size in zip(each, sizes, strict=True))
        totals.kv_peak_blocks = round(fullest * sizes[0])
        return totals

    def share_time(self, on: bool, now: float) -> None:
        """See `ReplicaEngine.share_time`."""
        for engine in self._engines:
            engine.share_time(on, now)

    def under_way(self, asked: int = -1) -> list[Span]:
        """See `ReplicaEngine.under_way`."""
        return self._engines[self._stepping].under_way(asked) if self._stepping >= 0 else []

    def caches(self) -> list[BlockPool]:
        """See `ReplicaEngine.caches`: one of each model."""
        return [cache for engine in self._engines for cache in engine.caches()]

    def waiting(self) -> int:
        """See `ReplicaEngine.waiting`."""
        return sum(engine.waiting() for engine in self._engines)
