"""Blocks that decoding fills under names that others may ask for: named just before anyone looks."""

from collections.abc import Collection
from math import inf

from sim.engine.kv.blocks import NamedBlocks
from sim.engine.sequence import Sequence


class Answers(dict[Sequence, None]):
    """Decoding sequences whose answers are shared. A step changes none of them; they are named when that matters."""

    __slots__ = ("_pool",)

    def __init__(self, pool: NamedBlocks) -> None:
        super().__init__()
        self._pool = pool

    def add(self, sequence: Sequence) -> None:
        """*sequence* starts to decode."""
        if sequence.request.shared_tokens > sequence.request.prompt_tokens:
            self[sequence] = None

    def remove(self, sequence: Sequence) -> None:
        """*sequence* stops."""
        self.pop(sequence, None)

    def name(self, step: int, ahead: Collection[Sequence] = ()) -> None:
        """Names what is filled once contexts are base + *step*, one token more for those *ahead*, in the order in
        which it was filled: of two blocks with one name the older one answers.
        """
        size = self._pool.block_size
        filled = []
        for sequence in self:
            tokens = min(sequence.base + step + (sequence in ahead), sequence.request.shared_tokens)
            ends = range((self._pool.named(sequence) + 1) * size, tokens + 1, size)
            filled += [(end - sequence.base, sequence.admission, end, sequence) for end in ends]
        for _, _, end, sequence in sorted(filled):
            self._pool.name(sequence, end)

    def steps_until_named(self, step: int, ahead: Collection[Sequence] = ()) -> float:
        """Return the number of steps before another block is to be named, once `name` has been called with *step* and
        *ahead*; inf if none is.
        """
        size, steps = self._pool.block_size, inf
        for sequence in self:
            end = (self._pool.named(sequence) + 1) * size
            if end <= sequence.request.shared_tokens:
                steps = min(steps, end - sequence.base - step - (sequence in ahead))
        return steps

    def steps_until_found(self, sequence: Sequence | None, step: int) -> float:
        """Steps until one names a block that *sequence* looks for and does not find now, with base + *step* tokens
        named; None, who waits for a slot of an adapter, looks for none.
        """
        if sequence is None:
            return inf
        pool = self._pool
        size = pool.block_size
        steps = inf
        for other in self:
            block = (other.base + step) // size
            end = (block + 1) * size
            known = end <= other.request.shared_tokens and block < pool.sought(sequence)
            if known and pool.name_of(other, block) == pool.name_of(sequence, block):
                steps = min(steps, end - other.base - step)
        return steps
