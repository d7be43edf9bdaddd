"""How work to be done, a training job or a queue of jobs, is answered and written; each kind is a `WorkKind`.

Every kind leaves summary.csv, usage.csv, costs.csv and resolved.yaml in its folder, with pictures also curves.png and
report.html. A new kind of work: a `WorkKind` here.
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
from sim.report.charts.fonts import drawable
from sim.report.charts.panels import Panel
from sim.report.charts.picture import Chart, KeyEntry, panel_picture
from sim.report.page.page import PageTable, render_page, text_table
from sim.report.run.tables import COST_COLUMNS, USAGE_COLUMNS, write_rows
from sim.report.sources import notes
from sim.report.terminal_table import FittedTable
from sim.report.words.text import first_sentence
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

_OF_TOKENS = ("prompt_tokens", "cached_tokens", "output_tokens", "recomputed_tokens", "service")
USAGE = [name for name in USAGE_COLUMNS if name not in _OF_TOKENS]
"""Columns of usage.csv."""
Plans = Sequence[Mapping[str, Any]]


def asked(scenario: WorkScenario) -> str:
    """The question in one sentence."""
    return first_sentence(scenario.question or scenario.name)[0]


@dataclass(frozen=True, slots=True)
class WorkTables:
    """What is written about work of any kind."""

    rows: Sequence[tuple[Mapping[str, Any], Mapping[str, Any], Sequence[Interval], Ledger | None]]
    """(row of summary.csv, axes, meter readings, bill) of every fleet at every point."""
    phases: Mapping[str, str]
    """Phase of the ledger -> its name in costs.csv."""
    picture: tuple[str, Sequence[Panel]]
    """The answer and the charts, as the picture has them."""
    answers: Sequence[str]
    panels: Sequence[Panel]
    key: Sequence[KeyEntry]
    tables: Sequence[PageTable]


def write_work(folder: Path, scenario: WorkScenario, work: WorkTables, resolved: Plans, with_pictures: bool) -> None:
    """summary.csv, usage.csv, costs.csv, resolved.yaml and, *with_pictures*, curves.png and report.html."""
    write_rows(folder / "summary.csv", [cells for cells, *_ in work.rows])
    front = ["fleet", *work.rows[0][1], "replication"]
    write_rows(folder / "usage.csv", list(_usage(work)), [*front, *USAGE])
    write_rows(folder / "costs.csv", list(_costs(work)), [*front, *COST_COLUMNS])
    (folder / "resolved.yaml").write_text(dump(list(resolved)), encoding="utf-8")
    if not with_pictures:
        return
    question, marks = asked(scenario), work.key if work.panels else ()
    if work.panels:
        answer, drawn = work.picture
        panel_picture(drawn, question, [answer], marks).save(folder / "curves.png")
    remarks = [*notes(resolved), *_weak(resolved)]
    page = render_page(scenario.name, question, work.answers, work.panels, work.tables, remarks, key=marks)
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
"""Kind of a value -> what is said of all of them."""


def _weak(resolved: Plans) -> list[str]:
    """The assumed and recalled values that the answer rests on, in one sentence a kind."""
    found: dict[str, dict[str, None]] = {}
    for plan in resolved:
        for value in plan["values"]:
            if value["kind"] in WEAK_KINDS:
                found.setdefault(value["kind"], {})[str(value["path"]).removeprefix(f"fleets.{plan['fleet']}.")] = None
    return [_(SOURCES[kind], paths=_(", ").join(paths)) for kind, paths in found.items()]


Rows = Sequence[Any]
"""Of summary.csv, each with its outcome: JobRow or QueueRow."""


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
    results: Callable[[Any], PageTable]
    """Rows -> the table that the terminal shows, the page's first."""
    page_tables: Callable[[Any], Sequence[PageTable]]
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

    def figure(self, scenario: Any, rows: Rows, kind: str = "") -> Chart:
        """Return the picture of all charts, or of those of a *kind*."""
        chosen = [panel for panel in self.panels(rows) if kind in ("", panel.kind)]
        return panel_picture(chosen, asked(scenario), [self.verdict(rows).headline], self.key(rows))

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
