"""What a GPU, or a MIG slice of one, has for a service."""

from dataclasses import dataclass, replace
from typing import Literal, get_args

from sim.catalogue.entries.gpu import Gpu
from sim.catalogue.entries.slices.slice import sliced

Precision = Literal["fp16", "fp8", "int8"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
NUMBER_BYTES: dict[Precision, int] = {"fp16": 2, "fp8": 1, "int8": 1}
USUAL_SMS = 100.0
"""Streaming multiprocessors where nobody has written them down."""
USUAL_TDP_W = 300.0


@dataclass(frozen=True, slots=True)
class Device:
    """Datasheet figures that a batch time needs."""

    gpu: str
    """Id in data/gpus."""
    architecture: str
    precision: Precision
    flops: float
    """Dense tensor rate in the service's precision [FLOP/s]."""
    bytes_per_s: float
    sms: float
    tdp_w: float
    alone: bool = False
    """One MIG slice, which runs at the clock of a card that is not full."""


def device_of(gpu: Gpu, precision: Precision) -> Device | None:
    """*gpu* computing in *precision*; None where its tensor cores have no such type."""
    rate = {"fp16": gpu.fp16_flops, "fp8": gpu.fp8_flops, "int8": gpu.int8_ops_per_s}[precision]
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
    """A lone MIG slice of *gpu* computing in *precision*; None where its tensor cores have no such type.

    Raises KeyError for a profile that *gpu* does not have.
    """
    device = device_of(sliced(gpu, profile), precision)
    return None if device is None else replace(device, alone=True)
