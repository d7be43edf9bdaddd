"""From a scenario with a job to its results folder. The answer takes a moment and is computed anew each time."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sim.catalogue.catalog import Catalog
from sim.deliver.folder import begin_question, written_together
from sim.deliver.question import Question, digest
from sim.report.job.answer import write_job
from sim.report.words.money import in_its_currency
from sim.scenario.job.describe import describe_job
from sim.scenario.job.schema import JobScenario
from sim.scenario.sweep import as_data
from sim.study.cases.inputs import placeless
from sim.study.job.columns import JobRow, summary
from sim.study.job.outcome import job_outcomes
from sim.study.price.reprice import SCENARIO_FILE
from sim.yamlio import dump

BY_THEMSELVES = ("question", "seed", "replications", "fleets", "sweep")


@in_its_currency
def run_job(
    scenario: JobScenario,
    catalog: Catalog,
    out: Path,
    report: bool = True,
    command: Sequence[str] = ("gpufleet", "run"),
    force: bool = False,
    **_: Any,
) -> list[JobRow]:
    """Every fleet at every point; tables and, with *report*, picture and page are left in *out*.

    Raises FolderRefused where *out* holds the answer to another question, unless by *force*.
    """
    told = begin_question(out, _question(scenario), command, force, scenario=scenario.name, seed=scenario.seed)
    found = job_outcomes(scenario, catalog)
    rows = summary(found)
    with written_together(out, told | {"cases": len(rows)}, points=()) as folder:
        resolved = [{"at": one.plan.axes, **describe_job(one.plan, catalog)} for one in found]
        write_job(folder, scenario, rows, resolved, report)
        (folder / SCENARIO_FILE).write_text(dump(as_data(scenario)), encoding="utf-8")
    return rows


def _question(scenario: JobScenario) -> Question:
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
