"""The largest batch that answers within a latency limit."""

from collections.abc import Callable

HALVINGS = 20


def largest_batch_within(time_s: Callable[[float], float], limit_s: float, largest: float) -> float:
    """Samples of the largest batch whose queries meet *limit_s*, at least 1 and at most *largest*.

    A query that just misses a batch waits for that one and then for its own: two batch times, growing with the batch.
    """
    if 2 * time_s(largest) <= limit_s or largest <= 1:
        return largest
    low, high = 1.0, largest
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if 2 * time_s(middle) <= limit_s else (low, middle)
    return low
