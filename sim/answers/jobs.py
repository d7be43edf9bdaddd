"""Computation and results folder of a scenario with a job or jobs; the answer is quick and computed each time."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sim.answers.folder import StoredQuestion, begin_question, digest, replaced_together
from sim.catalogue.catalog import Catalog
from sim.jobs.kinds import kind_of
from sim.jobs.load import AnyScenario
from sim.report.words.money import in_its_currency
from sim.scenario.sweep import as_data
from sim.study.execution.digest import placeless
from sim.study.reprice import SCENARIO_FILE
from sim.yamlio import dump

BY_THEMSELVES = ("question", "seed", "replications", "fleets", "sweep", "claim")


@in_its_currency
def run_work(
    scenario: AnyScenario,
    catalog: Catalog,
    out: Path,
    report: bool = True,
    command: Sequence[str] = ("gpufleet", "run"),
    force: bool = False,
    **_: Any,
) -> Sequence[Any]:
    """Return the rows of every fleet at every point, and write tables and, with *report*, picture and page to *out*.

    Raises
    ------
    FolderRefused
        Where *out* holds the answer to another question, unless by *force*.

    """
    entries = begin_question(out, _question(scenario), command, force, scenario=scenario.name, seed=scenario.seed)
    kind = kind_of(scenario)
    rows = kind.rows(scenario, catalog)
    with replaced_together(out, entries | {"cases": len(rows)}, points=()) as folder:
        kind.write(folder, scenario, rows, kind.described(rows, catalog), report)
        (folder / SCENARIO_FILE).write_text(dump(as_data(scenario)), encoding="utf-8")
    return rows


def _question(scenario: AnyScenario) -> StoredQuestion:
    data = placeless(as_data(scenario))
    return {
        "command": "run",
        "options": {},
        "values": {key: digest(value) for key, value in data.items() if key not in BY_THEMSELVES},
        "fleets": {fleet["name"]: digest(fleet) for fleet in data["fleets"]},
        "sweep": data.get("sweep"),
        "replications": 1,
        "precision": None,
    }
