"""Static batches: requests start together, and the next ones only when the longest of them is done.

This is request-level scheduling as Orca describes it (Yu et al., OSDI 2022, section 3): a request that is done early is
computed to the batch's end, and requests that arrive meanwhile wait. A batch starts as soon as the engine is free, with
the waiting requests, up to its size and as far as the KV blocks of all of them up to the longest output are free. Its
prompts come first, in steps of the token budget, in chunks where necessary. Tokens have the time at which they are
made.
"""

from collections import deque

from sim.engine.kv.blocks import BlockPool
from sim.engine.limits import SchedulerLimits
from sim.engine.schedulers.scheduler import Scheduler
from sim.engine.schedulers.waiting_queue import WaitingQueue
from sim.engine.sequence import Sequence
from sim.records import ReplicaProgress, Request


class StaticScheduler(Scheduler):
    """Scheduler of one rank that serves one batch after another."""

    def __init__(self, limits: SchedulerLimits, pool: BlockPool, waiting: WaitingQueue) -> None:
        super().__init__(limits, pool, waiting)
        self._prompts: deque[Sequence] = deque()
        """Members of the batch whose prompts are not computed yet."""
        self._done: list[Sequence] = []
        """Members of the batch that have all their tokens and stay in it."""

    def may_admit(self, sequence: Sequence) -> bool:
        """See `Scheduler.may_admit`. No request joins a running batch."""
        return False

    def form(self, now: float) -> int:
        """See `Scheduler.form`."""
        self.blocked_by = ""
        if not self.running:
            self._gather(now)
        elif self.waiting:
            self.blocked_by = "seats"
        self._decodes_wait = bool(self._prompts)
        if self._prompts:
            self._compute_prompts()
            self._fill_no_decodes()
            self._fill_chunks()
            return 1
        if not self.running:
            return 0
        self._fill_decodes()
        self.batch.sampled_seqs -= len(self._done)
        self._fill_chunks()
        return self._steps_until_finish()

    def _gather(self, now: float) -> None:
        """Start the next batch with waiting requests."""
        waiting, pool = self.waiting, self.pool
        prompts: list[int] = []
        longest = 0
        while waiting and len(prompts) < self.max_num_seqs:
            head = waiting.head()
            assert head is not None  # no request needs an adapter slot here
            prompts.append(head.request.prompt_tokens)
            longest = max(longest, head.output_tokens)
            if sum(-(-(tokens + longest - 1) // pool.block_size) for tokens in prompts) > pool.free:
                self.blocked_by = "kv"
                break
            sequence = waiting.pop()
            self._start_running(sequence, 0, now)
            self._prompts.append(sequence)
        else:
            self.blocked_by = "seats" if waiting else ""
        longest = max((sequence.output_tokens for sequence in self.running), default=0)
        for sequence in self.running:
            sequence.held = -(-(sequence.tokens + longest - 1) // pool.block_size)
            pool.take(sequence.held)

    def _compute_prompts(self) -> None:
        """Schedule chunks of the next prompts, in order, up to the token budget."""
        budget = self._max_num_batched_tokens
        for sequence in self._prompts:
            chunk = min(sequence.tokens - sequence.computed, budget)
            if not chunk:
                break
            self._schedule_chunk(sequence, chunk)
            budget -= chunk

    def evict(self, request: Request, whole_steps: int, stepping: bool) -> ReplicaProgress:
        """See `Scheduler.evict`. A prompt leaves the batch; a decoding request stays to the batch's end."""
        self._prompts = deque(sequence for sequence in self._prompts if sequence.request is not request)
        return super().evict(request, whole_steps, stepping)

    def _end_prefill(self, sequence: Sequence, end_s: float, finished: list[Sequence]) -> None:
        super()._end_prefill(sequence, end_s, finished)
        self._prompts.popleft()
        if not sequence.decoding:
            self._enter_decoding(sequence)

    def _leave(self, sequence: Sequence) -> None:
        """Keep *sequence*, which is done or evicted while decoding, in the batch until all are done."""
        if sequence.decoding:
            self._done.append(sequence)
        else:  # evicted before its prompt was computed
            super()._leave(sequence)
        if len(self._done) < len(self.running):
            return
        for member in self._done:
            member.prompt_only = False  # the blocks belong to the batch, so none is kept for a transfer
            super()._leave(member)
        self._done.clear()
