"""Predictions against measurements: `validate`, and `calibrate`, which fits factors to a user's own runs."""
