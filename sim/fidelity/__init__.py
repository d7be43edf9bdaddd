"""Predictions against measurements: `gpufleet validate` and `gpufleet calibrate`.

names           names in benchmark rows, found in the catalogue
bench_scenario, prediction, scores, tables
                rows of serving benchmarks as scenarios, predicted, scored and shown
services        MLPerf results of one-pass services
training_rows, training
                rows of training runs, predicted and scored
fit, calibration
                factors fitted to a user's own runs
picture, page, validation
                charts, validation.html and its folder
"""
