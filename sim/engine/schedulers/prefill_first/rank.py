"""Prompts before tokens: as long as a waiting request can be admitted, a step computes prompts and nobody decodes.

The rules follow vLLM's V0 `core/scheduler.py` (`_schedule_default`) and SGLang's `managers/scheduler.py`
(`get_next_batch_to_run`). A prompt step takes waiting requests in order while token budget, seats and blocks last:
whole prompts (V0), or the last one cut at the budget and continued in the next step (SGLang's chunked prefill). V0
also leaves a watermark of the blocks free, so that whoever joins does not push itself out again. Without a prompt to
compute all others decode one token; one that cannot get a KV block makes the newest give way, which waits to compute
prompt and tokens again. An answer is found in the prefix cache once it is complete (SGLang's `cache_finished_req`).
"""

from math import inf

from sim.engine.kv.blocks import BlockPool, PrefixCache
from sim.engine.limits import RankLimits
from sim.engine.schedulers.prefill_first.inbox import Inbox
from sim.engine.schedulers.queues.waiting import PrefixQueue, WaitingQueue
from sim.engine.schedulers.rank import Rank
from sim.engine.sequence import Sequence
from sim.records import Progress, Request

LONGEST_SORTED = 128
"""Longer queues are first come first served."""
SHORT_PREFIX = 32
"""Tokens of a cached prefix up to which a request is compared with others that wait, and of a prefix that it must share
with one of them to go last."""


class PrefillFirstRank(Rank):
    """One rank on which prompts go first."""

    def __init__(self, limits: RankLimits, pool: BlockPool, waiting: WaitingQueue) -> None:
        super().__init__(limits, pool, waiting)
        self._kept_free = int(limits.watermark * pool.usable)
        self._answers = None
        self._inbox = Inbox(limits.scheduler_recv_interval)

    def enqueue(self, sequence: Sequence) -> bool:
        """See `Entrance.enqueue`; where the scheduler polls, it arrives unread."""
        if self._inbox.interval == 1:
            return super().enqueue(sequence)
        self._inbox.unread.append(sequence)
        return True

    def queued(self) -> int:
        """See `Entrance.queued`."""
        return super().queued() + len(self._inbox)

    def steps_until_read(self, steps: int) -> int:
        """See `Entrance.steps_until_read`."""
        return self._inbox.steps_until_read(steps)

    def turn_away(self, request: Request) -> Progress | None:
        """See `Entrance.turn_away`."""
        return Progress(0, 0) if self._inbox.remove(request) else super().turn_away(request)

    def may_admit(self, sequence: Sequence) -> bool:
        """See `Schedule.may_admit`; decodes take no part of the budget. Who is unread may join once it is read."""
        if self._inbox.interval > 1:
            return True
        hits = self.pool.lookup(sequence)
        return len(self.running) < self.seats and self._missing(sequence, hits, sequence.tokens) <= self.pool.free

    def _hold(self, sequence: Sequence, hits: int) -> None:
        """A prompt that is cut has the blocks of all its tokens from the start: nobody can take them meanwhile."""
        super()._hold(sequence, hits)
        sequence.held = -(-sequence.tokens // self.pool.block_size)
        self.pool.take(sequence.held - hits)

    def _order(self) -> None:
        """Sorts who waits by the longest cached prefix (SGLang's `SchedulePolicy`, lpm).

        Of several that share a prefix which is not cached yet, the first goes as it is and the others go last: they
        will find it. A long queue is left as it is.
        """
        waiting, pool = self.waiting, self.pool
        if not isinstance(waiting, PrefixQueue) or not isinstance(pool, PrefixCache):
            return
        if not 1 < len(waiting) <= LONGEST_SORTED:
            return
        coming: set[object] = set()
        places: dict[Sequence, float] = {}
        for sequence in waiting:
            hits = pool.lookup(sequence)
            places[sequence] = -hits
            if hits * pool.block_size <= SHORT_PREFIX:
                names = [pool.name_of(sequence, block) for block in range(sequence.tokens // pool.block_size)]
                shared = next((place for place, name in enumerate(names) if name not in coming), len(names))
                if shared * pool.block_size >= SHORT_PREFIX:
                    places[sequence] = inf
                else:
                    coming.update(names)
        waiting.sort(places)

    def _form(self, now: float) -> int:
        for sequence in self._inbox.read(not self.running):
            super().enqueue(sequence)
        self._preempted_in_step = False
        self.blocked_by = ""
        if not self.running and not self.waiting:
            return 0
        self._chunks.clear()
        self.recomputed_in_step = self.cached_in_step = 0
        self._order()
        self._admit(self._continue_prompt(self._max_num_batched_tokens), now)
        self._decodes_wait = bool(self._chunks)
        if self._chunks:
            self._fill_no_decodes()
            self._fill_chunks()
            return 1
        return self._decode()

    def _decode(self) -> int:
        """A step without prompts; how many like it may follow."""
        self._serve_running()
        self._fill_decodes()
        self._fill_chunks()
        if self._preempted_in_step:
            self.blocked_by = "kv"
        if not self.batch.decode_seqs:
            return 0
        steps = 1 if self._preempted_in_step else self._steps_until_change()
        return min(steps, self._inbox.steps_until_read(1)) if self._inbox else steps

    def commit(self, steps: int, end_s: float) -> list[Sequence]:
        """See `Schedule.commit`."""
        self._inbox.passed(steps, self._decodes_wait)
        return super().commit(steps, end_s)
