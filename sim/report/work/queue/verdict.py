"""The answer about a queue in sentences."""

from collections.abc import Sequence
from itertools import pairwise

from sim.report.words.money import cash
from sim.report.words.text import listing, percent, places, plain
from sim.report.work.job.verdict import JobVerdict, duration
from sim.study.work.queue.columns import QueueRow


def verdict(rows: Sequence[QueueRow]) -> JobVerdict:
    """Where jobs wait least, and where a GPU-hour of work costs least; then each cluster, and what cannot run."""
    able = [row for row in rows if row.ok]
    unable = dict.fromkeys(f"{row.fleet} cannot run: {row.cells['reason']}." for row in rows if not row.ok)
    if not able:
        return JobVerdict("No cluster can run the jobs.", tuple(unable))
    return JobVerdict(_headline(able), (*(_finding(row) for row in able), *unable))


def name(row: QueueRow) -> str:
    """The cluster and its place in the sweep."""
    at = places(tuple(row.outcome.plan.axes.items()))
    return f"{row.fleet} at {at}" if at else row.fleet


def _headline(rows: Sequence[QueueRow]) -> str:
    started = [row for row in rows if row.cells["wait_h_mean"] is not None]
    if not started:
        return "No job is started."
    ordered = sorted(started, key=lambda row: float(row.cells["wait_h_mean"]))
    least = ordered[0].cells["wait_h_mean"]
    if len(rows) == 1:
        told = f"Jobs wait {duration(least)} on average"
    elif all(one.cells["wait_h_mean"] == other.cells["wait_h_mean"] for one, other in pairwise(ordered)):
        told = f"Jobs wait alike everywhere: {duration(least)} on average"
    else:
        told = f"Jobs wait least on {name(ordered[0])}: {duration(least)} on average"
    priced = [row for row in rows if row.cells.get("usd_per_useful_gpu_h") is not None]
    if not priced:
        return f"{told}."
    cheapest = min(priced, key=lambda row: float(row.cells["usd_per_useful_gpu_h"]))
    on = f" on {name(cheapest)}" if len(rows) > 1 else ""
    usd = cash(cheapest.cells["usd_per_useful_gpu_h"])
    least_told = "costs least" if len(rows) > 1 else "costs"
    return f"{told}. A GPU-hour of work {least_told}{on}{':' if len(rows) > 1 else ''} {usd}."


def _finding(row: QueueRow) -> str:
    cells = row.cells
    if row.outcome.plan.serving is None:
        told = f"{name(row)}: {percent(cells['utilisation'])} of the GPU-hours used"
        told += f", {'broken off' if cells['unfinished'] else 'done'} after {duration(cells['makespan_h'])}"
    else:
        held = percent(cells["serving_gpu_h"] / (cells["gpus"] * cells["makespan_h"]))
        told = f"{name(row)}: serving holds {held} of the GPU-hours of {duration(cells['makespan_h'])}, jobs"
        told += f" {percent(cells['utilisation'])}"
    if cells["wait_h_p95"] is not None:
        wait = "have waited" if cells["unfinished"] else "wait"
        told += f"; 95 % of the jobs {wait} at most {duration(cells['wait_h_p95'])}"
    parts = []
    if cells.get("serving_usd"):
        parts.append(f"serving takes {cash(cells['serving_usd'])} and jobs {cash(cells['jobs_usd'])} of the bill")
    if cells["preemptions"]:
        lost = plain(cells["lost_gpu_h"])
        count = cells["preemptions"]
        parts.append(f"{count:,} preemption{'s' * (count > 1)} undid {lost} GPU-hours of work")
    if cells["deadlines"]:
        parts.append(f"{cells['deadlines_met']} of {cells['deadlines']} deadlines are met")
    for key, words in (("rejected", _too_large(row)), ("unfinished", "are not done at the horizon")):
        if cells[key]:
            parts.append(f"{cells[key]:,} of {cells['jobs']:,} jobs {words}")
    if cells.get("idle_usd"):
        parts.append(f"idle GPUs take {cash(cells['idle_usd'])} of {cash(cells['cost_usd'])}")
    return f"{told}." + (f" {listing(parts)[0].upper()}{listing(parts)[1:]}." if parts else "")


def _too_large(row: QueueRow) -> str:
    than = "there are" if row.outcome.plan.serving is None else "serving ever leaves"
    return f"need more GPUs than {than}"
