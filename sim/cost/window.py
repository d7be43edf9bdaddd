"""What was metered of a fleet in a window: all that a charge may know of it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sim.records import Interval
from sim.units import SECONDS_PER_HOUR

OFF = "off"


class Stop(NamedTuple):
    """The end of a replica's run."""

    at_s: float
    ran_s: float
    gpus: float


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of simulated time, or several of one fleet taken together."""

    hours: float
    intervals: Mapping[str, Sequence[Interval]] = field(default_factory=dict)
    """Pool -> its meter intervals inside."""
    stops: Mapping[str, Sequence[Stop]] = field(default_factory=dict)
    """Pool -> ends of replicas' runs that fall due inside."""

    @classmethod
    def of(cls, intervals: Iterable[Interval], start_s: float, end_s: float) -> "Window":
        """[start, end) [s]. Intervals outside tell only how long a replica had run before it stopped inside; none may
        straddle an edge.
        """
        every: dict[str, list[Interval]] = {}
        inside: dict[str, list[Interval]] = {}
        for interval in intervals:
            every.setdefault(interval.pool, []).append(interval)
            if start_s <= (interval.start_s + interval.end_s) / 2 < end_s:
                inside.setdefault(interval.pool, []).append(interval)
        due = {pool: [stop for stop in stops(found) if start_s <= stop.at_s < end_s] for pool, found in every.items()}
        return cls((end_s - start_s) / SECONDS_PER_HOUR, inside, due)


def stops(intervals: Sequence[Interval]) -> list[Stop]:
    """The stops of one pool's replicas. A run that began before the first interval counts from there."""
    if all(interval.state != OFF for interval in intervals):
        return []
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
