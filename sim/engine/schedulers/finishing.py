"""Who of those that decode finishes when."""

from bisect import bisect_left, insort
from collections.abc import Iterable

from sim.engine.sequence import Sequence


class Finishing:
    """Decoding sequences by the step counter at which they finish, then by admission, the next one last.

    A sorted list rather than a heap: it is short, and taking its end touches nobody else, which a heap of sequences
    that are spread over the memory does at every level.
    """

    __slots__ = ("_order",)

    def __init__(self) -> None:
        self._order: list[tuple[int, int, Sequence]] = []

    def add(self, sequence: Sequence) -> None:
        """*sequence* decodes until its finish step."""
        insort(self._order, (-sequence.finish_step, -sequence.admission, sequence))

    def remove(self, sequence: Sequence) -> None:
        """*sequence* stops before."""
        del self._order[bisect_left(self._order, (-sequence.finish_step, -sequence.admission))]

    def rebuild(self, decoding: Iterable[Sequence]) -> None:
        """Those who are *decoding* have other finish steps than before."""
        self._order = sorted((-sequence.finish_step, -sequence.admission, sequence) for sequence in decoding)

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
            reached.append(order.pop()[2])
        return reached
