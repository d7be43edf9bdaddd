"""A request is admitted only if the KV blocks of its whole prompt and output are there, and it holds them to its end.

The rules follow TensorRT-LLM's capacity scheduler (GUARANTEED_NO_EVICT) with in-flight batching: every step serves
all who decode, then prompts in order while token budget, seats and reserved blocks last; a prompt joins whole, or in
chunks. Nobody ever gives way. With MAX_UTILIZATION (`capacityScheduler.cpp`, MaxUtilizationScheduler) the blocks of
its prompt are enough for a request to join, and where one that has started finds no block for its next step, the one
that started last is paused: its blocks are free, and it computes prompt and tokens again when it is its turn. Its
"two steps look-ahead", which keeps one more block free for requests that decode, is left out.

llama.cpp's slots are the same as the former with one block each, as large as a slot's context: `update_slots` puts one
token of each generating slot into the batch and fills it up to n_batch with prompts.
"""

from sim.engine.kv.blocks import BlockPool
from sim.engine.limits import RankLimits
from sim.engine.schedulers.queues.waiting import WaitingQueue
from sim.engine.schedulers.rank import Rank
from sim.engine.schedulers.rank_schedule import RankSchedule
from sim.engine.sequence import Sequence


class ReserveRank(RankSchedule):
    """One rank whose requests reserve all their KV blocks at admission."""

    def may_admit(self, sequence: Sequence) -> bool:
        """See `Schedule.may_admit`."""
        return (
            len(self.running) < self.seats
            and self._decoding < self._max_num_batched_tokens
            and self._missing(sequence, self.pool.lookup(sequence), 0) <= self.pool.free
        )

    def _blocks(self, sequence: Sequence) -> int:
        """Blocks of the whole request; the last token made needs no KV."""
        return -(-(sequence.request.prompt_tokens + sequence.output_tokens - 1) // self.pool.block_size)

    def _missing(self, sequence: Sequence, hits: int, chunk: int) -> int:
        return self.pool.missing(sequence, hits, self._blocks(sequence) * self.pool.block_size)

    def _hold(self, sequence: Sequence, hits: int) -> None:
        super()._hold(sequence, hits)
        sequence.held = self._blocks(sequence)
        self.pool.take(sequence.held - hits)

    def form(self, now: float) -> int:
        """See `Schedule.form`."""
        self.blocked_by = ""
        if not self.running and not self.waiting:
            return 0
        self.recomputed_in_step = self.cached_in_step = 0
        self._admit(self._continue_prompt(self._max_num_batched_tokens - self._decoding), now)
        self._fill_decodes()
        self._fill_chunks()
        if self._chunks:
            return 1
        return self._steps_until_finish() if self._decoding else 0


class MaxUtilizationRank(Rank):
    """One rank whose requests take KV blocks as they need them; an answer is found by others once it is complete."""

    def __init__(self, limits: RankLimits, pool: BlockPool, waiting: WaitingQueue) -> None:
        super().__init__(limits, pool, waiting)
        self._answers = None
