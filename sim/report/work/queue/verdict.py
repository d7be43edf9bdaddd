"""The answer about a queue in sentences."""

from collections.abc import Sequence
from itertools import pairwise

from sim.language import N_, _, ngettext, retold
from sim.report.words.money import cash
from sim.report.words.text import joined, listing, percent, places, plain
from sim.report.work.job.verdict import JobVerdict, duration
from sim.study.work.queue.columns import QueueRow


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
