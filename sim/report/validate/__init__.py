"""The answer of `validate`."""
