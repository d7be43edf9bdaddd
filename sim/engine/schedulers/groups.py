"""vLLM's rules for groups of KV caches that share one pool (`v1/core/kv_cache_coordinator.py`).

Each group of layers has blocks of its own. A group with a sliding window gives back the blocks that lie before the
window of the next token, once the steps that read them have ended, and reserves no more for a request that joins than
the window and the tokens in flight take. Without prefix caching.
"""

from sim.engine.kv.blocks import BlockPool
from sim.engine.limits import RankLimits
from sim.engine.schedulers.stages import Flying, StageSchedule
from sim.engine.schedulers.waiting import WaitingQueue


class GroupSchedule(StageSchedule):
    """Who is in the next batch, where a request holds blocks in several groups; `held` counts those of all groups."""

    def __init__(self, limits: RankLimits, pool: BlockPool, waiting: WaitingQueue, ahead: int) -> None:
        super().__init__(limits, pool, waiting, ahead)
        self._windows = [window for window in limits.kv_groups if window is not None]
        self._given_back: dict[Flying, list[int]] = {}
        """Leading blocks that a running request has given back, in each group with a window."""
        self._reached: dict[Flying, int] = {}
        """Blocks that a running request has been given in each group, those given back included."""

    def _need(self, one: Flying, new: int) -> int:
        self._give_back(one)
        blocks = -(-(one.computed + new) // self.pool.block_size) - self._reached.get(one, 0)
        return max(0, blocks) * len(self.limits.kv_groups)

    def _give_back(self, one: Flying) -> None:
        """The blocks before the windows of *one* are free again."""
        reached, size = self._reached.get(one, 0), self.pool.block_size
        given_back = self._given_back.setdefault(one, [0] * len(self._windows))
        for group, window in enumerate(self._windows):
            before = min(max(0, one.computed - one.flying - window + 1) // size, reached)
            if before > given_back[group]:
                self.pool.free += before - given_back[group]
                one.held -= before - given_back[group]
                given_back[group] = before

    def _joins(self, one: Flying, hits: int, new: int) -> int:
        whole = sum(self.limits.most_blocks(window, one.tokens) for window in self.limits.kv_groups)
        first = -(-new // self.pool.block_size) * len(self.limits.kv_groups)
        return max(whole, first) if self.limits.reserve_full_isl else first

    def _give(self, one: Flying, blocks: int, new: int) -> None:
        super()._give(one, blocks, new)
        self._reached[one] = self._reached.get(one, 0) + blocks // len(self.limits.kv_groups)

    def _preempt(self, one: Flying) -> None:
        super()._preempt(one)
        self._forget(one)

    def leave(self, one: Flying) -> None:
        """See `StageSchedule.leave`."""
        super().leave(one)
        self._forget(one)

    def _forget(self, one: Flying) -> None:
        self._reached.pop(one, None)
        self._given_back.pop(one, None)
