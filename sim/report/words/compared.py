"""Phrases about fleets side by side: what they are asked for, and where they reach it."""

from collections.abc import Sequence
from typing import Any

from sim.language import _
from sim.report.words.text import span
from sim.study.fleets.run.compare import Comparison


def goal(part: Comparison) -> str:
    """What the fleets are asked for, of one of them."""
    return _("meets the SLO") if part.has_slo else _("keeps up with the load")


def where_of(part: Comparison, values: Sequence[Any]) -> str:
    """The *values* of the axis."""
    return span(part.sweep.axis, values, part.sweep.values)


def at(part: Comparison, values: Sequence[Any]) -> str:
    """At the *values* of the axis; empty where there is one place only."""
    return "" if part.sweep.single else _(" at {where}", where=where_of(part, values))


def anywhere(part: Comparison) -> str:
    """Nowhere among the simulated points."""
    return "" if part.sweep.single else _(" at any simulated point ({where})", where=where_of(part, part.sweep.values))


def none_of(fleets: Sequence[str]) -> str:
    """None of the *fleets*."""
    return _("Neither fleet") if len(fleets) == 2 else _("No fleet")


def comparative(part: Comparison) -> str:
    """Cheaper of two, cheapest of more."""
    return _("cheaper") if len(part.fleets) == 2 else _("cheapest")


def misses(part: Comparison, fleet: str, end: str = ".") -> str:
    """That a *fleet* reaches it nowhere."""
    missed = _("does not meet the SLO") if part.has_slo else _("does not keep up with the load")
    stop = _(".") if end else ""
    return _("{fleet} {goal}{anywhere}{stop}", fleet=fleet, goal=missed, anywhere=anywhere(part), stop=stop)


def goal_of_all(part: Comparison) -> str:
    """What the fleets are asked for, of several of them."""
    return _("meet the SLO") if part.has_slo else _("keep up")
