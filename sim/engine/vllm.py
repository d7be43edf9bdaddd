"""One replica under vLLM's rules: the rank's schedule on a clock, with decode-only stretches taken in one leap."""

from copy import copy
from math import inf

from sim.engine.kv import BlockPool, PrefixCache
from sim.engine.metering import book, leap_s, steps_within
from sim.engine.protocol import StepTime
from sim.engine.rank import Rank
from sim.engine.sequence import Sequence
from sim.engine.waiting import FcfsQueue, PriorityQueue, WaitingQueue
from sim.records import Leap, Meters, Request


def new_queue(scheduling: str) -> WaitingQueue:
    """The queue for `scheduling`: fcfs or priority."""
    return PriorityQueue() if scheduling == "priority" else FcfsQueue()


def new_pool(num_gpu_blocks: int, block_size: int, enable_prefix_caching: bool) -> BlockPool:
    """The KV blocks of one rank."""
    return PrefixCache(num_gpu_blocks, block_size) if enable_prefix_caching else BlockPool(num_gpu_blocks, block_size)


class VllmEngine:
    """Continuous batching on one rank (tensor parallelism included: its GPUs step together)."""

    def __init__(
        self,
        steptime: StepTime,
        *,
        num_gpu_blocks: int,
        block_size: int,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        max_model_len: int,
        enable_prefix_caching: bool,
        scheduling: str,
        window: int | None,
    ) -> None:
        self._steptime = steptime
        self._pool = new_pool(num_gpu_blocks, block_size, enable_prefix_caching)
        self._waiting = new_queue(scheduling)
        self._rank = Rank(self._pool, self._waiting, max_num_seqs, max_num_batched_tokens, window)
        self._max_model_len = max_model_len
        self._meters = Meters()
        self._leap = Leap(0.0)
        self._start_s = 0.0
        self._end_s = inf
        self._steps = 0
        """Steps of the leap under way; 0 between leaps."""

    def offer(self, request: Request, now: float) -> bool:
        """See `Engine.offer`."""
        if request.prompt_tokens + request.output_tokens > self._max_model_len or not self._rank.can_ever_hold(request):
            request.rejected = True
            return False
        sequence = Sequence(request)
        is_head = self._waiting.add(sequence)
        if not self._steps:
            return True
        if self._steps == 1 or not is_head or not self._rank.may_admit(sequence):
            return False
        return self._cut(now)

    def _cut(self, now: float) -> bool:
        """Ends the leap at its first step boundary at or after *now*; whether that moved the end."""
        steps = max(1, steps_within(self._leap, now - self._start_s, self._steps))
        if self._start_s + leap_s(self._leap, steps) < now:
            steps += 1
        if steps >= self._steps:
            return False
        self._steps = steps
        self._end_s = self._start_s + leap_s(self._leap, steps)
        return True

    def plan(self, now: float) -> float:
        """See `Engine.plan`."""
        if self._steps:
            return self._end_s
        steps = self._rank.form(now)
        if not steps:
            self._end_s = inf
            return inf
        self._leap = leap = self._steptime.leap(self._rank.batch)
        if steps > leap.valid_steps:
            steps = max(1, int(leap.valid_steps))
        self._steps = steps
        self._start_s = now
        self._end_s = now + leap_s(leap, steps)
        self._meters.cached_tokens += self._rank.cached_in_step
        return self._end_s

    def advance(self) -> list[Request]:
        """See `Engine.advance`."""
        steps = self._steps
        book(self._meters, self._rank, self._end_s - self._start_s, self._leap.compute_s * steps, steps)
        self._steps = 0
        return [sequence.request for sequence in self._rank.commit(steps, self._end_s)]

    def meters(self, now: float) -> Meters:
        """See `Engine.meters`."""
        totals = copy(self._meters)
        totals.preemptions = self._rank.preemptions
        totals.kv_peak_blocks = self._pool.peak
        elapsed_s = now - self._start_s
        if self._steps and elapsed_s > 0:
            compute_s = self._leap.compute_s * self._steps * elapsed_s / (self._end_s - self._start_s)
            book(totals, self._rank, elapsed_s, compute_s, steps_within(self._leap, elapsed_s, self._steps))
        return totals

    def waiting(self) -> int:
        """See `Engine.waiting`."""
        return len(self._waiting)
