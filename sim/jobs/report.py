"""Report of a job queue: verdict, tables, charts, jobs.csv, and the overview that `gpufleet check` prints.

Tables show the clusters, their costs, and the jobs that waited longest; charts show waiting times and the number of
GPUs in use.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import RenderableType

from sim.jobs.outcome import QueueRow, job_cells, status_of, waited_s
from sim.language import N_, _, ngettext, translate_rendered
from sim.report.charts.panels import COLORS, ChartCurve, Panel, style
from sim.report.charts.picture import KeyEntry
from sim.report.page.page import PageTable
from sim.report.run.tables import write_rows
from sim.report.sources import notes, values_and_sources
from sim.report.terminal_table import FittedTable, Sentence
from sim.report.words.money import cash
from sim.report.words.text import axis_label, joined, listing, percent, places, plain, short
from sim.training.report import JobVerdict, component_rows, duration
from sim.units import HOURS_PER_DAY, NANO_PER_USD, SECONDS_PER_HOUR


def verdict(rows: Sequence[QueueRow]) -> JobVerdict:
    """Return the verdict over all *rows*.

    The headline names the cluster with the shortest waits and the one with the lowest cost per GPU-hour of work;
    findings describe each cluster and those that cannot run the jobs.
    """
    feasible = [row for row in rows if row.ok]
    infeasible = dict.fromkeys(
        _("{fleet} cannot run: {reason}.", fleet=row.fleet, reason=translate_rendered(row.cells["reason"]))
        for row in rows
        if not row.ok
    )
    if not feasible:
        return JobVerdict(_("No cluster can run the jobs."), tuple(infeasible))
    return JobVerdict(_headline(feasible), (*(_finding(row) for row in feasible), *infeasible))


def name(row: QueueRow) -> str:
    """Return the cluster with its point of the sweep."""
    at = places(tuple(row.outcome.plan.axes.items()))
    return _("{fleet} at {at}", fleet=row.fleet, at=at) if at else row.fleet


def _headline(rows: Sequence[QueueRow]) -> str:
    started = [row for row in rows if row.cells["wait_h_mean"] is not None]
    if not started:
        return _("No job is started.")
    ordered = sorted(started, key=lambda row: float(row.cells["wait_h_mean"]))
    least = ordered[0].cells["wait_h_mean"]
    if len(rows) == 1:
        sentence = _("Jobs wait {duration} on average", duration=duration(least))
    elif all(one.cells["wait_h_mean"] == other.cells["wait_h_mean"] for one, other in pairwise(ordered)):
        sentence = _("Jobs wait equally long everywhere: {duration} on average", duration=duration(least))
    else:
        sentence = _(
            "Jobs wait least on {name}: {duration} on average", name=name(ordered[0]), duration=duration(least)
        )
    priced = [row for row in rows if row.cells.get("usd_per_useful_gpu_h") is not None]
    if not priced:
        return _("{line}.", line=sentence)
    cheapest = min(priced, key=lambda row: float(row.cells["usd_per_useful_gpu_h"]))
    on = _(" on {name}", name=name(cheapest)) if len(rows) > 1 else ""
    usd = cash(cheapest.cells["usd_per_useful_gpu_h"])
    if len(rows) == 1:
        return _("{told}. A GPU-hour of work costs {usd}.", told=sentence, usd=usd)
    return _("{told}. A GPU-hour of work costs least{on}: {usd}.", told=sentence, on=on, usd=usd)


def _finding(row: QueueRow) -> str:
    cells = row.cells
    if row.outcome.plan.serving is None:
        sentence = _("{name}: {percent} of the GPU-hours used", name=name(row), percent=percent(cells["utilisation"]))
        ended = N_(", broken off after {duration}") if cells["unfinished"] else N_(", done after {duration}")
        sentence += _(ended, duration=duration(cells["makespan_h"]))
    else:
        held = percent(cells["serving_gpu_h"] / (cells["gpus"] * cells["makespan_h"]))
        sentence = _(
            "{name}: serving holds {held} of the GPU-hours of {duration}, jobs",
            name=name(row),
            held=held,
            duration=duration(cells["makespan_h"]),
        )
        sentence += f" {percent(cells['utilisation'])}"
    if cells["wait_h_p95"] is not None:
        wait = N_("; 95 % of the jobs wait at most {duration}")
        waited = N_("; 95 % of the jobs have waited at most {duration}")
        sentence += _(waited if cells["unfinished"] else wait, duration=duration(cells["wait_h_p95"]))
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
                "{count:,} preemption lost {lost} GPU-hours of work",
                "{count:,} preemptions lost {lost} GPU-hours of work",
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
    return joined([_("{line}.", line=sentence), _("{line}.", line=more[:1].upper() + more[1:]) if parts else ""])


def _too_large(row: QueueRow) -> str:
    if row.outcome.plan.serving is None:
        return _("need more GPUs than there are")
    return _("need more GPUs than serving leaves free at any time")


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
"""Rows (column of summary.csv, heading, format of a value)."""


def results(rows: Sequence[QueueRow]) -> PageTable:
    """Return the table of results, a row per cluster and sweep point."""
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
    """Return the table of the jobs that waited longest on the first cluster, with their waits on all clusters."""
    feasible = [row for row in rows if row.ok]
    job_states = feasible[0].outcome.schedule.job_states
    order = sorted(range(len(job_states)), key=lambda i: -_sortable(waited_s(job_states[i])))[:MOST_JOBS]
    first = feasible[0].outcome
    body = [
        [
            job_states[i].job.name,
            str(job_states[i].job.gpus),
            plain(job_states[i].job.duration_s / SECONDS_PER_HOUR),
            *(_wait(row, i) for row in feasible),
            *([cash(first.job_nano_usd[i] / NANO_PER_USD)] if first.job_nano_usd else []),
        ]
        for i in order
    ]
    heads = [row.fleet for row in feasible]
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
    job_states = row.outcome.schedule.job_states
    wait = waited_s(job_states[place]) if place < len(job_states) else float("nan")
    return status_of(job_states[place], row.outcome) if isnan(wait) else plain(wait / SECONDS_PER_HOUR)


def cost_table(rows: Sequence[QueueRow]) -> PageTable | None:
    """Return the table of cost by component, with the part of idle GPUs; None without costs."""
    priced = [row for row in rows if row.outcome.ledger is not None]
    if not priced:
        return None
    body = component_rows([row.outcome.ledger for row in priced if row.outcome.ledger is not None])
    body.append([_("total"), *(cash(row.cells["cost_usd"]) for row in priced)])
    body.append([_("of it for idle GPUs"), *(cash(row.cells["idle_usd"]) for row in priced)])
    if any(row.cells.get("serving_usd") is not None for row in priced):
        body.append([_("of it for the service"), *(cash(row.cells["serving_usd"]) for row in priced)])
        body.append([_("of it for jobs"), *(cash(row.cells["jobs_usd"]) for row in priced)])
    return PageTable(_("Cost of the cluster"), "", [_("component"), *(row.fleet for row in priced)], body)


def tables(rows: Sequence[QueueRow]) -> list[PageTable]:
    """Return all tables; the longest waits are shown only without a sweep, when all clusters have the same jobs."""
    found = [results(rows)]
    if any(row.ok for row in rows) and not rows[0].outcome.plan.axes:
        found.append(waited_longest(rows))
    bill = cost_table(rows)
    return [*found, bill] if bill is not None else found


MOST_CURVES = 7
MOST_POINTS = 300
SERVING_COLOR = COLORS[-1]


def panels(rows: Sequence[QueueRow]) -> list[Panel]:
    """Return the charts of waiting times and GPUs in use of the first clusters; none if no cluster can run the jobs."""
    feasible = [row for row in rows if row.ok][:MOST_CURVES]
    if not feasible:
        return []
    looks = style([name(row) for row in feasible])
    waits = tuple(_waits(row, looks[name(row)][0]) for row in feasible)
    used = tuple(_used(row, looks[name(row)][0]) for row in feasible)
    bands = tuple(_band(row, color) for row, color in _bands(feasible))
    shown = _("GPUs that a service (band) or a job has") if bands else _("GPUs that have a job")
    return [
        Panel(_("Waiting"), _("share of the jobs that have started after this time"),
              _("hours from arrival to the first start"), waits, y_format=percent, y_share=True, kind="waiting"),
        Panel(_("GPUs in use"), _("{shown}, mean of an interval", shown=shown),
              _("{unit} from the start", unit=_("days") if _in_days(feasible) else _("hours")), bands + used,
              kind="utilisation"),
    ]  # fmt: skip


def key(rows: Sequence[QueueRow]) -> list[KeyEntry]:
    """Return the legend: the colour of every cluster."""
    feasible = [row for row in rows if row.ok][:MOST_CURVES]
    looks = style([name(row) for row in feasible])
    legend = [KeyEntry(text, color, dash="-") for text, (color, _) in looks.items()]
    shared = SERVING_COLOR in (color for _, color in _bands(feasible))
    return [*legend, KeyEntry(_("serving"), SERVING_COLOR, marker="s")] if shared else legend


def _waits(row: QueueRow, color: str) -> ChartCurve:
    job_states = row.outcome.schedule.job_states
    waits = np.sort([wait for work in job_states if not isnan(wait := waited_s(work))]) / SECONDS_PER_HOUR
    shares = np.linspace(0.0, 1.0, MOST_POINTS)
    x = np.quantile(waits, shares, method="inverted_cdf") if len(waits) else np.zeros(MOST_POINTS)
    y = shares * (len(waits) / len(job_states))
    return ChartCurve(name(row), color, tuple(x.tolist()), tuple(y.tolist()), good=(True,) * MOST_POINTS)


def _bands(rows: Sequence[QueueRow]) -> list[tuple[QueueRow, str]]:
    """Return the clusters whose service is drawn, each with its colour.

    If all clusters have the same service, it is drawn once, else in the colour of its cluster.
    """
    with_service = [row for row in rows if row.outcome.plan.serving is not None]
    if len({(row.outcome.plan.serving_gpus, row.outcome.schedule.end_s) for row in with_service}) == 1:
        return [(with_service[0], SERVING_COLOR)]
    looks = style([name(row) for row in rows])
    return [(row, looks[name(row)][0]) for row in with_service]


def _band(row: QueueRow, color: str) -> ChartCurve:
    """Return the band from 0 to the GPUs of the service."""
    x, y = _steps(row, row.outcome.timeline.serving)
    return ChartCurve(_("serving"), color, x, y, filled=True, good=(True,) * len(x))


def _used(row: QueueRow, color: str) -> ChartCurve:
    """Return the curve of GPUs with a job, stacked on those of the service."""
    timeline = row.outcome.timeline
    x, y = _steps(row, timeline.used + timeline.serving if row.outcome.plan.serving else timeline.used)
    return ChartCurve(name(row), color, x, y, good=(True,) * len(x))


def _steps(row: QueueRow, used: NDArray[np.float64]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return x and y of a step curve of *used* GPUs, averaged to at most MOST_POINTS steps."""
    edges = row.outcome.timeline.edges_s
    group_size = max(1, -(-len(used) // MOST_POINTS))
    starts = edges[:-1:group_size]
    ends = np.append(starts[1:], edges[-1])
    spent = np.add.reduceat(used * np.diff(edges), np.arange(0, len(used), group_size))
    means = spent / np.maximum(ends - starts, 1e-9)
    scale = SECONDS_PER_HOUR * (HOURS_PER_DAY if _in_days([row]) else 1)
    x = np.repeat(np.append(starts, edges[-1]), 2)[1:-1] / scale
    y = np.repeat(means, 2)
    return tuple(x.tolist()), tuple(y.tolist())


def _in_days(rows: Sequence[QueueRow]) -> bool:
    longest = max(row.outcome.schedule.end_s for row in rows)
    return bool(longest > 3 * HOURS_PER_DAY * SECONDS_PER_HOUR)


TEXT_COLUMNS = frozenset({0, 1, 3, 4})


def queue_overview(rows: Sequence[QueueRow], plans: Sequence[dict[str, Any]]) -> Iterator[RenderableType]:
    """Yield what `gpufleet check` prints for *rows*, which *plans* describe."""
    for note in notes(plans):
        yield Sentence(_("Note: {note}", note=note))
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
    yield FittedTable(heads, body, TEXT_COLUMNS)
    for row in rows:
        if not row.ok:
            yield Sentence(
                _("{fleet} cannot run: {reason}", fleet=row.fleet, reason=translate_rendered(row.cells["reason"]))
            )
    yield from values_and_sources(plans)


def write_jobs(folder: Path, rows: Sequence[QueueRow]) -> None:
    """Write jobs.csv, which only queues have."""
    write_rows(folder / "jobs.csv", list(_jobs(rows)))


def _jobs(rows: Sequence[QueueRow]) -> Iterator[dict[str, Any]]:
    for row in rows:
        front = {"fleet": row.fleet, **row.outcome.plan.axes, "replication": 0}
        for place, work in enumerate(row.outcome.schedule.job_states):
            yield front | job_cells(work, place, row.outcome)
