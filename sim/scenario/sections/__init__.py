"""Sections of a scenario: what the program needs to know of each, beside its keys.

The keys and checks of a section are in a module of this folder. The module makes a `Section`, which stands in the
annotation of the section's field in `Scenario`. Lists of sections, such as those that a case does not rest on or
that `price` may change, are all read off there.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sim.catalogue.catalog import Catalog
from sim.scenario.experiment import Experiment, Fleet
from sim.scenario.reading.errors import ValidationIssue

Keys = TypeVar("Keys")
Issues = Iterable[ValidationIssue]
Everything = Callable[[Any], Collection[object]]
"""Of a scenario: all that contradicts itself in it."""
Billing = Callable[[Fleet], object]
"""Resolve a fleet of the scenario with its prices. Raises CostError with every price that is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section(Generic[Keys]):
    """A section that asks about an experiment, or says how far to go; what is simulated does not depend on it.

    The checks are called where the section is given, each as soon as what it needs has passed.
    """

    command: str = ""
    """The one command that reads it; empty: `run` does, too."""
    ignored_by: tuple[str, ...] = ()
    """Commands that say on stderr that they leave it aside."""
    effort: bool = False
    """Whether it says how exactly or how far, and never what: its change continues a run, and it cannot be swept."""
    repriced: bool = False
    """Whether `price` may change it."""
    of_fleets: bool = False
    """Whether it is about fleets by their names, so that it says nothing of a fleet that `size` finds."""
    example: str = ""
    """Lines of the scenario that `gpufleet init` writes."""
    check_ids: Callable[[Any, Catalog], Issues] | None = None
    """Of (the raw section, catalogue): names that the catalogue does not know."""
    check: Callable[[Keys, Experiment, Everything], Issues] | None = None
    """Of (the section, scenario, all checks of a scenario): contradictions, of every kind but the hardware's."""
    check_terms: Callable[[Keys, Experiment, Catalog], Issues] | None = None
    """Of (the section, scenario, catalogue): what is missing or does not fit, whatever else is wrong."""
    check_bills: Callable[[Keys, Experiment, Billing], Issues] | None = None
    """Of (the section, scenario, how a fleet is billed): prices that are missing, where all fleets can be built."""
    check_sweep: Callable[[Keys, dict[str, Any], bool], Issues] | None = None
    """Of (the section, raw data of the whole scenario, whether the command simulates the sweep): what does not fit."""
    months: tuple[str, Callable[[Keys], float]] | None = None
    """The key that says how far it looks ahead, and the number of months."""


def sections_of(scenario: type[Experiment]) -> dict[str, Section[Any]]:
    """Name -> section of every registered section, in the order of the fields of *scenario*."""
    return {
        name: one for name, field in scenario.model_fields.items() for one in field.metadata if isinstance(one, Section)
    }
