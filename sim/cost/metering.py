"""Meter readings of a fleet in a window, split into phases: the input of every charge.

A phase is the use of a replica's time and energy: prefill, decode, recompute, idle, booting and the others of
`PHASES`. Costs are split in the same way.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import floor, fsum
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from sim.records import Interval
from sim.units import SECONDS_PER_HOUR

Phase = Literal[
    "prefill", "decode", "recompute", "idle", "booting", "held", "failed", "reserve", "unused", "unused commitment"
]
PHASES: tuple[Phase, ...] = get_args(Phase)
OF_STATE: dict[str, Phase] = {
    "provisioning": "booting",
    "booting": "booting",
    "loading": "booting",
    "failed": "failed",
    "repairing": "failed",
    "reserve": "reserve",
}
"""State of a replica that does no work -> phase of all its time; a replica that is off is idle."""


class ByPhase(NamedTuple):
    """Quantity split by phase; fields are in the order of PHASES."""

    prefill: float
    decode: float
    recompute: float
    idle: float
    booting: float = 0.0
    """Part of replicas that are switched on but do not serve yet."""
    held: float = 0.0
    """Part of GPUs that an inference service occupies in a cluster of jobs."""
    failed: float = 0.0
    """Part of replicas that have failed or are under repair."""
    reserve: float = 0.0
    """Part of spare replicas and of sleeping replicas."""
    unused: float = 0.0
    """Part of GPUs that no replica uses in rented instances and in servers bought with their GPUs."""
    unused_commitment: float = 0.0
    """Part of reserved GPUs that no replica uses."""

    @classmethod
    def only(cls, phase: Phase, amount: float) -> "ByPhase":
        """Return all of *amount* in one phase."""
        return cls(*(amount if name == phase else 0.0 for name in PHASES))

    def scaled(self, factor: float) -> "ByPhase":
        """Return every part times *factor*."""
        return ByPhase(*(part * factor for part in self))

    def with_idle_share(self, unused: "IdleShare") -> "ByPhase":
        """Return these parts with the unused share moved to its phase."""
        if not unused.share:
            return self
        apart = ByPhase.only(unused.phase, unused.share * sum(self))
        return ByPhase(*(one + other for one, other in zip(self.scaled(1 - unused.share), apart, strict=True)))

    def dividing(self, amount: float) -> "ByPhase":
        """Return *amount* divided in the proportions of the parts, whose sum is above zero."""
        total = sum(self)
        return ByPhase(*(part / total * amount for part in self))


class IdleShare(NamedTuple):
    """Share of the paid hardware that no replica can use, and the phase that its cost is booked to."""

    share: float
    phase: Phase = "unused"

    @classmethod
    def of(cls, used: float, paid: float) -> "IdleShare":
        """Return the share of *paid* GPUs that exceeds *used*."""
        share = 1 - used / paid if paid else 0.0
        return cls(share) if share > ROUNDING else ALL_USED


ROUNDING = 1e-12
"""Unused shares below this are rounding errors: shares of servers and instances are quotients of GPU counts."""
ALL_USED = IdleShare(0.0)


def seconds_by_phase(interval: Interval) -> ByPhase:
    """Return the time of one replica in *interval*, by phase [s].

    Decode is the busy time that is neither prefill nor recompute; a step that mixes phases is split by its tokens.
    Where a part of the hardware is unused, that part of every second is idle.
    """
    decode_s = max(0.0, interval.busy_s - interval.prefill_s - interval.recompute_s)
    idle_s = max(0.0, interval.end_s - interval.start_s - interval.busy_s)
    if (phase := OF_STATE.get(interval.state)) is not None:
        return ByPhase.only(phase, interval.end_s - interval.start_s)
    if interval.state == "held":
        return ByPhase.only("held", interval.busy_s)
    if interval.unused:
        used = 1 - interval.unused
        idle_s += interval.unused * interval.busy_s
        return ByPhase(used * interval.prefill_s, used * decode_s, used * interval.recompute_s, idle_s)
    return ByPhase(interval.prefill_s, decode_s, interval.recompute_s, idle_s)


def gpu_s_by_phase(interval: Interval) -> ByPhase:
    """Return the GPU-seconds of *interval* by phase; all GPUs of a replica are in the same phase [GPU s]."""
    seconds = seconds_by_phase(interval)
    return seconds.dividing(interval.gpu_s) if any(seconds) else seconds


def wall_j_by_phase(interval: Interval) -> ByPhase:
    """Return the energy at the wall of *interval* by phase, as metered [J].

    Each phase draws the power of its own steps: prompts keep the tensor cores busy and draw more than decodes do.
    """
    if (phase := "held" if interval.state == "held" else OF_STATE.get(interval.state)) is not None:
        return ByPhase.only(phase, interval.server_energy_j)
    parts = (interval.prefill_energy_j, interval.recompute_energy_j, interval.idle_energy_j)
    prefill_j, recompute_j, idle_j = parts
    return ByPhase(prefill_j, max(0.0, interval.server_energy_j - sum(parts)), recompute_j, idle_j)


NOT_RENTED = frozenset({"off", "provisioning", "repairing"})
"""States of a replica that a landlord who bills by switched-on time does not count."""
DEMAND_INTERVAL_S = 900.0
"""Interval over which utilities average power to find a peak [s]."""


class ReplicaStop(NamedTuple):
    """End of a replica's run: its time [s], the length of the run [s] and the replica's GPUs."""

    at_s: float
    ran_s: float
    gpus: float


@dataclass(frozen=True, slots=True)
class MeteredWindow:
    """Meter readings of one interval of simulated time, or of several intervals of one fleet combined."""

    hours: float
    intervals: Mapping[str, Sequence[Interval]] = field(default_factory=dict)
    """Meter intervals in the window, by pool."""
    stops: Mapping[str, Sequence[ReplicaStop]] = field(default_factory=dict)
    """Ends of replicas' runs in the window, by pool."""
    parts: "tuple[MeteredWindow, ...]" = ()
    """Windows that this one combines; empty for a single window."""
    _peaks: dict[tuple[str, ...], dict[str, float]] = field(default_factory=dict, init=False, repr=False, compare=False)
    _energies: dict[tuple[str, ...], float] = field(default_factory=dict, init=False, repr=False, compare=False)
    _prefill_shares: dict[str, float | None] = field(default_factory=dict, init=False, repr=False, compare=False)
    _coverages: "dict[tuple[tuple[str, ...], float], CommitmentUse]" = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @classmethod
    def of(cls, intervals: Iterable[Interval], start_s: float, end_s: float) -> "MeteredWindow":
        """Return the readings in [start, end) [s].

        Intervals outside the window only show how long a replica had run before a stop inside it; none may straddle an
        edge.
        """
        every: dict[str, list[Interval]] = {}
        inside: dict[str, list[Interval]] = {}
        for interval in intervals:
            every.setdefault(interval.pool, []).append(interval)
            if interval.is_within(start_s, end_s):
                inside.setdefault(interval.pool, []).append(interval)
        due = {pool: [stop for stop in stops(found) if start_s <= stop.at_s < end_s] for pool, found in every.items()}
        return cls((end_s - start_s) / SECONDS_PER_HOUR, inside, due)

    def energy_j(self, pools: tuple[str, ...]) -> float:
        """Return the energy of *pools* at the servers' plugs [J]."""
        if pools not in self._energies:
            inside = (one.server_energy_j for pool in pools for one in self.intervals.get(pool, ()))
            self._energies[pools] = fsum(inside)
        return self._energies[pools]

    def prefill_share(self, pool: str) -> float | None:
        """Return the part of prefill in the GPU time of prefill and decode of *pool* [1]; None without either."""
        if pool not in self._prefill_shares:
            parts = [gpu_s_by_phase(one) for one in self.intervals.get(pool, ())]
            prefill_s, decode_s = fsum(one.prefill for one in parts), fsum(one.decode for one in parts)
            used_s = prefill_s + decode_s
            self._prefill_shares[pool] = prefill_s / used_s if used_s else None
        return self._prefill_shares[pool]

    def peak_kw(self, pools: tuple[str, ...]) -> dict[str, float]:
        """Return the power of each of *pools* at the servers' plugs in the demand interval with the highest total [kW].

        The window is divided into the largest number of equal intervals of at least 15 minutes; a shorter window is one
        interval. Power is taken as constant within a meter interval.
        """
        if pools not in self._peaks:
            self._peaks[pools] = self._peak_kw(pools)
        return self._peaks[pools]

    def coverages(self, pools: tuple[str, ...], gpus: float) -> "list[CommitmentUse]":
        """Return the use of *gpus* reserved GPUs by the rented replicas of *pools*, for each part of this window."""
        return [part.coverage(pools, gpus) for part in self.parts or (self,)]

    def coverage(self, pools: tuple[str, ...], gpus: float) -> "CommitmentUse":
        """Return the use of *gpus* reserved GPUs by the rented replicas of *pools* in this single window."""
        if (pools, gpus) not in self._coverages:
            self._coverages[pools, gpus] = CommitmentUse.of(self, pools, gpus)
        return self._coverages[pools, gpus]

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


@dataclass(frozen=True, slots=True)
class CommitmentUse:
    """Use of reserved GPUs by replicas that are switched on and off, in one window.

    Notes
    -----
    At every moment the reserved GPUs c cover min(n, c) of the n rented GPUs of all pools, in equal shares. The
    integrals over time are exact, because n changes only at the edges of meter intervals::

        n   |      ______
            |     |beyond|__
        c --|-----+------+--+----------
            | ____|  covered |  unused
            ||               |_________
            +------------------------- time

    """

    pools: tuple[str, ...]
    gpus: float
    """Number of reserved GPUs."""
    edges_s: NDArray[np.float64]
    """Times at which the number of rented GPUs may change [s]."""
    rented: NDArray[np.float64]
    """Rented GPUs between two edges."""
    all_gpus: float
    """GPUs of all replicas, switched on or off."""
    covered_s: NDArray[np.float64]
    """Integral of min(1, c / n) from the first edge to each edge [s]."""
    unused_gpu_s: NDArray[np.float64]
    """Integral of max(0, c - n) from the first edge to each edge [GPU s]."""

    @classmethod
    def of(cls, window: MeteredWindow, pools: tuple[str, ...], gpus: float) -> "CommitmentUse":
        """Return the use in *window*, which has its meter intervals one by one."""
        inside = [one for pool in pools for one in window.intervals.get(pool, ())]
        on = [one for one in inside if one.state not in NOT_RENTED]
        edges_s = np.unique([at_s for one in inside for at_s in (one.start_s, one.end_s)])
        lengths_s = np.diff(edges_s)
        changes = np.zeros(len(edges_s))
        for one in on:
            amount = one.gpu_s / (one.end_s - one.start_s)
            changes[np.searchsorted(edges_s, one.start_s)] += amount
            changes[np.searchsorted(edges_s, one.end_s)] -= amount
        rented = np.maximum(0.0, np.cumsum(changes)[:-1])
        rented[np.abs(rented - gpus) < MOST_ROUNDING * max(1.0, gpus)] = gpus
        share = np.minimum(1.0, gpus / np.where(rented > 0, rented, gpus)) if gpus else np.zeros(len(rented))
        covered_s = np.concatenate([[0.0], np.cumsum(share * lengths_s)])
        unused = np.concatenate([[0.0], np.cumsum(np.maximum(0.0, gpus - rented) * lengths_s)])
        all_gpus = fsum(one.gpu_s for one in inside) / float(lengths_s.sum()) if inside else 0.0
        return cls(pools, gpus, edges_s, rented, all_gpus, covered_s, unused)

    def covered_share(self, interval: Interval) -> float:
        """Return the share of the GPU-time of *interval* that reserved GPUs cover [1]."""
        if interval.state in NOT_RENTED:
            return 0.0
        covered_s = float(np.subtract(*np.interp((interval.end_s, interval.start_s), self.edges_s, self.covered_s)))
        return min(1.0, covered_s / (interval.end_s - interval.start_s))

    def unused_part_gpu_s(self, interval: Interval) -> float:
        """Return the part of *interval* in the unused time of the reserved GPUs, by its share of all GPUs [GPU s]."""
        unused = float(np.subtract(*np.interp((interval.end_s, interval.start_s), self.edges_s, self.unused_gpu_s)))
        return max(0.0, unused) * interval.gpu_s / (interval.end_s - interval.start_s) / self.all_gpus

    def share_beyond(self, at_s: float, stopped_gpus: float) -> float:
        """Return the share of *stopped_gpus* that ran beyond the reserved GPUs until they stopped at *at_s* [1]."""
        position = min(int(np.searchsorted(self.edges_s, at_s, side="right")), len(self.rented)) - 1
        beyond = float(self.rented[position]) + stopped_gpus - self.gpus
        return min(1.0, max(0.0, beyond / stopped_gpus))


MOST_ROUNDING = 1e-9
"""Relative rounding error of a number of GPUs, which is a quotient of meter readings."""
ONE_HOUR = MeteredWindow(1.0)
"""Window of an hour without meter readings, in which only charges per hour have an amount."""


def combined_window(windows: Sequence[MeteredWindow]) -> MeteredWindow:
    """Return several windows of one fleet combined into one."""
    intervals: dict[str, list[Interval]] = {}
    ends: dict[str, list[ReplicaStop]] = {}
    for window in windows:
        for pool, found in window.intervals.items():
            intervals.setdefault(pool, []).extend(found)
        for pool, due in window.stops.items():
            ends.setdefault(pool, []).extend(due)
    parts = tuple(part for window in windows for part in (window.parts or (window,)))
    return MeteredWindow(fsum(window.hours for window in windows), intervals, ends, parts)


def stops(intervals: Sequence[Interval]) -> list[ReplicaStop]:
    """Return the stops of one pool's replicas; a run that began before the first interval counts from its start."""
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
            found.append(ReplicaStop(interval.start_s, interval.start_s - start_s, gpus))
    return found
