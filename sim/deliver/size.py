"""From a scenario to the folder of its cheapest fleet: search, then tables, picture and page."""

from collections.abc import Sequence
from pathlib import Path

from sim.catalogue.catalog import Catalog
from sim.deliver.basis import keep_basis
from sim.deliver.folder import begin, written_together
from sim.report.progress import SearchProgress
from sim.report.size import write_size
from sim.report.words.money import in_its_currency, rate_notes
from sim.scenario.checks.hardware import hostless_notes
from sim.scenario.schema import Scenario
from sim.study.discounting import levelised
from sim.study.execution.cases import Workplace
from sim.study.size.candidates import Sizing
from sim.study.size.search import search


@in_its_currency
def deliver_size(
    scenario: Scenario,
    catalog: Catalog,
    out: Path,
    workplace: Workplace,
    report: bool = True,
    quiet: bool = True,
    command: Sequence[str] = ("gpufleet", "size"),
    force: bool = False,
) -> Sizing:
    """Searches, simulates what is missing; leaves tables and the winner's scenario in *out*.

    With *report* also picture and page.
    """
    told = begin(out, scenario, command, "size", force)
    remarks, scenario = [*rate_notes(scenario), *hostless_notes(scenario, catalog)], levelised(scenario)
    with SearchProgress(quiet) as progress:
        found = search(scenario, catalog, out, workplace, progress)
    best = found.winner or found.nearest
    with written_together(out, told) as folder:
        keep_basis(folder, scenario, catalog, [best.fleet] if best is not None and best.fleet is not None else [])
        write_size(folder, found, scenario, remarks, report)
    return found
