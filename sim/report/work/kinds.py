"""What `run` and `check` do with a job and with a queue of jobs. A new kind of work: a row in KINDS."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim.report.charts.fonts import drawable
from sim.report.page.page import Table, picture, text_table
from sim.report.terminal.fitted import FittedTable
from sim.report.work.answer import WorkTables, asked, write_work
from sim.report.work.job import picture as job_picture
from sim.report.work.job import tables as job_tables
from sim.report.work.job.check import job_overview
from sim.report.work.job.verdict import JobVerdict
from sim.report.work.job.verdict import verdict as job_verdict
from sim.report.work.queue import picture as queue_picture
from sim.report.work.queue import tables as queue_tables
from sim.report.work.queue.answer import write_jobs
from sim.report.work.queue.check import queue_overview
from sim.report.work.queue.verdict import verdict as queue_verdict
from sim.scenario.job.describe import describe_job
from sim.scenario.job.load import AnyScenario
from sim.scenario.queue.describe import describe_queue
from sim.scenario.queue.schema import QueueScenario
from sim.study.work.job import columns as job_columns
from sim.study.work.job.outcome import job_outcomes
from sim.study.work.queue import columns as queue_columns
from sim.study.work.queue.outcome import HELD, queue_outcomes

Rows = Sequence[Any]
"""Of summary.csv, each with its outcome: JobRow or QueueRow."""
Plans = Sequence[Mapping[str, Any]]


def _nothing(folder: Path, rows: Rows) -> None:
    """No files beside those of all kinds."""


@dataclass(frozen=True, slots=True)
class WorkKind:
    """How one kind of work is answered."""

    outcomes: Callable[..., Sequence[Any]]
    """(scenario, catalogue) -> outcomes, each with its plan."""
    summary: Callable[[Any], Rows]
    """Outcomes -> rows."""
    describe: Callable[..., dict[str, Any]]
    """(plan, catalogue) -> everything that it rests on."""
    verdict: Callable[[Any], JobVerdict]
    panels: Callable[[Any], Sequence[Any]]
    key: Callable[[Any], Sequence[Any]]
    """Rows -> the marks that name fleets in pictures."""
    results: Callable[[Any], Table]
    """Rows -> the table that the terminal shows, the page's first."""
    page_tables: Callable[[Any], Sequence[Table]]
    """Rows -> all tables of the page."""
    overview: Callable[..., Any]
    """(rows, descriptions) -> what `check` prints."""
    phases: Mapping[str, str]
    """Phase of the ledger -> its name in costs.csv."""
    write_beside: Callable[[Path, Any], None] = _nothing
    """(folder, rows): files that only this kind has."""

    def described(self, rows: Rows, catalog: Any) -> list[dict[str, Any]]:
        """What every fleet rests on at every point."""
        plans = [row.outcome.plan for row in rows]
        return [{"at": plan.axes, **self.describe(plan, catalog)} for plan in plans]

    def rows(self, scenario: AnyScenario, catalog: Any) -> Rows:
        """The answer."""
        return self.summary(self.outcomes(scenario, catalog))

    def tables(self, rows: Rows) -> list[FittedTable]:
        """What the terminal shows."""
        return [text_table(self.results(rows))]

    def document(self, scenario: Any, rows: Rows, out: str) -> dict[str, Any]:
        """The answer for `--format json`: the verdict and the rows of summary.csv."""
        told = self.verdict(rows)
        return {
            "scenario": scenario.name,
            "question": scenario.question,
            "out": out,
            "verdict": {"headline": told.headline, "findings": list(told.findings)},
            "points": [row.cells for row in rows],
        }

    def figure(self, scenario: Any, rows: Rows, kind: str = "") -> Any:
        """A matplotlib figure of all charts, or of those of a *kind*."""
        chosen = [panel for panel in self.panels(rows) if kind in ("", panel.kind)]
        return picture(chosen, asked(scenario), [self.verdict(rows).headline], self.key(rows))

    def write(self, folder: Path, scenario: Any, rows: Rows, resolved: Plans, with_pictures: bool) -> None:
        """summary.csv, usage.csv, costs.csv, resolved.yaml, the kind's own and, *with_pictures*, picture and page."""
        self.write_beside(folder, rows)
        told = self.verdict(rows)
        with drawable():
            drawn = (self.verdict(rows).headline, self.panels(rows))
        work = WorkTables(
            picture=drawn,
            rows=[(row.cells, row.outcome.plan.axes, row.outcome.intervals, row.outcome.ledger) for row in rows],
            phases=self.phases,
            answers=[told.headline, *told.findings],
            panels=self.panels(rows),
            key=self.key(rows),
            tables=self.page_tables(rows),
        )
        write_work(folder, scenario, work, resolved, with_pictures)


JOB = WorkKind(
    outcomes=job_outcomes,
    summary=job_columns.summary,
    describe=describe_job,
    verdict=job_verdict,
    panels=job_picture.panels,
    key=job_picture.key,
    results=job_tables.results,
    page_tables=job_tables.tables,
    overview=job_overview,
    phases={"prefill": "saving", "decode": "training", "recompute": "lost", "idle": "restarting"},
)
QUEUE = WorkKind(
    outcomes=queue_outcomes,
    summary=queue_columns.summary,
    describe=describe_queue,
    verdict=queue_verdict,
    panels=queue_picture.panels,
    key=queue_picture.key,
    results=queue_tables.results,
    page_tables=queue_tables.tables,
    overview=queue_overview,
    phases={"prefill": "restarting", "decode": "working", "recompute": "lost", "idle": "idle", HELD: "serving"},
    write_beside=write_jobs,
)


def kind_of(scenario: AnyScenario) -> WorkKind:
    """How *scenario* is answered."""
    return QUEUE if isinstance(scenario, QueueScenario) else JOB
