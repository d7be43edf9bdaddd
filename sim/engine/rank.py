"""vLLM's V1 scheduling rules for one rank: who is in the next step, and how many steps may pass before that changes.

The rules follow vLLM's `v1/core/sched/scheduler.py` (asynchronous scheduling off, chunked prefill on). A step serves
every running request in admission order; one that cannot get a KV block makes a victim give way, which loses its
blocks and waits to compute prompt and tokens again. If nobody gave way, waiting requests join while seats, token
budget and blocks for the whole sequence last.

A step changes no decoding sequence: with S the step counter, a sequence's context is `base + S`, it finishes when S
reaches `finish_step`, and it needs a new block in a step with (base + S) mod block_size = 0. Counting sequences by
that phase gives the blocks that any number of steps takes, so k steps cost as much to compute as one.
"""

from heapq import heapify, heappop, heappush
from math import isnan

from sim.engine.kv import BlockPool
from sim.engine.limits import RankLimits
from sim.engine.phases import BlockPhases
from sim.engine.sequence import Sequence
from sim.engine.shares import TimeShares, recomputed_tokens
from sim.engine.waiting import WaitingQueue
from sim.engine.windows import WindowedContexts
from sim.records import Batch


class Rank:
    """Scheduler state of one data-parallel rank, or of one pipeline lane, which shares pool and queue with others."""

    __slots__ = (
        "_admissions", "_base_sum", "_chunks", "_decoding", "_finishing", "_max_num_batched_tokens",
        "_phases", "_preempted_in_step", "_prefilling", "_step", "_windows", "batch", "blocked_by",
        "cached_in_step", "pool", "preemptions", "recomputed_in_step", "running", "seats", "shares", "waiting",
    )  # fmt: skip

    def __init__(self, limits: RankLimits, pool: BlockPool, waiting: WaitingQueue) -> None:
        self.pool = pool
        self.waiting = waiting
        self.batch = Batch()
        """The step formed last."""
        self.running: dict[Sequence, None] = {}
        """In admission order. At most the last one is still computing its prompt."""
        self.blocked_by = ""
        """What kept the head of the queue out of the step formed last: seats, kv, budget or nothing."""
        self.preemptions = 0
        self.recomputed_in_step = 0
        """Tokens of the step formed last that had been computed before."""
        self.cached_in_step = 0
        """Prompt tokens that requests admitted in the step formed last found in the prefix cache, computed by
        others."""
        self.seats = limits.max_num_seqs
        """Most sequences that may run here; pipeline lanes share them out."""
        self.shares = TimeShares()
        self._max_num_batched_tokens = limits.max_num_batched_tokens
        self._step = 0
        self._admissions = 0
        self._finishing: list[tuple[int, int, Sequence]] = []
        self._decoding = 0
        self._base_sum = 0
        self._phases = BlockPhases(pool.block_size)
        self._prefilling: Sequence | None = None
        self._chunks: list[tuple[Sequence, int]] = []
        self._preempted_in_step = False
        self._windows = WindowedContexts(limits.window) if limits.window else None

    def may_admit(self, sequence: Sequence) -> bool:
        """Whether *sequence*, now at the head of the queue, could join a step: then a leap must end early for it."""
        pool = self.pool
        return (
            len(self.running) < self.seats
            and self._decoding < self._max_num_batched_tokens
            and pool.missing(sequence, pool.lookup(sequence)) <= pool.free
        )

    def form(self, now: float) -> int:
        """Forms the next step in `batch`; how many of them may pass before the batch changes, 0 with nothing to do."""
        while True:
            steps = self._form(now)
            if steps or not self._preempted_in_step:
                return steps
            # an empty step: all who decode were left out of it, so the counter moves and no time passes
            self._step += 1

    def _form(self, now: float) -> int:
        self._preempted_in_step = False
        if not self.running and not self.waiting:
            return 0
        self._chunks.clear()
        self.recomputed_in_step = self.cached_in_step = 0
        skipped = self._serve_running()
        budget = self._max_num_batched_tokens - self._decoding + skipped - sum(chunk for _, chunk in self._chunks)
        self.blocked_by = ""
        if self._preempted_in_step:
            self.blocked_by = "kv"
        elif self.waiting:
            self._admit(budget, now)
        self._fill_batch(skipped)
        if self._chunks:
            return 1
        if not self.batch.decode_seqs:
            return 0
        return 1 if self._preempted_in_step else self._steps_until_change()

    def _serve_running(self) -> int:
        """Gives every running request its block and the one that computes its prompt its next chunk.

        Returns how many decoding sequences are left out of the step, which happens only behind one that gave way
        itself.
        """
        need = self._phases.blocks_at(self._step)
        sequence = self._prefilling
        chunk = chunk_blocks = 0
        if sequence is not None:
            chunk = min(sequence.tokens - sequence.computed, self._max_num_batched_tokens - self._decoding)
            chunk_blocks = self._blocks_for(sequence, chunk)
        if need + chunk_blocks > self.pool.free:
            return self._make_room()
        if need:
            self.pool.take(need)
        if sequence is not None:
            self._schedule_chunk(sequence, chunk)
        return 0

    def _blocks_for(self, sequence: Sequence, chunk: int) -> int:
        return -(-(sequence.computed + chunk) // self.pool.block_size) - sequence.held

    def _make_room(self) -> int:
        """The same when blocks are short: one request after the other, in admission order, victims giving way."""
        pool, step = self.pool, self._step
        order = list(self.running)
        served: set[Sequence] = set()
        position = chunk = 0
        while position < len(order):
            sequence = order[position]
            if sequence.decoding:
                need = int((sequence.base + step) % pool.block_size == 0)
            else:
                chunk = min(sequence.tokens - sequence.computed, self._max_num_batched_tokens - self._decoding)
                need = self._blocks_for(sequence, chunk)
            while pool.free < need:
                victim = self.waiting.victim(order)
                place = order.index(victim)
                del order[place]
                position -= place < position
                self._preempt(victim, victim in served)
                served.discard(victim)
                if victim is sequence:
                    return self._leave_out(order[position:])
            if sequence.decoding:
                pool.take(need)
            else:
                self._schedule_chunk(sequence, chunk)
            served.add(sequence)
            position += 1
        return 0

    def _leave_out(self, sequences: list[Sequence]) -> int:
        """*sequences* stand still in the step being formed: their dates move one step on. How many of them decode."""
        decoding = [sequence for sequence in sequences if sequence.decoding]
        for sequence in decoding:
            self._leave_decoding(sequence)
        self.shares.leave_out(decoding, self._step)
        for sequence in decoding:
            sequence.base -= 1
            sequence.finish_step += 1
            self._enter_decoding(sequence)
        if decoding:
            self._finishing = [(s.finish_step, s.admission, s) for s in self.running if s.decoding]
            heapify(self._finishing)
        return len(decoding)

    def _preempt(self, sequence: Sequence, served: bool) -> None:
        """Sends *sequence* back to the queue without its blocks; *served*: this step had given it its block already."""
        size = self.pool.block_size
        if sequence.decoding:
            computed = sequence.base + self._step
            sequence.held = -(-computed // size) + int(served and computed % size == 0)
            sequence.made = sequence.request.output_tokens - (sequence.finish_step - self._step)
            self._leave_decoding(sequence)
            self._finishing.remove((sequence.finish_step, sequence.admission, sequence))
            heapify(self._finishing)
        else:
            computed = sequence.computed
            self._prefilling = None
        self.pool.release(sequence, sequence.held, True, computed)
        sequence.high_water = max(sequence.high_water, computed)
        sequence.tokens = sequence.request.prompt_tokens + sequence.made
        sequence.computed = sequence.held = 0
        sequence.request.preemptions += 1
        self.preemptions += 1
        self._preempted_in_step = True
        del self.running[sequence]
        self.waiting.put_back(sequence)

    def _admit(self, budget: int, now: float) -> None:
        """Waiting requests join in order while budget, seats and blocks last."""
        pool, waiting = self.pool, self.waiting
        while waiting:
            if budget <= 0:
                self.blocked_by = "budget"
                return
            if len(self.running) >= self.seats:
                self.blocked_by = "seats"
                return
            sequence = waiting.head()
            hits = pool.lookup(sequence)
            if pool.missing(sequence, hits) > pool.free:
                self.blocked_by = "kv"
                return
            waiting.pop()
            pool.claim(sequence, hits)
            sequence.held = hits
            sequence.computed = hits * pool.block_size
            if isnan(sequence.request.started_s):
                sequence.request.started_s = now
                sequence.request.cached_tokens = sequence.computed
            if sequence.computed > sequence.high_water:
                self.cached_in_step += min(sequence.computed, sequence.request.prompt_tokens) - sequence.high_water
                sequence.high_water = sequence.computed
            self._admissions += 1
            sequence.admission = self._admissions
            self.running[sequence] = None
            self._prefilling = sequence
            chunk = min(sequence.tokens - sequence.computed, budget)
            self._schedule_chunk(sequence, chunk)
            budget -= chunk

    def _schedule_chunk(self, sequence: Sequence, chunk: int) -> None:
        blocks = self._blocks_for(sequence, chunk)
        self.pool.take(blocks)
        sequence.held += blocks
        self.pool.name(sequence, sequence.computed + chunk)
        self._chunks.append((sequence, chunk))

    def _fill_batch(self, skipped: int) -> None:
        """Writes the step into `batch` in aggregates."""
        batch = self.batch
        decoding = self._decoding
        batch.decode_seqs = batch.sampled_seqs = decoding - skipped
        batch.kv_tokens = self._base_sum + decoding * self._step
        if self._windows:
            batch.windowed_kv_tokens, batch.windowed_growing_seqs = self._windows.at(self._step)
        if skipped:
            self._drop_skipped(skipped)
        tokens = context = pairs = 0
        for sequence, chunk in self._chunks:
            computed = sequence.computed
            tokens += chunk
            context += computed
            pairs += chunk * computed + chunk * (chunk + 1) // 2
            batch.sampled_seqs += computed + chunk == sequence.tokens
            self.recomputed_in_step += recomputed_tokens(sequence, chunk)
        batch.prefill_seqs = len(self._chunks)
        batch.prefill_tokens = tokens
        batch.prefill_context_tokens = context
        batch.prefill_attention_pairs = pairs

    def _drop_skipped(self, skipped: int) -> None:
        """Takes the sequences that stand still out of the sums of `batch`; they are the last to decode."""
        batch = self.batch
        still = [s for s in self.running if s.decoding][-skipped:]
        contexts = [s.base + self._step for s in still]
        batch.kv_tokens -= sum(contexts)
        if self._windows:
            batch.windowed_kv_tokens -= sum(min(c, self._windows.window) for c in contexts)
            batch.windowed_growing_seqs -= sum(c < self._windows.window for c in contexts)

    def _steps_until_change(self) -> int:
        """Steps that a pure decode batch may take: until a finish, a missing block or a context at the window."""
        steps = self._finishing[0][0] - self._step
        if self._windows:
            steps = min(steps, self._windows.steps_until_change(self._step))
        # the first step has its blocks already
        return 1 + self._phases.steps_with(self._step + 1, steps - 1, self.pool.free)

    def commit(self, steps: int, end_s: float) -> list[Sequence]:
        """Takes *steps* steps, the last of which ends at *end_s*; the sequences that finish, in admission order."""
        pool = self.pool
        if steps > 1:
            pool.take(self._phases.blocks_of(self._step + 1, steps - 1))
        self._step += steps
        step = self._step
        finished: list[Sequence] = []
        finishing = self._finishing
        while finishing and finishing[0][0] <= step:
            sequence = heappop(finishing)[2]
            self._leave_decoding(sequence)
            computed = sequence.base + step
            pool.release(sequence, -(-computed // pool.block_size), False, computed)
            finished.append(sequence)
        for sequence, chunk in self._chunks:
            sequence.computed += chunk
            if sequence.computed == sequence.tokens:
                self._end_prefill(sequence, end_s, finished)
        self._chunks.clear()
        for sequence in finished:
            del self.running[sequence]
            sequence.request.finished_s = end_s
        return finished

    def _end_prefill(self, sequence: Sequence, end_s: float, finished: list[Sequence]) -> None:
        """The last chunk of a prompt also yields a token."""
        request = sequence.request
        if self._prefilling is sequence:
            self._prefilling = None
        if isnan(request.first_token_s):
            request.first_token_s = end_s
        sequence.made += 1
        left = request.output_tokens - sequence.made
        if left == 0:
            self.pool.release(sequence, sequence.held, False, sequence.computed)
            finished.append(sequence)
            return
        sequence.base = sequence.computed - self._step
        sequence.finish_step = self._step + left
        self._enter_decoding(sequence)
        heappush(self._finishing, (sequence.finish_step, sequence.admission, sequence))

    def share_time(self, elapsed_s: float, last: bool = False) -> None:
        """Shares the step's time up to *elapsed_s* after its begin among its requests; *last*: and none after that."""
        shares = self.shares
        if elapsed_s > shares.shared_s:
            shares.share(elapsed_s, self.batch, self._chunks, self._step)
        if last:
            shares.settle(self.running)

    def _enter_decoding(self, sequence: Sequence) -> None:
        sequence.decoding = True
        sequence.token_s = self.shares.token_s
        self._decoding += 1
        self._base_sum += sequence.base
        self._phases.add(sequence.base)
        if self._windows:
            self._windows.add(sequence)

    def _leave_decoding(self, sequence: Sequence) -> None:
        sequence.decoding = False
        sequence.request.decode_s += self.shares.token_s - sequence.token_s
        self._decoding -= 1
        self._base_sum -= sequence.base
        self._phases.remove(sequence.base)
        if self._windows:
            self._windows.remove(sequence)
