"""From a scenario to the folder that answers rent, buy or API: capacities, bills, then tables, picture and page."""

from collections.abc import Sequence
from pathlib import Path

from sim.catalogue.catalog import Catalog
from sim.deliver.shared.basis import keep_basis
from sim.deliver.shared.folder import begin, written_together
from sim.report.money.breakeven.answer import write_breakeven
from sim.report.terminal.progress import Progress
from sim.report.words.money import in_its_currency
from sim.scenario.checks.hostless import hostless_notes
from sim.scenario.schema import Scenario
from sim.study.cases.execute import Workplace
from sim.study.fleets.capacity import RELATIVE
from sim.study.fleets.capacity.search import capacities
from sim.study.money.breakeven.candidates import Ledgers
from sim.study.money.breakeven.decision import BreakevenAnswer, decide


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
