# What type checkers and editors see: the names of sim.
from sim.api.public import *  # noqa: F403
from sim.api.public import __all__ as __all__
