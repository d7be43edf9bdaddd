"""The answer of `sensitivity`."""
