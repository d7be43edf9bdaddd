"""Hourly observations of a fleet: rates and means from the differences of its counters, and means of its gauges.

Counters restart from zero with their server, and series are absent while nothing collects them:

- A value below the one before is a restart: it counts from zero. What the server counted between the last sample and
  the restart is lost.
- A gap of up to BRIDGED_S is bridged: the difference is divided evenly over it. Nothing is derived for longer gaps.
- Prometheus repeats the last value for five minutes after it has stopped collecting. Repeated values before a gap are
  part of the gap.
- A series that appears on a server already seen (its first request of a kind) counts from zero; a series that appears
  with its server counts from its first value.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from math import inf

import numpy as np
from numpy.typing import NDArray

from sim.benchdata.served.metrics import SAME_REQUESTS, TARGET
from sim.benchdata.served.scrapes import CUMULATIVE, NAMES, Series, labelled
from sim.units import SECONDS_PER_HOUR
from sim.watch.source import Points, RestartedPoints, refuse_mixture

Floats = NDArray[np.float64]
HOUR_S = int(SECONDS_PER_HOUR)
STEP_S = 60
"""Time between the samples that are read [s]."""
BRIDGED_S = 600
"""Longest gap over which a counter's difference is used [s]."""
LOOKBACK_S = 300
"""Time for which Prometheus repeats a value after the last sample [s]."""
LEAST_COVERED = 0.75
"""Least fraction of an hour with samples, from which its rates and means are used [1]."""


@dataclass(frozen=True, slots=True)
class HourObserved:
    """Observation of one hour of the whole fleet; rates refer to the covered time, None is not known."""

    hour: int
    """Start of the hour [Unix s]."""
    covered_s: float
    """Time with samples [s]."""
    servers: float = 0.0
    """Mean number of servers with samples."""
    restarts: int = 0
    """Number of servers whose counters restarted."""
    requests: float = 0.0
    """Requests that got their first token."""
    completed: float = 0.0
    prompt_tokens: float | None = None
    """Mean prompt length [tokens]."""
    output_tokens: float | None = None
    """Mean answer length [tokens]."""
    output_tokens_per_s: float | None = None
    ttft_s_mean: float | None = None
    ttft_s_p95: float | None = None
    """95th percentile of TTFT, interpolated within its bucket [s]."""
    tpot_s_mean: float | None = None
    """Mean time between tokens [s]."""
    e2e_s_mean: float | None = None
    running: float | None = None
    """Mean number of running requests."""
    waiting: float | None = None
    """Mean number of waiting requests."""
    kv_used_fraction: float | None = None
    """Mean fill level of the KV caches [1]."""
    gpu_power_w_mean: float | None = None
    """Power of all GPUs [W]."""

    @property
    def usable(self) -> bool:
        """True if enough of the hour was observed."""
        return self.covered_s >= LEAST_COVERED * HOUR_S

    @property
    def rate_rps(self) -> float:
        """Request rate over the covered time [1/s]."""
        return self.requests / self.covered_s if self.covered_s else 0.0


@dataclass(slots=True)
class _Server:
    """Samples of one server on the grid; NaN where there are none."""

    counters: dict[Series, Floats]
    gauges: dict[Series, Floats]
    seen: NDArray[np.bool_]
    begun: dict[Series, NDArray[np.bool_]]
    """Mask of the grid points at which a counter states a restart, for counters that state any."""

    def drop_repeated(self) -> None:
        """Drop the values that Prometheus repeated before each gap."""
        moved = np.zeros(len(self.seen), bool)
        for values in self.counters.values():
            moved[1:] |= (np.nan_to_num(np.diff(values)) != 0) | (np.isnan(values[:-1]) & ~np.isnan(values[1:]))
        for gap in (np.flatnonzero(self.seen[:-1] & ~self.seen[1:]) + 1).tolist():
            first = max(0, gap - LOOKBACK_S // STEP_S)
            still = [place for place in range(first, gap) if not moved[place:gap].any()]
            self.seen[still] = False
            for values in (*self.counters.values(), *self.gauges.values()):
                values[still] = np.nan


def increases(values: Floats, seen: NDArray[np.bool_], begun: NDArray[np.bool_] | None = None) -> tuple[Floats, int]:
    """Return the growth of a counter in each interval of the grid, and the number of its restarts.

    Parameters
    ----------
    values
        Samples of the counter at the points of the grid; NaN where there is none.
    seen
        Whether the server has samples at each point.
    begun
        Whether the counter states a restart at each point, even if its value does not fall; None: it states none.

    Returns
    -------
    tuple
        Growth in the interval that ends at each point, and restarts. With no gap above BRIDGED_S, the sum of the growth
        is what the counter counted while it was sampled.

    """
    grown = np.zeros(len(values))
    known = np.flatnonzero(~np.isnan(values))
    if not known.size:
        return grown, 0
    if known[0] > 0 and seen[known[0] - 1]:
        grown[known[0]] = values[known[0]]
    before, at = known[:-1], known[1:]
    bridged = (at - before) * STEP_S <= BRIDGED_S
    restarted = values[at] < values[before]
    if begun is not None:
        stated = np.cumsum(begun)
        restarted |= stated[at] > stated[before]
    grown_per_step = (values[at] - np.where(restarted, 0.0, values[before])) / (at - before)
    grown[known[0] + 1 : known[-1] + 1] += np.repeat(np.where(bridged, grown_per_step, 0.0), at - before)
    return grown, int((restarted & bridged).sum())


def observed_hours(
    series: Mapping[Series, Points], power: Sequence[Points], start: int, hours: int, shown: str
) -> list[HourObserved]:
    """Return the observations of *hours* hours from *start*.

    Parameters
    ----------
    series
        Samples from *start* minus BRIDGED_S on, at multiples of STEP_S.
    power
        Power of each GPU [W].
    start
        Start of the first hour [Unix s].
    hours
        Number of hours.
    shown
        Address of the server, for messages.

    Raises
    ------
    MixedSeries
        The series are of several engines or models.

    """
    refuse_mixture(series, shown)
    engine = next((name.partition(":")[0] for name, _ in series), "vllm")
    size = (hours * HOUR_S + BRIDGED_S) // STEP_S + 1
    first_s = start - BRIDGED_S
    servers = _servers(series, first_s, size)
    fleet = _FleetSeries(engine, servers, size)
    drawn = [_on_grid(points, first_s, size) for points in power]
    found = []
    for place in range(hours):
        begin = (place * HOUR_S + BRIDGED_S) // STEP_S + 1
        found.append(fleet.hour(start + place * HOUR_S, slice(begin, begin + HOUR_S // STEP_S), drawn))
    return found


def _servers(series: Mapping[Series, Points], first_s: float, size: int) -> list[_Server]:
    found: dict[tuple[str, ...], _Server] = {}
    for one, points in series.items():
        labels = labelled(one)
        target = tuple(labels.get(name, "") for name in TARGET)
        server = found.setdefault(target, _Server({}, {}, np.zeros(size, bool), {}))
        values = _on_grid(points, first_s, size)
        if one[0].endswith(CUMULATIVE):
            server.counters[one] = values
            server.seen |= ~np.isnan(values)
            if isinstance(points, RestartedPoints) and points.restarts:
                server.begun[one] = ~np.isnan(_on_grid(dict.fromkeys(points.restarts, 1.0), first_s, size))
        else:
            server.gauges[one] = values
    for server in found.values():
        server.drop_repeated()
    return [one for one in found.values() if one.counters]


def _on_grid(points: Points, first_s: float, size: int) -> Floats:
    values = np.full(size, np.nan)
    for at_s, value in points.items():
        place = round((at_s - first_s) / STEP_S)
        if 0 <= place < size:
            values[place] = value
    return values


class _FleetSeries:
    """Growth of the counters of all servers, by kind of metric."""

    def __init__(self, engine: str, servers: Sequence[_Server], size: int) -> None:
        self._names = {what: [f"{engine}:{name}" for name in names] for what, names in NAMES[engine].items()}
        self._servers, self._size = servers, size
        self._covered = np.zeros(size, bool)
        self._restarted = np.zeros(size)
        self._grown: dict[tuple[str, str], Floats] = {}
        self._buckets: dict[float, Floats] = {}
        for server in servers:
            self._add(server)
            self._covered |= _bridged(server.seen)

    def _add(self, server: _Server) -> None:
        names = {name for name, _ in server.counters}
        kept: dict[tuple[str, tuple[tuple[str, str], ...]], Floats] = {}
        fell = np.zeros(self._size, bool)
        for (name, labels), values in server.counters.items():
            own = (name, tuple(label for label in labels if label[0] not in SAME_REQUESTS))
            begun = server.begun.get((name, labels))
            grown, restarts = increases(values, server.seen, begun)
            if restarts:
                fell[1:] |= np.diff(_filled(values)) < 0
                fell |= False if begun is None else begun
            before = kept.get(own)
            kept[own] = grown if before is None or grown.sum() > before.sum() else before
        self._restarted += fell
        for what, ours in self._names.items():
            for end in ("", "_count", "_sum"):
                chosen = next((f"{one}{end}" for one in ours if f"{one}{end}" in names), None)
                if chosen is not None:
                    for (name, _), grown in kept.items():
                        if name == chosen:
                            self._grown[what, end] = self._grown.get((what, end), 0.0) + grown
        ttft = next((f"{one}_bucket" for one in self._names["ttft"] if f"{one}_bucket" in names), None)
        for (name, labels), grown in kept.items():
            end_s = _bound(dict(labels).get("le", "")) if name == ttft else None
            if end_s is not None:
                self._buckets[end_s] = self._buckets.get(end_s, 0.0) + grown

    def hour(self, start: int, when: slice, power: Sequence[Floats]) -> HourObserved:
        """Return the observation of the hour from *start*, which has the points *when* of the grid."""
        covered_s = float(self._covered[when].sum() * STEP_S)
        if not covered_s:
            return HourObserved(start, 0.0)
        seen = sum((server.seen[when].astype(float) for server in self._servers), np.zeros(HOUR_S // STEP_S))
        begun, ended = self._total("ttft", when, "_count"), self._total("e2e", when, "_count")
        ended = self._total("ended", when) if ended is None else ended
        begun = ended if begun is None else begun
        made = self._total("output_sum", when)
        return HourObserved(
            start,
            covered_s,
            servers=float(seen[seen > 0].mean()) if (seen > 0).any() else 0.0,
            restarts=int(self._restarted[when].sum()),
            requests=begun or 0.0,
            completed=ended or 0.0,
            prompt_tokens=_ratio(self._total("prompt_sum", when), begun),
            output_tokens=_ratio(made, ended),
            output_tokens_per_s=None if made is None else made / covered_s,
            ttft_s_mean=self._mean("ttft", when),
            ttft_s_p95=self._percentile(0.95, when),
            tpot_s_mean=self._mean("itl", when),
            e2e_s_mean=self._mean("e2e", when),
            running=self._gauge("running", when),
            waiting=self._gauge("waiting", when),
            kv_used_fraction=self._gauge("kv_used", when, mean=True),
            gpu_power_w_mean=_sum_of_means(power, when),
        )

    def _total(self, what: str, when: slice, end: str = "") -> float | None:
        grown = self._grown.get((what, end))
        return None if grown is None else float(grown[when].sum())

    def _mean(self, what: str, when: slice) -> float | None:
        return _ratio(self._total(what, when, "_sum"), self._total(what, when, "_count"))

    def _percentile(self, share: float, when: slice) -> float | None:
        ends = sorted(self._buckets)
        upto = [float(self._buckets[end][when].sum()) for end in ends]
        if ends and ends[-1] < inf:  # dropped by a relabelling rule: it counts all
            ends.append(inf)
            upto.append(max(upto[-1], self._total("ttft", when, "_count") or 0.0))
        if not upto or upto[-1] <= 0:
            return None
        wanted, low, below = share * upto[-1], 0.0, 0.0
        for end, count in zip(ends, upto, strict=True):
            if count >= wanted:
                return low if end == inf else low + (end - low) * (wanted - below) / max(count - below, 1e-12)
            low, below = end, count
        return low

    def _gauge(self, what: str, when: slice, mean: bool = False) -> float | None:
        """Return the mean over time of a gauge's sum, or *mean*, over the servers."""
        each = []
        for server in self._servers:
            for name in self._names.get(what, ()):
                own = [values[when] for (one, _), values in server.gauges.items() if one == name]
                if own:
                    each += own
                    break
        if not each or np.isnan(np.stack(each)).all():
            return None
        rows = np.stack(each)
        known = ~np.isnan(rows)
        total, count = np.where(known, rows, 0.0).sum(axis=0), known.sum(axis=0)
        return float((total / np.maximum(count, 1) if mean else total)[count > 0].mean())


def _bound(text: str) -> float | None:
    """Return the upper end of a bucket [s]; None where its label is no number."""
    with suppress(ValueError):
        return end_s if (end_s := float(text)) > 0 else None
    return None


def _bridged(seen: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return whether each interval of the grid lies between two samples at most BRIDGED_S apart."""
    found = np.zeros(len(seen), bool)
    for before, at in pairwise(np.flatnonzero(seen).tolist()):
        if (at - before) * STEP_S <= BRIDGED_S:
            found[before + 1 : at + 1] = True
    return found


def _filled(values: Floats) -> Floats:
    """Return *values* with the value before in place of each missing one."""
    places = np.where(np.isnan(values), 0, np.arange(len(values)))
    return np.asarray(values[np.maximum.accumulate(places)])


def _ratio(top: float | None, bottom: float | None) -> float | None:
    return top / bottom if top is not None and bottom else None


def _sum_of_means(rows: Iterable[Floats], when: slice) -> float | None:
    """Return the sum of the means over time; None where less than LEAST_COVERED of the time has samples."""
    parts = [values[when] for values in rows]
    known = [one[~np.isnan(one)] for one in parts]
    if not parts or not any(len(one) >= LEAST_COVERED * HOUR_S / STEP_S for one in known):
        return None
    return float(sum(one.mean() for one in known if one.size))
