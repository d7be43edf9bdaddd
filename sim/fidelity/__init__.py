"""Comparison of predictions with measurements: `gpufleet validate` and `gpufleet calibrate`.

names           catalogue entries of the names in benchmark rows
bench_scenario, prediction, scores, tables
                rows of serving benchmarks as scenarios; their prediction, scores and tables
services        MLPerf results of one-pass services
training_rows, training
                rows of training runs; their prediction and scores
fit, calibration
                factors fitted to a user's own runs
picture, page, validation
                charts, validation.html, and the folder of a validation
"""
