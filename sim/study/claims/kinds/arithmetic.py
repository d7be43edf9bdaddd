"""A formula of other figures and of numbers."""

from collections.abc import Iterable

from sim.scenario.claims.figures import Arithmetic
from sim.study.claims.asked import Asked
from sim.study.claims.figure import Figure, NoFigure, combined
from sim.study.claims.formulas import FORMULAS, formula_wrong
from sim.study.claims.kinds.registry import finds


@finds(Arithmetic)
def arithmetic(spec: Arithmetic, asked: Asked) -> Figure:
    """The formula's value, with an interval where a figure in it has one."""
    if wrong := formula_wrong(spec):
        raise NoFigure(wrong)
    function = FORMULAS[spec.formula]
    if isinstance(spec.of, dict):
        names, inputs = list(spec.of), _inputs(spec.of.values(), asked)
        return combined(lambda *values: function(**dict(zip(names, values, strict=True))), inputs)
    return combined(function, _inputs(spec.of, asked))


def _inputs(given: Iterable[float | str], asked: Asked) -> list[Figure]:
    return [asked.figures[one] if isinstance(one, str) else Figure(one) for one in given]
