"""Sections of a scenario, with the properties that the program needs beside their keys.

The keys and checks of a section are in a module of this folder. The module makes a `Section`, which is in the
annotation of the section's field in `Scenario`. Lists of sections, such as those that a case does not depend on or that
`price` may change, are all derived from these.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sim.catalogue.catalog import Catalog
from sim.scenario.experiment import Experiment, Fleet
from sim.validation import ValidationIssue

Keys = TypeVar("Keys")
Issues = Iterable[ValidationIssue]
Everything = Callable[[Any], Collection[object]]
"""Function that returns all contradictions within a scenario."""
Billing = Callable[[Fleet], object]
"""Function that resolves a fleet with its prices; it raises CostError with every missing price."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section(Generic[Keys]):
    """Section that asks about an experiment or limits its effort; the simulation does not depend on it.

    The checks are called where the section is given, each as soon as what it needs has passed.
    """

    command: str = ""
    """Command that reads the section; empty if `run` reads it, too."""
    ignored_by: tuple[str, ...] = ()
    """Commands that report on stderr that they ignore the section."""
    effort: bool = False
    """True if the section sets only precision or limits: a change continues a run, and it cannot be swept."""
    repriced: bool = False
    """True if `price` may change the section."""
    of_fleets: bool = False
    """True if the section names fleets, so that it does not apply to a fleet that `size` finds."""
    example: str = ""
    """Lines on the section in the scenario that `gpufleet init` writes."""
    check_ids: Callable[[Any, Catalog], Issues] | None = None
    """Check with (raw section, catalogue): yields names that are not in the catalogue."""
    check: Callable[[Keys, Experiment, Everything], Issues] | None = None
    """Check with (section, scenario, all checks of a scenario): yields contradictions other than the hardware's."""
    check_terms: Callable[[Keys, Experiment, Catalog], Issues] | None = None
    """Check with (section, scenario, catalogue): yields missing or contradictory terms, whatever else is wrong."""
    check_bills: Callable[[Keys, Experiment, Billing], Issues] | None = None
    """Check with (section, scenario, billing function): yields missing prices, where all fleets can be built."""
    check_sweep: Callable[[Keys, dict[str, Any], bool], Issues] | None = None
    """Check with (section, raw data of the scenario, whether the command simulates the sweep): yields conflicts."""
    months: tuple[str, Callable[[Keys], float]] | None = None
    """Key of the section that sets its time span, and a function that returns the number of months."""


def sections_of(scenario: type[Experiment]) -> dict[str, Section[Any]]:
    """Return every registered section by name, in the order of the fields of *scenario*."""
    return {
        name: one for name, field in scenario.model_fields.items() for one in field.metadata if isinstance(one, Section)
    }
