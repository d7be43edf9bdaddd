"""The answer of `size`."""
