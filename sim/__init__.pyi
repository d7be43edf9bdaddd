# What type checkers and editors see of the names that __init__.py imports when they are asked for.
from sim.api.public import *  # noqa: F403
from sim.api.public import __all__ as __all__
