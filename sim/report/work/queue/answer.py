"""jobs.csv: how every job of a queue fared."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sim.report.fleets.run.tables import write_rows
from sim.study.work.queue.columns import QueueRow, job_cells


def write_jobs(folder: Path, rows: Sequence[QueueRow]) -> None:
    """jobs.csv, which stands beside the tables of all kinds of work."""
    write_rows(folder / "jobs.csv", list(_jobs(rows)))


def _jobs(rows: Sequence[QueueRow]) -> Iterator[dict[str, Any]]:
    for row in rows:
        front = {"fleet": row.fleet, **row.outcome.plan.axes, "replication": 0}
        for place, work in enumerate(row.outcome.schedule.works):
            yield front | job_cells(work, place, row.outcome)
