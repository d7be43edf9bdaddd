"""How long one engine step takes: the specs that a scenario may name, told apart by `model`."""

from typing import Annotated

from pydantic import Field

from sim.steptime.affine import Affine
from sim.steptime.calibration import Calibration, Factor
from sim.steptime.coefficients import Coefficients, load_coefficients
from sim.steptime.inputs import RooflineInputs
from sim.steptime.roofline import Roofline, RooflineStepTime

StepTimeSpec = Annotated[Affine | Roofline, Field(discriminator="model")]

__all__ = [
    "Affine",
    "Calibration",
    "Coefficients",
    "Factor",
    "Roofline",
    "RooflineInputs",
    "RooflineStepTime",
    "StepTimeSpec",
    "load_coefficients",
]
