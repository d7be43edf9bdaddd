"""How figures are found, one kind a file. A new kind is a file here, a class in sim/scenario/claims/figures.py, and a
line below.
"""

from sim.study.claims.kinds import (  # noqa: F401 - each registers its kind
    arithmetic,
    capacity,
    catalogue,
    ledger,
    memory,
    run,
    size,
    weights,
)
from sim.study.claims.kinds.registry import find

__all__ = ["find"]
