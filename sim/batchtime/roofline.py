"""Roofline of one-pass services: kernel launches, and arithmetic and memory traffic that overlap in part.

`BatchWork` is the work of a batch, `Device` the datasheet figures of a GPU or a MIG slice, `DeviceSpeed` the rates that
a service reaches on it. `batch_time_s` has the equation.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import exp, log
from typing import Literal, get_args

from sim.catalogue.gpu import Gpu, sliced
from sim.catalogue.model import ImageGenerator, OtherModel

Precision = Literal["fp16", "fp8", "int8"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
NUMBER_BYTES: dict[Precision, int] = {"fp16": 2, "fp8": 1, "int8": 1}
USUAL_SMS = 100.0
"""Default number of streaming multiprocessors, for GPUs where it is unknown."""
USUAL_TDP_W = 300.0


@dataclass(frozen=True, slots=True)
class Device:
    """Datasheet figures of a GPU or MIG slice that determine a batch time."""

    gpu: str
    """Id of the GPU, in data/gpus."""
    architecture: str
    precision: Precision
    flops: float
    """Dense tensor rate in the service's precision [FLOP/s]."""
    bytes_per_s: float
    sms: float
    tdp_w: float
    alone: bool = False
    """True for a single busy MIG slice, which runs at the clock of a card that is not fully loaded."""


def device_of(gpu: Gpu, precision: Precision) -> Device | None:
    """Return *gpu* computing in *precision*; None if its tensor cores do not support it."""
    rate = gpu.dense_rate(precision)
    if rate is None:
        return None
    return Device(
        gpu=gpu.id,
        architecture=gpu.architecture,
        precision=precision,
        flops=rate.value,
        bytes_per_s=gpu.memory_bytes_per_s.value,
        sms=USUAL_SMS if gpu.sm_count is None else gpu.sm_count.value,
        tdp_w=USUAL_TDP_W if gpu.tdp_w is None else gpu.tdp_w.value,
    )


def slice_of(gpu: Gpu, profile: str, precision: Precision) -> Device | None:
    """Return a single busy MIG slice of *gpu* computing in *precision*; None if the tensor cores do not support it.

    Raises KeyError for a profile that *gpu* does not have.
    """
    device = device_of(sliced(gpu, profile), precision)
    return None if device is None else replace(device, alone=True)


@dataclass(frozen=True, slots=True)
class BatchWork:
    """Work of one batch, from its first kernel to its last."""

    flops: float
    weight_bytes: float
    """Weights read, once per pass [bytes]."""
    traffic_bytes: float
    """Activations and table rows read and written [bytes]."""
    kernels: float
    """Number of sequential kernel launches, independent of the batch size."""


def work_of(
    model: OtherModel,
    precision: Precision,
    samples: float,
    resolution: int | None = None,
    steps: int | None = None,
) -> BatchWork:
    """Return the work of a batch of *samples* samples of *model*.

    Convolutions and cross attention grow with the number of pixels, self-attention with its square.

    Parameters
    ----------
    model
        The service.
    precision
        Storage type of weights and activations.
    samples
        Samples in the batch.
    resolution
        Side of an image generator's images [pixels]; default: the model's own.
    steps
        Denoiser steps of an image generator; default: the model's own.

    Raises
    ------
    KeyError
        The model's file lacks a field; the key is its name.

    """
    flops, traffic, kernels = (_known_value(model, name) for name in NEEDED)
    weights = 0.0 if model.params is None else model.params.value
    width = NUMBER_BYTES[precision]
    passes = 1.0 if model.passes_per_sample is None else model.passes_per_sample.value
    if model.generator is None:
        return BatchWork(
            flops=samples * passes * flops,
            weight_bytes=passes * weights * width,
            traffic_bytes=samples * passes * traffic * width,
            kernels=passes * kernels,
        )
    generator = model.generator
    area = ((resolution or generator.resolution) / generator.resolution) ** 2
    steps = steps or generator.steps
    calls = steps * generator.calls_per_step
    return BatchWork(
        flops=samples * (calls * _call_flops(flops, generator, area) + area * generator.decoder_flops.value),
        weight_bytes=steps * weights * width,
        traffic_bytes=samples * area * (calls * traffic + generator.decoder_traffic_elements.value) * width,
        kernels=steps * kernels,
    )


NEEDED = ("flops_per_sample", "traffic_elements_per_sample", "kernels")
"""Fields of a model's file that the batch time requires."""


def missing_work(model: OtherModel) -> tuple[str, ...]:
    """Return the names in NEEDED that *model* lacks."""
    return tuple(name for name in NEEDED if getattr(model, name) is None)


def _known_value(model: OtherModel, name: str) -> float:
    value = getattr(model, name)
    if value is None:
        raise KeyError(name)
    return float(value.value)


def _call_flops(flops: float, generator: ImageGenerator, area: float) -> float:
    attention = generator.attention_flops_per_call.value
    return area * (flops - attention) + area**2 * attention


EXPONENT = 2.5
"""Exponent p of the overlap, as for the matrix products of sim/steptime."""
WAVE_FLOP = 16e6
"""Arithmetic of a typical thread block, a tile of 128 x 128 over 512 [FLOP]; its weight is fitted."""
USUAL_FLOPS_PER_W = 3e12
"""Rate per watt of the H100 SXM in int8 [FLOP/s/W]; a reference unit, not a constraint."""


@dataclass(frozen=True, slots=True)
class ServiceFactors:
    """Fitted factors of one service on one card."""

    compute: float
    """Fraction of the datasheet rate reached by large batches; the product of the service's and the card's factors."""
    memory: float
    """Fraction of the datasheet bandwidth reached."""
    traffic: float
    """Traffic relative to every layer reading and writing memory by itself; fusion and caches lower it."""
    kernels: float
    """Kernel time relative to the counted launches of a typical convolution."""
    launch_s: float
    wave: float
    """Waves lost per kernel, in units of WAVE_FLOP."""
    power_exponent: float
    slice_speed: float
    """Rate of a single busy MIG slice relative to its share of a fully loaded card."""


@dataclass(frozen=True, slots=True)
class DeviceSpeed:
    """Rates that a service reaches on a device."""

    flops: float
    """Arithmetic rate of a large batch [FLOP/s]."""
    bytes_per_s: float
    """Rate of the counted traffic of activations and table rows [B/s]."""
    weight_bytes_per_s: float
    kernel_s: float


def speed_of(device: Device, factors: ServiceFactors) -> DeviceSpeed:
    """Return the rates that a service with *factors* reaches on *device*.

    Notes
    -----
        kernel_s = factors.kernels * (launch_s + wave * WAVE_FLOP * SMs / datasheet rate)
        rate     = datasheet rate * factors.compute * (datasheet rate / TDP / USUAL_FLOPS_PER_W)^-power_exponent

    Every kernel costs its launch and part of a wave: during the last wave of thread blocks, most streaming
    multiprocessors are idle. This makes small batches inefficient, and more so on large cards. A card with a high
    datasheet rate for its power limit runs below its boost clock under full load, by a power of rate over watts.

    """
    crowded = (device.flops / device.tdp_w) / USUAL_FLOPS_PER_W
    compute = factors.compute * exp(-factors.power_exponent * log(crowded))
    if device.alone:
        compute *= factors.slice_speed
    bandwidth = device.bytes_per_s * factors.memory
    wave_s = factors.wave * WAVE_FLOP * device.sms / device.flops
    return DeviceSpeed(
        flops=device.flops * compute,
        bytes_per_s=bandwidth / factors.traffic,
        weight_bytes_per_s=bandwidth,
        kernel_s=factors.kernels * (factors.launch_s + wave_s),
    )


def batch_time_s(work: BatchWork, speed: DeviceSpeed) -> float:
    """Return the time from the first kernel of a batch to its last [s].

    Notes
    -----
    t = kernels * kernel_s + (C^p + M^p)^(1/p), with C = FLOP / rate, M = bytes / bandwidth and p = EXPONENT.

    """
    compute = work.flops / speed.flops
    memory = work.weight_bytes / speed.weight_bytes_per_s + work.traffic_bytes / speed.bytes_per_s
    return work.kernels * speed.kernel_s + float((compute**EXPONENT + memory**EXPONENT) ** (1 / EXPONENT))


HALVINGS = 20


def largest_batch_within(time_s: Callable[[float], float], limit_s: float, largest: float) -> float:
    """Return the samples of the largest batch whose queries meet *limit_s*, at least 1 and at most *largest*.

    A query that just misses a batch waits for that batch and then for its own: two batch times, which grow with the
    batch.
    """
    if 2 * time_s(largest) <= limit_s or largest <= 1:
        return largest
    low, high = 1.0, largest
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if 2 * time_s(middle) <= limit_s else (low, middle)
    return low
