"""Client behaviour without a response: timeouts, patience, and retries."""

from typing import Literal

from sim.spec import Count, Fraction, NonNegative, Positive, Spec


class Client(Spec):
    """Timeout, patience and retries of clients; retry defaults are those of OpenAI's Python library."""

    timeout_s: Positive | None = None
    """Maximum time from sending an attempt to its last token [s]; the server then stops processing it, and the client
    retries. Default: no timeout."""
    patience_s: Positive | None = None
    """Maximum time from the arrival to the first token [s]; the client then gives up without a retry. Default: no
    limit."""
    attempts: Count = 3
    """Maximum number of attempts per request, after a timeout, a refusal or a failure of its replica."""
    backoff_s: NonNegative = 0.5
    """Delay before the second attempt [s]; it doubles with every further attempt."""
    backoff_most_s: NonNegative = 8.0
    """Maximum delay [s]."""
    jitter: Fraction = 0.25
    """Maximum random reduction of the delay, as a fraction."""
    retry: Literal["restart", "resume"] = "restart"
    """Content of a retry. restart: the whole response; resume: the tokens after those already streamed."""

    def pause_s(self, attempts: int, chance: float) -> float:
        """Return the delay after *attempts* attempts [s]; *chance* is uniform on [0, 1).

        >>> Client().pause_s(1, 0.0), Client().pause_s(3, 0.0), Client().pause_s(9, 0.5)
        (0.5, 2.0, 7.0)
        """
        pause_s: float = min(self.backoff_most_s, self.backoff_s * 2.0 ** min(attempts - 1, 60))
        return pause_s * (1 - self.jitter * chance)
