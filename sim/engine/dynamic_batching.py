"""Engine of a one-pass service: dynamic batches on instances that share a GPU.

The rules are those of Triton's dynamic batcher without preferred sizes. A free instance starts a batch of the oldest
waiting requests, at most `max_batch_size`, as soon as that many wait or the oldest has waited `max_queue_delay_s`.
Requests of a batch leave together at its end.

Concurrent instances share the GPU in one of two ways. Time slicing: each of k instances gets 1/k of the GPU's time, and
the GPU idles where the current instance waits. MPS: kernels run side by side. A batch that keeps the GPU busy for the
fraction u of its time runs at full speed as long as the fractions of all instances sum to at most 1; beyond that all
are slowed by the sum. Instances are not isolated from each other.
"""

from collections import deque
from copy import copy
from math import inf

from sim.engine.kv.blocks import BlockPool
from sim.engine.protocol import NoKvTransfer
from sim.records import Batch, Leap, Meters, ReplicaProgress, Request, StepSpan, StepTime


class _Pass:
    """Batch in progress on one instance."""

    __slots__ = ("items", "left_s", "load", "requests", "share_s")

    def __init__(self, requests: list[Request], leap: Leap) -> None:
        self.requests = requests
        self.items = len(requests)
        self.left_s = leap.first_s
        """GPU time to its end if alone on the GPU [s]."""
        self.load = leap.load
        self.share_s = 0.0
        """Busy time of the replica attributed to each of its requests, where attribution is on [s]."""


class DynamicEngine(NoKvTransfer):
    """Queue of requests and `instances` copies of the model, on one clock."""

    def __init__(
        self, steptime: StepTime, max_batch_size: int, max_queue_delay_s: float, instances: int, mps: bool = False
    ) -> None:
        self._max_batch_size = max_batch_size
        self._delay_s = max_queue_delay_s
        self._instances = instances
        self._mps = mps
        self._steptime = steptime
        self._leaps: dict[int, Leap] = {}
        self._queue: deque[Request] = deque()
        self._passes: list[_Pass] = []
        self._ending: list[_Pass] = []
        self._clock_s = 0.0
        self._end_s = inf
        self._meters = Meters()
        self._sharing = False

    def offer(self, request: Request, now: float, prompt_only: bool = False) -> bool:
        """See `ReplicaEngine.offer`. Nothing changes while all instances are busy, nor while a batch fills up."""
        self._queue.append(request)
        if len(self._passes) == self._instances:
            return False
        return len(self._queue) == 1 or len(self._queue) >= self._max_batch_size or self._delay_s == 0

    def evict(self, request: Request, now: float) -> ReplicaProgress:
        """See `ReplicaEngine.evict`. The pass continues without the request and keeps its duration."""
        self._advance_clock(now)
        if request in self._queue:
            self._queue.remove(request)
        for running in self._passes:
            running.requests = [one for one in running.requests if one is not request]
        return ReplicaProgress(0, 0)

    def crash(self, now: float) -> None:
        """See `ReplicaEngine.crash`."""
        self._advance_clock(now)
        self._passes.clear()
        self._ending, self._end_s = [], inf

    def plan(self, now: float) -> float:
        """See `ReplicaEngine.plan`.

        The planned time is the next batch's end, or the end of the oldest request's queue delay. A time once planned
        stays in force, even where nothing will happen then: the fleet may be about to act on it.
        """
        self._advance_clock(now)
        planned_s = self._end_s
        queue, passes = self._queue, self._passes
        while queue and len(passes) < self._instances:
            if len(queue) < self._max_batch_size and now < queue[0].arrived_s + self._delay_s:
                break
            self._start(now)
        self._ending, self._end_s = [], inf
        if len(passes) == 1:
            self._ending = [passes[0]]
            self._end_s = now + max(0.0, passes[0].left_s)
        elif passes:
            least_s = min(running.left_s for running in passes)
            self._ending = [running for running in passes if running.left_s == least_s]
            self._end_s = now + max(0.0, least_s) * self._slowdown()
        if queue and len(passes) < self._instances:
            due_s = queue[0].arrived_s + self._delay_s
            if due_s < self._end_s:
                self._ending, self._end_s = [], due_s
        if planned_s < self._end_s:
            self._ending, self._end_s = [], planned_s
        return self._end_s

    def advance(self) -> list[Request]:
        """See `ReplicaEngine.advance`. No requests leave where a batch is due to start."""
        now = self._end_s
        self._advance_clock(now)
        done: list[Request] = []
        for running in self._ending:
            self._passes.remove(running)
            self._meters.steps += 1
            self._meters.output_tokens += running.items
            for request in running.requests:
                request.first_token_s = request.finished_s = now
                if running.share_s:
                    request.busy.decode_s += running.share_s
            done += running.requests
        self._ending, self._end_s = [], inf
        return done

    def meters(self, now: float) -> Meters:
        """See `ReplicaEngine.meters`. A unit of work counts as one output token, a batch as one step."""
        totals = copy(self._meters)
        self._book(totals, now - self._clock_s)
        return totals

    def share_time(self, on: bool, now: float) -> None:
        """See `ReplicaEngine.share_time`. The time of current batches is divided evenly among all their requests."""
        self._advance_clock(now)
        self._sharing = on

    def under_way(self, request_index: int = -1) -> list[StepSpan]:
        """See `ReplicaEngine.under_way`. One-pass batches have no steps."""
        return []

    def caches(self) -> list[BlockPool]:
        """See `ReplicaEngine.caches`."""
        return []

    def waiting(self) -> int:
        """See `ReplicaEngine.waiting`."""
        return len(self._queue)

    def _start(self, now: float) -> None:
        size = min(len(self._queue), self._max_batch_size)
        requests = [self._queue.popleft() for _ in range(size)]
        for request in requests:
            request.started_s = now
        leap = self._leaps.get(size)
        if leap is None:
            leap = self._leaps[size] = self._steptime.leap(Batch(decode_seqs=size, sampled_seqs=size))
        self._passes.append(_Pass(requests, leap))

    def _advance_clock(self, now: float) -> None:
        elapsed_s = now - self._clock_s
        if self._passes and elapsed_s > 0:
            self._book(self._meters, elapsed_s)
            each_s = elapsed_s / self._slowdown()
            for running in self._passes:
                running.left_s = 0.0 if running in self._ending and now >= self._end_s else running.left_s - each_s
            if self._sharing:
                self._share(elapsed_s)
        self._clock_s = now

    def _slowdown(self) -> float:
        """Return the time of the current passes over the time that each would take alone on the GPU."""
        if self._mps:
            return max(1.0, sum(running.load for running in self._passes))
        return len(self._passes)

    def _share(self, elapsed_s: float) -> None:
        part_s = elapsed_s / sum(running.items for running in self._passes)
        for running in self._passes:
            running.share_s += part_s

    def _book(self, meters: Meters, elapsed_s: float) -> None:
        if not self._passes or elapsed_s <= 0:
            return
        meters.busy_s += elapsed_s
        meters.load_s += elapsed_s * sum(running.load for running in self._passes) / self._slowdown()
        meters.sequence_s += elapsed_s * sum(running.items for running in self._passes)
        if len(self._queue) >= self._max_batch_size:
            meters.seats_blocked_s += elapsed_s
