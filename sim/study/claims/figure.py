"""A figure of a claim, with what is known of its noise."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import hypot

from sim.study.metrics.statistics import half_width


class NoFigure(ValueError):
    """A figure that cannot be computed; the message says why."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A number; with replications also half of its 95 % interval."""

    value: float
    half_width: float | None = None
    """None where chance has no part in it, or where there is one replication."""
    samples: tuple[float, ...] = ()
    """Of each replication, in order, so that figures of the same seeds can be paired; empty where that is not known."""

    @property
    def ends(self) -> tuple[float, float]:
        """Lowest and highest value of the interval."""
        half = self.half_width or 0.0
        return self.value - half, self.value + half


def combined(function: Callable[..., float], inputs: Sequence[Figure]) -> Figure:
    """*function* of the values of *inputs*.

    Where all inputs with noise have as many samples, the interval is that of the function over paired replications;
    else each input's half-width goes through the function by itself, and the effects add up as independent ones do.
    """
    values = [one.value for one in inputs]
    result = float(function(*values))
    noisy = [one for one in inputs if one.half_width is not None]
    counts = {len(one.samples) for one in noisy}
    if not noisy:
        return Figure(result)
    if len(counts) == 1 and counts != {0}:
        [count] = counts
        columns = [one.samples if one.half_width is not None else (one.value,) * count for one in inputs]
        samples = tuple(float(function(*column)) for column in zip(*columns, strict=True))
        return Figure(result, half_width(samples), samples)
    effects = []
    for place, one in enumerate(inputs):
        if one.half_width is not None:
            moved = [*values[:place], one.value + one.half_width, *values[place + 1 :]]
            effects.append(float(function(*moved)) - result)
    return Figure(result, hypot(*effects))
