"""How long one engine step takes: the specs that a scenario may name, told apart by `model`."""

from sim.steptime.affine import Affine

StepTimeSpec = Affine

__all__ = ["Affine", "StepTimeSpec"]
