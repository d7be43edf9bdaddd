"""Which function finds which kind of figure."""

from collections.abc import Callable
from typing import Any, TypeVar

from sim.spec import Spec
from sim.study.claims.asked import Asked
from sim.study.claims.figure import Figure

Kind = TypeVar("Kind", bound=Spec)
_FINDERS: dict[type[Spec], Callable[[Any, Asked], Figure]] = {}


def finds(
    kind: type[Kind],
) -> Callable[[Callable[[Kind, Asked], Figure]], Callable[[Kind, Asked], Figure]]:
    """Registers a function of (specification, claim asked about) for figures of *kind*."""

    def register(function: Callable[[Kind, Asked], Figure]) -> Callable[[Kind, Asked], Figure]:
        _FINDERS[kind] = function
        return function

    return register


def find(spec: Spec, asked: Asked) -> Figure:
    """The figure that *spec* describes. Raises NoFigure, ScenarioErrors, UnknownId."""
    return _FINDERS[type(spec)](spec, asked)
