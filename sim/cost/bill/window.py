"""Meter readings of a fleet in a window, the input of every charge."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import floor, fsum
from typing import NamedTuple

import numpy as np

from sim.records import Interval
from sim.units import SECONDS_PER_HOUR

NOT_RENTED = frozenset({"off", "provisioning", "repairing"})
"""States of a replica that a landlord who bills by the time switched on does not count."""
DEMAND_INTERVAL_S = 900.0
"""Interval over which utilities average power to find a peak [s]."""


class Stop(NamedTuple):
    """End of a replica's run: its time [s], the length of the run [s] and the replica's GPUs."""

    at_s: float
    ran_s: float
    gpus: float


@dataclass(frozen=True, slots=True)
class Window:
    """Meter readings of one interval of simulated time, or of several of one fleet taken together."""

    hours: float
    intervals: Mapping[str, Sequence[Interval]] = field(default_factory=dict)
    """Pool -> its meter intervals inside."""
    stops: Mapping[str, Sequence[Stop]] = field(default_factory=dict)
    """Pool -> ends of replicas' runs that fall due inside."""
    parts: "tuple[Window, ...]" = ()
    """The stretches that it was put together from; none for a single one."""
    _peaks: dict[tuple[str, ...], dict[str, float]] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, intervals: Iterable[Interval], start_s: float, end_s: float) -> "Window":
        """Return the readings in [start, end) [s]. Intervals outside show only how long a replica had run before it
        stopped inside; none may straddle an edge.
        """
        every: dict[str, list[Interval]] = {}
        inside: dict[str, list[Interval]] = {}
        for interval in intervals:
            every.setdefault(interval.pool, []).append(interval)
            if interval.is_within(start_s, end_s):
                inside.setdefault(interval.pool, []).append(interval)
        due = {pool: [stop for stop in stops(found) if start_s <= stop.at_s < end_s] for pool, found in every.items()}
        return cls((end_s - start_s) / SECONDS_PER_HOUR, inside, due)

    def peak_kw(self, pools: tuple[str, ...]) -> dict[str, float]:
        """Return the power of each of *pools* at the servers' plugs in the demand interval with the highest total [kW].

        The window is divided into as many equal intervals as have 15 minutes or more; a shorter one is a single one.
        Within a meter interval power is taken as even.
        """
        if pools not in self._peaks:
            self._peaks[pools] = self._peak_kw(pools)
        return self._peaks[pools]

    def _peak_kw(self, pools: tuple[str, ...]) -> dict[str, float]:
        metered = [(pool, interval) for pool in pools for interval in self.intervals.get(pool, ())]
        if not metered:
            return dict.fromkeys(pools, 0.0)
        start_s, end_s = min(one.start_s for _, one in metered), max(one.end_s for _, one in metered)
        count = max(1, floor((end_s - start_s) / DEMAND_INTERVAL_S))
        length_s = (end_s - start_s) / count
        joules = {pool: np.zeros(count) for pool in pools}
        edges_s = start_s + length_s * np.arange(count + 1)
        for pool, one in metered:
            overlap_s = np.diff(np.clip(edges_s, one.start_s, one.end_s))
            joules[pool] += overlap_s * (one.server_energy_j / (one.end_s - one.start_s))
        highest = int(np.argmax(sum(joules.values())))
        return {pool: float(drawn[highest]) / length_s / 1000 for pool, drawn in joules.items()}


ONE_HOUR = Window(1.0)
"""Window of an hour without meter readings, in which only charges per hour have an amount."""


def together(windows: Sequence[Window]) -> Window:
    """Return several windows of one fleet as one."""
    intervals: dict[str, list[Interval]] = {}
    ends: dict[str, list[Stop]] = {}
    for window in windows:
        for pool, found in window.intervals.items():
            intervals.setdefault(pool, []).extend(found)
        for pool, due in window.stops.items():
            ends.setdefault(pool, []).extend(due)
    parts = tuple(part for window in windows for part in (window.parts or (window,)))
    return Window(fsum(window.hours for window in windows), intervals, ends, parts)


def stops(intervals: Sequence[Interval]) -> list[Stop]:
    """Return the stops of one pool's replicas. A run that began before the first interval counts from there."""
    if all(interval.state not in NOT_RENTED for interval in intervals):
        return []
    found = []
    began: dict[int, float] = {}
    for interval in sorted(intervals, key=lambda one: (one.replica, one.start_s)):
        if interval.state not in NOT_RENTED:
            began.setdefault(interval.replica, interval.start_s)
        elif interval.replica in began:
            start_s = began.pop(interval.replica)
            gpus = interval.gpu_s / (interval.end_s - interval.start_s)
            found.append(Stop(interval.start_s, interval.start_s - start_s, gpus))
    return found
