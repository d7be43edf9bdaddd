"""A value as the catalogue has it."""

from typing import Any

from sim.catalogue.value import Value
from sim.scenario.claims.figures import Catalogued
from sim.scenario.reading.errors import did_you_mean
from sim.study.claims.asked import Asked
from sim.study.claims.figure import Figure, NoFigure
from sim.study.claims.kinds.registry import finds


@finds(Catalogued)
def catalogue(spec: Catalogued, asked: Asked) -> Figure:
    """The value, in the unit that is asked for."""
    kind, _, name = spec.of.partition(" ")
    catalog = asked.catalog
    look = {
        "gpu": catalog.gpu,
        "server": catalog.server,
        "link": catalog.link,
        "model": catalog.any_model,
        "offer": catalog.offer,
    }
    found: Any = look[kind](name)
    for step in spec.value.split("."):
        found = _inside(found, step, spec)
    if isinstance(found, Value):
        found = found.value
    if found is None:
        if spec.absent is None:
            raise NoFigure(f"the catalogue has no {spec.value} of {spec.of}")
        return Figure(spec.absent)
    if not isinstance(found, int | float):
        raise NoFigure(f"{spec.value} of {spec.of} is no number")
    return Figure(found / spec.per)


def _inside(found: Any, step: str, spec: Catalogued) -> Any:
    if isinstance(found, dict) and step in found:
        return found[step]
    fields = getattr(type(found), "model_fields", {})
    if step not in fields:
        raise NoFigure(f"{spec.of} has no {step!r}{did_you_mean(step, fields)}")
    return getattr(found, step)
