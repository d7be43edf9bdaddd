"""Power of GPUs and servers, linear in what a replica's meters count.

A step draws, from its shares of time at the tensor cores' peak, of reading memory and with the GPU busy,

    z = running * (busy - (1 - waiting) * linked)
        + computing * compute + (per_byte * bytes/s + per_activation * activations/s) / (limit - idle)
    load = z / (1 + z^4)^(1/4)        power = idle + load * (limit - idle)

A card whose kernels run draws something at its high clocks whatever they do: a third of the way to its limit on cards
for data centres, up to two on graphics cards; half of it where it waits for other cards, in an all-reduce (the share
*linked*) or for its turn as a stage. Weights that are unpacked to 16 bits take more to read. Well below the
limit power is the sum of its causes; near it the card slows its clocks, and the limit holds. The load of a step is
worked out once per leap; its integral over busy time is all that power needs, so that energy is linear in duration and
loaded time, and that of a sum of intervals is the sum of theirs.

The coefficients are in data/power.yaml. A pool may also be counted at the nameplate all the time.
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


class Power(Spec):
    """How a pool's power is counted."""

    mode: Literal["load", "nameplate"] = "load"
    """load: by what the GPUs do; nameplate: always the most that the server and its GPUs can draw."""
    nameplate_w: Positive | None = None
    """With nameplate: power of one server at the wall, instead of the catalogue's."""
    cap_w: Positive | None = None
    """Power limit set for each GPU, below its own; the card then works slower, as measured under such caps."""

    @model_validator(mode="after")
    def _nameplate_goes_with_its_mode(self) -> Self:
        if self.nameplate_w is not None and self.mode != "nameplate":
            raise ValueError("nameplate_w needs mode: nameplate")
        if self.cap_w is not None and self.mode == "nameplate":
            raise ValueError("cap_w goes with mode: load; a nameplate does not know it")
        return self


SHARPNESS = 4
"""How sharply power bends at the limit: chosen with the fit (docs/fidelity-power.md)."""
FULL_BITS = 16


@dataclass(frozen=True, slots=True)
class LoadLaw:
    """How hard steps work a GPU, from 0 at idle power to 1 at its limit.

    Each figure is a power over what lies between idle and the limit.
    """

    compute: float
    """Of the tensor cores at their dense peak at 16 bit."""
    memory: float
    """Of the memory, read all the time."""
    token: float = 0.0
    """Of one token a second in all layers [s]."""
    running: float = 0.0
    """Of kernels that run, whatever they do."""
    waiting: float = 1.0
    """Part of it while they wait for other GPUs."""

    @classmethod
    def of(
        cls,
        gpu: Gpu,
        coefficients: PowerCoefficients,
        cap_w: float | None = None,
        activations_per_token: float = 0.0,
        unpacked: bool = False,
    ) -> "LoadLaw | None":
        """For the power limit, or a lower one that is set; None if the former is unknown.

        *activations_per_token*: that this GPU computes. *unpacked*: whether most weights are, before they
        are multiplied (`unpacks`).
        """
        power = GpuPower.of(gpu, coefficients, cap_w)
        if power is None or power.limit_w <= power.idle_w:
            return None
        part = coefficients.factor_of(gpu) * _uncapped_part(gpu, power)
        byte_j = coefficients.per_byte_j.value * (1.0 + (coefficients.narrow_weights.value if unpacked else 0.0))
        token_j = coefficients.per_activation_j.value * activations_per_token
        per_w = coefficients.factor_of(gpu) / (power.limit_w - power.idle_w)
        return cls(
            coefficients.computing.value * part,
            byte_j * gpu.memory_bytes_per_s.value * per_w,
            token_j * per_w,
            coefficients.running_of(gpu).value * part,
            coefficients.waiting.value,
        )

    def __call__(
        self,
        compute_share: float,
        memory_share: float,
        tokens_per_s: float,
        busy_share: float = 1.0,
        linked_share: float = 0.0,
    ) -> float:
        """Load of a step with *tokens_per_s* new tokens a second.

        Its shares of time are those at the dense peak, in whatever arithmetic, of reading memory, in which the GPU does
        not wait for the host, and in which it waits for other GPUs.
        """
        work = self.compute * compute_share + self.memory * memory_share + self.token * tokens_per_s
        z = self.running * (busy_share - (1.0 - self.waiting) * linked_share) + work
        return float(z / (1.0 + z**SHARPNESS) ** (1.0 / SHARPNESS))


def unpacks(gpu: Gpu, weights: Quantization) -> bool:
    """Whether ordinary cores turn narrow *weights* into 16-bit ones, as the tensor cores of *gpu* do not take them."""
    rates = {"fp16": None, "fp8": gpu.fp8_flops, "int8": gpu.int8_ops_per_s, "fp4": gpu.fp4_flops}
    return weights.bits_per_weight.value < FULL_BITS and rates[weights.compute] is None


def _uncapped_part(gpu: Gpu, power: "GpuPower") -> float:
    """What lies between idle power and the card's own limit over what lies below the limit that is set."""
    own_w = gpu.tdp_w.value if gpu.tdp_w else power.limit_w
    return (own_w - power.idle_w) / (power.limit_w - power.idle_w)


@dataclass(frozen=True, slots=True)
class GpuPower:
    """Power of one GPU [W]."""

    idle_w: float
    """With weights loaded and no work."""
    limit_w: float

    @classmethod
    def of(cls, gpu: Gpu, coefficients: PowerCoefficients, cap_w: float | None = None) -> "GpuPower | None":
        """From the datasheet's power limit, or a lower one that is set; None where the former is unknown."""
        if gpu.tdp_w is None:
            return None
        limit_w = min(gpu.tdp_w.value, cap_w or gpu.tdp_w.value)
        if gpu.loaded_idle_w is not None:
            return cls(gpu.loaded_idle_w.value, limit_w)
        unloaded_w = gpu.idle_w.value if gpu.idle_w else 0.0
        return cls(max(unloaded_w, coefficients.loaded_idle_of(gpu).value * gpu.tdp_w.value), limit_w)

    @classmethod
    def nameplate(cls, gpu: Gpu) -> "GpuPower | None":
        """The power limit all the time; None where it is unknown."""
        return None if gpu.tdp_w is None else cls(gpu.tdp_w.value, gpu.tdp_w.value)

    def within(self, reach: float) -> "GpuPower":
        """The power of a GPU that work takes only the part *reach* of the way from idle to its limit."""
        return GpuPower(self.idle_w, self.idle_w + reach * (self.limit_w - self.idle_w))

    def energy_j(self, duration_s: float, load_s: float) -> float:
        """Energy over *duration_s* with *load_s*, the integral of load over it [J]."""
        return self.idle_w * duration_s + (self.limit_w - self.idle_w) * load_s


@dataclass(frozen=True, slots=True)
class PoolPower:
    """Power of one replica: its GPUs, and its share of the server around them."""

    gpu: GpuPower
    gpus_per_replica: int | Rational
    """A part of one where the replica is a MIG slice."""
    base_w: float = 0.0
    """The replica's share of the servers without their GPUs, behind the power supply [W]."""
    psu_efficiency: float = 1.0
    nameplate_w: float | None = None
    """The replica's share of the servers' nameplate at the wall [W]; then load does not matter."""

    @property
    def peak_w(self) -> float:
        """The most that the replica draws at the wall [W]."""
        if self.nameplate_w is not None:
            return self.nameplate_w
        return (self.gpus_per_replica * self.gpu.limit_w + self.base_w) / self.psu_efficiency

    @property
    def least_w(self) -> float:
        """What the replica draws at the wall with no work [W]."""
        return self.server_energy_j(1.0, self.gpu_energy_j(1.0, 0.0))

    def gpu_energy_j(self, duration_s: float, load_s: float) -> float:
        """Energy of the replica's GPUs, from the replica's loaded time (of one GPU, all alike) [J]."""
        return self.gpus_per_replica * self.gpu.energy_j(duration_s, load_s)

    def server_energy_j(self, duration_s: float, gpu_energy_j: float) -> float:
        """Energy at the wall: GPUs, base load and loss of the power supply [J]."""
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
    """Power of one replica of a pool; None where the GPU's power limit or the server's base power is unknown.

    *servers_per_replica* is the number of servers over the number of replicas that share them: their base power, or
    nameplate, is split evenly. Without a server only the GPUs draw power. *reach* is the part of the way from idle
    power to the power limit that a busy replica takes its GPUs.
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
    "load_power_coefficients",
    "pool_power",
    "unpacks",
]
