"""The sum of contexts capped at a sliding window, kept without touching a sequence at every step."""

from collections.abc import Mapping
from heapq import heappop, heappush
from math import ceil

from sim.engine.sequence import Sequence


class WindowedContexts:
    """Decoding sequences below the window (their capped context grows) and beyond it (it does not)."""

    __slots__ = ("_beyond", "_crossings", "_growing", "_growing_base", "_growing_pace", "_paces", "window")

    def __init__(self, window: int, paces: Mapping[Sequence, float] | None = None) -> None:
        self.window = window
        self._paces = paces
        """Tokens that each sequence comes further in a step; None: one, all of them."""
        self._growing: dict[Sequence, int] = {}
        """Those below the window, and the step counter at which each reaches it."""
        self._growing_base: float = 0
        self._growing_pace: float = 0
        self._beyond = 0
        self._crossings: list[tuple[int, int, Sequence]] = []
        """Heap of (step counter at which the context reaches the window, admission, sequence); may hold stale
        entries."""

    def add(self, sequence: Sequence) -> None:
        """*sequence* starts to decode with context base + its tokens per step x step counter."""
        pace = self._paces[sequence] if self._paces is not None else 1
        self._growing[sequence] = crossing = ceil((self.window - sequence.base) / pace)
        self._growing_base += sequence.base
        self._growing_pace += pace
        heappush(self._crossings, (crossing, sequence.admission, sequence))

    def remove(self, sequence: Sequence) -> None:
        """*sequence* stops decoding."""
        if sequence in self._growing:
            self._stop_growing(sequence)
        else:
            self._beyond -= 1

    def _stop_growing(self, sequence: Sequence) -> None:
        del self._growing[sequence]
        self._growing_base -= sequence.base
        self._growing_pace -= self._paces[sequence] if self._paces is not None else 1

    def at(self, step: int) -> tuple[int, int]:
        """(sum of capped contexts [tokens], growing sequences) at step counter *step*, which never falls."""
        crossings = self._crossings
        while crossings and crossings[0][0] <= step:
            crossing, _, sequence = heappop(crossings)
            if self._growing.get(sequence) == crossing:
                self._stop_growing(sequence)
                self._beyond += 1
        tokens = self._growing_base + self._growing_pace * step + self._beyond * self.window
        return round(tokens), len(self._growing)

    def steps_until_change(self, step: int) -> int:
        """Steps from *step* until the next entry of the heap is due; a stale one only shortens a leap."""
        return self._crossings[0][0] - step if self._crossings else self.window
