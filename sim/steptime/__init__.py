"""How long one engine step takes: the specs that a scenario may name, distinguished by `model`."""

from typing import Annotated

from pydantic import Field

from sim.registry import Registry
from sim.steptime.affine import Affine, RegisteredStepTime
from sim.steptime.calibration import Calibration, Factor, OwnRuns
from sim.steptime.coefficients import Coefficients, load_coefficients
from sim.steptime.drafting import Adapted, AdapterWork, Drafting, DraftModel
from sim.steptime.inputs import Host, RooflineInputs, has_rate
from sim.steptime.links import Exchange
from sim.steptime.roofline import Roofline, RooflineStepTime

BuiltinStepTime = Affine | Roofline
ComputedStepTime = RooflineStepTime | Drafting | DraftModel | Adapted
"""Worked out from the hardware; they know what GPUs send one another."""
StepTimeSpec = Annotated[
    BuiltinStepTime, Field(discriminator="model"), Registry("steptime", RegisteredStepTime, BuiltinStepTime)
]

__all__ = [
    "Adapted",
    "AdapterWork",
    "Affine",
    "Calibration",
    "Coefficients",
    "ComputedStepTime",
    "DraftModel",
    "Drafting",
    "Exchange",
    "Factor",
    "Host",
    "OwnRuns",
    "RegisteredStepTime",
    "Roofline",
    "RooflineInputs",
    "RooflineStepTime",
    "StepTimeSpec",
    "has_rate",
    "load_coefficients",
]
