"""What the work of GPUs takes: data/power.yaml."""

from pathlib import Path
from typing import Self

import numpy as np
from pydantic import model_validator

from sim.catalogue.entries.gpu import Gpu
from sim.catalogue.value import Sourced, Value
from sim.spec import Fraction, Positive, Spec
from sim.yamlio import read


class Family(Spec):
    """GPUs that draw more or less than most while anything runs on them."""

    gpus: tuple[str, ...] = ()
    """Ids."""
    architectures: tuple[str, ...] = ()
    """All GPUs of these belong to it."""
    running: Value | None = None
    """What they draw then, whatever the kernels do, if it is not what most do."""
    factor: Value | None = None
    """On all that they draw above idle power, where others share their limit."""

    def has(self, gpu: Gpu) -> bool:
        """Whether *gpu* belongs to it."""
        return gpu.id in self.gpus or gpu.architecture in self.architectures


class CapCurve(Sourced):
    """How fast a card works under lower power limits than its own."""

    cap_w: tuple[Positive, ...]
    """Power limits set, rising [W]."""
    speed: tuple[Fraction, ...]
    """Rate of work at each of them over that at the card's own limit."""

    @model_validator(mode="after")
    def _rises(self) -> Self:
        for name in ("cap_w", "speed"):
            points = getattr(self, name)
            if len(points) != len(self.cap_w) or list(points) != sorted(set(points)):
                raise ValueError(f"{name} needs one rising figure for each cap")
        return self

    def at(self, cap_w: float) -> Value:
        """Speed under *cap_w*, linear between the caps measured; ValueError below the lowest of them."""
        if cap_w < self.cap_w[0]:
            raise ValueError(f"there are no measurements of the card under a cap below {self.cap_w[0]:g} W")
        origin = self.model_dump(include={"source", "where", "kind", "as_of", "note"})
        return Value(value=float(np.interp(cap_w, self.cap_w, self.speed)), **origin)


class PowerCoefficients(Spec):
    """What work on a GPU takes of what lies between its idle power and its limit."""

    computing: Value
    """Of the tensor cores at their dense peak all the time, in whatever arithmetic."""
    per_byte_j: Value
    """Energy of a byte that is read from memory, on its way through caches and cores [J]."""
    narrow_weights: Value
    """What weights that are unpacked to 16 bits before they are multiplied add to it, as a share."""
    per_activation_j: Value
    """Energy of a number that goes into or comes out of a matrix product, with all work between the products [J]."""
    running: Value
    """Of any kernel that runs, at the card's high clocks."""
    waiting: Value
    """Part of it that is drawn while a GPU waits for other GPUs, in an all-reduce or for its turn as a stage."""
    families: dict[str, Family]
    """GPUs for which running takes another share."""
    loaded_idle: Value
    """Power with weights resident and no work over `tdp_w`, where the GPU's own figure is unknown."""
    loaded_idle_geforce: Value
    """The same of GeForce cards, which lower their clocks between requests."""

    caps: dict[str, CapCurve]
    """By GPU id: cards that were measured under power caps."""

    def speed(self, gpu: Gpu, cap_w: float) -> Value:
        """Rate of work of *gpu* under a power cap over that at its own limit.

        Raises ValueError where no measurement determines it.
        """
        if gpu.id not in self.caps:
            known = ", ".join(sorted(self.caps))
            raise ValueError(f"there are no measurements of {gpu.id} under a power cap; there are of {known}")
        return self.caps[gpu.id].at(cap_w)

    def running_of(self, gpu: Gpu) -> Value:
        """The share that *gpu* draws while any kernel runs."""
        family = self.family(gpu)
        return (family.running if family else None) or self.running

    def factor_of(self, gpu: Gpu) -> float:
        """On all that *gpu* draws above idle power."""
        family = self.family(gpu)
        return family.factor.value if family and family.factor else 1.0

    def loaded_idle_of(self, gpu: Gpu) -> Value:
        """The share of `tdp_w` that *gpu* draws with weights resident and no work."""
        return self.loaded_idle_geforce if gpu.geforce else self.loaded_idle

    def family(self, gpu: Gpu) -> Family | None:
        """The first family that *gpu* belongs to."""
        return next((family for family in self.families.values() if family.has(gpu)), None)


def load_power_coefficients(path: Path) -> PowerCoefficients:
    """Read data/power.yaml.

    Raises pydantic.ValidationError or sim.yamlio.YamlError if the file is not what it should be.
    """
    return PowerCoefficients.model_validate(read(path).data)
