"""Power of GPUs and servers, linear in what a replica's meters count.

A step draws, from its operations and bytes a second and with energies per operation and per byte,

    z = (per_flop * FLOP/s + per_byte * (1 + growth * log2(tokens)) * byte/s) / (power limit)
    load = z / sqrt(1 + z^2)                     power = idle + load * (power limit - idle)

The more tokens of a step share what is read, the more work follows each byte through caches and cores. Well below the
limit power is the sum of its causes; near it the card slows its clocks, and the limit holds. The load of a step is
worked out once per leap; its integral over busy time is all that power needs, so that energy is linear in duration and
loaded time, and that of a sum of intervals is the sum of theirs.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import log2, sqrt
from typing import Literal, Self

from pydantic import model_validator

from sim.catalogue.entries.gpu import Gpu
from sim.catalogue.entries.server import Server
from sim.power.coefficients import PowerCoefficients
from sim.spec import Positive, Spec


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


@dataclass(frozen=True, slots=True)
class LoadLaw:
    """How hard steps work a GPU, from 0 at idle power to 1 at its limit."""

    compute: float
    """Power over the limit of the tensor cores at their dense peak at 16 bit."""
    memory: float
    """Of the memory, read all the time for a single token."""
    growth: float
    """What each doubling of the tokens adds to it."""

    @classmethod
    def of(cls, gpu: Gpu, coefficients: PowerCoefficients, cap_w: float | None = None) -> "LoadLaw | None":
        """From the datasheet's rates and the power limit, or a lower one that is set; None if the former is unknown."""
        if gpu.tdp_w is None:
            return None
        family = coefficients.family(gpu)
        over_limit = (family.factor.value if family else 1.0) / min(gpu.tdp_w.value, cap_w or gpu.tdp_w.value)
        return cls(
            coefficients.per_flop_j.value * gpu.fp16_flops.value * over_limit,
            coefficients.per_byte_j.value * gpu.memory_bytes_per_s.value * over_limit,
            coefficients.per_byte_growth.value,
        )

    def __call__(self, compute_share: float, memory_share: float, tokens: int) -> float:
        """Load of a step of *tokens* new tokens.

        Its shares of time are those at the dense peak, in whatever arithmetic, and of reading memory.
        """
        z = self.compute * compute_share + self.memory * memory_share * (1 + self.growth * log2(tokens))
        return z / sqrt(1 + z * z)


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
        return cls(max(unloaded_w, coefficients.loaded_idle.value * gpu.tdp_w.value), limit_w)

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
    gpus_per_replica: int | Fraction
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
    gpus_per_replica: int | Fraction,
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
