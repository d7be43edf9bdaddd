"""How closely a search for a capacity finds it: the usual fraction of the capacity, and the ends of its range."""

RELATIVE = 0.02
"""Width of the last bracket in the search, as a fraction of the capacity, unless another is asked for."""
NARROWEST, WIDEST = 0.001, 0.5
"""What may be asked for."""
