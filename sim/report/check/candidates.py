"""`gpufleet check`: what `gpufleet size` chooses from."""

from collections.abc import Iterator

from rich.text import Text

from sim.catalogue.catalog import Catalog
from sim.language import _, retold
from sim.scenario.schema import Scenario
from sim.study.fleets.size.prospects import Prospects, why_no_size
from sim.study.fleets.size.units import Unit, units

FEW = 8
"""Candidates, and reasons why others cannot serve, that are named."""


def workload_told(scenario: Scenario) -> Text:
    """The load, for a scenario without fleets."""
    return Text(_("Workload: {describe}", describe=retold(scenario.workload.describe())))


def candidates(scenario: Scenario, catalog: Catalog) -> Iterator[Text]:
    """How many there are, the first that may serve, and why others cannot, most of them first."""
    assert scenario.size is not None
    kinds = list(units(scenario, scenario.size, catalog))
    prospects = None if why_no_size(scenario) else Prospects(scenario, catalog)
    able: list[Unit] = []
    refused: dict[str, list[Unit]] = {}
    for unit in kinds:
        reason = unit.refusal if prospects is None else prospects.look(unit).reason
        if reason:
            refused.setdefault(reason, []).append(unit)
        else:
            able.append(unit)
    told = _(
        "gpufleet size chooses among {count} kinds of replicas, at most {most} of each; {able} may serve:",
        count=len(kinds),
        most=scenario.size.max_replicas,
        able=len(able),
    )
    yield Text(f"\n{told}")
    for unit in able[:FEW]:
        yield Text(f"  {unit.name}")
    if len(able) > FEW:
        yield Text("  " + _("and {more} more, which size.csv of gpufleet size has", more=len(able) - FEW))
    if refused:
        yield Text(_("{count} cannot:", count=len(kinds) - len(able)))
    reasons = sorted(refused, key=lambda reason: -len(refused[reason]))
    for reason in reasons[:FEW]:
        first, *others = refused[reason]
        who = _("{name} and {more} more", name=first.name, more=len(others)) if others else first.name
        yield Text(f"  {who}: {retold(reason)}")
    if len(reasons) > FEW:
        yield Text("  " + _("and {more} more reasons", more=len(reasons) - FEW))
