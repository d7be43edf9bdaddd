"""KV blocks that decode steps take and free, counted without visiting each sequence at every step.

`BlockPhases` and `GroupPhases` count the blocks that steps of one token take, `NextBlockSteps` those that steps of
several tokens take, and `WindowedContexts` is the sum of contexts capped at a sliding window.
"""

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from math import ceil
from operator import attrgetter

from sim.engine.kv.group_cache import GroupCache
from sim.engine.sequence import Sequence

ADMISSION = attrgetter("admission")


class BlockPhases:
    """Decoding sequences counted by base modulo block size.

    With context base + S, a sequence needs a new block in the step at counter S when the context is a multiple of the
    block size. The phase -base modulo block size is constant, so one array of counts has the blocks of every step:

        phase     0  1  2  3        (block size 4)
        count     2  0  5  1
        step S takes count[S mod 4] blocks
    """

    __slots__ = ("_counts", "_sequences", "_size")

    def __init__(self, block_size: int) -> None:
        self._size = block_size
        self._counts = [0] * block_size
        self._sequences = 0

    def add(self, sequence: Sequence) -> None:
        """Add *sequence*, which starts to decode."""
        self._counts[-sequence.base % self._size] += 1
        self._sequences += 1

    def remove(self, sequence: Sequence) -> None:
        """Remove *sequence*, which stops decoding."""
        self._counts[-sequence.base % self._size] -= 1
        self._sequences -= 1

    def blocks_at(self, step: int) -> int:
        """Return the number of blocks that the step at counter *step* takes."""
        return self._counts[step % self._size]

    def taken(self, step: int) -> None:
        """Record that the blocks of the step at counter *step* are allocated.

        There is nothing to do: the blocks held follow from the contexts.
        """

    def blocks_of(self, step: int, steps: int) -> int:
        """Return the number of blocks that *steps* steps from counter *step* on take."""
        size = self._size
        rounds = steps // size
        blocks = rounds * self._sequences
        if rest := steps - rounds * size:
            for at in range(step, step + rest):
                blocks += self._counts[at % size]
        return blocks

    def blocks_ahead(self, step: int, steps: int) -> int:
        """Return the number of blocks that *steps* steps from counter *step* on will take."""
        return self.blocks_of(step, steps)

    def steps_with(self, step: int, most: int, free: int) -> int:
        """Return the most steps, at most *most*, from counter *step* on for which *free* blocks are enough."""
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

    def steps_taking(self, step: int, most: int, blocks: int) -> int:
        """Return the most steps, at most *most*, from counter *step* on that take at most *blocks* blocks."""
        return self.steps_with(step, most, blocks)


class GroupPhases(BlockPhases):
    """Phases of sequences that hold blocks in several groups of layers and free those before a window.

    Sequences are in one bucket per phase, and only the buckets of phases that take or free blocks in a step are
    visited.
    """

    __slots__ = ("_back", "_beyond", "_buckets", "_crossings", "_gone_beyond", "_pool", "behind", "fresh")

    def __init__(self, pool: GroupCache, behind: int) -> None:
        super().__init__(pool.block_size)
        self._pool = pool
        self.behind = behind
        """Tokens of the step in progress, which a window still keeps when the next step is formed."""
        self._buckets: list[dict[Sequence, None]] = [{} for _ in range(pool.block_size)]
        self.fresh: dict[Sequence, None] = {}
        """Sequences that have just begun to decode: the blocks they free first do not follow from their phase."""
        self._back = behind + pool.sliding[0] - 1 if pool.only_sliding >= 0 else 0
        """Distance from the context back to the end of the place that is freed [tokens]."""
        self._crossings: list[tuple[int, int, Sequence]] = []
        """Heap of (step at which the first place is freed, admission, sequence), where there is one window; may hold
        stale entries."""
        self._beyond: list[dict[Sequence, None]] = [{} for _ in range(pool.block_size)]
        """Sequences of each bucket whose contexts have reached the window."""
        self._gone_beyond = 0

    def add(self, sequence: Sequence) -> None:
        """Add *sequence*, which starts to decode."""
        super().add(sequence)
        self._buckets[-sequence.base % self._size][sequence] = None
        self.fresh[sequence] = None
        if self._pool.only_sliding >= 0:
            heappush(self._crossings, (self._crossing(sequence), sequence.admission, sequence))

    def remove(self, sequence: Sequence) -> None:
        """Remove *sequence*, which stops decoding."""
        super().remove(sequence)
        phase = -sequence.base % self._size
        del self._buckets[phase][sequence]
        if sequence in self._beyond[phase]:
            del self._beyond[phase][sequence]
            self._gone_beyond -= 1
        self.fresh.pop(sequence, None)

    def blocks_at(self, step: int) -> int:
        """Return the number of blocks that the step at counter *step* takes."""
        return self._counts[step % self._size] * self._pool.growing

    def blocks_of(self, step: int, steps: int) -> int:
        """Return the number of blocks that *steps* steps from counter *step* on take, whatever is freed meanwhile."""
        return super().blocks_of(step, steps) * self._pool.growing

    def sliding(self, step: int, window: int) -> list[Sequence]:
        """Return the sequences that free a place before *window* when the step at counter *step* is formed."""
        done = step - self.behind - window + 1
        bucket = self._buckets[done % self._size]
        return [one for one in bucket if one.base + done >= self._size] if bucket else []

    def given_back(self, step: int, lower_bound: bool) -> int:
        """Return the number of blocks freed when the step at counter *step* is formed.

        With *lower_bound* the result is a lower bound: blocks that other sequences may hold, too, do not count.
        """
        total = 0
        for window in self._pool.sliding:
            ones = self.sliding(step, window)
            if lower_bound:
                ones = [one for one in ones if one not in self.fresh and not self._pool.shares(one)]
            total += len(ones) * self._pool.sliding_groups(window)
        return total

    def steps_with(self, step: int, most: int, free: int) -> int:
        """Return the most steps, at most *most*, from counter *step* on for which *free* blocks are enough."""
        if self._sequences * (most // self._size + 1) * self._pool.growing <= free:
            return most
        for at in range(step, step + most):
            taken = self.blocks_at(at)
            if taken > free:
                return at - step
            free += self.given_back(at, True) - taken
        return most

    def steps_taking(self, step: int, most: int, blocks: int) -> int:
        """Return the most steps, at most *most*, that take at most *blocks* blocks; freed blocks do not count."""
        growing = self._pool.growing
        return super().steps_with(step, most, blocks // growing) if growing and self._sequences else most

    def steps_until_free(self, step: int, most: int, short: int) -> int:
        """Return the steps, at most *most*, after the one at counter *step* until *short* more blocks may be free."""
        if self.fresh:
            return 1
        at = step
        while short > 0 and at < step + most:
            at += 1
            short -= self.given_back(at, False) - self.blocks_at(at)
        return at - step

    def take_leap(self, step: int, steps: int) -> None:
        """Allocate the blocks of *steps* steps from counter *step* on, and free those before the only window."""
        end = step + steps
        while step < end:
            self._cross(step)
            until = min(end, self._crossings[0][0]) if self._crossings else end
            self._take_span(step, until)
            step = until

    def _cross(self, step: int) -> None:
        """Mark the sequences whose contexts reach the window by the step at counter *step*: they free blocks."""
        while self._crossings and self._crossings[0][0] <= step:
            crossing, _, one = heappop(self._crossings)
            if one in self._buckets[-one.base % self._size] and crossing == self._crossing(one):
                self._beyond[-one.base % self._size][one] = None
                self._gone_beyond += 1

    def _crossing(self, sequence: Sequence) -> int:
        """Return the counter of the step in which the first place of *sequence* is freed."""
        return self._size + self._back - sequence.base

    def _take_span(self, step: int, until: int) -> None:
        pool, size = self._pool, self._size
        taken = self.blocks_of(step, until - step)
        if self._gone_beyond:
            giving = [
                (at, sorted(bucket, key=ADMISSION))
                for at in range(step, min(until, step + size))
                if (bucket := self._beyond[(at - self._back) % size])
            ]
            if pool.usable - pool.free + taken > pool.peak:
                pool.peak = max(pool.peak, self._highest(step, until))
            order: list[Sequence] = []
            for turn in range(0, until - step, size):
                for at, ones in giving:
                    if at + turn < until:
                        order += ones
            pool.slide_each(order, pool.only_sliding)
        # free blocks are reallocated in the order in which they were freed, so taking them at once changes nothing
        pool.take(taken)

    def _highest(self, step: int, until: int) -> int:
        """Return the most blocks in use after one of the steps from counter *step* to *until*."""
        highest = used = self._pool.usable - self._pool.free
        each = self._pool.sliding_groups(self._pool.sliding[0])
        for at in range(step, until):
            used += self.blocks_at(at) - each * len(self._beyond[(at - self._back) % self._size])
            highest = max(highest, used)
        return highest


Reach = Callable[[Sequence, int], int]
"""Function from a sequence and a step counter to the tokens that the sequence has slots for in this step."""
FirstStep = Callable[[Sequence, int], int]
"""Function from a sequence and a number of tokens to the first step in which it has slots for more tokens."""


class NextBlockSteps(BlockPhases):
    """Heap of the steps at which decoding sequences need another block; the blocks held are counted per sequence."""

    def __init__(self, block_size: int, reach: Reach, first_step: FirstStep) -> None:
        super().__init__(block_size)
        self._reach = reach
        self._first_step = first_step
        self._due: dict[Sequence, int] = {}
        self._heap: list[tuple[int, int, Sequence]] = []
        """Heap of (step, admission, sequence); an entry is stale if `_due` has another step."""

    def add(self, sequence: Sequence) -> None:
        """Add *sequence*, which starts to decode, or update it after a change of the blocks it holds."""
        self._due[sequence] = step = self._first_step(sequence, sequence.held * self._size)
        heappush(self._heap, (step, sequence.admission, sequence))

    def remove(self, sequence: Sequence) -> None:
        """Remove *sequence*, which stops decoding."""
        del self._due[sequence]

    def need(self, sequence: Sequence, step: int, held: int) -> int:
        """Return the number of blocks beyond *held* that *sequence* needs in the step at counter *step*."""
        return max(0, -(-self._reach(sequence, step) // self._size) - held)

    def blocks_at(self, step: int) -> int:
        """Return the number of blocks that the step at counter *step* takes."""
        return sum(blocks for _, _, blocks in self._needs_up_to(step))

    def taken(self, step: int) -> None:
        """Record that the blocks of the step at counter *step* are allocated."""
        self.blocks_of(step, 1)

    def blocks_ahead(self, step: int, steps: int) -> int:
        """Return the number of blocks that *steps* steps from counter *step* on will take."""
        return sum(blocks for _, _, blocks in self._needs_up_to(step + steps - 1))

    def blocks_of(self, step: int, steps: int) -> int:
        """Return the number of blocks that *steps* steps from counter *step* on take, and count them as held."""
        total = 0
        for _, sequence, blocks in list(self._needs_up_to(step + steps - 1)):
            sequence.held += blocks
            total += blocks
        while self._heap and self._heap[0][0] < step + steps:
            due, _, sequence = heappop(self._heap)
            if self._due.get(sequence) == due:
                self.add(sequence)
        return total

    def steps_with(self, step: int, most: int, free: int) -> int:
        """Return the most steps, at most *most*, from counter *step* on for which *free* blocks are enough."""
        for due, _, blocks in self._needs_up_to(step + most - 1):
            free -= blocks
            if free < 0:
                return max(0, due - step)
        return most

    def _needs_up_to(self, last: int) -> Iterator[tuple[int, Sequence, int]]:
        """Yield (step, sequence, blocks needed) up to the step at counter *last*, in order of steps."""
        heap = self._heap
        while heap and self._due.get(heap[0][2]) != heap[0][0]:
            heappop(heap)
        if not heap or heap[0][0] > last:
            return
        heap = [entry for entry in heap if self._due.get(entry[2]) == entry[0] and entry[0] <= last]
        heap.sort()
        held = {sequence: sequence.held for _, _, sequence in heap}
        while heap:
            due, admission, sequence = heappop(heap)
            blocks = self.need(sequence, due, held[sequence])
            held[sequence] += blocks
            yield due, sequence, blocks
            after = self._first_step(sequence, held[sequence] * self._size)
            if after <= last:
                heappush(heap, (after, admission, sequence))


class WindowedContexts:
    """Sum of the decoding sequences' contexts, each capped at a sliding window.

    Contexts below the window grow, those beyond it do not.
    """

    __slots__ = ("_bases", "_beyond", "_crossings", "_growing", "_growing_base", "_growing_pace", "_paces", "window")

    def __init__(
        self, window: int, bases: dict[Sequence, float] | None = None, paces: dict[Sequence, float] | None = None
    ) -> None:
        self.window = window
        self._bases, self._paces = bases, paces
        """Sequence -> its context at step counter 0, and its tokens per step; None: `Sequence.base`, and one token."""
        self._growing: dict[Sequence, int] = {}
        """Sequence below the window -> step counter at which its context reaches the window."""
        self._growing_base, self._growing_pace = 0.0, 0.0
        self._beyond = 0
        self._crossings: list[tuple[int, int, Sequence]] = []
        """Heap of (step counter at which the context reaches the window, admission, sequence); may hold stale
        entries."""

    def add(self, sequence: Sequence) -> None:
        """Add *sequence*, which starts to decode with the context base + tokens per step x step counter."""
        base = self._bases[sequence] if self._bases is not None else sequence.base
        pace = self._paces[sequence] if self._paces is not None else 1
        self._growing[sequence] = crossing = ceil((self.window - base) / pace)
        self._growing_base += base
        self._growing_pace += pace
        heappush(self._crossings, (crossing, sequence.admission, sequence))

    def remove(self, sequence: Sequence) -> None:
        """Remove *sequence*, which stops decoding."""
        if sequence in self._growing:
            self._stop_growing(sequence)
        else:
            self._beyond -= 1

    def _stop_growing(self, sequence: Sequence) -> None:
        del self._growing[sequence]
        self._growing_base -= self._bases[sequence] if self._bases is not None else sequence.base
        self._growing_pace -= self._paces[sequence] if self._paces is not None else 1

    def at(self, step: int) -> tuple[int, int]:
        """Return (sum of capped contexts [tokens], number of growing sequences) at step counter *step*.

        Steps must not decrease from call to call.
        """
        crossings = self._crossings
        while crossings and crossings[0][0] <= step:
            crossing, _, sequence = heappop(crossings)
            if self._growing.get(sequence) == crossing:
                self._stop_growing(sequence)
                self._beyond += 1
        tokens = self._growing_base + self._growing_pace * step + self._beyond * self.window
        return round(tokens), len(self._growing)

    def steps_until_change(self, step: int) -> int:
        """Return the steps from *step* until the next entry of the heap is due; a stale entry only shortens a leap."""
        return self._crossings[0][0] - step if self._crossings else self.window
