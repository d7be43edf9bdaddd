"""Computation and output of the kinds of work: a training job, or a queue of jobs. Each kind is a `WorkKind`.

Every kind writes summary.csv, usage.csv, costs.csv and resolved.yaml to its folder, with pictures also curves.png and
report.html. To add a kind of work, define a `WorkKind` here.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim.catalogue.value import WEAK_KINDS
from sim.cost.ledger import Ledger
from sim.jobs import outcome as queue_columns
from sim.jobs import report as queue_picture
from sim.jobs import report as queue_tables
from sim.jobs.load import AnyScenario
from sim.jobs.outcome import HELD, queue_outcomes
from sim.jobs.plan import describe_queue
from sim.jobs.report import queue_overview, write_jobs
from sim.jobs.report import verdict as queue_verdict
from sim.jobs.schema import QueueScenario
from sim.language import N_, _
from sim.records import Interval
from sim.report.charts.chart import Chart
from sim.report.charts.fonts import drawable
from sim.report.charts.panels import Panel
from sim.report.charts.picture import KeyEntry, panel_picture
from sim.report.page.page import PageTable, render_page, text_table
from sim.report.run.tables import COST_COLUMNS, USAGE_COLUMNS, write_rows
from sim.report.sources import notes
from sim.report.terminal_table import FittedTable
from sim.report.words.text import question_and_context
from sim.training import outcome as job_columns
from sim.training import report as job_picture
from sim.training import report as job_tables
from sim.training.outcome import job_outcomes
from sim.training.plan import describe_job
from sim.training.report import JobVerdict, job_overview
from sim.training.report import verdict as job_verdict
from sim.training.schema import WorkScenario
from sim.units import NANO_PER_USD
from sim.yamlio import dump

_TOKEN_COLUMNS = ("prompt_tokens", "cached_tokens", "output_tokens", "recomputed_tokens", "service")
USAGE = [name for name in USAGE_COLUMNS if name not in _TOKEN_COLUMNS]
"""Columns of usage.csv."""
Plans = Sequence[Mapping[str, Any]]


def work_question(scenario: WorkScenario) -> str:
    """Return the question of *scenario* in one sentence."""
    return question_and_context(scenario.question, scenario.name)[0]


@dataclass(frozen=True, slots=True)
class WorkTables:
    """Results of work of any kind in the form in which `write_work` writes them."""

    rows: Sequence[tuple[Mapping[str, Any], Mapping[str, Any], Sequence[Interval], Ledger | None]]
    """Rows (row of summary.csv, sweep axes, meter readings, ledger) of every fleet at every sweep point."""
    phases: Mapping[str, str]
    """Names in costs.csv of the ledger's phases."""
    picture: tuple[str, Sequence[Panel]]
    """Headline and charts of the picture."""
    answers: Sequence[str]
    panels: Sequence[Panel]
    key: Sequence[KeyEntry]
    tables: Sequence[PageTable]


def write_work(folder: Path, scenario: WorkScenario, work: WorkTables, resolved: Plans, with_pictures: bool) -> None:
    """Write summary.csv, usage.csv, costs.csv and resolved.yaml; *with_pictures* also curves.png and report.html."""
    write_rows(folder / "summary.csv", [cells for cells, *_ in work.rows])
    front = ["fleet", *work.rows[0][1], "replication"]
    write_rows(folder / "usage.csv", list(_usage(work)), [*front, *USAGE])
    write_rows(folder / "costs.csv", list(_costs(work)), [*front, *COST_COLUMNS])
    (folder / "resolved.yaml").write_text(dump(list(resolved)), encoding="utf-8")
    if not with_pictures:
        return
    question, legend = work_question(scenario), work.key if work.panels else ()
    if work.panels:
        answer, drawn = work.picture
        panel_picture(drawn, question, [answer], legend).save(folder / "curves.png")
    remarks = [*notes(resolved), *_unsourced(resolved)]
    page = render_page(scenario.name, question, work.answers, work.panels, work.tables, remarks, key=legend)
    (folder / "report.html").write_text(page, encoding="utf-8")


def _usage(work: WorkTables) -> Iterator[dict[str, Any]]:
    for cells, axes, intervals, _ledger in work.rows:
        for interval in intervals:
            yield _front(cells, axes) | {name: getattr(interval, name) for name in USAGE}


def _costs(work: WorkTables) -> Iterator[dict[str, Any]]:
    for cells, axes, _intervals, ledger in work.rows:
        for line in ledger.rows if ledger else ():
            found = {name: getattr(line, name) for name in COST_COLUMNS if name != "amount_usd"}
            found |= {"amount_usd": line.amount_nano_usd / NANO_PER_USD}
            yield _front(cells, axes) | found | {"phase": work.phases.get(line.phase, line.phase)}


def _front(cells: Mapping[str, Any], axes: Mapping[str, Any]) -> dict[str, Any]:
    return {"fleet": cells["fleet"], **axes, "replication": 0}


SOURCES = {"assumed": N_("Assumed, not sourced: {paths}."), "recalled": N_("Recalled, not sourced: {paths}.")}
"""Remark on all values of a kind, keyed by kind."""


def _unsourced(resolved: Plans) -> list[str]:
    """Return a sentence for each of the kinds assumed and recalled, listing the values that the result depends on."""
    found: dict[str, dict[str, None]] = {}
    for plan in resolved:
        for value in plan["values"]:
            if value["kind"] in WEAK_KINDS:
                found.setdefault(value["kind"], {})[str(value["path"]).removeprefix(f"fleets.{plan['fleet']}.")] = None
    return [_(SOURCES[kind], paths=_(", ").join(paths)) for kind, paths in found.items()]


Rows = Sequence[Any]
"""Rows of summary.csv with their outcomes: JobRow or QueueRow."""


def _write_no_extra(folder: Path, rows: Rows) -> None:
    """Write no additional files."""


@dataclass(frozen=True, slots=True)
class WorkKind:
    """Functions that compute and present one kind of work."""

    outcomes: Callable[..., Sequence[Any]]
    """Function (scenario, catalogue) -> outcomes with their plans."""
    summary: Callable[[Any], Rows]
    """Function outcomes -> rows of summary.csv."""
    describe: Callable[..., dict[str, Any]]
    """Function (plan, catalogue) -> plan as plain data."""
    verdict: Callable[[Any], JobVerdict]
    panels: Callable[[Any], Sequence[Any]]
    key: Callable[[Any], Sequence[Any]]
    """Function rows -> legend entries of the fleets."""
    results: Callable[[Any], PageTable]
    """Function rows -> table on the terminal, the first of the page."""
    page_tables: Callable[[Any], Sequence[PageTable]]
    """Function rows -> all tables of the page."""
    overview: Callable[..., Any]
    """Function (rows, descriptions) -> output of `gpufleet check`."""
    phases: Mapping[str, str]
    """Names in costs.csv of the ledger's phases."""
    write_extra: Callable[[Path, Any], None] = _write_no_extra
    """Function (folder, rows) that writes the files that only this kind has."""

    def described(self, rows: Rows, catalog: Any) -> list[dict[str, Any]]:
        """Return the plan of every fleet at every sweep point as plain data."""
        plans = [row.outcome.plan for row in rows]
        return [{"at": plan.axes, **self.describe(plan, catalog)} for plan in plans]

    def rows(self, scenario: AnyScenario, catalog: Any) -> Rows:
        """Compute *scenario*. Return its rows of summary.csv."""
        return self.summary(self.outcomes(scenario, catalog))

    def tables(self, rows: Rows) -> list[FittedTable]:
        """Return the tables for the terminal."""
        return [text_table(self.results(rows))]

    def document(self, scenario: Any, rows: Rows, out: str) -> dict[str, Any]:
        """Return the result for `--format json`: the verdict and the rows of summary.csv."""
        answer = self.verdict(rows)
        return {
            "scenario": scenario.name,
            "question": scenario.question,
            "out": out,
            "verdict": {"headline": answer.headline, "findings": list(answer.findings)},
            "points": [row.cells for row in rows],
        }

    def figure(self, scenario: Any, rows: Rows, kind: str = "") -> Chart:
        """Return the picture of all charts, or of those of *kind*."""
        chosen = [panel for panel in self.panels(rows) if kind in ("", panel.kind)]
        return panel_picture(chosen, work_question(scenario), [self.verdict(rows).headline], self.key(rows))

    def write(self, folder: Path, scenario: Any, rows: Rows, resolved: Plans, with_pictures: bool) -> None:
        """Write all files of this kind; *with_pictures* also the picture and the page."""
        self.write_extra(folder, rows)
        answer = self.verdict(rows)
        with drawable():
            drawn = (self.verdict(rows).headline, self.panels(rows))
        work = WorkTables(
            picture=drawn,
            rows=[(row.cells, row.outcome.plan.axes, row.outcome.intervals, row.outcome.ledger) for row in rows],
            phases=self.phases,
            answers=[answer.headline, *answer.findings],
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
    write_extra=write_jobs,
)


def kind_of(scenario: AnyScenario) -> WorkKind:
    """Return the kind of work of *scenario*."""
    return QUEUE if isinstance(scenario, QueueScenario) else JOB
