"""Phrases about fleets side by side: what they are asked for, and where they reach it."""

from collections.abc import Mapping, Sequence
from typing import Any

from sim.language import _
from sim.report.words.text import listing, span
from sim.study.fleets.run.compare import Comparison


def goal(part: Comparison) -> str:
    """What the fleets are asked for, of one of them."""
    return goal_of_one(part.has_slo)


def goal_of_one(has_slo: bool) -> str:
    """What a fleet is asked for: to meet the SLO, without one to keep up with the load."""
    return _("meets the SLO") if has_slo else _("keeps up with the load")


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


def goal_of_all(has_slo: bool) -> str:
    """What several fleets are asked for."""
    return _("meet the SLO") if has_slo else _("keep up")


def ranked_apart(models: Mapping[str, str]) -> str:
    """That fleets serve different *models*, fleet -> model, and how they are ranked together."""
    return _(
        "The fleets serve different models and are ranked for each model on its own ({served}); "
        "compare: {{across_models: true}} ranks them as one product.",
        served=_served(models),
    )


def apart_on_charts(models: Mapping[str, str]) -> str:
    """Note beside charts whose fleets serve different *models*, fleet -> model; empty without any."""
    if not models:
        return ""
    return _("Different models ({served}): compare curves of one model only.", served=_served(models))


def _served(models: Mapping[str, str]) -> str:
    by_model: dict[str, list[str]] = {}
    for fleet, model in models.items():
        by_model.setdefault(model, []).append(fleet)
    return _("; ").join(
        _("{fleets}: {model}", fleets=listing(fleets), model=model or _("no model stated"))
        for model, fleets in by_model.items()
    )
