"""A fixed number of clients, each with one request at a time."""

from typing import Literal

from sim.spec import Count, NonNegative, Spec


class ClosedLoop(Spec):
    """Clients start one by one over `ramp_s`; each sends again `think_s` after its last answer is complete."""

    process: Literal["closed_loop"]
    concurrency: Count
    """Clients."""
    think_s: NonNegative = 0.0
    """Pause between an answer and the client's next request."""
    ramp_s: NonNegative | None = None
    """Clients send their first request at random times up to it. Left out: `think_s`, as if they had always been there;
    0: all at once."""
    num_requests: Count | None = None
    """Stop after so many requests, of all clients together."""

    @property
    def spread_s(self) -> float:
        """Over how long first requests are spread."""
        return self.think_s if self.ramp_s is None else self.ramp_s

    @property
    def random(self) -> bool:
        """Whether anything is drawn."""
        return self.spread_s > 0

    def mean_rate_rps(self) -> None:
        """The fleet sets the rate."""
        return

    def describe(self) -> str:
        """Half a sentence."""
        pause = f", {self.think_s:g} s after the last answer" if self.think_s else ""
        clients = "1 client sends" if self.concurrency == 1 else f"{self.concurrency} clients send"
        return f"{clients} one request at a time{pause}"
