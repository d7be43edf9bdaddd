"""Rent that runs from the start of a replica to its stop, in the landlord's steps."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from sim.cost.charge import UnitPrice
from sim.cost.phases import ByPhase, gpu_s_by_phase
from sim.records import Interval
from sim.spec import NonNegative, Positive, Spec
from sim.units import SECONDS_PER_HOUR

OFF = "off"


class Billing(Spec):
    """How a landlord counts time; it matters where a schedule starts and stops replicas."""

    granularity_s: Positive = 1.0
    """A started step is paid whole: 3600 for hours, 1 for seconds."""
    minimum_s: NonNegative = 0.0
    """Least time that a start is paid for."""

    def billed_s(self, ran_s: float) -> float:
        """What is paid for a replica that ran for *ran_s*.

        >>> Billing(granularity_s=3600).billed_s(3700), Billing(minimum_s=600).billed_s(30)
        (7200.0, 600.0)
        """
        # a schedule's times are exact to well below a microsecond, and a whole hour is one hour
        return max(self.minimum_s, ceil(ran_s / self.granularity_s - 1e-9) * self.granularity_s)


class Stop(NamedTuple):
    """The end of a replica's run."""

    at_s: float
    ran_s: float
    gpus: float


@dataclass(frozen=True, slots=True)
class RentedTime:
    """GPU-time of one pool from starts to stops, booked to phases as it was used."""

    component: str
    pool: str
    server: str
    units_per_gpu_h: float
    """Units of `price` for one GPU-hour, for example an eighth of an instance-hour."""
    price: UnitPrice
    billing: Billing
    capex_usd: float = 0.0

    def by_phase(self, interval: Interval) -> ByPhase:
        """GPU-seconds; none while the replica is off."""
        return ByPhase(0.0, 0.0, 0.0, 0.0) if interval.state == OFF else gpu_s_by_phase(interval)

    def quantity(self, followed: float, window_h: float) -> float:
        """Units for the time that replicas ran in the window."""
        return followed / SECONDS_PER_HOUR * self.units_per_gpu_h

    def rounded_up(self, stops: Iterable[Stop]) -> float:
        """Further units for what is paid beyond the time that a replica ran, due when it stops."""
        more_gpu_s = sum((self.billing.billed_s(stop.ran_s) - stop.ran_s) * stop.gpus for stop in stops)
        return more_gpu_s / SECONDS_PER_HOUR * self.units_per_gpu_h


def stops(intervals: Sequence[Interval]) -> list[Stop]:
    """The stops of one pool's replicas. A run that began before the first interval counts from there."""
    found = []
    began: dict[int, float] = {}
    for interval in sorted(intervals, key=lambda one: (one.replica, one.start_s)):
        if interval.state != OFF:
            began.setdefault(interval.replica, interval.start_s)
        elif interval.replica in began:
            start_s = began.pop(interval.replica)
            gpus = interval.gpu_s / (interval.end_s - interval.start_s)
            found.append(Stop(interval.start_s, interval.start_s - start_s, gpus))
    return found
