"""Power of GPUs and servers, linear in what a replica's meters count.

A GPU draws `idle_w` with weights loaded and no work. While busy it draws `memory_bound_w`, and more the longer its
tensor cores are at work: `compute_bound_w` at their dense peak. Energy is therefore linear in duration, busy time and
compute time, and that of a sum of intervals is the sum of theirs.
"""

from dataclasses import dataclass
from typing import Literal, Self

from pydantic import model_validator

from sim.catalog.gpu import Gpu
from sim.catalog.server import Server
from sim.power.coefficients import PowerCoefficients
from sim.spec import Positive, Spec


class Power(Spec):
    """How a pool's power is counted."""

    mode: Literal["load", "nameplate"] = "load"
    """load: by what the GPUs do; nameplate: always the most that the server and its GPUs can draw."""
    nameplate_w: Positive | None = None
    """With nameplate: power of one server at the wall, instead of the catalogue's."""

    @model_validator(mode="after")
    def _nameplate_goes_with_its_mode(self) -> Self:
        if self.nameplate_w is not None and self.mode != "nameplate":
            raise ValueError("nameplate_w needs mode: nameplate")
        return self


@dataclass(frozen=True, slots=True)
class GpuPower:
    """Power of one GPU [W]."""

    idle_w: float
    memory_bound_w: float
    compute_bound_w: float

    @classmethod
    def of(cls, gpu: Gpu, coefficients: PowerCoefficients) -> "GpuPower | None":
        """From the datasheet's power limit and measured shares of it; None where the limit is unknown."""
        if gpu.tdp_w is None:
            return None
        tdp_w, shares = gpu.tdp_w.value, coefficients.shares(gpu)
        if gpu.loaded_idle_w is not None:
            idle_w = gpu.loaded_idle_w.value
        else:
            unloaded_w = gpu.idle_w.value if gpu.idle_w else 0.0
            idle_w = max(unloaded_w, coefficients.loaded_idle.value * tdp_w)
        return cls(idle_w, shares.memory_bound.value * tdp_w, shares.compute_bound.value * tdp_w)

    @classmethod
    def nameplate(cls, gpu: Gpu) -> "GpuPower | None":
        """The power limit all the time; None where it is unknown."""
        return None if gpu.tdp_w is None else cls(gpu.tdp_w.value, gpu.tdp_w.value, gpu.tdp_w.value)

    def energy_j(self, duration_s: float, busy_s: float, compute_s: float) -> float:
        """Energy over *duration_s*, of which *busy_s* at work, of which *compute_s* at the tensor cores' peak [J]."""
        return (
            self.idle_w * (duration_s - busy_s)
            + self.memory_bound_w * busy_s
            + (self.compute_bound_w - self.memory_bound_w) * compute_s
        )


@dataclass(frozen=True, slots=True)
class PoolPower:
    """Power of one replica: its GPUs, and its share of the server around them."""

    gpu: GpuPower
    gpus_per_replica: int
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
        return (self.gpus_per_replica * self.gpu.compute_bound_w + self.base_w) / self.psu_efficiency

    def gpu_energy_j(self, duration_s: float, busy_s: float, compute_s: float) -> float:
        """Energy of the replica's GPUs, from the replica's busy and compute time (of one GPU, all alike) [J]."""
        return self.gpus_per_replica * self.gpu.energy_j(duration_s, busy_s, compute_s)

    def server_energy_j(self, duration_s: float, gpu_energy_j: float) -> float:
        """Energy at the wall: GPUs, base load and loss of the power supply [J]."""
        if self.nameplate_w is not None:
            return self.nameplate_w * duration_s
        return (gpu_energy_j + self.base_w * duration_s) / self.psu_efficiency


def pool_power(
    spec: Power,
    gpu: Gpu,
    coefficients: PowerCoefficients,
    gpus_per_replica: int,
    server: Server | None = None,
    servers_per_replica: float = 1.0,
) -> PoolPower | None:
    """Power of one replica of a pool; None where the GPU's power limit or the server's base power is unknown.

    *servers_per_replica* is the number of servers over the number of replicas that share them: their base power, or
    nameplate, is split evenly. Without a server only the GPUs draw power.
    """
    nameplate = spec.mode == "nameplate"
    gpu_power = GpuPower.nameplate(gpu) if nameplate else GpuPower.of(gpu, coefficients)
    if gpu_power is None:
        return None
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
