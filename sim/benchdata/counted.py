"""Requests as a server's metrics count them while it fills, queues or drains: enough to simulate it as it was."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SEED = 18


@dataclass(frozen=True, slots=True)
class Counted:
    """What ran at one page of metrics, and what came until another."""

    remaining: tuple[float, ...]
    """Of each request that runs at the first page: tokens that it has yet to make, rising."""
    waiting: float
    """Requests at the first page."""
    came: tuple[tuple[float, float], ...]
    """(seconds after the first page, requests that had come since), in rising order; the last is the last page."""
    answer: float
    """Mean answer [tokens]."""
    gap_s: float
    """Between two tokens at the first page."""
    draw: int = 0
    """Number of the draw of what was not counted: moments between two pages, lengths. In the first lengths are even."""
    stretch: str = ""
    """Of which this is a part."""

    @property
    def begin_s(self) -> float:
        """When the first page is taken: after an answer, in which those that run then began one after the other."""
        return self.answer * self.gap_s if self.remaining else 0.0

    @property
    def end_s(self) -> float:
        """When the last page is taken."""
        return self.begin_s + self.came[-1][0]

    def generator(self) -> np.random.Generator:
        """Fresh, of its draw."""
        return np.random.default_rng((SEED, self.draw))

    def arrivals_s(self) -> Floats:
        """When requests come, rising: those that run at the first page, those that wait, and the others."""
        generator = self.generator()
        moments = [self._since_begun() * self.begin_s, np.full(round(self.waiting), self.begin_s)]
        since_s, number = 0.0, 0
        for until_s, upto in self.came:
            more = max(0, round(upto) - number)
            moments.append(self.begin_s + since_s + (until_s - since_s) * np.sort(generator.random(more)))
            since_s, number = until_s, number + more
        return np.concatenate(moments)

    def running_answers(self) -> Floats:
        """Whole answers of those that run at the first page [tokens]; who has the least left began first."""
        return np.maximum(1.0, np.round((1 - self._since_begun()) * self.answer + self.remaining))

    def _since_begun(self) -> Floats:
        running = len(self.remaining)
        return (np.arange(running) + 0.5) / max(1, running)
