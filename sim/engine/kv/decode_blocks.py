"""How many KV blocks decode steps take, without looking at a sequence."""

from sim.engine.kv.group_cache import GroupCache
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


class GroupPhases(BlockPhases):
    """The same where each sequence holds blocks in several groups of layers, and gives back those before a window.

    Sequences are in a bucket for each phase, and only those of the phases that take or give something in a step are
    looked at.
    """

    __slots__ = ("_buckets", "_pool", "behind", "fresh")

    def __init__(self, pool: GroupCache, behind: int) -> None:
        super().__init__(pool.block_size)
        self._pool = pool
        self.behind = behind
        """Tokens of a step whose end nobody waits for, which a window still keeps."""
        self._buckets: list[dict[Sequence, None]] = [{} for _ in range(pool.block_size)]
        self.fresh: dict[Sequence, None] = {}
        """Who has just begun to decode: what it gives back first does not follow from its phase."""

    def add(self, sequence: Sequence) -> None:
        """A sequence starts to decode."""
        super().add(sequence)
        self._buckets[-sequence.base % self._size][sequence] = None
        self.fresh[sequence] = None

    def remove(self, sequence: Sequence) -> None:
        """A sequence stops."""
        super().remove(sequence)
        del self._buckets[-sequence.base % self._size][sequence]
        self.fresh.pop(sequence, None)

    def blocks_at(self, step: int) -> int:
        """Blocks that the step at counter *step* takes."""
        return self._counts[step % self._size] * self._pool.growing

    def blocks_of(self, step: int, steps: int) -> int:
        """Blocks that *steps* steps from counter *step* on take, whatever is given back meanwhile."""
        return super().blocks_of(step, steps) * self._pool.growing

    def sliding(self, step: int, window: int) -> list[Sequence]:
        """Who gives a place before *window* back when the step at counter *step* is formed."""
        done = step - self.behind - window + 1
        bucket = self._buckets[done % self._size]
        return [one for one in bucket if one.base + done >= self._size] if bucket else []

    def given_back(self, step: int, surely: bool) -> int:
        """Blocks that are given back when the step at counter *step* is formed; those that others may hold, too, do not
        count where it must *surely* be so many.
        """
        total = 0
        for window in self._pool.sliding:
            ones = self.sliding(step, window)
            if surely:
                ones = [one for one in ones if one not in self.fresh and not self._pool.shares(one)]
            total += len(ones) * self._pool.sliding_groups(window)
        return total

    def steps_with(self, step: int, most: int, free: int) -> int:
        """The most steps, at most *most*, from counter *step* on that *free* blocks are enough for."""
        if self._sequences * (most // self._size + 1) * self._pool.growing <= free:
            return most
        for at in range(step, step + most):
            taken = self.blocks_at(at)
            if taken > free:
                return at - step
            free += self.given_back(at, True) - taken
        return most

    def steps_until_free(self, step: int, most: int, short: int) -> int:
        """Steps, at most *most*, after the one at counter *step* until *short* blocks more than now may be free."""
        if self.fresh:
            return 1
        at = step
        while short > 0 and at < step + most:
            at += 1
            short -= self.given_back(at, False) - self.blocks_at(at)
        return at - step
