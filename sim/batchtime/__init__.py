"""Batch time of one-pass services on a GPU or a MIG slice: classifiers, encoders, recommenders, image generators.

    batch_time_s(work_of(model, precision, batch), speed)

`roofline` has the work of a batch, the device's datasheet figures and the resulting time, `coefficients` the
efficiencies that such services reach (data/batchtime.yaml, fitted by benchmarks/fit/services.py).
"""
