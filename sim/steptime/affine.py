"""Step times that the user gives: three coefficients of an affine function, or a registered model of one's own."""

from math import isfinite
from typing import Any, Literal, Self

from pydantic import model_validator

from sim.records import Batch, Leap
from sim.registry import Registered
from sim.spec import NonNegative, Spec
from sim.steptime.inputs import RooflineInputs


class Affine(Spec):
    """step = base + per_token * new tokens + per_context_token * tokens computed before the step [s].

    It needs no model and no GPU, and it is exactly affine: a leap never ends on its account. How hard the
    GPUs work is unknown: busy ones draw their power limit.
    """

    model: Literal["affine"]
    base_s: NonNegative
    """Time of a step however small."""
    per_token_s: NonNegative
    """Per new token in the step, prompt or output."""
    per_context_token_s: NonNegative
    """Per token that the step's sequences have computed before (cached ones included)."""

    @model_validator(mode="after")
    def _time_passes(self) -> Self:
        if self.base_s == self.per_token_s == self.per_context_token_s == 0:
            raise ValueError("all coefficients are 0: steps would take no time")
        return self

    @property
    def window(self) -> int | None:
        """No sliding window."""
        return None

    def leap(self, batch: Batch) -> Leap:
        """Duration of the next steps of *batch*."""
        first_s = (
            self.base_s
            + self.per_token_s * (batch.decode_seqs + batch.draft_tokens + batch.prefill_tokens)
            + self.per_context_token_s * (batch.kv_tokens + batch.prefill_context_tokens)
        )
        return Leap(first_s, self.per_context_token_s * batch.decode_seqs)

    def breakdown(self, batch: Batch) -> dict[str, float]:
        """The first step's seconds by cause: the base is overhead, new tokens are compute, contexts are attention."""
        return {
            "compute": self.per_token_s * (batch.decode_seqs + batch.draft_tokens + batch.prefill_tokens),
            "memory": 0.0,
            "attention": self.per_context_token_s * (batch.kv_tokens + batch.prefill_context_tokens),
            "link": 0.0,
            "overhead": self.base_s,
        }


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
