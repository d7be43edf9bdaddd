"""The answer of `plan`."""
