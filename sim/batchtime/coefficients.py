"""Coefficients of the batch time of services relative to the datasheet: data/batchtime.yaml."""

from pathlib import Path

from sim.batchtime.roofline import Device, ServiceFactors
from sim.catalogue.model import OtherModel
from sim.catalogue.value import Value
from sim.spec import Spec
from sim.yamlio import read


class ServiceFit(Spec):
    """Fitted coefficients of one service, or of a family of services."""

    compute: Value
    """Fraction of the datasheet rate reached by large batches on a card whose factors (architecture, GPU) are 1."""
    traffic: Value
    """Bytes moved, relative to a count in which every layer reads and writes memory by itself."""
    kernels: Value
    """Kernel time relative to that of the counted launches."""


class BatchTimeCoefficients(Spec):
    """Coefficients of the batch time, all fitted to MLPerf results."""

    services: dict[str, ServiceFit]
    """Coefficients by model id."""
    families: dict[str, str]
    """Model family -> id of the service whose coefficients apply to models without their own."""
    other: str
    """Id of the service whose coefficients apply to all other families."""
    architectures: dict[str, Value]
    """Speed relative to the datasheet rate, by `Gpu.architecture`; default: 1."""
    gpus: dict[str, Value]
    """Speed relative to other cards of the architecture, by GPU id; default: 1."""
    memory: Value
    """Fraction of the datasheet bandwidth reached."""
    launch_s: Value
    wave: Value
    power_exponent: Value
    slice_speed: Value

    def of(self, model: OtherModel) -> ServiceFit:
        """Return the coefficients of *model*: its own, those of its family, or those of `other`."""
        return self.services[self.stands_for(model)]

    def stands_for(self, model: OtherModel) -> str:
        """Return the id of the service whose coefficients apply to *model*."""
        return model.id if model.id in self.services else self.families.get(model.family, self.other)

    def factors(self, model: OtherModel, device: Device) -> ServiceFactors:
        """Return all factors of *model* on *device*."""
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
    """Return the coefficients in data/batchtime.yaml, at *path*.

    Raises pydantic.ValidationError or sim.yamlio.YamlError if the file is invalid.
    """
    return BatchTimeCoefficients.model_validate(read(path).data)


def _value(value: Value | None) -> float:
    return 1.0 if value is None else value.value
