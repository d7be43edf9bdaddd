"""What a replica draws: GPUs by load, its share of the server, or the nameplate all the time."""

from sim.power.coefficients import PowerCoefficients, load_power_coefficients
from sim.power.power import GpuPower, LoadLaw, PoolPower, Power, pool_power, unpacks

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
