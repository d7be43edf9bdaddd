"""User-defined step times: three coefficients of an affine function, or a registered model."""

from math import isfinite
from typing import Any, Literal, Self

from pydantic import model_validator

from sim.message import Message
from sim.records import Batch, Leap
from sim.registry import Registered
from sim.spec import NonNegative, Spec
from sim.steptime.affine_step_time import AffineStepTime
from sim.steptime.inputs import RooflineInputs


class Affine(Spec):
    """Affine step time with three coefficients; it needs neither a language model nor a GPU (`AffineStepTime`).

    The GPUs' utilisation is unknown; busy GPUs draw their power limit.
    """

    model: Literal["affine"]
    base_s: NonNegative
    """Constant time of a step [s]."""
    per_token_s: NonNegative
    """Time per new token in the step, prompt or output [s]."""
    per_context_token_s: NonNegative
    """Time per token computed before the step for its sequences, including cached tokens [s]."""

    @model_validator(mode="after")
    def _time_passes(self) -> Self:
        if self.base_s == self.per_token_s == self.per_context_token_s == 0:
            raise ValueError("all coefficients are 0: steps would take no time")
        return self

    def build(self) -> AffineStepTime:
        """Return the step-time model with these coefficients."""
        return AffineStepTime(self.base_s, self.per_token_s, self.per_context_token_s)


class RegisteredStepTime(Registered):
    """Registered step-time class with a method `leap(batch)`; a parameter `hardware` gets the roofline inputs."""

    def build(self, hardware: RooflineInputs | None) -> "UserStepTime":
        """Return the model on *hardware*; *hardware* is None if the pool has no model or no GPU."""
        return UserStepTime(self.made(hardware=hardware))


class UserStepTime:
    """Adapter around a user's step-time model that supplies optional members and checks its results."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.window: int | None = getattr(model, "window", None)

    def leap(self, batch: Batch) -> Leap:
        """Return the result of the user's `leap`. Raises ValueError if the values are impossible for a step."""
        found: Leap = self._model.leap(batch)
        name = type(self._model).__name__
        if not isinstance(found, Leap):
            raise TypeError(
                Message("step-time model {name}: leap returns a sim.Leap, not {type}", name, type(found).__name__)
            )
        if wrong := _impossible(found):
            raise ValueError(Message("step-time model {name}: {wrong}", name, wrong))
        return found

    def breakdown(self, batch: Batch) -> dict[str, float]:
        """Return the duration of the first step by cause [s]; all compute if the model has no `breakdown`."""
        if hasattr(self._model, "breakdown"):
            parts: dict[str, float] = self._model.breakdown(batch)
            return parts
        leap: Leap = self.leap(batch)
        return {"compute": leap.first_s, "memory": 0.0, "attention": 0.0, "link": 0.0, "overhead": 0.0}


def _impossible(leap: Leap) -> str:
    """Return the reason why *leap* is impossible; empty if it is valid."""
    if not (isfinite(leap.first_s) and leap.first_s > 0):
        return Message("a step lasts a finite time above 0, not {first_s!r} s", leap.first_s)
    if not (isfinite(leap.growth_s) and leap.growth_s >= 0):
        return Message("steps grow with the contexts, so growth_s is 0 or more, not {growth_s!r}", leap.growth_s)
    if not leap.valid_steps >= 1:
        return Message("valid_steps counts the first step, so it is 1 or more, not {valid_steps!r}", leap.valid_steps)
    return (
        "" if 0 <= leap.load <= 1 else Message("load is from 0 (idle) to 1 (the power limit), not {load!r}", leap.load)
    )
