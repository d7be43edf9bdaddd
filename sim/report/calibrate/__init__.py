"""The answer of `calibrate`."""
