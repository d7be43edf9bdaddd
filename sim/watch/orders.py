"""Order of further replicas: when the forecast load reaches the capacity, what to order and by when."""

from dataclasses import dataclass
from math import ceil

import numpy as np

from sim.scenario.schema import Fleet, Scenario
from sim.units import HOURS_PER_DAY, HOURS_PER_MONTH
from sim.watch.forecast import Floats, LoadForecast
from sim.watch.observed import HOUR_S

DAY_S = HOURS_PER_DAY * HOUR_S


@dataclass(frozen=True, slots=True)
class CapacityOutlook:
    """First hours in which the load reaches the capacity; None where it does not within the forecast."""

    capacity_rps: float
    """Highest rate within the SLO [1/s]."""
    half_width_rps: float | None
    """Half of the capacity's 95 % interval [1/s]."""
    early: int | None
    """Start of the first hour whose upper end of the 80 % interval is above the capacity [Unix s]."""
    middle: int | None
    """Start of the first hour whose median is above the capacity [Unix s]."""
    late: int | None
    """Start of the first hour whose lower end is above the capacity [Unix s]."""
    busiest_rps: float
    """Highest observed hourly rate of the last week [1/s]."""
    lead_time_days: float
    order_by: int | None
    """`early` less the lead time [Unix s]; None where the capacity suffices.

    Late replicas cost the SLO, early ones a few weeks of money: the order date is that of the early end.
    """
    covered_until: int | None
    """End of the time that the order covers [Unix s]."""
    replicas: int
    """Number of further replicas."""
    needed_rps: float = 0.0
    """Highest median rate of the time that the order covers [1/s]; 0 where nothing is ordered."""

    @property
    def order_by_median(self) -> int | None:
        """`middle` less the lead time [Unix s]; None where the median stays within the capacity."""
        return None if self.middle is None else self.middle - round(self.lead_time_days * DAY_S)


def lead_time_days(scenario: Scenario, fleet: Fleet) -> float | None:
    """Return the time from order to delivery that *scenario* states for *fleet* [days]; None where it states none."""
    own = getattr(fleet.cost, "lead_time_months", None)
    months = own if own is not None else scenario.plan.lead_time_months if scenario.plan is not None else None
    return None if months is None else months * HOURS_PER_MONTH / HOURS_PER_DAY


def outlook_of(
    forecast: LoadForecast,
    capacity_rps: float,
    half_width_rps: float | None,
    busiest_rps: float,
    replicas: int,
    lead_days: float,
    cover_days: float,
) -> CapacityOutlook:
    """Return when *forecast* reaches the capacity, and the order that covers *cover_days* days from then on.

    Parameters
    ----------
    forecast
        Forecast of hourly rates.
    capacity_rps, half_width_rps
        Capacity of the fleet and half of its 95 % interval [1/s].
    busiest_rps
        Highest observed hourly rate of the last week [1/s].
    replicas
        Number of replicas of the fleet.
    lead_days
        Time from order to delivery [days].
    cover_days
        Time from the date at which the median reaches the capacity until which the order suffices [days].

    Notes
    -----
    The capacity is assumed to grow in proportion to the replicas, which a larger fleet exceeds: it has fewer queues.

    """
    early, middle, late = (_first(forecast, rates, capacity_rps) for rates in _ends(forecast))
    if early is None:
        return CapacityOutlook(capacity_rps, half_width_rps, None, middle, late, busiest_rps, lead_days, None, None, 0)
    until = (middle if middle is not None else early) + round(cover_days * DAY_S)
    within = np.asarray(forecast.starts) < until
    needed = float(forecast.median[within].max())
    more = max(1, ceil(replicas * needed / capacity_rps - 1e-9) - replicas)
    order_by = early - round(lead_days * DAY_S)
    return CapacityOutlook(
        capacity_rps, half_width_rps, early, middle, late, busiest_rps, lead_days, order_by, until, more, needed
    )


def with_order(fleet: Fleet, replicas: int) -> Fleet:
    """Return *fleet* with *replicas* more replicas; they keep the ratio of its pools as far as whole numbers can.

    An autoscaled pool may start as many more, and begins with all: its fleet has to serve the highest load at once.
    """
    own = [pool.autoscaling.max_replicas if pool.autoscaling is not None else pool.replicas for pool in fleet.pools]
    more = [0] * len(own)
    for _ in range(replicas):
        more[min(range(len(own)), key=lambda place: ((own[place] + more[place] + 1) / own[place], place))] += 1
    pools = []
    for pool, first, further in zip(fleet.pools, own, more, strict=True):
        if pool.autoscaling is None:
            changed = pool.model_copy(update={"replicas": first + further})
        else:
            scaling = pool.autoscaling.model_copy(update={"max_replicas": first + further})
            changed = pool.model_copy(update={"autoscaling": scaling, "replicas": first + further})
        pools.append(changed)
    return fleet.model_copy(update={"name": f"{fleet.name} + {replicas}", "pools": tuple(pools)})


def _ends(forecast: LoadForecast) -> tuple[Floats, Floats, Floats]:
    return forecast.high, forecast.median, forecast.low


def _first(forecast: LoadForecast, rates: Floats, capacity_rps: float) -> int | None:
    """Return the start of the first hour with a rate above the capacity; None where there is none."""
    above = np.flatnonzero(rates > capacity_rps)
    return int(forecast.starts[above[0]]) if above.size else None
