"""Questions about the fleets that a scenario names: capacity, sensitivity, break-even and plan.

Each leads from a scenario to the folder of its answer: search and simulate, then tables, pictures and page.
"""

from collections.abc import Sequence
from pathlib import Path

from sim.catalogue.catalog import Catalog
from sim.deliver.basis import keep_basis
from sim.deliver.folder import begin, written_together
from sim.report.breakeven import write_breakeven
from sim.report.capacity import write_capacity
from sim.report.plan import plan_rate_notes, write_plan
from sim.report.progress import Progress
from sim.report.sensitivity import SensitivityAnswer, write_sensitivity
from sim.report.words.money import in_its_currency
from sim.report.words.service_level import load_notes
from sim.scenario.checks.hardware import hostless_notes
from sim.scenario.schema import Scenario
from sim.scenario.sections.sensitivity import Sensitivity
from sim.study.breakeven import BreakevenAnswer, decide
from sim.study.breakeven_costs import Ledgers
from sim.study.capacity import Capacity, capacities, precision_of
from sim.study.capacity_tolerance import RELATIVE
from sim.study.cost_gap import Explained, explain
from sim.study.execution.cases import POINTS, Workplace
from sim.study.execution.store import discard_unfinished
from sim.study.load_axis import LoadAxis
from sim.study.plan import Outlook, outlooks, part_loads
from sim.study.sensitivity import USD, swings


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


@in_its_currency
def deliver_breakeven(
    scenario: Scenario,
    catalog: Catalog,
    out: Path,
    workplace: Workplace,
    report: bool = True,
    quiet: bool = True,
    command: Sequence[str] = ("gpufleet", "breakeven"),
    force: bool = False,
) -> BreakevenAnswer:
    """Searches capacities, simulates what is missing; leaves tables and, with *report*, picture and page in *out*."""
    told = begin(out, scenario, command, "breakeven", force)
    plain_scenario = scenario.model_copy(update={"sweep": None})
    with Progress(quiet, "searching capacities", "searches") as progress:
        found = capacities(plain_scenario, catalog, out, workplace, RELATIVE, progress, plain_scenario.precision)
    with Progress(quiet, goes_on=True) as progress:
        ledgers = Ledgers(scenario, catalog, out, workplace, found, progress)
    answer = decide(scenario, ledgers, found)
    with written_together(out, told) as folder:
        keep_basis(folder, scenario, catalog)
        write_breakeven(folder, answer, scenario, hostless_notes(scenario, catalog), report)
    return answer


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
