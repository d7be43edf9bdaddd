"""Computation of an answer, and output of its tables, pictures and page to a folder."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sim.answers.folder import begin, own_catalogue, replaced_together
from sim.answers.questions import Answered, Question, Task
from sim.catalogue.catalog import Catalog
from sim.language import N_
from sim.report.progress import CaseProgress
from sim.report.words.money import in_its_currency
from sim.scenario.checks.hardware import gpus_without_server_notes
from sim.scenario.schema import Fleet, Scenario
from sim.study.capacity_tolerance import RELATIVE
from sim.study.execution.cases import Workplace, resolved_plans
from sim.study.reprice import keep_scenario
from sim.yamlio import dump


@in_its_currency
def write_answer(
    question: Question,
    scenario: Scenario,
    catalog: Catalog,
    out: Path,
    workplace: Workplace,
    relative: float = RELATIVE,
    report: bool = True,
    quiet: bool = True,
    command: Sequence[str] = ("gpufleet",),
    force: bool = False,
    found: Any = None,
    notes: Sequence[str] = (),
) -> Answered:
    """Answer the *question*, and write tables and, with *report*, pictures and page to *out*.

    Points are stored in `out/points` as they are simulated; the other files are replaced together at the end. Each
    capacity is found to within the fraction *relative*. An answer *found* before is written as it is; *notes* are
    further sentences of the page.
    """
    options = {"relative": relative} if question.relative_option else {}
    entries = begin(out, scenario, command, question.name, force, **options) | own_catalogue(catalog)
    remarks = [*notes, *question.remarks(scenario), *gpus_without_server_notes(scenario, catalog)]
    adjusted = question.adjusted(scenario)
    if found is None:
        found = question.compute(Task(adjusted, catalog, out, workplace, relative, quiet))
    writing = CaseProgress(quiet, N_("writing the results"), later_stage=True)
    with writing, replaced_together(out, entries | question.simulated(found)) as folder:
        resolved = _keep_basis(folder, adjusted, catalog, question.fleets(found))
        question.write(folder, Answered(adjusted, found, relative, remarks, resolved), report)
    return Answered(scenario, found, relative, remarks, resolved)


def _keep_basis(
    folder: Path, scenario: Scenario, catalog: Catalog, fleets: Sequence[Fleet] | None
) -> list[dict[str, object]]:
    """Write scenario.yaml, and resolved.yaml of *fleets* (None: all) without the sweep; return the latter's content."""
    chosen = {"sweep": None} | ({} if fleets is None else {"fleets": tuple(fleets)})
    resolved = resolved_plans(scenario.model_copy(update=chosen), catalog)
    keep_scenario(folder, scenario)
    (folder / "resolved.yaml").write_text(dump(resolved), encoding="utf-8")
    return resolved
