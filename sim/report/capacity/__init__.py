"""The answer of `capacity`."""
