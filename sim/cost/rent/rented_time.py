"""Rent that runs from the start of a replica to its stop, in the landlord's steps."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import ClassVar

from sim.cost.bill.charge import Follows, Metered, Paid, UnitPrice
from sim.cost.bill.phases import ALL_USED, ByPhase, Unused, gpu_s_by_phase
from sim.cost.bill.window import NOT_RENTED, Stop, Window
from sim.records import Interval
from sim.spec import NonNegative, Positive, Spec
from sim.units import SECONDS_PER_HOUR


class Billing(Spec):
    """How a landlord counts time; it matters where a schedule starts and stops replicas."""

    granularity_s: Positive = 1.0
    """A started step is paid whole: 3600 for hours, 1 for seconds."""
    minimum_s: NonNegative = 0.0
    """Least time that a start is paid for."""

    def billed_s(self, ran_s: float) -> float:
        """Return the time that is paid for a replica that ran for *ran_s* [s].

        >>> Billing(granularity_s=3600).billed_s(3700), Billing(minimum_s=600).billed_s(30)
        (7200.0, 600.0)
        """
        # a schedule's times are exact to well below a microsecond, and a whole hour is one hour
        return max(self.minimum_s, ceil(ran_s / self.granularity_s - 1e-9) * self.granularity_s)


@dataclass(frozen=True, slots=True)
class RentedTime(Metered):
    """GPU-time of one pool from starts to stops, booked to phases as it was used; `RoundedUpTime` has what is paid
    beyond the stops.
    """

    component: str
    pool: str
    server: str
    units_per_gpu_h: float
    """Units of `price` for one GPU-hour, for example an eighth of an instance-hour."""
    price: UnitPrice
    billing: Billing
    unused: Unused = ALL_USED

    paid: ClassVar[Paid] = Paid.SWITCHED_ON
    follows: ClassVar[Follows] = Follows.RENT

    def by_phase(self, interval: Interval) -> ByPhase | None:
        """GPU-seconds; none while the replica is not rented."""
        if interval.state in NOT_RENTED:
            return ByPhase(0.0, 0.0, 0.0, 0.0)
        return gpu_s_by_phase(interval).without_use(self.unused)

    def quantity(self, followed: float, window: Window) -> float:
        """Units for the time that replicas ran in *window*."""
        return followed / SECONDS_PER_HOUR * self.units_per_gpu_h


ALL_IDLE = Unused(1.0, "idle")


@dataclass(frozen=True, slots=True)
class RoundedUpTime(RentedTime):
    """GPU-time of one pool that is paid beyond the stops of its replicas: idle time, which no request has caused."""

    unused: Unused = ALL_IDLE

    def by_phase(self, interval: Interval) -> ByPhase | None:
        """GPU-seconds in which the replica is not rented."""
        return ByPhase.only(self.unused.phase, interval.gpu_s) if interval.state in NOT_RENTED else None

    def quantity(self, followed: float, window: Window) -> float:
        """Units that the stops in *window* are rounded up by."""
        gpu_s = sum((self.billing.billed_s(stop.ran_s) - stop.ran_s) * stop.gpus for stop in self._stops(window))
        return gpu_s / SECONDS_PER_HOUR * self.units_per_gpu_h

    def _stops(self, window: Window) -> Sequence[Stop]:
        return window.stops.get(self.pool, ())
