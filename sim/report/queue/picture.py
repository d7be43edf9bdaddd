"""The charts of a queue: how long jobs wait, and how many GPUs have one."""

from collections.abc import Sequence
from math import isnan

import numpy as np

from sim.report.charts.panels import ChartCurve, Panel, style
from sim.report.page.page import Mark
from sim.report.queue.verdict import name
from sim.report.words.text import percent
from sim.study.queue.columns import QueueRow, waited_s
from sim.units import HOURS_PER_DAY, SECONDS_PER_HOUR

MOST_CURVES = 7
MOST_POINTS = 300


def panels(rows: Sequence[QueueRow]) -> list[Panel]:
    """Waiting times and GPUs in use of the first clusters; none where nothing can run."""
    able = [row for row in rows if row.ok][:MOST_CURVES]
    if not able:
        return []
    looks = style([name(row) for row in able])
    waits = tuple(_waits(row, looks[name(row)][0]) for row in able)
    used = tuple(_used(row, looks[name(row)][0]) for row in able)
    return [
        Panel("Waiting", "share of the jobs that have started after this time", "hours from arrival to the first start",
              waits, y_format=percent, y_share=True, kind="waiting"),
        Panel("GPUs in use", "GPUs that have a job, mean of an interval", f"{_unit(able)} from the start", used,
              kind="utilisation"),
    ]  # fmt: skip


def key(rows: Sequence[QueueRow]) -> list[Mark]:
    """Colour of every cluster."""
    looks = style([name(row) for row in rows if row.ok][:MOST_CURVES])
    return [Mark(text, color, dash="-") for text, (color, _) in looks.items()]


def _waits(row: QueueRow, color: str) -> ChartCurve:
    works = row.outcome.schedule.works
    waits = np.sort([wait for work in works if not isnan(wait := waited_s(work))]) / SECONDS_PER_HOUR
    shares = np.linspace(0.0, 1.0, MOST_POINTS)
    x = np.quantile(waits, shares, method="inverted_cdf") if len(waits) else np.zeros(MOST_POINTS)
    y = shares * (len(waits) / len(works))
    return ChartCurve(name(row), color, tuple(x.tolist()), tuple(y.tolist()), good=(True,) * MOST_POINTS)


def _used(row: QueueRow, color: str) -> ChartCurve:
    timeline = row.outcome.timeline
    edges, used = timeline.edges_s, timeline.used
    together = max(1, -(-len(used) // MOST_POINTS))
    starts = edges[:-1:together]
    ends = np.append(starts[1:], edges[-1])
    spent = np.add.reduceat(used * np.diff(edges), np.arange(0, len(used), together))
    means = spent / np.maximum(ends - starts, 1e-9)
    scale = SECONDS_PER_HOUR * (HOURS_PER_DAY if _unit([row]) == "days" else 1)
    x = np.repeat(np.append(starts, edges[-1]), 2)[1:-1] / scale
    y = np.repeat(means, 2)
    return ChartCurve(name(row), color, tuple(x.tolist()), tuple(y.tolist()), good=(True,) * len(x))


def _unit(rows: Sequence[QueueRow]) -> str:
    longest = max(row.outcome.schedule.end_s for row in rows)
    return "days" if longest > 3 * HOURS_PER_DAY * SECONDS_PER_HOUR else "hours"
