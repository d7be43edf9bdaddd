"""Engines for several models on the same GPUs.

Either all models are in memory and their steps alternate, or one model is awake at a time and the others sleep.
"""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import fields
from math import inf

from sim.engine.kv.blocks import BlockPool, NamedBlocks
from sim.engine.protocol import NoKvTransfer
from sim.engine.synchronous import VllmEngine
from sim.records import Meters, ReplicaProgress, Request, StepSpan


class TimeSharedEngine(NoKvTransfer):
    """Engine that runs one step of each model that has work, in turn; a step has the GPUs to itself.

    A model that alone has work leaps as it would without the others.
    """

    def __init__(self, engines: Sequence[VllmEngine], of_service: Mapping[str, int]) -> None:
        """Combine *engines*; *of_service* maps a service to the index of its model's engine."""
        self._engines = list(engines)
        self._of_service = dict(of_service)
        self._outstanding = [0] * len(engines)
        """Number of waiting or running requests of each model."""
        self._stepping = -1
        """Index of the model whose step is in progress; -1 if none."""
        self._last = len(engines) - 1
        """Index of the model of the last step."""

    def offer(self, request: Request, now: float, prompt_only: bool = False) -> bool:
        """See `ReplicaEngine.offer`."""
        place = self._of_service[request.service]
        moved = self._engines[place].offer(request, now)
        if request.rejected:
            return False
        self._outstanding[place] += 1
        if self._stepping in (-1, place):
            return moved
        return self._engines[self._stepping].pause(now)

    def evict(self, request: Request, now: float) -> ReplicaProgress:
        """See `ReplicaEngine.evict`."""
        place = self._of_service[request.service]
        self._outstanding[place] -= 1
        return self._engines[place].evict(request, now)

    def crash(self, now: float) -> None:
        """See `ReplicaEngine.crash`."""
        for engine in self._engines:
            engine.crash(now)
        self._stepping = -1

    def plan(self, now: float) -> float:
        """See `ReplicaEngine.plan`. The planned time is the end of the current step, or of the next model's."""
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
        """Start a step of the model at *place* at *now*. Return its end; inf where it has no work."""
        engine = self._engines[place]
        end_s = engine.plan(now) if self._outstanding[place] else inf
        if end_s == inf:
            return inf
        self._stepping = place
        if any(outstanding for other, outstanding in enumerate(self._outstanding) if other != place):
            engine.pause(now)
        return engine.plan(now)

    def advance(self) -> list[Request]:
        """See `ReplicaEngine.advance`."""
        place, self._stepping = self._stepping, -1
        self._last = place
        left = self._engines[place].advance()
        self._outstanding[place] -= len(left)
        return left

    def meters(self, now: float) -> Meters:
        """See `ReplicaEngine.meters`.

        Totals are over all models; the KV peak is that of the fullest cache, in blocks of the first.
        """
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

    def under_way(self, request_index: int = -1) -> list[StepSpan]:
        """See `ReplicaEngine.under_way`."""
        return self._engines[self._stepping].under_way(request_index) if self._stepping >= 0 else []

    def caches(self) -> list[BlockPool]:
        """See `ReplicaEngine.caches`. Each model has one cache."""
        return [cache for engine in self._engines for cache in engine.caches()]

    def waiting(self) -> int:
        """See `ReplicaEngine.waiting`."""
        return sum(engine.waiting() for engine in self._engines)


class SleepModeEngine(TimeSharedEngine):
    """Engine with one model awake at a time (vLLM's sleep mode).

    The awake model has the GPUs until it has answered all its requests; then the next model with requests wakes up,
    which takes time. While other models have requests, a request for a model that has been awake for long waits for its
    next turn.
    """

    def __init__(
        self, engines: Sequence[VllmEngine], of_service: Mapping[str, int], wake_s: Sequence[float], max_awake_s: float
    ) -> None:
        """Combine *engines*; the first model is awake at the start.

        *wake_s* is the time that each model takes to wake up [s]. *max_awake_s* is the time awake after which new
        requests wait while other models have requests [s].
        """
        super().__init__(engines, of_service)
        self._wake_s, self._max_awake_s = list(wake_s), max_awake_s
        self._awake, self._awake_from_s = 0, 0.0
        self._waking_until_s = inf
        """Time at which the current wake-up ends; inf if none [s]."""
        self._deferred: list[Request] = []
        """Requests for the awake model that wait for its next turn."""

    def accepts_now(self, request: Request, now: float) -> bool:
        """Return whether the model of *request* is awake, or waking up, and accepts requests at *now*."""
        return self._of_service[request.service] == self._awake and not self._closed(now)

    def offer(self, request: Request, now: float, prompt_only: bool = False) -> bool:
        """See `ReplicaEngine.offer`."""
        place = self._of_service[request.service]
        engine = self._engines[place]
        if place == self._awake and self._closed(now):
            if not engine.serves(request):
                request.rejected = True
                return False
            self._outstanding[place] += 1
            self._deferred.append(request)
            return False
        moved = engine.offer(request, now)
        if request.rejected:
            return False
        self._outstanding[place] += 1
        return moved if place == self._awake else self._stepping < 0

    def _closed(self, now: float) -> bool:
        return self._others_wait() and now > self._awake_from_s + self._max_awake_s

    def _others_wait(self) -> bool:
        return any(outstanding for place, outstanding in enumerate(self._outstanding) if place != self._awake)

    def evict(self, request: Request, now: float) -> ReplicaProgress:
        """See `ReplicaEngine.evict`. A request that waits for its model's next turn leaves at once."""
        if request in self._deferred:
            self._deferred.remove(request)
            self._outstanding[self._awake] -= 1
            return ReplicaProgress(0, 0)
        return super().evict(request, now)

    def crash(self, now: float) -> None:
        """See `ReplicaEngine.crash`. A wake-up is aborted."""
        super().crash(now)
        self._waking_until_s = inf

    def plan(self, now: float) -> float:
        """See `ReplicaEngine.plan`. The planned time is the end of a step, or of a wake-up."""
        if self._waking_until_s < inf:
            return self._waking_until_s
        if self._stepping >= 0:
            return self._engines[self._stepping].plan(now)
        if self._deferred and not self._others_wait():
            self._queue_deferred(now)
        end_s = self._engines[self._awake].plan(now)
        if end_s < inf:
            self._stepping = self._awake
            return end_s
        count = len(self._engines)
        for further in range(1, count):
            place = (self._awake + further) % count
            if self._outstanding[place]:
                return self._wake(place, now)
        return inf

    def _wake(self, place: int, now: float) -> float:
        """Start the wake-up of the model at *place*.

        The current one falls asleep at *now*. Return the end of the wake-up.
        """
        for cache in self._engines[self._awake].caches():
            if isinstance(cache, NamedBlocks):
                cache.clear()
        self._queue_deferred(now)
        self._awake = place
        self._waking_until_s = self._awake_from_s = now + self._wake_s[place]
        return self._waking_until_s

    def _queue_deferred(self, now: float) -> None:
        """Queue the requests that wait for the awake model's next turn at its engine."""
        deferred, self._deferred = self._deferred, []
        for request in deferred:
            self._engines[self._awake].offer(request, now)

    def advance(self) -> list[Request]:
        """See `ReplicaEngine.advance`. No requests leave at the end of a wake-up."""
        if self._waking_until_s < inf:
            self._waking_until_s = inf
            return []
        return super().advance()
