"""Everything that a job leaves in its folder, manifest.json aside."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sim.catalogue.value import WEAK_KINDS
from sim.report.job.picture import key, panels
from sim.report.job.tables import results, tables
from sim.report.job.verdict import verdict
from sim.report.page.page import picture, render_page, text_table, write_picture
from sim.report.run.basis import notes
from sim.report.run.tables import COST_COLUMNS, USAGE_COLUMNS, write_rows
from sim.report.terminal.fitted import FittedTable
from sim.report.words.text import first_sentence
from sim.scenario.job.schema import JobScenario
from sim.study.job.columns import JobRow
from sim.units import NANO_PER_USD
from sim.yamlio import dump

PHASES = {"prefill": "saving", "decode": "training", "recompute": "lost", "idle": "restarting"}
"""Phases of the ledger, under the names that they have in a job."""
TOKEN_COLUMNS = ("prompt_tokens", "cached_tokens", "output_tokens", "recomputed_tokens", "service")
Plans = Sequence[Mapping[str, Any]]


def job_document(scenario: JobScenario, rows: Sequence[JobRow], out: str) -> dict[str, Any]:
    """The answer for `--format json`: the verdict and the rows of summary.csv."""
    told = verdict(rows)
    return {
        "scenario": scenario.name,
        "question": scenario.question,
        "out": out,
        "verdict": {"headline": told.headline, "findings": list(told.findings)},
        "points": [row.cells for row in rows],
    }


def job_tables(rows: Sequence[JobRow]) -> list[FittedTable]:
    """What the terminal shows."""
    return [text_table(results(rows))]


def job_figure(scenario: JobScenario, rows: Sequence[JobRow], kind: str = "") -> Any:
    """A matplotlib figure of all charts, or of those of a *kind*."""
    chosen = [panel for panel in panels(rows) if kind in ("", panel.kind)]
    return picture(chosen, asked(scenario), [verdict(rows).headline], key(rows))


def asked(scenario: JobScenario) -> str:
    """The question in one sentence."""
    return first_sentence(scenario.question or scenario.name)[0]


def write_job(
    folder: Path, scenario: JobScenario, rows: Sequence[JobRow], resolved: Plans, with_pictures: bool
) -> None:
    """summary.csv, usage.csv, costs.csv, resolved.yaml and, *with_pictures*, curves.png and report.html."""
    write_rows(folder / "summary.csv", [row.cells for row in rows])
    axes = list(rows[0].outcome.plan.axes)
    front = ["fleet", *axes, "replication"]
    usage = [name for name in USAGE_COLUMNS if name not in TOKEN_COLUMNS]
    write_rows(folder / "usage.csv", list(_usage(rows, usage)), [*front, *usage])
    write_rows(folder / "costs.csv", list(_costs(rows)), [*front, *COST_COLUMNS])
    (folder / "resolved.yaml").write_text(dump(list(resolved)), encoding="utf-8")
    if not with_pictures:
        return
    told = verdict(rows)
    if charts := panels(rows):
        write_picture(folder / "curves.png", charts, asked(scenario), [told.headline], key(rows))
    page = render_page(
        scenario.name,
        asked(scenario),
        [told.headline, *told.findings],
        charts,
        tables(rows),
        [*notes(resolved), *_weak(resolved)],
        key=key(rows) if charts else (),
    )
    (folder / "report.html").write_text(page, encoding="utf-8")


def _usage(rows: Sequence[JobRow], names: Sequence[str]) -> Iterator[dict[str, Any]]:
    for row in rows:
        for interval in row.outcome.intervals:
            yield _front(row) | {name: getattr(interval, name) for name in names}


def _costs(rows: Sequence[JobRow]) -> Iterator[dict[str, Any]]:
    for row in rows:
        for line in row.outcome.ledger.rows if row.outcome.ledger else ():
            found = {name: getattr(line, name) for name in COST_COLUMNS if name != "amount_usd"}
            found |= {"amount_usd": line.amount_nano_usd / NANO_PER_USD, "phase": PHASES.get(line.phase, line.phase)}
            yield _front(row) | found


def _front(row: JobRow) -> dict[str, Any]:
    return {"fleet": row.fleet, **row.outcome.plan.axes, "replication": 0}


def _weak(resolved: Plans) -> list[str]:
    """The assumed and recalled values that the answer rests on, in one sentence a kind."""
    found: dict[str, dict[str, None]] = {}
    for plan in resolved:
        for value in plan["values"]:
            if value["kind"] in WEAK_KINDS:
                found.setdefault(value["kind"], {})[str(value["path"]).removeprefix(f"fleets.{plan['fleet']}.")] = None
    return [f"{kind.capitalize()}, not sourced: {', '.join(paths)}." for kind, paths in found.items()]
