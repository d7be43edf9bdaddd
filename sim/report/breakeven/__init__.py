"""The answer of `breakeven`."""
