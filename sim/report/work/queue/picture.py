"""The charts of a queue: how long jobs wait, and how many GPUs have one."""

from collections.abc import Sequence
from math import isnan

import numpy as np
from numpy.typing import NDArray

from sim.language import _
from sim.report.charts.panels import COLORS, ChartCurve, Panel, style
from sim.report.page.page import Mark
from sim.report.words.text import percent
from sim.report.work.queue.verdict import name
from sim.study.work.queue.columns import QueueRow, waited_s
from sim.units import HOURS_PER_DAY, SECONDS_PER_HOUR

MOST_CURVES = 7
MOST_POINTS = 300
SERVING_COLOR = COLORS[-1]


def panels(rows: Sequence[QueueRow]) -> list[Panel]:
    """Waiting times and GPUs in use of the first clusters; none where nothing can run."""
    able = [row for row in rows if row.ok][:MOST_CURVES]
    if not able:
        return []
    looks = style([name(row) for row in able])
    waits = tuple(_waits(row, looks[name(row)][0]) for row in able)
    used = tuple(_used(row, looks[name(row)][0]) for row in able)
    bands = tuple(_band(row, color) for row, color in _bands(able))
    shown = _("GPUs that a service (band) or a job has") if bands else _("GPUs that have a job")
    return [
        Panel(_("Waiting"), _("share of the jobs that have started after this time"),
              _("hours from arrival to the first start"), waits, y_format=percent, y_share=True, kind="waiting"),
        Panel(_("GPUs in use"), _("{shown}, mean of an interval", shown=shown),
              _("{unit} from the start", unit=_("days") if _in_days(able) else _("hours")), bands + used,
              kind="utilisation"),
    ]  # fmt: skip


def key(rows: Sequence[QueueRow]) -> list[Mark]:
    """Colour of every cluster."""
    able = [row for row in rows if row.ok][:MOST_CURVES]
    looks = style([name(row) for row in able])
    marks = [Mark(text, color, dash="-") for text, (color, _) in looks.items()]
    shared = SERVING_COLOR in (color for _, color in _bands(able))
    return [*marks, Mark(_("serving"), SERVING_COLOR, marker="s")] if shared else marks


def _waits(row: QueueRow, color: str) -> ChartCurve:
    works = row.outcome.schedule.works
    waits = np.sort([wait for work in works if not isnan(wait := waited_s(work))]) / SECONDS_PER_HOUR
    shares = np.linspace(0.0, 1.0, MOST_POINTS)
    x = np.quantile(waits, shares, method="inverted_cdf") if len(waits) else np.zeros(MOST_POINTS)
    y = shares * (len(waits) / len(works))
    return ChartCurve(name(row), color, tuple(x.tolist()), tuple(y.tolist()), good=(True,) * MOST_POINTS)


def _bands(rows: Sequence[QueueRow]) -> list[tuple[QueueRow, str]]:
    """Clusters whose service is drawn, with its colour: one for all where they have the same, else the cluster's."""
    beside = [row for row in rows if row.outcome.plan.serving is not None]
    if len({(row.outcome.plan.held, row.outcome.schedule.end_s) for row in beside}) == 1:
        return [(beside[0], SERVING_COLOR)]
    looks = style([name(row) for row in rows])
    return [(row, looks[name(row)][0]) for row in beside]


def _band(row: QueueRow, color: str) -> ChartCurve:
    """From 0 to the GPUs that the service holds."""
    x, y = _steps(row, row.outcome.timeline.serving)
    return ChartCurve(_("serving"), color, x, y, filled=True, good=(True,) * len(x))


def _used(row: QueueRow, color: str) -> ChartCurve:
    """GPUs that a job has, on top of those that the service holds."""
    timeline = row.outcome.timeline
    x, y = _steps(row, timeline.used + timeline.serving if row.outcome.plan.serving else timeline.used)
    return ChartCurve(name(row), color, x, y, good=(True,) * len(x))


def _steps(row: QueueRow, used: NDArray[np.float64]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """(x, y) of *used* GPUs between meter readings, as steps of which there are not too many."""
    edges = row.outcome.timeline.edges_s
    together = max(1, -(-len(used) // MOST_POINTS))
    starts = edges[:-1:together]
    ends = np.append(starts[1:], edges[-1])
    spent = np.add.reduceat(used * np.diff(edges), np.arange(0, len(used), together))
    means = spent / np.maximum(ends - starts, 1e-9)
    scale = SECONDS_PER_HOUR * (HOURS_PER_DAY if _in_days([row]) else 1)
    x = np.repeat(np.append(starts, edges[-1]), 2)[1:-1] / scale
    y = np.repeat(means, 2)
    return tuple(x.tolist()), tuple(y.tolist())


def _in_days(rows: Sequence[QueueRow]) -> bool:
    longest = max(row.outcome.schedule.end_s for row in rows)
    return bool(longest > 3 * HOURS_PER_DAY * SECONDS_PER_HOUR)
