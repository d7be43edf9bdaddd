"""A step-time model of a user's own."""

from math import isfinite
from typing import Any

from sim.records import Batch, Leap
from sim.registry import Registered
from sim.steptime.inputs import RooflineInputs


class RegisteredStepTime(Registered):
    """A class whose `leap(batch)` is the duration of the next steps; a parameter `hardware` is given to it."""

    def build(self, hardware: RooflineInputs | None) -> "GivenStepTime":
        """The model on *hardware*; None where the pool has no model or no GPU."""
        return GivenStepTime(self.made(hardware=hardware))


class GivenStepTime:
    """A user's step-time model with the members that it does without."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.window: int | None = getattr(model, "window", None)

    def leap(self, batch: Batch) -> Leap:
        """What the user's model answers. Raises ValueError for a step that no batch can take."""
        found: Leap = self._model.leap(batch)
        name = type(self._model).__name__
        if not isinstance(found, Leap):
            raise TypeError(f"step-time model {name}: leap returns a sim.Leap, not {type(found).__name__}")
        if wrong := _impossible(found):
            raise ValueError(f"step-time model {name}: {wrong}")
        return found

    def breakdown(self, batch: Batch) -> dict[str, float]:
        """The first step's seconds by cause; all of it counts as compute where the model does not say."""
        if hasattr(self._model, "breakdown"):
            told: dict[str, float] = self._model.breakdown(batch)
            return told
        leap: Leap = self.leap(batch)
        return {"compute": leap.first_s, "memory": 0.0, "attention": 0.0, "link": 0.0, "overhead": 0.0}


def _impossible(leap: Leap) -> str:
    """Why no batch can take such steps; empty if one can."""
    if not (isfinite(leap.first_s) and leap.first_s > 0):
        return f"a step lasts a finite time above 0, not {leap.first_s!r} s"
    if not (isfinite(leap.growth_s) and leap.growth_s >= 0):
        return f"steps grow with the contexts, so growth_s is 0 or more, not {leap.growth_s!r}"
    if not leap.valid_steps >= 1:
        return f"valid_steps counts the first step, so it is 1 or more, not {leap.valid_steps!r}"
    return "" if 0 <= leap.load <= 1 else f"load is from 0 (idle) to 1 (the power limit), not {leap.load!r}"
