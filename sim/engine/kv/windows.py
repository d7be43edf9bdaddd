"""The sum of contexts capped at a sliding window, kept without touching a sequence at every step."""

from heapq import heappop, heappush

from sim.engine.sequence import Sequence


class WindowedContexts:
    """Decoding sequences below the window (their capped context grows) and beyond it (it does not)."""

    __slots__ = ("_beyond", "_crossings", "_growing", "_growing_base", "window")

    def __init__(self, window: int) -> None:
        self.window = window
        self._growing: dict[Sequence, None] = {}
        self._growing_base = 0
        self._beyond = 0
        self._crossings: list[tuple[int, int, Sequence]] = []
        """Heap of (step counter at which the context reaches the window, admission, sequence); may hold stale
        entries."""

    def add(self, sequence: Sequence) -> None:
        """*sequence* starts to decode with context base + step counter."""
        self._growing[sequence] = None
        self._growing_base += sequence.base
        heappush(self._crossings, (self.window - sequence.base, sequence.admission, sequence))

    def remove(self, sequence: Sequence) -> None:
        """*sequence* stops decoding."""
        if sequence in self._growing:
            del self._growing[sequence]
            self._growing_base -= sequence.base
        else:
            self._beyond -= 1

    def at(self, step: int) -> tuple[int, int]:
        """(sum of capped contexts [tokens], growing sequences) at step counter *step*, which never falls."""
        crossings = self._crossings
        while crossings and crossings[0][0] <= step:
            crossing, _, sequence = heappop(crossings)
            if sequence in self._growing and crossing == self.window - sequence.base:
                del self._growing[sequence]
                self._growing_base -= sequence.base
                self._beyond += 1
        growing = len(self._growing)
        return self._growing_base + growing * step + self._beyond * self.window, growing

    def steps_until_change(self, step: int) -> int:
        """Steps from *step* until the next entry of the heap is due; a stale one only shortens a leap."""
        return self._crossings[0][0] - step if self._crossings else self.window
