"""Seconds that a batch of a one-pass service takes on a GPU or on a MIG slice: image classifiers, encoders,
recommenders, image generators.

    batch_time_s(work_of(model, precision, batch), speed)

`work` says what a batch asks for (arithmetic, bytes, launches), `device` what the hardware has, `coefficients` how much
of that such services reach (data/batchtime.yaml, fitted by benchmarks/fit/services.py), `roofline` puts them together.
"""

from sim.batchtime.affine_batch import AffineBatch
from sim.batchtime.coefficients import Coefficients, load_coefficients
from sim.batchtime.device import Device, Precision, device_of, slice_of
from sim.batchtime.memory import BatchMemory
from sim.batchtime.one_pass import OnePass, OnePassStepTime, unit_of
from sim.batchtime.roofline import Factors, Speed, batch_time_s, speed_of
from sim.batchtime.work import Work, missing_work, work_of

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
