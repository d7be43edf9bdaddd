"""When sequences that come several tokens further in a step need their next KV blocks."""

from collections.abc import Callable, Iterator
from heapq import heappop, heappush

from sim.engine.sequence import Sequence

Reach = Callable[[Sequence, int], int]
"""Tokens that a sequence has slots for in the step at a counter."""
FirstStep = Callable[[Sequence, int], int]
"""Counter of the first step in which a sequence has slots for more tokens than these."""


class Slots:
    """A heap of the steps at which decoding sequences need another block; a sequence knows what it holds."""

    def __init__(self, block_size: int, reach: Reach, first_step: FirstStep) -> None:
        self._size = block_size
        self._reach = reach
        self._first_step = first_step
        self._due: dict[Sequence, int] = {}
        self._heap: list[tuple[int, int, Sequence]] = []
        """(step, admission, sequence); stale where `_due` says something else."""

    def add(self, sequence: Sequence) -> None:
        """*sequence* starts to decode, or holds other blocks than before."""
        self._due[sequence] = step = self._first_step(sequence, sequence.held * self._size)
        heappush(self._heap, (step, sequence.admission, sequence))

    def remove(self, sequence: Sequence) -> None:
        """*sequence* stops."""
        del self._due[sequence]

    def need(self, sequence: Sequence, step: int, held: int) -> int:
        """Blocks beyond *held* that *sequence* needs in the step at counter *step*."""
        return max(0, -(-self._reach(sequence, step) // self._size) - held)

    def blocks_at(self, step: int) -> int:
        """Blocks that the step at counter *step* takes."""
        return sum(blocks for _, _, blocks in self._ahead(step))

    def taken(self, step: int) -> None:
        """The blocks of the step at counter *step* have been handed out."""
        self.blocks_of(step, 1)

    def blocks_ahead(self, step: int, steps: int) -> int:
        """Blocks that *steps* steps from counter *step* on will take."""
        return sum(blocks for _, _, blocks in self._ahead(step + steps - 1))

    def blocks_of(self, step: int, steps: int) -> int:
        """Blocks that *steps* steps from counter *step* on take; the sequences hold them from now on."""
        total = 0
        for _, sequence, blocks in list(self._ahead(step + steps - 1)):
            sequence.held += blocks
            total += blocks
        while self._heap and self._heap[0][0] < step + steps:
            due, _, sequence = heappop(self._heap)
            if self._due.get(sequence) == due:
                self.add(sequence)
        return total

    def steps_with(self, step: int, most: int, free: int) -> int:
        """The most steps, at most *most*, from counter *step* on that *free* blocks are enough for."""
        for due, _, blocks in self._ahead(step + most - 1):
            free -= blocks
            if free < 0:
                return max(0, due - step)
        return most

    def steps_taking(self, step: int, most: int, blocks: int) -> int:
        """See `BlockPhases.steps_taking`."""
        return self.steps_with(step, most, blocks)

    def _ahead(self, last: int) -> Iterator[tuple[int, Sequence, int]]:
        """(step, sequence, blocks) of what is needed up to the step at counter *last*, in order of steps."""
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
