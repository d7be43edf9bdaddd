"""Arrival processes: at a rate, by hourly rates, all at once, or from clients that wait for responses.

To add a process: a class here, and its name in `Arrivals`.
"""

from abc import ABC, abstractmethod
from math import ceil, inf
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from sim.message import Message
from sim.spec import Count, NonNegative, Positive, Spec, Tagged
from sim.units import SECONDS_PER_HOUR
from sim.workload.published import hourly_table
from sim.workload.requests import Streams, uniforms

MOST_AT_ONCE = 1 << 20


class OpenLoop(Spec):
    """Arrivals that do not depend on the fleet."""

    random: ClassVar[bool] = True

    num_requests: Count | None = None
    """Maximum number of requests."""


class Renewal(OpenLoop, ABC):
    """Renewal process with gaps of mean 1 on a clock that counts expected requests; the rate scales it to seconds.

    Gap i is the same number at every rate: at twice the rate the same requests arrive in half the time. The gaps are
    consecutive numbers of the stream `arrivals`.
    """

    def arrivals_s(self, streams: Streams, horizon_s: float | None) -> NDArray[np.float64]:
        """Return the arrival times before *horizon_s*, ascending [s]. Without a horizon, `num_requests` ends them."""
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
            # Starting the sum with the running total keeps the additions in the order of a single draw.
            clock = np.cumsum(np.concatenate([[elapsed], self.unit_gaps(generator, count)]))[1:]
            times.append(self.at_s(clock))
            elapsed, drawn = float(clock[-1]), drawn + count
            if times[-1][-1] >= end_s:
                break
        arrivals = np.concatenate(times)
        return arrivals[: np.searchsorted(arrivals, end_s)]

    def unit_gaps(self, generator: "np.random.Generator", count: int) -> NDArray[np.float64]:
        """Return the next *count* gaps, of mean 1."""
        return generator.standard_exponential(count)

    def at_s(self, clock: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the times at which *clock* requests are expected to have arrived [s]."""
        return clock / self.mean_rate_rps()

    @abstractmethod
    def mean_rate_rps(self) -> float:
        """Return the long-run mean rate [requests/s]."""


class Poisson(Renewal):
    """Poisson process: exponential gaps of mean 1 / rate."""

    process: Literal["poisson"]
    rate_rps: Positive
    """Mean rate [requests/s]."""

    def mean_rate_rps(self) -> float:
        """Return the long-run mean rate [requests/s]."""
        return self.rate_rps

    def describe(self) -> str:
        """Return a description, as part of a sentence."""
        return Message("Poisson arrivals at {rate_rps:g} requests/s", self.rate_rps)


class Gamma(Renewal):
    """Renewal process with gamma gaps of shape 1/cv^2 and mean 1/rate; cv 1 equals Poisson, draw for draw."""

    process: Literal["gamma"]
    rate_rps: Positive
    """Mean rate [requests/s]."""
    cv: Positive
    """Coefficient of variation of the gaps (standard deviation over mean). `burstiness` of vLLM's benchmark is 1/cv^2.
    """

    def unit_gaps(self, generator: "np.random.Generator", count: int) -> NDArray[np.float64]:
        """Return the next *count* gaps, of mean 1."""
        shape = self.cv**-2
        return generator.standard_gamma(shape, count) / shape

    def mean_rate_rps(self) -> float:
        """Return the long-run mean rate [requests/s]."""
        return self.rate_rps

    def describe(self) -> str:
        """Return a description, as part of a sentence."""
        return Message("gamma arrivals at {rate_rps:g} requests/s (cv {cv:g})", self.rate_rps, self.cv)


class Constant(OpenLoop):
    """Evenly spaced arrivals: request i at i / rate, the first at 0."""

    random: ClassVar[bool] = False

    process: Literal["constant"]
    rate_rps: Positive
    """Rate [requests/s]."""

    def arrivals_s(self, streams: Streams, horizon_s: float | None) -> NDArray[np.float64]:
        """Return the arrival times before *horizon_s*, ascending [s]. Without a horizon, `num_requests` ends them."""
        count = self.num_requests
        if horizon_s is not None:
            fitting = ceil(horizon_s * self.rate_rps) + 1
            count = fitting if count is None else min(count, fitting)
        if count is None:
            raise ValueError("arrivals without an end: give horizon_s or num_requests")
        arrivals = np.arange(count) / self.rate_rps
        return arrivals if horizon_s is None else arrivals[: np.searchsorted(arrivals, horizon_s)]

    def mean_rate_rps(self) -> float:
        """Return the rate [requests/s]."""
        return self.rate_rps

    def describe(self) -> str:
        """Return a description, as part of a sentence."""
        return Message("evenly spaced arrivals at {rate_rps:g} requests/s", self.rate_rps)


class Burst(Spec):
    """Burst: all requests arrive at time 0."""

    random: ClassVar[bool] = False

    process: Literal["burst"]
    num_requests: Count
    """Number of requests in the burst."""

    def arrivals_s(self, streams: Streams, horizon_s: float | None) -> NDArray[np.float64]:
        """Return the arrival times, all 0 [s]."""
        return np.zeros(self.num_requests)

    def mean_rate_rps(self) -> None:
        """Return None: a burst has no rate."""
        return

    def describe(self) -> str:
        """Return a description, as part of a sentence."""
        return Message("{num_requests} requests at once", self.num_requests)


class ClosedLoop(Spec):
    """Closed loop: each client sends its next request a think time after its last response is complete.

    People have random think times and start one by one. A benchmark's clients have a constant think time and start
    together: in simulations they stay synchronised, and measured latencies are worse than those of people.
    """

    process: Literal["closed_loop"]
    concurrency: Count
    """Number of clients."""
    think_s: NonNegative = 0.0
    """Think time between a response and the client's next request; the mean if random [s]."""
    pauses: Literal["random", "constant"] = "random"
    """Think times. random: exponential, and each client starts after its first; constant: all clients start at time 0.
    """
    num_requests: Count | None = None
    """Maximum number of requests, of all clients together."""

    @property
    def random(self) -> bool:
        """True if think times are drawn."""
        return self.think_s > 0 and self.pauses == "random"

    def think_times_s(self, streams: Streams, stream: str, start: int, count: int) -> NDArray[np.float64]:
        """Return the think times *start* to *start + count* of the random *stream* [s]."""
        if not self.random:
            return np.full(count, self.think_s)
        return -self.think_s * np.log(uniforms(streams, stream, start, count))

    def mean_rate_rps(self) -> None:
        """Return None: the fleet's response times determine the rate."""
        return

    def describe(self) -> str:
        """Return a description, as part of a sentence."""
        mean = "a mean of " if self.random else ""
        pause = Message(", {mean}{think_s:g} s after the last answer", mean, self.think_s) if self.think_s else ""
        clients = "1 client sends" if self.concurrency == 1 else Message("{concurrency} clients send", self.concurrency)
        return Message("{clients} one request at a time{pause}", clients, pause)


class Profile(Renewal):
    """Poisson arrivals with a constant rate within each hour; the profile repeats after its last hour.

    Notes
    -----
    Time rescaling: request i arrives when the integral of the rate reaches the sum of the first i unit exponentials.

    References
    ----------
    Daley and Vere-Jones, An Introduction to the Theory of Point Processes, 2003, section 7.4.

    """

    process: Literal["profile"]
    hourly_rps: Annotated[tuple[NonNegative, ...], Field(min_length=1)] | None = None
    """Rate in each hour, starting at time 0 [requests/s]; 24 values are a day, 168 a week."""
    shape: str | None = None
    """Id in data/workloads of hourly rates (servegen-m-small), in place of `hourly_rps`; requires `rate_rps`."""
    rate_rps: Positive | None = None
    """Mean rate over the profile, to which the hours are scaled [requests/s]; default: the hourly rates as given."""

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
        """Period of the profile [s]. Raises UnknownId."""
        return len(self._hours()[0]) * SECONDS_PER_HOUR

    def mean_rate_rps(self) -> float:
        """Return the mean rate over whole profiles [requests/s]. Raises UnknownId."""
        return float(np.mean(self._hours()[0]))

    def at_s(self, clock: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the times at which *clock* requests are expected to have arrived [s]."""
        rates, expected = self._hours()
        rounds, rest = np.divmod(clock, expected[-1])
        # Hours without requests have equal start and end in `expected`; the last match is an hour with requests.
        hour = np.searchsorted(expected[:-1], rest, side="right") - 1
        hour = np.minimum(hour, np.flatnonzero(rates)[-1])
        times_s: NDArray[np.float64] = (rounds * len(rates) + hour) * SECONDS_PER_HOUR + (
            rest - expected[hour]
        ) / rates[hour]
        return times_s

    def _hours(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the rate in each hour, and the requests expected before each hour and in the whole profile."""
        rates = np.array(hourly_table(self.shape).rates if self.shape is not None else self.hourly_rps, np.float64)
        if self.rate_rps is not None:
            rates *= self.rate_rps / rates.mean()
        return rates, np.concatenate([[0.0], np.cumsum(rates * SECONDS_PER_HOUR)])

    def describe(self) -> str:
        """Return a description, as part of a sentence. Raises UnknownId."""
        rates = self._hours()[0]
        name = Message("{count} hourly rates", len(rates)) + (f" of {self.shape}" if self.shape else "")
        return Message(
            "Poisson arrivals over {name}, mean {mean:.4g}, peak {max:.4g} requests/s", name, rates.mean(), rates.max()
        )


Arrivals = Annotated[
    Poisson | Gamma | Constant | ClosedLoop | Burst | Profile,
    Tagged("process"),
]

__all__ = ["Arrivals", "Burst", "ClosedLoop", "Constant", "Gamma", "Poisson", "Profile"]
