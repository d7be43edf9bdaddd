"""What a cluster's GPUs did between meter readings."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.jobs.job import Segment, Work

PHASES = ("working", "lost", "restarting")
SERVING = "serving"
"""What GPUs do that a service beside the jobs holds."""
Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Timeline:
    """GPU-seconds by what the GPUs did, between readings."""

    edges_s: Numbers
    busy: dict[str, Numbers]
    """Phase -> GPU-seconds between each two readings."""
    loaded: dict[str, Numbers]
    """Phase -> the same times the jobs' loads."""

    @classmethod
    def of(
        cls, works: Sequence[Work], edges_s: Numbers, held: Sequence[tuple[float, int]] = (), held_load: float = 1.0
    ) -> "Timeline":
        """From the segments of all *works*, and *held*: (when, GPUs that a service at *held_load* has from then on)."""
        busy, loaded = {}, {}
        for phase in PHASES:
            spans = np.array(
                [(*_span(one, phase), work.job.gpus, work.job.load) for work in works for one in work.segments]
            ).reshape(-1, 4)
            load = spans[:, 3] if phase != "restarting" else np.zeros(len(spans))
            busy[phase] = between(spans[:, 0], spans[:, 1], spans[:, 2], edges_s)
            loaded[phase] = between(spans[:, 0], spans[:, 1], spans[:, 2] * load, edges_s)
        since = np.array(held, dtype=float).reshape(-1, 2)
        until = np.append(since[1:, 0], max(edges_s[-1], since[-1, 0])) if len(since) else since[:, 0]
        busy[SERVING] = between(since[:, 0], until, since[:, 1], edges_s)
        loaded[SERVING] = held_load * busy[SERVING]
        return cls(edges_s, busy, loaded)

    def gpu_s(self, phase: str, place: int | None = None) -> float:
        """GPU-seconds of a phase, of all readings or of one."""
        return float(self.busy[phase].sum() if place is None else self.busy[phase][place])

    def load_s(self, phase: str, place: int) -> float:
        """GPU-seconds times load."""
        return float(self.loaded[phase][place])

    @property
    def used(self) -> Numbers:
        """Mean number of GPUs that have a job between each two readings."""
        return self._mean(np.sum([self.busy[phase] for phase in PHASES], axis=0))

    @property
    def serving(self) -> Numbers:
        """Mean number of GPUs that the service holds between each two readings."""
        return self._mean(self.busy[SERVING])

    def _mean(self, total: Numbers) -> Numbers:
        lengths = np.diff(self.edges_s)
        return np.asarray(np.divide(total, lengths, out=np.zeros_like(lengths), where=lengths > 0))


def _span(one: Segment, phase: str) -> tuple[float, float]:
    start_s, end_s = one.start_s, one.end_s
    works_s, lost_s = start_s + one.restart_s, end_s - one.lost_s
    return {"restarting": (start_s, works_s), "working": (works_s, lost_s), "lost": (lost_s, end_s)}[phase]


def between(starts: Numbers, ends: Numbers, weights: Numbers, edges: Numbers) -> Numbers:
    """Integral of the sum of *weights* that are on from *starts* to *ends*, between each two *edges*.

    >>> between(np.array([1.0]), np.array([4.0]), np.array([2.0]), np.array([0.0, 2.0, 3.0, 9.0]))
    array([2., 2., 2.])
    """
    times = np.concatenate([starts, ends, [0.0]])
    steps = np.concatenate([weights, -weights, [0.0]])
    order = np.argsort(times, kind="stable")
    times, level = times[order], np.cumsum(steps[order])
    integral = np.concatenate([[0.0], np.cumsum(level[:-1] * np.diff(times))])
    return np.asarray(np.maximum(0.0, np.diff(np.interp(edges, times, integral))))
