"""What a load means where several services share a fleet."""

from sim.language import _
from sim.scenario.schema import Scenario


def load_notes(scenario: Scenario) -> list[str]:
    """Whose load it is, where the scenario has several services."""
    if not scenario.services:
        return []
    if scenario.service is not None:
        return [_("The load is that of {service}; the other services hold theirs.", service=scenario.service)]
    return [_("The loads of all services change in proportion; at 1x they are the scenario's own.")]
