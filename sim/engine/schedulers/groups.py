"""vLLM's rules for groups of KV caches that share one pool (`v1/core/kv_cache_coordinator.py`).

Each group of layers has blocks of its own. A group with a sliding window gives back the blocks that lie before the
window of the next token, once the steps that read them have ended, and reserves no more for a request that joins than
the window and the tokens in flight take.
"""

from sim.engine.kv.groups import GroupPool
from sim.engine.schedulers.stages import Flying, StageSchedule


class GroupSchedule(StageSchedule):
    """Who is in the next batch, where a request holds blocks in several groups."""

    pool: GroupPool

    def _need(self, one: Flying, new: int) -> int:
        self.pool.give_back(one, max(0, one.computed - one.flying))
        return self.pool.needs(one, one.computed + new)

    def _joins(self, one: Flying, hits: int, new: int) -> int:
        size, windows = self.pool.block_size, self.pool.windows
        first = [self.pool.wanted(group, hits * size + new) for group in range(len(windows))]
        joins = self.pool.joins(one, hits, first)
        if not self.limits.reserve_full_isl:
            return joins
        whole = [self.limits.most_blocks(window, one.tokens) for window in windows]
        return max(joins, self.pool.joins(one, hits, whole))

    def _give(self, one: Flying, blocks: int, new: int) -> None:
        self.pool.grow(one, one.computed + new)
        self._name(one, min(one.computed + new, one.tokens))
