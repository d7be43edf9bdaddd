"""What GPUs draw at work, as shares of their power limit: data/power.yaml."""

from pathlib import Path

from sim.catalog.gpu import Gpu
from sim.catalog.value import Value
from sim.spec import Spec
from sim.yamlio import read


class LoadShares(Spec):
    """Power at work over `tdp_w`."""

    memory_bound: Value
    """Steps that wait for memory: decodes with small batches."""
    compute_bound: Value
    """Steps at the dense peak."""


class PowerCoefficients(Spec):
    """Shares by GPU, for all others, and of idling with weights loaded."""

    gpus: dict[str, LoadShares]
    """By GPU id: cards with measured power."""
    other: LoadShares
    loaded_idle: Value
    """Power with weights resident and no work over `tdp_w`, where the GPU's own figure is unknown."""

    def shares(self, gpu: Gpu) -> LoadShares:
        """The GPU's own shares, or everybody's."""
        return self.gpus.get(gpu.id, self.other)


def load_power_coefficients(path: Path) -> PowerCoefficients:
    """Read data/power.yaml.

    Raises pydantic.ValidationError or sim.yamlio.YamlError if the file is not what it should be.
    """
    return PowerCoefficients.model_validate(read(path).data)
