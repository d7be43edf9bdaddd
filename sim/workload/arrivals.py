"""When requests arrive: arrival processes at a rate, by hourly rates, all at once, or from waiting clients.

A new process: its class and its name in `Arrivals`.
"""

from abc import ABC, abstractmethod
from math import ceil, inf
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from sim.spec import Count, NonNegative, Positive, Spec
from sim.units import SECONDS_PER_HOUR
from sim.workload.published import hourly_table
from sim.workload.requests import Streams, uniforms

MOST_AT_ONCE = 1 << 20


class OpenLoop(Spec):
    """Requests that arrive whatever the fleet does."""

    random: ClassVar[bool] = True

    num_requests: Count | None = None
    """Stop after this number of requests."""


class Renewal(OpenLoop, ABC):
    """Gaps of mean 1 on a clock that counts expected requests; the rate turns that clock into seconds.

    Gap i is the same number at every rate: at twice the rate the same requests come in half the time. The gaps are the
    stream `arrivals`, taken one after the other.
    """

    def arrivals_s(self, streams: Streams, horizon_s: float | None) -> NDArray[np.float64]:
        """Arrival times before *horizon_s*, rising. Without a horizon, `num_requests` ends them."""
        if horizon_s is None and self.num_requests is None:
            raise ValueError("arrivals without an end: give horizon_s or num_requests")
        generator = streams("arrivals")
        limit = inf if self.num_requests is None else self.num_requests
        end_s = inf if horizon_s is None else horizon_s
        # A third above expectation, so that one draw is nearly always enough.
        expected = min(limit, 64 + 1.3 * end_s * self.mean_rate_rps())
        times: list[NDArray[np.float64]] = []
        elapsed, drawn = 0.0, 0
        while drawn < limit:
            count = int(min(expected, limit - drawn, MOST_AT_ONCE))
            # The running total goes first into the sum: the same additions in the same order as in one long draw.
            clock = np.cumsum(np.concatenate([[elapsed], self.unit_gaps(generator, count)]))[1:]
            times.append(self.at_s(clock))
            elapsed, drawn = float(clock[-1]), drawn + count
            if times[-1][-1] >= end_s:
                break
        arrivals = np.concatenate(times)
        return arrivals[: np.searchsorted(arrivals, end_s)]

    def unit_gaps(self, generator: np.random.Generator, count: int) -> NDArray[np.float64]:
        """The next *count* gaps, of mean 1."""
        return generator.standard_exponential(count)

    def at_s(self, clock: NDArray[np.float64]) -> NDArray[np.float64]:
        """When the given number of requests is expected to have arrived [s]."""
        return clock / self.mean_rate_rps()

    @abstractmethod
    def mean_rate_rps(self) -> float:
        """Requests per second in the long run."""


class Poisson(Renewal):
    """Exponential gaps, gap i = E_i / rate."""

    process: Literal["poisson"]
    rate_rps: Positive
    """Mean requests per second."""

    def mean_rate_rps(self) -> float:
        """Requests per second in the long run."""
        return self.rate_rps

    def describe(self) -> str:
        """Half a sentence."""
        return f"Poisson arrivals at {self.rate_rps:g} requests/s"


class Gamma(Renewal):
    """Gamma gaps of shape k = 1/cv^2 and mean 1/rate; cv 1 is Poisson, draw for draw."""

    process: Literal["gamma"]
    rate_rps: Positive
    """Mean requests per second."""
    cv: Positive
    """Standard deviation over mean of the gaps. `burstiness` of vLLM's benchmark is 1/cv^2."""

    def unit_gaps(self, generator: np.random.Generator, count: int) -> NDArray[np.float64]:
        """The next *count* gaps, of mean 1."""
        shape = self.cv**-2
        return generator.standard_gamma(shape, count) / shape

    def mean_rate_rps(self) -> float:
        """Requests per second in the long run."""
        return self.rate_rps

    def describe(self) -> str:
        """Half a sentence."""
        return f"gamma arrivals at {self.rate_rps:g} requests/s (cv {self.cv:g})"


class Constant(OpenLoop):
    """Request i arrives at i / rate, the first one at 0."""

    random: ClassVar[bool] = False

    process: Literal["constant"]
    rate_rps: Positive
    """Requests per second."""

    def arrivals_s(self, streams: Streams, horizon_s: float | None) -> NDArray[np.float64]:
        """Arrival times before *horizon_s*, rising. Without a horizon, `num_requests` ends them."""
        count = self.num_requests
        if horizon_s is not None:
            fitting = ceil(horizon_s * self.rate_rps) + 1
            count = fitting if count is None else min(count, fitting)
        if count is None:
            raise ValueError("arrivals without an end: give horizon_s or num_requests")
        arrivals = np.arange(count) / self.rate_rps
        return arrivals if horizon_s is None else arrivals[: np.searchsorted(arrivals, horizon_s)]

    def mean_rate_rps(self) -> float:
        """Requests per second."""
        return self.rate_rps

    def describe(self) -> str:
        """Half a sentence."""
        return f"evenly spaced arrivals at {self.rate_rps:g} requests/s"


class Burst(Spec):
    """All requests arrive at time 0."""

    random: ClassVar[bool] = False

    process: Literal["burst"]
    num_requests: Count
    """Requests in the pile."""

    def arrivals_s(self, streams: Streams, horizon_s: float | None) -> NDArray[np.float64]:
        """Arrival times, all zero."""
        return np.zeros(self.num_requests)

    def mean_rate_rps(self) -> None:
        """A pile has no rate."""
        return

    def describe(self) -> str:
        """Half a sentence."""
        return f"{self.num_requests} requests at once"


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


class Profile(Renewal):
    """Poisson arrivals whose rate is constant within an hour; after the last hour the profile starts again.

    Time rescaling (Daley and Vere-Jones, An Introduction to the Theory of Point Processes, 2003, section 7.4): request
    i arrives when the integral of the rate reaches the sum of the first i unit exponentials.
    """

    process: Literal["profile"]
    hourly_rps: Annotated[tuple[NonNegative, ...], Field(min_length=1)] | None = None
    """Requests per second in each hour; the first hour begins at time 0. 24 values are a day, 168 a week."""
    shape: str | None = None
    """Instead of `hourly_rps`: an id in data/workloads with hourly rates (servegen-m-small); needs `rate_rps`."""
    rate_rps: Positive | None = None
    """Mean over the profile, to which the hours are scaled. Left out: the hours as they are given."""

    @model_validator(mode="after")
    def _hours_have_requests(self) -> Self:
        if (self.hourly_rps is None) == (self.shape is None):
            raise ValueError("needs one of hourly_rps and shape" + ("" if self.shape is None else ", not both"))
        if self.shape is not None and self.rate_rps is None:
            raise ValueError("shape is only a shape: rate_rps must give its mean")
        if self.hourly_rps is not None and max(self.hourly_rps) == 0:
            raise ValueError("hourly_rps must have an hour with a rate above 0")
        return self

    @property
    def length_s(self) -> float:
        """After so long it starts again. Raises UnknownId."""
        return len(self._hours()[0]) * SECONDS_PER_HOUR

    def mean_rate_rps(self) -> float:
        """Requests per second over whole profiles. Raises UnknownId."""
        return float(np.mean(self._hours()[0]))

    def at_s(self, clock: NDArray[np.float64]) -> NDArray[np.float64]:
        """When the given number of requests is expected to have arrived [s]."""
        rates, expected = self._hours()
        rounds, rest = np.divmod(clock, expected[-1])
        # Hours without requests end where they begin; the last such place is the beginning of an hour that has some.
        hour = np.searchsorted(expected[:-1], rest, side="right") - 1
        hour = np.minimum(hour, np.flatnonzero(rates)[-1])
        times_s: NDArray[np.float64] = (rounds * len(rates) + hour) * SECONDS_PER_HOUR + (
            rest - expected[hour]
        ) / rates[hour]
        return times_s

    def _hours(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Rate in each hour, and requests expected before each hour and in the whole profile."""
        rates = np.array(hourly_table(self.shape).rates if self.shape is not None else self.hourly_rps, np.float64)
        if self.rate_rps is not None:
            rates *= self.rate_rps / rates.mean()
        return rates, np.concatenate([[0.0], np.cumsum(rates * SECONDS_PER_HOUR)])

    def describe(self) -> str:
        """Half a sentence. Raises UnknownId."""
        rates = self._hours()[0]
        name = f"{len(rates)} hourly rates" + (f" of {self.shape}" if self.shape else "")
        return f"Poisson arrivals over {name}, mean {rates.mean():.4g}, peak {rates.max():.4g} requests/s"


Arrivals = Annotated[
    Poisson | Gamma | Constant | ClosedLoop | Burst | Profile,
    Field(discriminator="process"),
]

__all__ = ["Arrivals", "Burst", "ClosedLoop", "Constant", "Gamma", "Poisson", "Profile"]
