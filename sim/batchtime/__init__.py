"""Seconds that a batch of a one-pass service takes on a GPU or on a MIG slice: image classifiers, encoders,
recommenders, image generators.

    batch_time_s(work_of(model, precision, batch), speed)

`roofline` has the work of a batch, the datasheet of the device and the time that follows, `coefficients` how much of
the datasheet such services reach (data/batchtime.yaml, fitted by benchmarks/fit/services.py).
"""

from sim.batchtime.coefficients import Coefficients, load_coefficients
from sim.batchtime.memory import BatchMemory
from sim.batchtime.one_pass import AffineBatch, OnePass, OnePassStepTime, unit_of
from sim.batchtime.roofline import (
    Device,
    Factors,
    Precision,
    Speed,
    Work,
    batch_time_s,
    device_of,
    missing_work,
    slice_of,
    speed_of,
    work_of,
)

__all__ = [
    "AffineBatch",
    "BatchMemory",
    "Coefficients",
    "Device",
    "Factors",
    "OnePass",
    "OnePassStepTime",
    "Precision",
    "Speed",
    "Work",
    "batch_time_s",
    "device_of",
    "load_coefficients",
    "missing_work",
    "slice_of",
    "speed_of",
    "unit_of",
    "work_of",
]
