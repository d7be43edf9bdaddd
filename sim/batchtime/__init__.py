"""Seconds that a batch of a one-pass service takes on a GPU or on a MIG slice: image classifiers, encoders,
recommenders, image generators.

    batch_time_s(work_of(model, precision, batch), speed)

`roofline` has the work of a batch, the datasheet of the device and the time that follows, `coefficients` how much of
the datasheet such services reach (data/batchtime.yaml, fitted by benchmarks/fit/services.py).
"""
