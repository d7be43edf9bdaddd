"""How many KV blocks decode steps take, without looking at a sequence."""

from sim.engine.sequence import Sequence


class BlockPhases:
    """Decoding sequences counted by base modulo block size.

    With context base + S, a sequence needs a new block in the step at counter S when that is a multiple of the size.
    """

    __slots__ = ("_counts", "_sequences", "_size")

    def __init__(self, block_size: int) -> None:
        self._size = block_size
        self._counts = [0] * block_size
        self._sequences = 0

    def add(self, sequence: Sequence) -> None:
        """A sequence starts to decode."""
        self._counts[-sequence.base % self._size] += 1
        self._sequences += 1

    def remove(self, sequence: Sequence) -> None:
        """A sequence stops."""
        self._counts[-sequence.base % self._size] -= 1
        self._sequences -= 1

    def blocks_at(self, step: int) -> int:
        """Blocks that the step at counter *step* takes."""
        return self._counts[step % self._size]

    def taken(self, step: int) -> None:
        """The blocks of the step at counter *step* have been handed out: they follow from the contexts."""

    def blocks_of(self, step: int, steps: int) -> int:
        """Blocks that *steps* steps from counter *step* on take."""
        size = self._size
        rounds, rest = divmod(steps, size)
        blocks = rounds * self._sequences
        if rest:
            start = step % size
            end = start + rest
            counts = self._counts
            blocks += sum(counts[start:end]) if end <= size else sum(counts[start:]) + sum(counts[: end - size])
        return blocks

    def steps_with(self, step: int, most: int, free: int) -> int:
        """The most steps, at most *most*, from counter *step* on that *free* blocks are enough for."""
        if self._sequences * (most // self._size + 1) <= free:
            return most
        rounds = free // self._sequences
        left = free - rounds * self._sequences
        steps = rounds * self._size
        while steps < most:
            left -= self._counts[(step + steps) % self._size]
            if left < 0:
                return steps
            steps += 1
        return most
