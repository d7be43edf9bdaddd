"""Prompts before tokens: as long as a waiting request can be admitted, a step computes prompts and nobody decodes.

The rules follow vLLM's V0 `core/scheduler.py` (`_schedule_default`); `sglang.py` has what SGLang does otherwise. A
prompt step takes waiting requests in order while token budget, seats and blocks last: whole prompts, or the last one
cut at the budget and continued in the next step. A watermark of the blocks stays free, so that whoever joins does not
push itself out again. Without a prompt to
compute all others decode one token; one that cannot get a KV block makes the newest give way, which waits to compute
prompt and tokens again. An answer is found in the prefix cache once it is complete (SGLang's `cache_finished_req`).
"""

from math import inf

from sim.engine.kv.blocks import BlockPool, PrefixCache
from sim.engine.limits import RankLimits
from sim.engine.schedulers.queues.waiting import PrefixQueue, WaitingQueue
from sim.engine.schedulers.rank import Rank
from sim.engine.sequence import Sequence

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
        self._sorted = limits.longest_prefix_first

    def may_admit(self, sequence: Sequence) -> bool:
        """See `Schedule.may_admit`; decodes take no part of the budget."""
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
        if not self._sorted or not isinstance(waiting, PrefixQueue) or not isinstance(pool, PrefixCache):
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
        self._begin_step()
        if not self.running and not self.waiting:
            return 0
        self._order()
        self._compute_prompts(now)
        self._decodes_wait = bool(self._chunks)
        if self._chunks:
            self._fill_no_decodes()
            self._fill_chunks()
            return 1
        return self._decode()

    def _begin_step(self) -> None:
        self._preempted_in_step = False
        self.blocked_by = ""
        self._chunks.clear()
        self.recomputed_in_step = self.cached_in_step = 0

    def _compute_prompts(self, now: float) -> None:
        """Puts the prompts that go first into the step being formed."""
        self._admit(self._continue_prompt(self._max_num_batched_tokens), now)

    def _decode(self) -> int:
        """A step without prompts; how many like it may follow."""
        self._serve_running()
        return self._end_decode_step()

    def _end_decode_step(self) -> int:
        """The step being formed computes tokens for all who decode; how many like it may follow."""
        self._fill_decodes()
        self._fill_chunks()
        if self._preempted_in_step:
            self.blocked_by = "kv"
        if not self.batch.decode_seqs:
            return 0
        return 1 if self._preempted_in_step else self._steps_until_change()
