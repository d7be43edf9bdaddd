"""What clients do while no answer comes: how long they wait, how often they ask, and how they go on."""

from typing import Literal

from sim.spec import Count, Fraction, NonNegative, Positive, Spec


class Client(Spec):
    """How clients wait and ask again; the defaults for asking again are those of OpenAI's Python library."""

    timeout_s: Positive | None = None
    """From sending an attempt to its last token; the server then stops working on it, and the client asks again.
    Left out: as long as it takes."""
    patience_s: Positive | None = None
    """From the arrival to the first token; a client that has waited so long leaves for good. Left out: no limit."""
    attempts: Count = 3
    """How often a request is sent at most, after a timeout, a refusal or the failure of its replica."""
    backoff_s: NonNegative = 0.5
    """Pause before the second attempt; it doubles with every further one."""
    backoff_most_s: NonNegative = 8.0
    """Longest pause."""
    jitter: Fraction = 0.25
    """Share of the pause that chance takes off at most."""
    retry: Literal["restart", "resume"] = "restart"
    """What is asked for again: the whole answer, or the tokens behind those that were streamed already."""

    def pause_s(self, attempts: int, chance: float) -> float:
        """Pause after so many *attempts* [s]; *chance* is uniform on [0, 1).

        >>> Client().pause_s(1, 0.0), Client().pause_s(3, 0.0), Client().pause_s(9, 0.5)
        (0.5, 2.0, 7.0)
        """
        pause_s: float = min(self.backoff_most_s, self.backoff_s * 2.0 ** min(attempts - 1, 60))
        return pause_s * (1 - self.jitter * chance)
