"""How much of the datasheet services reach: data/batchtime.yaml."""

from pathlib import Path

from sim.batchtime.roofline import Device, ServiceFactors
from sim.catalogue.model import OtherModel
from sim.catalogue.value import Value
from sim.spec import Spec
from sim.yamlio import read


class ServiceFit(Spec):
    """Fitted figures of one service, or of a family of them."""

    compute: Value
    """Share of the datasheet rate that large batches reach on a card of factor 1."""
    traffic: Value
    """Bytes moved against the count layer by layer."""
    kernels: Value
    """Kernel time against launches as counted."""


class BatchTimeCoefficients(Spec):
    """The constants of the batch time, all of them fitted to MLPerf results."""

    services: dict[str, ServiceFit]
    """By model id."""
    families: dict[str, str]
    """Family of a model -> the service whose figures stand for those without their own."""
    other: str
    """The service that stands for all other families."""
    architectures: dict[str, Value]
    """By `Gpu.architecture`: speed against the datasheet rate; absent: 1."""
    gpus: dict[str, Value]
    """By GPU id: speed against the rest of its architecture; absent: 1."""
    memory: Value
    """Share of the datasheet bandwidth."""
    launch_s: Value
    wave: Value
    power_exponent: Value
    slice_speed: Value

    def of(self, model: OtherModel) -> ServiceFit:
        """The nearest statement about *model*: its own, its family's, or everybody's."""
        return self.services[self.stands_for(model)]

    def stands_for(self, model: OtherModel) -> str:
        """Id of the service whose figures are taken for *model*."""
        return model.id if model.id in self.services else self.families.get(model.family, self.other)

    def factors(self, model: OtherModel, device: Device) -> ServiceFactors:
        """All numbers of *model* on *device*."""
        service = self.of(model)
        card = _value(self.architectures.get(device.architecture)) * _value(self.gpus.get(device.gpu))
        return ServiceFactors(
            compute=service.compute.value * card,
            memory=self.memory.value,
            traffic=service.traffic.value,
            kernels=service.kernels.value,
            launch_s=self.launch_s.value,
            wave=self.wave.value,
            power_exponent=self.power_exponent.value,
            slice_speed=self.slice_speed.value,
        )


def load_coefficients(path: Path) -> BatchTimeCoefficients:
    """Read data/batchtime.yaml.

    Raises pydantic.ValidationError or sim.yamlio.YamlError if the file is not what it should be.
    """
    return BatchTimeCoefficients.model_validate(read(path).data)


def _value(value: Value | None) -> float:
    return 1.0 if value is None else value.value
