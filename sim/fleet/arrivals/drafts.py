"""How many drafts requests keep."""

from collections.abc import Callable

import numpy as np

from sim.batching.speculative import Speculative
from sim.records import Request

Draws = Callable[[str], np.random.Generator]
"""Maps a name to a fresh generator."""


class Acceptance:
    """Drafts that a request keeps in a step of an answer: a given number, or drawn once for the whole answer.

    Drawn are the steps that the answer takes: each keeps the drafts before the first one that does not hold, and each
    holds with its own probability, independent of the other steps. The answer's tokens are spread evenly over its
    steps, so that the steps of a batch stay alike.
    """

    def __init__(self, spec: Speculative, draws: Draws) -> None:
        self._accepted = spec.accepted
        self._rates = np.array(spec.rates)
        self._draws = draws

    def __call__(self, request: Request, tokens: int) -> float:
        """Drafts kept per step of the next *tokens* of the answer to *request*."""
        if self._accepted is not None:
            return self._accepted
        draws = self._draws(f"drafts of {request.index}")
        holds = draws.random((max(1, tokens), len(self._rates))) < self._rates
        made = np.cumsum(1 + np.cumprod(holds, axis=1).sum(axis=1))
        steps = int(np.searchsorted(made, tokens)) + 1
        return max(1.0, tokens / steps) - 1
