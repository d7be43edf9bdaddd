"""Whose load a load is, where several services or tenants share a fleet."""

from sim.language import _
from sim.report.words.text import axis_label
from sim.scenario.schema import Scenario
from sim.study.fleets.capacity.axis import LoadAxis


def load_label(axis: LoadAxis) -> str:
    """The axis of a load with its unit, and whose it is: `load [requests/s] of batch`."""
    label = axis_label(axis.label)
    return _("{label} of {name}", label=label, name=axis.whose) if axis.whose else label


def load_notes(scenario: Scenario) -> list[str]:
    """Whose load it is, where the scenario has several services or a chosen tenant."""
    if scenario.tenant is not None:
        told = [_("The load is that of {tenant}; the other tenants hold their mean rates.", tenant=scenario.tenant)]
        return [*told, *([_("The other services hold theirs, too.")] if scenario.services else [])]
    if not scenario.services:
        return []
    if scenario.service is not None:
        return [_("The load is that of {service}; the other services hold theirs.", service=scenario.service)]
    return [_("The loads of all services change in proportion; at 1x they are the scenario's own.")]
