"""What a reader gets of a queue of jobs: the verdict in sentences, tables, charts, jobs.csv, what `check` prints.

Tables show the clusters, their bills, and the jobs that waited longest; charts how long jobs wait, and how many GPUs
have one.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import RenderableType
from rich.text import Text

from sim.jobs.outcome import QueueRow, job_cells, status_of, waited_s
from sim.language import N_, _, ngettext, retold
from sim.report.charts.panels import COLORS, ChartCurve, Panel, style
from sim.report.charts.picture import KeyEntry
from sim.report.page.page import PageTable
from sim.report.run.tables import write_rows
from sim.report.sources import notes, values_and_sources
from sim.report.terminal_table import FittedTable
from sim.report.words.money import cash
from sim.report.words.text import axis_label, joined, listing, percent, places, plain, short
from sim.training.report import JobVerdict, component_rows, duration
from sim.units import HOURS_PER_DAY, NANO_PER_USD, SECONDS_PER_HOUR


def verdict(rows: Sequence[QueueRow]) -> JobVerdict:
    """Where jobs wait least, and where a GPU-hour of work costs least; then each cluster, and what cannot run."""
    able = [row for row in rows if row.ok]
    unable = dict.fromkeys(
        _("{fleet} cannot run: {reason}.", fleet=row.fleet, reason=retold(row.cells["reason"]))
        for row in rows
        if not row.ok
    )
    if not able:
        return JobVerdict(_("No cluster can run the jobs."), tuple(unable))
    return JobVerdict(_headline(able), (*(_finding(row) for row in able), *unable))


def name(row: QueueRow) -> str:
    """The cluster and its place in the sweep."""
    at = places(tuple(row.outcome.plan.axes.items()))
    return _("{fleet} at {at}", fleet=row.fleet, at=at) if at else row.fleet


def _headline(rows: Sequence[QueueRow]) -> str:
    started = [row for row in rows if row.cells["wait_h_mean"] is not None]
    if not started:
        return _("No job is started.")
    ordered = sorted(started, key=lambda row: float(row.cells["wait_h_mean"]))
    least = ordered[0].cells["wait_h_mean"]
    if len(rows) == 1:
        told = _("Jobs wait {duration} on average", duration=duration(least))
    elif all(one.cells["wait_h_mean"] == other.cells["wait_h_mean"] for one, other in pairwise(ordered)):
        told = _("Jobs wait alike everywhere: {duration} on average", duration=duration(least))
    else:
        told = _("Jobs wait least on {name}: {duration} on average", name=name(ordered[0]), duration=duration(least))
    priced = [row for row in rows if row.cells.get("usd_per_useful_gpu_h") is not None]
    if not priced:
        return _("{line}.", line=told)
    cheapest = min(priced, key=lambda row: float(row.cells["usd_per_useful_gpu_h"]))
    on = _(" on {name}", name=name(cheapest)) if len(rows) > 1 else ""
    usd = cash(cheapest.cells["usd_per_useful_gpu_h"])
    if len(rows) == 1:
        return _("{told}. A GPU-hour of work costs {usd}.", told=told, usd=usd)
    return _("{told}. A GPU-hour of work costs least{on}: {usd}.", told=told, on=on, usd=usd)


def _finding(row: QueueRow) -> str:
    cells = row.cells
    if row.outcome.plan.serving is None:
        told = _("{name}: {percent} of the GPU-hours used", name=name(row), percent=percent(cells["utilisation"]))
        ended = N_(", broken off after {duration}") if cells["unfinished"] else N_(", done after {duration}")
        told += _(ended, duration=duration(cells["makespan_h"]))
    else:
        held = percent(cells["serving_gpu_h"] / (cells["gpus"] * cells["makespan_h"]))
        told = _(
            "{name}: serving holds {held} of the GPU-hours of {duration}, jobs",
            name=name(row),
            held=held,
            duration=duration(cells["makespan_h"]),
        )
        told += f" {percent(cells['utilisation'])}"
    if cells["wait_h_p95"] is not None:
        wait = N_("; 95 % of the jobs wait at most {duration}")
        waited = N_("; 95 % of the jobs have waited at most {duration}")
        told += _(waited if cells["unfinished"] else wait, duration=duration(cells["wait_h_p95"]))
    parts = []
    if cells.get("serving_usd"):
        parts.append(
            _(
                "serving takes {serving} and jobs {jobs} of the bill",
                serving=cash(cells["serving_usd"]),
                jobs=cash(cells["jobs_usd"]),
            )
        )
    if cells["preemptions"]:
        lost = plain(cells["lost_gpu_h"])
        count = cells["preemptions"]
        parts.append(
            ngettext(
                "{count:,} preemption undid {lost} GPU-hours of work",
                "{count:,} preemptions undid {lost} GPU-hours of work",
                count,
                lost=lost,
            )
        )
    if cells["deadlines"]:
        parts.append(
            _(
                "{deadlines_met} of {deadlines} deadlines are met",
                deadlines_met=cells["deadlines_met"],
                deadlines=cells["deadlines"],
            )
        )
    for key, words in (("rejected", _too_large(row)), ("unfinished", _("are not done at the horizon"))):
        if cells[key]:
            parts.append(_("{cells:,} of {jobs:,} jobs {words}", cells=cells[key], jobs=cells["jobs"], words=words))
    if cells.get("idle_usd"):
        parts.append(_("idle GPUs take {idle} of {cost}", idle=cash(cells["idle_usd"]), cost=cash(cells["cost_usd"])))
    more = listing(parts)
    return joined([_("{line}.", line=told), _("{line}.", line=more[:1].upper() + more[1:]) if parts else ""])


def _too_large(row: QueueRow) -> str:
    if row.outcome.plan.serving is None:
        return _("need more GPUs than there are")
    return _("need more GPUs than serving ever leaves")


MOST_JOBS = 20
RESULTS: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("policy", N_("policy"), str),
    ("gpus", "GPUs", str),
    ("finished", N_("jobs done"), lambda value: f"{value:,}"),
    ("makespan_h", N_("until done [h]"), plain),
    ("utilisation", N_("GPU-hours used"), percent),
    ("utilisation_with_serving", N_("with serving"), percent),
    ("wait_h_mean", N_("wait mean [h]"), plain),
    ("wait_h_p95", N_("wait p95 [h]"), plain),
    ("slowdown_mean", N_("slowdown"), plain),
    ("preemptions", N_("preemptions"), lambda value: f"{value:,}"),
    ("energy_kwh", N_("energy [kWh]"), plain),
    ("cost_usd", N_("cost"), cash),
    ("serving_usd", N_("of it serving"), cash),
    ("usd_per_job", N_("per job"), cash),
    ("usd_per_useful_gpu_h", N_("per GPU-hour of work"), cash),
)
"""Column of summary.csv, heading, how a value is shown."""


def results(rows: Sequence[QueueRow]) -> PageTable:
    """One row per cluster and point."""
    axes = list(rows[0].outcome.plan.axes)
    shown = [one for one in RESULTS if any(row.cells.get(one[0]) is not None for row in rows)]
    return PageTable(
        _("Results"),
        _("Wait: from arrival to the first start. Slowdown: time from arrival to end over the duration."),
        [_("fleet"), *map(axis_label, axes), *(_(head) for _name, head, _show in shown)],
        [
            [
                row.fleet,
                *(short(row.outcome.plan.axes[axis]) for axis in axes),
                *("" if (value := row.cells.get(key)) is None else show(value) for key, _, show in shown),
            ]
            for row in rows
        ],
        worded=(len(axes) + 1,),
    )


def waited_longest(rows: Sequence[QueueRow]) -> PageTable:
    """The jobs that waited longest on the first cluster, and how they fared on all."""
    able = [row for row in rows if row.ok]
    works = able[0].outcome.schedule.works
    order = sorted(range(len(works)), key=lambda i: -_sortable(waited_s(works[i])))[:MOST_JOBS]
    first = able[0].outcome
    body = [
        [
            works[i].job.name,
            str(works[i].job.gpus),
            plain(works[i].job.duration_s / SECONDS_PER_HOUR),
            *(_wait(row, i) for row in able),
            *([cash(first.job_nano_usd[i] / NANO_PER_USD)] if first.job_nano_usd else []),
        ]
        for i in order
    ]
    heads = [row.fleet for row in able]
    cost = [_("cost on {fleet}", fleet=heads[0])] if first.job_nano_usd else []
    return PageTable(
        _("Jobs that wait longest on {fleet}", fleet=heads[0]),
        _("Hours from arrival to the first start; all jobs are in jobs.csv."),
        [_("job"), "GPUs", _("duration [h]"), *heads, *cost],
        body,
    )


def _sortable(wait_s: float) -> float:
    return float("inf") if isnan(wait_s) else wait_s


def _wait(row: QueueRow, place: int) -> str:
    works = row.outcome.schedule.works
    wait = waited_s(works[place]) if place < len(works) else float("nan")
    return status_of(works[place], row.outcome) if isnan(wait) else plain(wait / SECONDS_PER_HOUR)


def cost_table(rows: Sequence[QueueRow]) -> PageTable | None:
    """The bill by component, and what of it idle GPUs take; None where nothing has a cost."""
    priced = [row for row in rows if row.outcome.ledger is not None]
    if not priced:
        return None
    body = component_rows([row.outcome.ledger for row in priced if row.outcome.ledger is not None])
    body.append([_("total"), *(cash(row.cells["cost_usd"]) for row in priced)])
    body.append([_("of it for idle GPUs"), *(cash(row.cells["idle_usd"]) for row in priced)])
    if any(row.cells.get("serving_usd") is not None for row in priced):
        body.append([_("of it for the service"), *(cash(row.cells["serving_usd"]) for row in priced)])
        body.append([_("of it for jobs"), *(cash(row.cells["jobs_usd"]) for row in priced)])
    return PageTable(_("What the cluster costs"), "", [_("component"), *(row.fleet for row in priced)], body)


def tables(rows: Sequence[QueueRow]) -> list[PageTable]:
    """All of them; jobs by name only without a sweep, where all clusters have the same."""
    found = [results(rows)]
    if any(row.ok for row in rows) and not rows[0].outcome.plan.axes:
        found.append(waited_longest(rows))
    bill = cost_table(rows)
    return [*found, bill] if bill is not None else found


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


def key(rows: Sequence[QueueRow]) -> list[KeyEntry]:
    """Colour of every cluster."""
    able = [row for row in rows if row.ok][:MOST_CURVES]
    looks = style([name(row) for row in able])
    marks = [KeyEntry(text, color, dash="-") for text, (color, _) in looks.items()]
    shared = SERVING_COLOR in (color for _, color in _bands(able))
    return [*marks, KeyEntry(_("serving"), SERVING_COLOR, marker="s")] if shared else marks


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


WORDED = frozenset({0, 1, 3, 4})


def queue_overview(rows: Sequence[QueueRow], plans: Sequence[dict[str, Any]]) -> Iterator[RenderableType]:
    """What to print for *rows*, whose descriptions are *plans*."""
    for note in notes(plans):
        yield Text(_("Note: {note}", note=note))
    heads = [
        _("fleet"),
        _("pool"),
        "GPUs",
        _("server"),
        _("policy"),
        _("jobs"),
        _("GPU-hours of work"),
        _("largest job"),
        _("last arrival [h]"),
    ]
    body = [
        [
            plan["fleet"],
            plan["pool"]["name"],
            f"{plan['pool']['gpus']:,}",
            plan["pool"]["server"] or _("none"),
            plan["policy"]["policy"],
            f"{plan['jobs']['number']:,}",
            plain(plan["jobs"]["gpu_hours"]),
            f"{plan['jobs']['largest_gpus']:,}",
            plain(plan["jobs"]["last_arrival_h"]),
        ]
        for plan in plans
    ]
    yield FittedTable(heads, body, WORDED)
    for row in rows:
        if not row.ok:
            yield Text(_("{fleet} cannot run: {reason}", fleet=row.fleet, reason=retold(row.cells["reason"])))
    yield from values_and_sources(plans)


def write_jobs(folder: Path, rows: Sequence[QueueRow]) -> None:
    """jobs.csv, which stands beside the tables of all kinds of work."""
    write_rows(folder / "jobs.csv", list(_jobs(rows)))


def _jobs(rows: Sequence[QueueRow]) -> Iterator[dict[str, Any]]:
    for row in rows:
        front = {"fleet": row.fleet, **row.outcome.plan.axes, "replication": 0}
        for place, work in enumerate(row.outcome.schedule.works):
            yield front | job_cells(work, place, row.outcome)
