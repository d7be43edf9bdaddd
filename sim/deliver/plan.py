"""From a scenario to the folder of its plan: simulate units, then tables, picture and page."""

from collections.abc import Sequence
from pathlib import Path

from sim.catalogue.catalog import Catalog
from sim.deliver.shared.basis import keep_basis
from sim.deliver.shared.folder import begin, written_together
from sim.report.money.plan.answer import plan_rate_notes, write_plan
from sim.report.terminal.progress import Progress
from sim.report.words.money import in_its_currency
from sim.report.words.services import load_notes
from sim.scenario.checks.hostless import hostless_notes
from sim.scenario.schema import Scenario
from sim.study.cases.execute import Workplace
from sim.study.cases.points import POINTS
from sim.study.cases.store import discard_unfinished
from sim.study.fleets.capacity.search import capacities
from sim.study.money.plan.loads import part_loads
from sim.study.money.plan.plans import Outlook, outlooks


@in_its_currency
def deliver_plan(
    scenario: Scenario,
    catalog: Catalog,
    out: Path,
    workplace: Workplace,
    relative: float,
    report: bool = True,
    quiet: bool = True,
    command: Sequence[str] = ("gpufleet", "plan"),
    force: bool = False,
) -> list[Outlook]:
    """Plans every fleet and leaves tables and, with *report*, picture and page in *out*.

    Simulated cases appear in `out/points`. The capacity of a unit is found to within the fraction *relative*.
    """
    told = begin(out, scenario, command, "plan", force, relative=relative)
    try:
        with Progress(quiet, "searching capacities", "searches") as progress:
            most = capacities(scenario, catalog, out, workplace, relative, progress, scenario.precision)
        with Progress(quiet, goes_on=True) as progress:
            measured = part_loads(scenario, catalog, most, out, workplace, progress)
    finally:
        discard_unfinished(out / POINTS)
    found = outlooks(scenario, catalog, most, measured)
    with written_together(out, told) as folder:
        resolved = keep_basis(folder, scenario, catalog)
        remarks = [*load_notes(scenario), *plan_rate_notes(scenario), *hostless_notes(scenario, catalog)]
        write_plan(folder, scenario, found, resolved, remarks, report)
    return found
