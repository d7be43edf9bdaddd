"""Tables of a queue: clusters, their bills, and the jobs that waited longest."""

from collections.abc import Callable, Sequence
from math import isnan
from typing import Any

from sim.language import N_, _
from sim.report.page.page import Table
from sim.report.words.money import cash
from sim.report.words.text import axis_label, percent, plain, short
from sim.report.work.bill import component_rows
from sim.study.work.queue.columns import QueueRow, status_of, waited_s
from sim.units import NANO_PER_USD, SECONDS_PER_HOUR

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


def results(rows: Sequence[QueueRow]) -> Table:
    """One row per cluster and point."""
    axes = list(rows[0].outcome.plan.axes)
    shown = [one for one in RESULTS if any(row.cells.get(one[0]) is not None for row in rows)]
    return Table(
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


def waited_longest(rows: Sequence[QueueRow]) -> Table:
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
    return Table(
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


def cost_table(rows: Sequence[QueueRow]) -> Table | None:
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
    return Table(_("What the cluster costs"), "", [_("component"), *(row.fleet for row in priced)], body)


def tables(rows: Sequence[QueueRow]) -> list[Table]:
    """All of them; jobs by name only without a sweep, where all clusters have the same."""
    found = [results(rows)]
    if any(row.ok for row in rows) and not rows[0].outcome.plan.axes:
        found.append(waited_longest(rows))
    bill = cost_table(rows)
    return [*found, bill] if bill is not None else found
