"""Tolerance of a search for a capacity: its default, and the allowed range."""

RELATIVE = 0.02
"""Default width of the last bracket in the search, as a fraction of the capacity."""
NARROWEST, WIDEST = 0.001, 0.5
"""Bounds of the width that `--relative` may set."""
