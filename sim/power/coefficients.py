"""What the work of GPUs takes: data/power.yaml."""

from pathlib import Path

from sim.catalog.gpu import Gpu
from sim.catalog.value import Value
from sim.spec import Spec
from sim.yamlio import read


class Family(Spec):
    """GPUs whose operations take more or less energy than most."""

    gpus: tuple[str, ...] = ()
    """Ids."""
    architectures: tuple[str, ...] = ()
    """All GPUs of these belong to it."""
    factor: Value

    def has(self, gpu: Gpu) -> bool:
        """Whether *gpu* belongs to it."""
        return gpu.id in self.gpus or gpu.architecture in self.architectures


class PowerCoefficients(Spec):
    """Energy of an operation and of a byte, by family of GPUs where it differs, and idling with weights loaded."""

    per_flop_j: Value
    """Energy of an operation on the tensor cores, counted at 16 bit."""
    per_byte_j: Value
    """Energy of a byte that a single token reads: time of the memory at the datasheet's bandwidth."""
    per_byte_growth: Value
    """What each doubling of a step's tokens adds to it, as a share."""
    families: dict[str, Family]
    """GPUs of none have factor 1."""
    loaded_idle: Value
    """Power with weights resident and no work over `tdp_w`, where the GPU's own figure is unknown."""

    def family(self, gpu: Gpu) -> Family | None:
        """The first family that *gpu* belongs to."""
        return next((family for family in self.families.values() if family.has(gpu)), None)


def load_power_coefficients(path: Path) -> PowerCoefficients:
    """Read data/power.yaml.

    Raises pydantic.ValidationError or sim.yamlio.YamlError if the file is not what it should be.
    """
    return PowerCoefficients.model_validate(read(path).data)
