"""Who of those that decode finishes when."""

from bisect import bisect_left, insort
from collections.abc import Iterable

from sim.engine.sequence import Sequence


class Finishing:
    """Decoding sequences by the step counter at which they finish, then by admission, the next one last.

    A sorted list rather than a heap: it is short, and taking its end touches nobody else, which a heap of sequences
    that are spread over the memory does at every level.
    """

    __slots__ = ("_order", "_sum")

    def __init__(self) -> None:
        self._order: list[tuple[int, int, Sequence]] = []
        self._sum = 0
        """Of their finish steps."""

    def add(self, sequence: Sequence) -> None:
        """*sequence* decodes until its finish step."""
        insort(self._order, (-sequence.finish_step, -sequence.admission, sequence))
        self._sum += sequence.finish_step

    def remove(self, sequence: Sequence) -> None:
        """*sequence* stops before."""
        del self._order[bisect_left(self._order, (-sequence.finish_step, -sequence.admission))]
        self._sum -= sequence.finish_step

    def rebuild(self, decoding: Iterable[Sequence]) -> None:
        """Those who are *decoding* have other finish steps than before."""
        self._order = sorted((-sequence.finish_step, -sequence.admission, sequence) for sequence in decoding)
        self._sum = -sum(finish for finish, _, _ in self._order)

    def sequences(self) -> list[Sequence]:
        """All of them."""
        return [sequence for _, _, sequence in self._order]

    def next_step(self) -> int:
        """The counter at which the next one finishes. There must be one."""
        return -self._order[-1][0]

    def pop_reached(self, step: int) -> list[Sequence]:
        """Takes out those who have finished at counter *step*, in order."""
        order, reached = self._order, []
        while order and order[-1][0] >= -step:
            finish, _, sequence = order.pop()
            self._sum += finish
            reached.append(sequence)
        return reached

    def steps_left(self, step: int, at_most: int) -> int:
        """Steps from counter *step* on that they still take, added up, with *at_most* of each."""
        total = self._sum - len(self._order) * step
        for finish, _, _ in self._order:
            beyond = -finish - step - at_most
            if beyond <= 0:
                break
            total -= beyond
        return total
