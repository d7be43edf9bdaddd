"""Arrivals whose rate changes with the hour."""

from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from sim.spec import NonNegative, Positive
from sim.units import SECONDS_PER_HOUR
from sim.workload.arrivals.renewal import Renewal
from sim.workload.published import hourly_table


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
