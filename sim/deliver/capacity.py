"""From a scenario to the folder of its capacities: search, then tables, picture and page."""

from collections.abc import Sequence
from pathlib import Path

from sim.catalogue.catalog import Catalog
from sim.deliver.shared.basis import keep_basis
from sim.deliver.shared.folder import begin, written_together
from sim.report.fleets.capacity.answer import write_capacity
from sim.report.terminal.progress import Progress
from sim.report.words.money import in_its_currency
from sim.scenario.checks.hostless import hostless_notes
from sim.scenario.schema import Scenario
from sim.study.cases.execute import Workplace
from sim.study.fleets.capacity.axis import LoadAxis
from sim.study.fleets.capacity.goal import precision_of
from sim.study.fleets.capacity.search import Capacity, capacities


@in_its_currency
def deliver_capacity(
    scenario: Scenario,
    catalog: Catalog,
    out: Path,
    workplace: Workplace,
    relative: float,
    report: bool = True,
    quiet: bool = True,
    command: Sequence[str] = ("gpufleet", "capacity"),
    force: bool = False,
) -> list[Capacity]:
    """Searches, and leaves in *out*: capacity.csv, search.csv, the simulated points and, with *report*, capacity.png
    and capacity.html.
    """
    told = begin(out, scenario, command, "capacity", force, relative=relative)
    axis = LoadAxis.of(scenario)
    with Progress(quiet, "searching", "searches") as progress:
        found = capacities(scenario, catalog, out, workplace, relative, progress, precision_of(scenario, relative))
    simulated = sum(search.simulated for one in found for search in one.found)
    with written_together(out, told | {"cases": simulated}) as folder:
        keep_basis(folder, scenario, catalog)
        remarks = hostless_notes(scenario, catalog)
        write_capacity(folder, scenario, found, axis, relative, remarks, with_pictures=report)
    return found
