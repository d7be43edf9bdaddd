"""Static batches: the next one starts when the longest answer of the last is done."""

from typing import Literal

from sim.batching.limits import PagedLimits


class Static(PagedLimits):
    """Up to `max_num_seqs` waiting requests start together as soon as the engine is free; nobody joins them.

    The rules are in `sim/engine/schedulers/static.py`.
    """

    policy: Literal["static"]
