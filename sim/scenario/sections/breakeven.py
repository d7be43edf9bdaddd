"""What `gpufleet breakeven` compares, as a scenario says it."""

from collections.abc import Iterable, Iterator
from typing import Annotated

from pydantic import Field

from sim.catalogue.catalog import Catalog
from sim.cost import Cost, CostError
from sim.cost.rent import api
from sim.scenario.experiment import Experiment, Fleet
from sim.scenario.reading.errors import Complaint, Place, did_you_mean
from sim.scenario.resolving.resolve import resolve_fleet
from sim.scenario.sections.section import Everything, Section
from sim.spec import Count, Positive, Spec

OWN_WAY = {"buy": "bought", "rent": "rented"}
"""What a fleet's own way to pay is called where it has others."""


def candidate_names(fleet: Fleet, ways: Iterable[str]) -> list[str]:
    """One for each way to pay for *fleet*: its own, then those of `also`."""
    if fleet.cost is None:
        return [fleet.name]
    labels = list(ways)
    own = f"{fleet.name} {OWN_WAY[fleet.cost.acquisition]}" if labels else fleet.name
    return [own, *(f"{fleet.name} {label}" for label in labels)]


class Breakeven(Spec):
    """Ways to pay for the same hardware, and for how long. Every section is optional."""

    also: dict[str, dict[Annotated[str, Field(min_length=1)], Cost]] = Field(default_factory=dict)
    """Fleet -> label -> another `cost` of the same hardware: {a: {rented: {acquisition: rent, ...}}}."""
    load: Positive | None = None
    """Load of the months and of the verdict, in the workload's own unit (requests per second, clients, or the trace's
    speed); left out: the workload's. With a `load_profile` it is the mean over the year, to which the profile is
    scaled; left out: the profile's own."""
    months: Count = 60
    """How far the cash flows reach."""


def _check(asked: Breakeven, scenario: Experiment, _: Everything) -> Iterator[Complaint]:
    """Ways to pay for fleets that are not there, and names that would stand for two candidates."""
    names = [fleet.name for fleet in scenario.fleets]
    for name in asked.also:
        if name not in names:
            yield Complaint(("breakeven", "also", name), f"there is no fleet {name!r}{did_you_mean(name, names)}")
    taken = {api.NAME} if scenario.api is not None else set()
    for fleet in scenario.fleets:
        for candidate in candidate_names(fleet, asked.also.get(fleet.name, {})):
            if candidate in taken:
                told = f"two candidates are called {candidate!r}: choose another label, or name the fleet otherwise"
                yield Complaint(("breakeven", "also", fleet.name), told)
            taken.add(candidate)


def _check_bills(asked: Breakeven, scenario: Experiment, catalog: Catalog) -> Iterator[Complaint]:
    """Ways to pay that cannot be billed."""
    fleets = {fleet.name: fleet for fleet in scenario.fleets}
    for name, ways in asked.also.items():
        for label, cost in ways.items() if name in fleets else ():
            try:
                resolve_fleet(scenario, fleets[name].model_copy(update={"cost": cost}), catalog)
            except CostError as error:
                for path, text in error.problems:
                    steps: Place = tuple(path.split("."))
                    inside = steps[0] == "cost"
                    yield Complaint(("breakeven", "also", name, label, *steps[1:]) if inside else steps, text)


BREAKEVEN = Section(
    command="breakeven",
    repriced=True,
    of_fleets=True,
    check=_check,
    check_bills=_check_bills,
    months=("months", lambda asked: asked.months),
    example="""\
# other ways to pay for a fleet, for `gpufleet breakeven`
# breakeven: {also: {2x RTX 4090: {rented: {acquisition: rent, quotes: {rtx-4090: 0.4}}}}}""",
)
