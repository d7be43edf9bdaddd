"""From a scenario to the folder of its sensitivities: swings and gaps, then tables, pictures and page."""

from collections.abc import Sequence
from pathlib import Path

from sim.catalogue.catalog import Catalog
from sim.deliver.shared.basis import keep_basis
from sim.deliver.shared.folder import begin, written_together
from sim.report.fleets.sensitivity.answer import write_sensitivity
from sim.report.fleets.sensitivity.verdict import SensitivityAnswer
from sim.report.terminal.progress import Progress
from sim.report.words.money import in_its_currency
from sim.scenario.checks.hostless import hostless_notes
from sim.scenario.schema import Scenario
from sim.scenario.sections.sensitivity import Sensitivity
from sim.study.cases.execute import Workplace
from sim.study.fleets.sensitivity.gap import Explained, explain
from sim.study.fleets.sensitivity.one_at_a_time import USD, swings


@in_its_currency
def deliver_sensitivity(
    scenario: Scenario,
    catalog: Catalog,
    out: Path,
    workplace: Workplace,
    report: bool = True,
    quiet: bool = True,
    command: Sequence[str] = ("gpufleet", "sensitivity"),
    force: bool = False,
) -> SensitivityAnswer:
    """Simulates what is missing, and leaves tables and, with *report*, pictures and page in *out*."""
    told = begin(out, scenario, command, "sensitivity", force)
    plain_scenario = scenario.model_copy(update={"sweep": None})
    with Progress(quiet) as progress:
        found = swings(plain_scenario, catalog, out, workplace, progress)
    asked = scenario.sensitivity or Sensitivity()
    names = asked.between or tuple(fleet.name for fleet in scenario.fleets[:2])
    between = (names[0], names[1]) if len(names) == 2 and all(name in found.base for name in names) else None
    explained = Explained(())
    if between is not None and asked.metric == USD:
        with Progress(quiet, "taking the gap apart", "hybrids", goes_on=True) as progress:
            explained = explain(plain_scenario, catalog, out, workplace, *between, progress)
    answer = SensitivityAnswer(found, explained, between, scenario.replications)
    with written_together(out, told) as folder:
        keep_basis(folder, scenario, catalog)
        write_sensitivity(folder, answer, scenario, hostless_notes(scenario, catalog), report)
    return answer
