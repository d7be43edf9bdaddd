"""What `run` and `check` do with a job and with a queue of jobs. A new kind of work: a row in KINDS."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sim.report.work.job import answer as of_job
from sim.report.work.job.check import job_overview
from sim.report.work.job.picture import panels as job_panels
from sim.report.work.job.verdict import JobVerdict
from sim.report.work.job.verdict import verdict as job_verdict
from sim.report.work.queue import answer as of_queue
from sim.report.work.queue.check import queue_overview
from sim.report.work.queue.picture import panels as queue_panels
from sim.report.work.queue.verdict import verdict as queue_verdict
from sim.scenario.job.describe import describe_job
from sim.scenario.job.load import AnyScenario
from sim.scenario.queue.describe import describe_queue
from sim.scenario.queue.schema import QueueScenario
from sim.study.work.job import columns as job_columns
from sim.study.work.job.outcome import job_outcomes
from sim.study.work.queue import columns as queue_columns
from sim.study.work.queue.outcome import queue_outcomes

Rows = Sequence[Any]
"""Of summary.csv, each with its outcome: JobRow or QueueRow."""


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
    tables: Callable[[Any], Sequence[Any]]
    """Rows -> what the terminal shows."""
    document: Callable[..., dict[str, Any]]
    """(scenario, rows, folder) -> the answer as JSON."""
    figure: Callable[..., Any]
    """(scenario, rows, kind of chart) -> a matplotlib figure."""
    write: Callable[..., None]
    """(folder, scenario, rows, descriptions, with pictures?)."""
    overview: Callable[..., Any]
    """(rows, descriptions) -> what `check` prints."""

    def described(self, rows: Rows, catalog: Any) -> list[dict[str, Any]]:
        """What every fleet rests on at every point."""
        plans = [row.outcome.plan for row in rows]
        return [{"at": plan.axes, **self.describe(plan, catalog)} for plan in plans]

    def rows(self, scenario: AnyScenario, catalog: Any) -> Rows:
        """The answer."""
        return self.summary(self.outcomes(scenario, catalog))


JOB = WorkKind(
    outcomes=job_outcomes,
    summary=job_columns.summary,
    describe=describe_job,
    verdict=job_verdict,
    panels=job_panels,
    tables=of_job.job_tables,
    document=of_job.job_document,
    figure=of_job.job_figure,
    write=of_job.write_job,
    overview=job_overview,
)
QUEUE = WorkKind(
    outcomes=queue_outcomes,
    summary=queue_columns.summary,
    describe=describe_queue,
    verdict=queue_verdict,
    panels=queue_panels,
    tables=of_queue.queue_tables,
    document=of_queue.queue_document,
    figure=of_queue.queue_figure,
    write=of_queue.write_queue,
    overview=queue_overview,
)


def kind_of(scenario: AnyScenario) -> WorkKind:
    """How *scenario* is answered."""
    return QUEUE if isinstance(scenario, QueueScenario) else JOB
