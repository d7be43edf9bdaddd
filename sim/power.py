"""Power of GPUs and servers, linear in the quantities that a replica's meters count.

The load of a step is computed from the shares of its time at the tensor cores' peak, of memory reads and with the GPU
busy:

    z = running * (busy - (1 - waiting) * linked)
        + computing * compute + (per_byte * bytes/s + per_activation * activations/s) / (limit - idle)
    load = z / (1 + z^4)^(1/4)        power = idle + load * (limit - idle)

`running` is the power that any running kernel causes, because the card is then at its high clocks: a third of the range
from idle to the limit on data-centre cards, up to two thirds on graphics cards, and half of that while the card waits
for other cards, in an all-reduce (the share *linked*) or as a pipeline stage. Reading weights that are unpacked to 16
bits takes more power. Well below the limit, power is the sum of these terms; near it the card reduces its clocks, so
that power approaches the limit.
The load of a step is computed once per leap. Power needs only its integral over busy time, so that energy is linear in
duration and load time, and the energy of several intervals is the sum of theirs.

The coefficients are in data/power.yaml. A pool may also be counted at its nameplate power all the time.
"""

from dataclasses import dataclass
from fractions import Fraction as Rational
from pathlib import Path
from typing import Literal, Self

import numpy as np
from pydantic import model_validator

from sim.catalogue.gpu import Gpu
from sim.catalogue.quantization import Quantization
from sim.catalogue.server import Server
from sim.catalogue.value import Sourced, Value
from sim.message import Message
from sim.records import LoadLaw
from sim.spec import Fraction, Positive, Spec
from sim.yamlio import read


class Family(Spec):
    """GPUs whose power while kernels run, or while working, deviates from that of most GPUs."""

    gpus: tuple[str, ...] = ()
    """Ids of single GPUs in the family."""
    architectures: tuple[str, ...] = ()
    """Architectures whose GPUs are all in the family."""
    running: Value | None = None
    """Share drawn while any kernel runs; left out: that of most GPUs."""
    factor: Value | None = None
    """Factor on all power above idle, for cards that share their power limit with other parts; left out: 1."""

    def has(self, gpu: Gpu) -> bool:
        """Return whether *gpu* is in the family."""
        return gpu.id in self.gpus or gpu.architecture in self.architectures


class CapCurve(Sourced):
    """Measured speed of a card under power limits below its own."""

    cap_w: tuple[Positive, ...]
    """Power limits set, ascending [W]."""
    speed: tuple[Fraction, ...]
    """Speed at each of them relative to the card's own limit."""

    @model_validator(mode="after")
    def _check_rising(self) -> Self:
        for name in ("cap_w", "speed"):
            points = getattr(self, name)
            if len(points) != len(self.cap_w) or list(points) != sorted(set(points)):
                raise ValueError(Message("{name} needs one rising figure for each cap", name))
        return self

    def at(self, cap_w: float) -> Value:
        """Return the speed under *cap_w*, linear between the measured limits.

        Raises ValueError below the lowest of them.
        """
        if cap_w < self.cap_w[0]:
            raise ValueError(
                Message("there are no measurements of the card under a cap below {cap_w:g} W", self.cap_w[0])
            )
        origin = self.model_dump(include={"source", "where", "kind", "as_of", "note"})
        return Value(value=float(np.interp(cap_w, self.cap_w, self.speed)), **origin)


class PowerCoefficients(Spec):
    """Coefficients of GPU power: shares of the range between idle power and the limit, and energies per operation."""

    computing: Value
    """Share drawn by the tensor cores at their dense peak all the time, in any arithmetic."""
    per_byte_j: Value
    """Energy per byte read from memory, on its way through caches and cores [J]."""
    narrow_weights: Value
    """Relative increase of `per_byte_j` for weights that are unpacked to 16 bits before they are multiplied."""
    per_activation_j: Value
    """Energy per number that goes into or comes out of a matrix product, with all work between the products [J]."""
    running: Value
    """Share drawn while any kernel runs, at the card's high clocks."""
    waiting: Value
    """Fraction of `running` drawn while a GPU waits for other GPUs, in an all-reduce or as a pipeline stage."""
    families: dict[str, Family]
    """GPU families with a different share for running."""
    loaded_idle: Value
    """Power with weights loaded and no work over `tdp_w`, where the GPU's own figure is unknown."""
    loaded_idle_geforce: Value
    """Power with weights loaded and no work over `tdp_w` of GeForce cards, which lower their clocks between
    requests."""

    caps: dict[str, CapCurve]
    """GPU id -> speed under power limits, for cards that were measured under them."""

    def speed(self, gpu: Gpu, cap_w: float) -> Value:
        """Return the speed of *gpu* under a power limit relative to that at its own limit.

        Raises ValueError where no measurement determines it.
        """
        if gpu.id not in self.caps:
            known = ", ".join(sorted(self.caps))
            raise ValueError(
                Message("there are no measurements of {id} under a power cap; there are of {known}", gpu.id, known)
            )
        return self.caps[gpu.id].at(cap_w)

    def running_of(self, gpu: Gpu) -> Value:
        """Return the share that *gpu* draws while any kernel runs."""
        family = self.family(gpu)
        return (family.running if family else None) or self.running

    def factor_of(self, gpu: Gpu) -> float:
        """Return the factor on all power of *gpu* above idle."""
        family = self.family(gpu)
        return family.factor.value if family and family.factor else 1.0

    def loaded_idle_of(self, gpu: Gpu) -> Value:
        """Return the share of `tdp_w` that *gpu* draws with weights loaded and no work."""
        return self.loaded_idle_geforce if gpu.geforce else self.loaded_idle

    def family(self, gpu: Gpu) -> Family | None:
        """Return the first family that *gpu* is in; None if there is none."""
        return next((family for family in self.families.values() if family.has(gpu)), None)


def load_power_coefficients(path: Path) -> PowerCoefficients:
    """Read data/power.yaml.

    Raises pydantic.ValidationError or sim.yamlio.YamlError if the file is invalid.
    """
    return PowerCoefficients.model_validate(read(path).data)


class Power(Spec):
    """Power accounting of a pool."""

    mode: Literal["load", "nameplate"] = "load"
    """load: power follows the GPUs' work; nameplate: always the most that the server and its GPUs can draw."""
    nameplate_w: Positive | None = None
    """Power of one server at the wall with mode nameplate, instead of the catalogue's [W]."""
    cap_w: Positive | None = None
    """Power limit set for each GPU, below its own [W]; the card then works slower, as measured under such limits."""

    @model_validator(mode="after")
    def _nameplate_needs_mode(self) -> Self:
        if self.nameplate_w is not None and self.mode != "nameplate":
            raise ValueError("nameplate_w needs mode: nameplate")
        if self.cap_w is not None and self.mode == "nameplate":
            raise ValueError("cap_w needs mode: load; a nameplate has no cap")
        return self


FULL_BITS = 16


def load_law(
    gpu: Gpu,
    coefficients: PowerCoefficients,
    cap_w: float | None = None,
    activations_per_token: float = 0.0,
    unpacked: bool = False,
) -> LoadLaw | None:
    """Return the law of *gpu* for its power limit, or a lower one that is set; None if its own limit is unknown.

    Parameters
    ----------
    gpu
        GPU of the catalogue.
    coefficients
        Coefficients of data/power.yaml.
    cap_w
        Power limit that is set [W].
    activations_per_token
        Numbers into and out of matrix products that this GPU computes per token.
    unpacked
        Whether most weights are unpacked before they are multiplied (`unpacks`).

    """
    power = GpuPower.of(gpu, coefficients, cap_w)
    if power is None or power.limit_w <= power.idle_w:
        return None
    part = coefficients.factor_of(gpu) * _uncapped_part(gpu, power)
    byte_j = coefficients.per_byte_j.value * (1.0 + (coefficients.narrow_weights.value if unpacked else 0.0))
    token_j = coefficients.per_activation_j.value * activations_per_token
    per_w = coefficients.factor_of(gpu) / (power.limit_w - power.idle_w)
    return LoadLaw(
        coefficients.computing.value * part,
        byte_j * gpu.memory_bytes_per_s.value * per_w,
        token_j * per_w,
        coefficients.running_of(gpu).value * part,
        coefficients.waiting.value,
    )


def unpacks(gpu: Gpu, weights: Quantization) -> bool:
    """Return whether *weights* are unpacked to 16 bits because *gpu*'s tensor cores do not support them."""
    supported = weights.compute != "fp16" and gpu.dense_rate(weights.compute) is not None
    return weights.bits_per_weight.value < FULL_BITS and not supported


def _uncapped_part(gpu: Gpu, power: "GpuPower") -> float:
    """Return the range from idle power to the card's own limit over the range to the limit that is set."""
    own_w = gpu.tdp_w.value if gpu.tdp_w else power.limit_w
    return (own_w - power.idle_w) / (power.limit_w - power.idle_w)


@dataclass(frozen=True, slots=True)
class GpuPower:
    """Power of one GPU [W]."""

    idle_w: float
    """Power with weights loaded and no work [W]."""
    limit_w: float

    @classmethod
    def of(cls, gpu: Gpu, coefficients: PowerCoefficients, cap_w: float | None = None) -> "GpuPower | None":
        """Return the power up to the datasheet's limit, or a lower one that is set.

        None where the former is unknown.
        """
        if gpu.tdp_w is None:
            return None
        limit_w = min(gpu.tdp_w.value, cap_w or gpu.tdp_w.value)
        if gpu.loaded_idle_w is not None:
            return cls(gpu.loaded_idle_w.value, limit_w)
        unloaded_w = gpu.idle_w.value if gpu.idle_w else 0.0
        return cls(max(unloaded_w, coefficients.loaded_idle_of(gpu).value * gpu.tdp_w.value), limit_w)

    @classmethod
    def nameplate(cls, gpu: Gpu) -> "GpuPower | None":
        """Return a constant power at the limit; None where the limit is unknown."""
        return None if gpu.tdp_w is None else cls(gpu.tdp_w.value, gpu.tdp_w.value)

    def within(self, reach: float) -> "GpuPower":
        """Return the power of a GPU that rises by at most the fraction *reach* of the range from idle to limit."""
        return GpuPower(self.idle_w, self.idle_w + reach * (self.limit_w - self.idle_w))

    def energy_j(self, duration_s: float, load_s: float) -> float:
        """Return the energy over *duration_s* with *load_s*, the integral of load over it [J].

        Notes
        -----
        E = idle_w * duration_s + (limit_w - idle_w) * load_s.

        """
        return self.idle_w * duration_s + (self.limit_w - self.idle_w) * load_s


@dataclass(frozen=True, slots=True)
class PoolPower:
    """Power of one replica: its GPUs, and its share of the server around them."""

    gpu: GpuPower
    gpus_per_replica: int | Rational
    """GPUs of the replica; a fraction for a MIG slice."""
    base_w: float = 0.0
    """The replica's share of the servers' power without GPUs, behind the power supply [W]."""
    psu_efficiency: float = 1.0
    nameplate_w: float | None = None
    """The replica's share of the servers' nameplate power at the wall [W]; if set, load does not matter."""

    @property
    def peak_w(self) -> float:
        """Highest power of the replica at the wall [W]."""
        if self.nameplate_w is not None:
            return self.nameplate_w
        return (self.gpus_per_replica * self.gpu.limit_w + self.base_w) / self.psu_efficiency

    @property
    def least_w(self) -> float:
        """Power of the replica at the wall with no work [W]."""
        return self.server_energy_j(1.0, self.gpu_energy_j(1.0, 0.0))

    def gpu_energy_j(self, duration_s: float, load_s: float) -> float:
        """Return the energy of the replica's GPUs [J]; *load_s* is that of one GPU, the same for all of them."""
        return self.gpus_per_replica * self.gpu.energy_j(duration_s, load_s)

    def server_energy_j(self, duration_s: float, gpu_energy_j: float) -> float:
        """Return the energy at the wall [J]: GPUs, base load and loss of the power supply.

        Notes
        -----
        E = (gpu_energy_j + base_w * duration_s) / psu_efficiency, or nameplate_w * duration_s.

        """
        if self.nameplate_w is not None:
            return self.nameplate_w * duration_s
        return (gpu_energy_j + self.base_w * duration_s) / self.psu_efficiency


def pool_power(
    spec: Power,
    gpu: Gpu,
    coefficients: PowerCoefficients,
    gpus_per_replica: int | Rational,
    server: Server | None = None,
    servers_per_replica: float = 1.0,
    reach: float = 1.0,
) -> PoolPower | None:
    """Return the power of one replica of a pool.

    Parameters
    ----------
    spec
        Power accounting of the pool.
    gpu
        GPU of the catalogue.
    coefficients
        Coefficients of data/power.yaml.
    gpus_per_replica
        GPUs of the replica.
    server
        Server around the GPUs. Without one only the GPUs draw power.
    servers_per_replica
        Servers over the replicas that share them: base power, or nameplate power, is divided evenly.
    reach
        Highest power of a busy GPU, as a fraction of the range from idle power to the power limit.

    Returns
    -------
    PoolPower or None
        None where the GPU's power limit or the server's base power is unknown.

    """
    nameplate = spec.mode == "nameplate"
    gpu_power = GpuPower.nameplate(gpu) if nameplate else GpuPower.of(gpu, coefficients, spec.cap_w)
    if gpu_power is None:
        return None
    if reach != 1.0:
        gpu_power = gpu_power.within(reach)
    if server is None:
        return PoolPower(gpu_power, gpus_per_replica, nameplate_w=_share(spec.nameplate_w, servers_per_replica))
    maker_w = server.max_power_w.value if server.max_power_w else None
    nameplate_w = (spec.nameplate_w or maker_w) if nameplate else None
    if server.base_power_w is None and nameplate_w is None:
        return None
    return PoolPower(
        gpu_power,
        gpus_per_replica,
        base_w=server.base_power_w.value * servers_per_replica if server.base_power_w else 0.0,
        psu_efficiency=server.psu_efficiency.value,
        nameplate_w=_share(nameplate_w, servers_per_replica),
    )


def _share(server_w: float | None, servers_per_replica: float) -> float | None:
    return None if server_w is None else server_w * servers_per_replica


__all__ = [
    "GpuPower",
    "LoadLaw",
    "PoolPower",
    "Power",
    "PowerCoefficients",
    "load_law",
    "load_power_coefficients",
    "pool_power",
    "unpacks",
]
