"""Several batches in flight, one step at a time: asynchronous scheduling and pipelines as a change to the reference.

Written from `EngineCore.step_with_batch_queue` and `Scheduler.schedule` of vLLM 0.33.0: tokens count as computed when
they are scheduled, and a request under way may be scheduled again before its last token is known.
"""

from collections import deque
from dataclasses import dataclass, field

from reference_engine import Eviction, ReferenceEngine, Tracked

from sim.records import ReplicaProgress


@dataclass(eq=False)
class InFlight(Tracked):
    placeholders: int = 0
    """Tokens of the answer that are being made."""
    in_flight: int = 0
    stale: int = 0
    """Number of the tokens in flight that were scheduled before a preemption."""
    last_end_s: float = 0.0
    eligible: int = 0
    """Call of the scheduler from which on it may decode again."""


@dataclass(eq=False)
class Launched:
    scheduled: dict[InFlight, int]
    sampled: set[InFlight] = field(default_factory=set)
    end_s: float = 0.0


class QueuedReference(ReferenceEngine):
    tracked = InFlight

    def __init__(self, *args, stages=1, asynchronous=False, **limits):
        super().__init__(*args, **limits)
        self.asynchronous = asynchronous
        self.depth = stages + asynchronous
        self.stage_free_s = [0.0] * stages
        self.calls = 0

    def run(self, requests, evictions: list[Eviction] = (), crashes: list[float] = ()):
        tracked = [self.tracked(r) for r in requests]
        coming = deque(sorted((t for t in tracked if self._possible(t.request)), key=lambda t: t.request.arrived_s))
        leaving = deque((at_s, tracked[place]) for at_s, place in sorted(evictions))
        dying = deque(sorted(crashes))
        queue: deque[Launched] = deque()
        now = 0.0
        while coming or self.waiting or self.running or queue:
            if not (self.waiting or self.running or queue):
                now = max(now, coming[0].request.arrived_s)
                while dying and dying[0] < now:
                    self._crash(dying.popleft())
            while coming and coming[0].request.arrived_s <= now:
                self._queue(coming.popleft())
            while leaving and leaving[0][0] <= now:
                self._evict(*leaving.popleft(), {})
            if dying and dying[0] <= now:
                self._crash_with(queue, dying.popleft())
                continue
            if self.waiting or self.running:
                launched = self._launch(now)
                if launched.scheduled:
                    queue.append(launched)
                if not queue or (launched.scheduled and len(queue) < self.depth):
                    continue
            if not queue:
                continue
            if dying and dying[0] < queue[0].end_s:
                # the next round brings who arrives or leaves just then, before it crashes
                now = dying[0]
                continue
            launched = queue.popleft()
            now = max(now, launched.end_s)
            while coming and coming[0].request.arrived_s <= now:
                self._queue(coming.popleft())
            while leaving and leaving[0][0] < now:
                self._evict(*leaving.popleft(), {})
            self._update(launched, now)
            assert len(self.free) + sum(1 for _ in self._in_use()) == self.usable
        return tracked

    def _crash_with(self, queue: deque[Launched], at_s: float) -> None:
        """Discard the work in flight, and free every stage."""
        self._crash(at_s)
        self.steps -= len(queue)
        queue.clear()
        self.stage_free_s = [at_s] * len(self.stage_free_s)

    def _launch(self, now: float) -> Launched:
        self.calls += 1
        scheduled = self._schedule()
        launched = Launched(scheduled, end_s=now)
        if not scheduled:
            return launched
        self.steps += 1
        launched.end_s = max([now, *(one.last_end_s for one in scheduled)])
        stage_s = self.step_s(self._batch(scheduled)) + self.read_s
        for stage, free_s in enumerate(self.stage_free_s):
            launched.end_s = self.stage_free_s[stage] = max(launched.end_s, free_s) + stage_s
        for one, new in scheduled.items():
            one.computed += new
            one.in_flight += new
            one.decoding = one.computed >= one.tokens + one.placeholders
            if one.decoding:
                launched.sampled.add(one)
                one.last_end_s = launched.end_s
                one.placeholders += self.asynchronous
                one.eligible = self.calls + len(self.stage_free_s)
        return launched

    def _progress(self, one: InFlight) -> ReplicaProgress:
        return ReplicaProgress(max(0, one.computed - one.in_flight), one.made)

    def _new_tokens(self, one: InFlight) -> int:
        if one.placeholders and one.made + one.placeholders >= one.request.output_tokens:
            return 0
        if self.asynchronous and self.calls < one.eligible:
            return 0
        return one.tokens + one.placeholders - one.computed

    def _skipped(self, one: InFlight) -> bool:
        return one.stale > 0 or super()._skipped(one)

    def _name(self, one: InFlight, tokens: int) -> None:
        super()._name(one, min(tokens, one.tokens))

    def _preempt(self, one: InFlight) -> None:
        one.stale, one.placeholders = one.in_flight, 0
        super()._preempt(one)

    def _update(self, launched: Launched, now: float) -> None:
        for one, new in launched.scheduled.items():
            one.in_flight -= new
            stale = one.stale > 0
            one.stale -= new if stale else 0
            if one not in launched.sampled or one.gone:
                continue
            done = self._makes_token(one, now)
            one.decoding = not stale
            one.placeholders -= one.placeholders > 0
            if self.asynchronous and not stale:
                self._name(one, one.computed - one.in_flight)
            if done and one in self.running:
                self._remove(one)
            elif done:
                self._unqueue(one)
