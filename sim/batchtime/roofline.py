"""Batch time: launches, and arithmetic and memory traffic that overlap in part.

    t(b) = kernels x kernel_s + (C^p + M^p)^(1/p),   C = FLOPs / rate,   M = bytes / bandwidth

Every kernel costs its launch and a part of a wave: on the last wave of thread blocks most SMs wait. That is what makes
small batches inefficient, and more so on large cards. A card whose datasheet rate is high for its power limit runs
below its boost clock when it is full, by a power of rate over watts.
"""

from dataclasses import dataclass
from math import exp, log

from sim.batchtime.device import Device
from sim.batchtime.work import Work

EXPONENT = 2.5
"""p of the overlap, as for the matrix products of sim/steptime."""
WAVE_FLOP = 16e6
"""Arithmetic of one usual thread block, a tile of 128 x 128 over 512 [FLOP]; its weight is fitted."""
USUAL_FLOPS_PER_W = 3e12
"""Of the H100 SXM in int8; a unit, not a constraint."""


@dataclass(frozen=True, slots=True)
class Factors:
    """Fitted numbers of one service on one card."""

    compute: float
    """Share of the datasheet rate at large batches, all factors of service and card together."""
    memory: float
    """Share of the datasheet bandwidth."""
    traffic: float
    """Traffic against every layer reading and writing memory by itself: fusion and caches lower it."""
    kernels: float
    """Kernel time against the counted launches of a usual convolution."""
    launch_s: float
    wave: float
    """Waves lost per kernel, in units of WAVE_FLOP."""
    power_exponent: float
    slice_speed: float
    """Rate of a lone MIG slice against its share of a full card."""


@dataclass(frozen=True, slots=True)
class Speed:
    """What a service reaches on a device."""

    flops: float
    """FLOP per second of a large batch."""
    bytes_per_s: float
    """Of the traffic as counted, weights included."""
    weight_bytes_per_s: float
    kernel_s: float


def speed_of(device: Device, factors: Factors) -> Speed:
    """How fast *device* works on a service with these *factors*."""
    crowded = (device.flops / device.tdp_w) / USUAL_FLOPS_PER_W
    compute = factors.compute * exp(-factors.power_exponent * log(crowded))
    if device.alone:
        compute *= factors.slice_speed
    bandwidth = device.bytes_per_s * factors.memory
    wave_s = factors.wave * WAVE_FLOP * device.sms / device.flops
    return Speed(
        flops=device.flops * compute,
        bytes_per_s=bandwidth / factors.traffic,
        weight_bytes_per_s=bandwidth,
        kernel_s=factors.kernels * (factors.launch_s + wave_s),
    )


def batch_time_s(work: Work, speed: Speed) -> float:
    """Seconds from the first kernel of a batch to its last."""
    compute = work.flops / speed.flops
    memory = work.weight_bytes / speed.weight_bytes_per_s + work.traffic_bytes / speed.bytes_per_s
    return work.kernels * speed.kernel_s + float((compute**EXPONENT + memory**EXPONENT) ** (1 / EXPONENT))
