"""A fixed number of clients, each with one request at a time."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sim.spec import Count, NonNegative, Spec
from sim.workload.streams import Streams, uniforms


class ClosedLoop(Spec):
    """Each client sends its next request a pause after its last answer is complete.

    People pause for random times and come one by one. A benchmark's clients pause for as long each time and begin
    together: in simulations they bunch up and stay so, and what they measure is worse than what people would see.
    """

    process: Literal["closed_loop"]
    concurrency: Count
    """Clients."""
    think_s: NonNegative = 0.0
    """Pause between an answer and the client's next request; of random ones the mean."""
    pauses: Literal["random", "constant"] = "random"
    """random: exponential, and each client begins after its first; constant: all begin at time 0."""
    num_requests: Count | None = None
    """Stop after this number of requests, of all clients together."""

    @property
    def random(self) -> bool:
        """Whether anything is drawn."""
        return self.think_s > 0 and self.pauses == "random"

    def pauses_s(self, streams: Streams, stream: str, start: int, count: int) -> NDArray[np.float64]:
        """Pauses *start* to *start + count* of the random *stream*."""
        if not self.random:
            return np.full(count, self.think_s)
        return -self.think_s * np.log(uniforms(streams, stream, start, count))

    def mean_rate_rps(self) -> None:
        """The fleet sets the rate."""
        return

    def describe(self) -> str:
        """Half a sentence."""
        mean = "a mean of " if self.random else ""
        pause = f", {mean}{self.think_s:g} s after the last answer" if self.think_s else ""
        clients = "1 client sends" if self.concurrency == 1 else f"{self.concurrency} clients send"
        return f"{clients} one request at a time{pause}"
