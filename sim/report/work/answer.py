"""What every kind of work leaves in its folder, manifest.json aside."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim.catalogue.value import WEAK_KINDS
from sim.cost import Ledger
from sim.language import N_, _
from sim.records import Interval
from sim.report.charts.panels import Panel
from sim.report.fleets.run.basis import notes
from sim.report.fleets.run.tables import COST_COLUMNS, USAGE_COLUMNS, write_rows
from sim.report.page.page import Mark, Table, render_page, write_picture
from sim.report.words.text import first_sentence
from sim.scenario.job.schema import WorkScenario
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
    key: Sequence[Mark]
    tables: Sequence[Table]


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
        write_picture(folder / "curves.png", drawn, question, [answer], marks)
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
