"""vLLM's V1 scheduling rules for one rank: who is in the next step, and how many steps may pass before that changes.

The rules follow vLLM's `v1/core/sched/scheduler.py` (asynchronous scheduling off, chunked prefill on). A step serves
every running request in admission order; one that cannot get a KV block makes a victim give way, which loses its
blocks and waits to compute prompt and tokens again; where that is the request itself, the step goes on with the next.
If nobody gave way, waiting requests join while seats, token
budget and blocks for the whole sequence last. Blocks are handed out as they are needed.
"""

from heapq import heapify

from sim.engine.kv.blocks import BlockPool
from sim.engine.kv.decode_blocks import BlockPhases
from sim.engine.limits import RankLimits
from sim.engine.schedulers.rank_schedule import RankSchedule
from sim.engine.schedulers.waiting import WaitingQueue
from sim.engine.sequence import Sequence


class Rank(RankSchedule):
    """One rank under vLLM's V1 rules."""

    def __init__(self, limits: RankLimits, pool: BlockPool, waiting: WaitingQueue) -> None:
        super().__init__(limits, pool, waiting)
        self._phases = BlockPhases(pool.block_size)
        self._preempted_in_step = False

    def may_admit(self, sequence: Sequence) -> bool:
        """See `Schedule.may_admit`."""
        pool = self.pool
        return (
            len(self.running) < self.seats
            and self._decoding < self._max_num_batched_tokens
            and pool.missing(sequence, pool.lookup(sequence)) <= pool.free
        )

    def form(self, now: float) -> int:
        """See `Schedule.form`."""
        self._preempted_in_step = False
        if not self.running and not self.waiting:
            return 0
        self._chunks.clear()
        self.recomputed_in_step = self.cached_in_step = 0
        self._serve_running()
        self.blocked_by = ""
        if self._preempted_in_step:
            self.blocked_by = "kv"
        elif self.waiting:
            taken = self._decoding + sum(chunk for _, chunk in self._chunks)
            self._admit(self._max_num_batched_tokens - taken, now)
        self._fill_decodes()
        self._fill_chunks()
        if self._chunks:
            return 1
        if not self.batch.decode_seqs:
            return 0
        return 1 if self._preempted_in_step else self._steps_until_change()

    def _serve_running(self) -> None:
        """Gives every running request its block and the one that computes its prompt its next chunk."""
        need = self._phases.blocks_at(self._step)
        sequence = self._prefilling
        chunk = chunk_blocks = 0
        if sequence is not None:
            chunk = min(sequence.tokens - sequence.computed, self._max_num_batched_tokens - self._decoding)
            chunk_blocks = self._blocks_for(sequence, chunk)
        if need + chunk_blocks > self.pool.free:
            self._make_room()
            return
        if need:
            self.pool.take(need)
        if sequence is not None:
            self._schedule_chunk(sequence, chunk)

    def _blocks_for(self, sequence: Sequence, chunk: int) -> int:
        return -(-(sequence.computed + chunk) // self.pool.block_size) - sequence.held

    def _make_room(self) -> None:
        """Decode steps when blocks are short: one request at a time, in admission order; victims are preempted."""
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
                if victim is sequence:
                    break
            else:
                if sequence.decoding:
                    pool.take(need)
                else:
                    self._schedule_chunk(sequence, chunk)
                served.add(sequence)
                position += 1

    def _preempt(self, sequence: Sequence, served: bool) -> None:
        """Sends *sequence* back to the queue without its blocks; *served*: this step had given it its block already."""
        size = self.pool.block_size
        if sequence.decoding:
            computed = sequence.base + self._step
            sequence.held = -(-computed // size) + int(served and computed % size == 0)
            sequence.made = sequence.output_tokens - (sequence.finish_step - self._step)
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

    def _steps_until_change(self) -> int:
        """Steps that a pure decode batch may take: until something about a sequence changes or a block is missing."""
        steps = self._steps_until_finish()
        # the first step has its blocks already
        return 1 + self._phases.steps_with(self._step + 1, steps - 1, self.pool.free)

    def _blocks_of_leap(self, steps: int) -> int:
        return self._phases.blocks_of(self._step + 1, steps - 1)

    def _held(self, sequence: Sequence) -> int:
        return -(-(sequence.base + self._step) // self.pool.block_size)

    def _schedule_chunk(self, sequence: Sequence, chunk: int) -> None:
        blocks = self._blocks_for(sequence, chunk)
        if blocks > 0:
            self.pool.take(blocks)
            sequence.held += blocks
        super()._schedule_chunk(sequence, chunk)

    def _enter_decoding(self, sequence: Sequence) -> None:
        super()._enter_decoding(sequence)
        self._phases.add(sequence.base)

    def _leave_decoding(self, sequence: Sequence) -> None:
        super()._leave_decoding(sequence)
        self._phases.remove(sequence.base)
