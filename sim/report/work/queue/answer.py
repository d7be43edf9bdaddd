"""Everything that a queue leaves in its folder, manifest.json aside."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sim.report.fleets.run.tables import write_rows
from sim.report.page.page import picture, text_table
from sim.report.terminal.fitted import FittedTable
from sim.report.work.job.answer import WorkTables, asked, write_work
from sim.report.work.queue.picture import key, panels
from sim.report.work.queue.tables import results, tables
from sim.report.work.queue.verdict import verdict
from sim.scenario.queue.schema import QueueScenario
from sim.study.work.queue.columns import QueueRow, job_cells
from sim.study.work.queue.outcome import HELD

PHASES = {"prefill": "restarting", "decode": "working", "recompute": "lost", "idle": "idle", HELD: "serving"}
"""Phases of the ledger, under the names that they have in a queue."""


def queue_document(scenario: QueueScenario, rows: Sequence[QueueRow], out: str) -> dict[str, Any]:
    """The answer for `--format json`: the verdict and the rows of summary.csv."""
    told = verdict(rows)
    return {
        "scenario": scenario.name,
        "question": scenario.question,
        "out": out,
        "verdict": {"headline": told.headline, "findings": list(told.findings)},
        "points": [row.cells for row in rows],
    }


def queue_tables(rows: Sequence[QueueRow]) -> list[FittedTable]:
    """What the terminal shows."""
    return [text_table(results(rows))]


def queue_figure(scenario: QueueScenario, rows: Sequence[QueueRow], kind: str = "") -> Any:
    """A matplotlib figure of all charts, or of those of a *kind*."""
    chosen = [panel for panel in panels(rows) if kind in ("", panel.kind)]
    return picture(chosen, asked(scenario), [verdict(rows).headline], key(rows))


def write_queue(
    folder: Path,
    scenario: QueueScenario,
    rows: Sequence[QueueRow],
    resolved: Sequence[Mapping[str, Any]],
    with_pictures: bool,
) -> None:
    """jobs.csv, summary.csv, usage.csv, costs.csv, resolved.yaml and, *with_pictures*, curves.png and report.html."""
    write_rows(folder / "jobs.csv", list(_jobs(rows)))
    told = verdict(rows)
    work = WorkTables(
        rows=[(row.cells, row.outcome.plan.axes, row.outcome.intervals, row.outcome.ledger) for row in rows],
        phases=PHASES,
        answers=[told.headline, *told.findings],
        panels=panels(rows),
        key=key(rows),
        tables=tables(rows),
    )
    write_work(folder, scenario, work, resolved, with_pictures)


def _jobs(rows: Sequence[QueueRow]) -> Iterator[dict[str, Any]]:
    for row in rows:
        front = {"fleet": row.fleet, **row.outcome.plan.axes, "replication": 0}
        for place, work in enumerate(row.outcome.schedule.works):
            yield front | job_cells(work, place, row.outcome)
