"""Arrivals whose rate changes with the hour."""

from functools import cached_property
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from sim.spec import NonNegative, Positive
from sim.units import SECONDS_PER_HOUR
from sim.workload.arrivals.renewal import Renewal


class Profile(Renewal):
    """Poisson arrivals whose rate is constant within an hour; after the last hour the profile starts again.

    Time rescaling (Daley and Vere-Jones, An Introduction to the Theory of Point Processes, 2003, section 7.4): request
    i arrives when the integral of the rate reaches the sum of the first i unit exponentials.
    """

    process: Literal["profile"]
    hourly_rps: Annotated[tuple[NonNegative, ...], Field(min_length=1)]
    """Requests per second in each hour; the first hour begins at time 0. 24 values are a day, 168 a week."""
    rate_rps: Positive | None = None
    """Mean over the profile. With it `hourly_rps` gives only the shape and is scaled to this mean."""

    @model_validator(mode="after")
    def _some_hour_has_requests(self) -> Self:
        if max(self.hourly_rps) == 0:
            raise ValueError("hourly_rps must have an hour with a rate above 0")
        return self

    def mean_rate_rps(self) -> float:
        """Requests per second over whole profiles."""
        return self.rate_rps or float(np.mean(self.hourly_rps))

    def at_s(self, clock: NDArray[np.float64]) -> NDArray[np.float64]:
        """When so many requests are expected to have come [s]."""
        rates, expected = self._hours
        rounds, rest = np.divmod(clock, expected[-1])
        # Hours without requests end where they begin; the last such place is the beginning of an hour that has some.
        hour = np.searchsorted(expected[:-1], rest, side="right") - 1
        hour = np.minimum(hour, np.flatnonzero(rates)[-1])
        times_s: NDArray[np.float64] = (rounds * len(rates) + hour) * SECONDS_PER_HOUR + (
            rest - expected[hour]
        ) / rates[hour]
        return times_s

    @cached_property
    def _hours(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Rate in each hour, and requests expected before each hour and in the whole profile."""
        shape = np.array(self.hourly_rps)
        rates = shape * (self.mean_rate_rps() / shape.mean())
        return rates, np.concatenate([[0.0], np.cumsum(rates * SECONDS_PER_HOUR)])

    def describe(self) -> str:
        """Half a sentence."""
        hours = len(self.hourly_rps)
        peak = self.mean_rate_rps() * max(self.hourly_rps) / np.mean(self.hourly_rps)
        return f"Poisson arrivals over {hours} hourly rates, mean {self.mean_rate_rps():g}, peak {peak:g} requests/s"
