"""Cached states of linear attention, block by block (vLLM V1 `MambaManager`, `mamba_cache_mode: align`)."""

from collections.abc import Sequence as Listed

from sim.engine.kv.groups import GroupBlock, GroupPool, Windows
from sim.engine.sequence import Sequence


class StatePool(GroupPool):
    """A group with a window of 0 keeps states. A step writes one at the end of its chunk: the block of that place holds
    it, and the places between two ends have none.

    A block is full, and others find it, once the state is that after its last token. Then the next state takes a new
    block, and the old one is given back when the step that reads it has ended. A state that a step has named cannot be
    read before the next step.
    """

    __slots__ = ("_held", "_named_in_step", "_states")

    def __init__(self, num_gpu_blocks: int, block_size: int, windows: Windows) -> None:
        super().__init__(num_gpu_blocks, block_size, windows, True)
        self._states = self._alike[0]
        """Groups of states."""
        self._held: dict[Sequence, list[int]] = {}
        """Places of the states that a sequence holds, in each of these groups."""
        self._named_in_step: set[object] = set()

    def begin_step(self) -> None:
        """What has been named before can be read in the step that is formed now."""
        self._named_in_step.clear()

    def junction(self, sequence: Sequence) -> int:
        """Leading tokens of *sequence* whose keys and values are cached, with a state behind them or without."""
        full = self._alike.get(None)
        if not full or not self._named:
            return 0
        most = (sequence.tokens - 1) // self.block_size
        return self._found(sequence, full, None, most) * self.block_size

    def skipped(self, group: int, computed: int) -> int:
        """See `GroupPool.skipped`: the last state is read."""
        return max(0, computed - 1) // self.block_size if self.windows[group] == 0 else super().skipped(group, computed)

    def wanted(self, group: int, tokens: int) -> int:
        """See `GroupPool.wanted`."""
        return -(-tokens // self.block_size)

    def joins(self, sequence: Sequence, hits: int, blocks: Listed[int]) -> int:
        """See `GroupPool.joins`; more than there are where *sequence* finds a state that this step has named."""
        if hits and self._cached(sequence, self._states[0], hits - 1).name in self._named_in_step:
            return self.usable + 1
        one_each = [hits + 1 if self.windows[group] == 0 else wanted for group, wanted in enumerate(blocks)]
        return super().joins(sequence, hits, one_each)

    def claim(self, sequence: Sequence, hits: int) -> None:
        """See `GroupPool.claim`."""
        super().claim(sequence, hits)
        self._held[sequence] = [hits - 1] if hits else []

    def needs(self, sequence: Sequence, tokens: int) -> int:
        """See `GroupPool.needs`: one block for a new state."""
        tables = self._tables[sequence]
        missing = [max(0, self.wanted(group, tokens) - len(table)) for group, table in enumerate(tables)]
        return sum(min(1, new) if self.windows[group] == 0 else new for group, new in enumerate(missing))

    def grow(self, sequence: Sequence, tokens: int) -> None:
        """See `GroupPool.grow`."""
        tables = self._tables[sequence]
        new = self.wanted(self._states[0], tokens) - len(tables[self._states[0]])
        for group in self._states if new > 0 else ():
            tables[group] += [None] * (new - 1)
        super().grow(sequence, tokens)
        if new > 0:
            self._held[sequence].append(len(tables[self._states[0]]) - 1)

    def give_back(self, sequence: Sequence, computed: int) -> None:
        """See `GroupPool.give_back`."""
        super().give_back(sequence, computed)
        held, skipped = self._held[sequence], self.skipped(self._states[0], computed)
        while held and held[0] < skipped:
            del held[0]

    def _behind(self, sequence: Sequence, group: int, places: int) -> list[int]:
        if self.windows[group] != 0:
            return super()._behind(sequence, group, places)
        return [place for place in reversed(self._held[sequence]) if place < places]

    def name(self, sequence: Sequence, tokens: int) -> None:
        """See `GroupPool.name`."""
        known = self._full.get(sequence, 0)
        super().name(sequence, tokens)
        for group in self._states:
            named: list[GroupBlock | None] = self._tables[sequence][group][known : self._full.get(sequence, 0)]
            self._named_in_step.update(block.name for block in named if block is not None)

    def release(self, sequence: Sequence, held: int, resumes: bool, computed: int) -> None:
        """See `GroupPool.release`."""
        self._held.pop(sequence, None)
        super().release(sequence, held, resumes, computed)
