"""A fixed number of clients, each with one request at a time."""

from typing import ClassVar, Literal

from sim.spec import Count, NonNegative, Spec


class ClosedLoop(Spec):
    """All clients send their first request at time 0 and the next one `think_s` after the last answer is complete."""

    random: ClassVar[bool] = False

    process: Literal["closed_loop"]
    concurrency: Count
    """Clients."""
    think_s: NonNegative = 0.0
    """Pause between an answer and the client's next request."""
    num_requests: Count | None = None
    """Stop after so many requests, of all clients together."""

    def mean_rate_rps(self) -> None:
        """The fleet sets the rate."""
        return

    def describe(self) -> str:
        """Half a sentence."""
        pause = f", {self.think_s:g} s after the last answer" if self.think_s else ""
        clients = "1 client sends" if self.concurrency == 1 else f"{self.concurrency} clients send"
        return f"{clients} one request at a time{pause}"
