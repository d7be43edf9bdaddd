"""State of a search while it runs, for progress reports."""

from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True)
class SearchState:
    """Progress of a search."""

    bounded: int = 0
    """Number of kinds of replicas whose bounds are known."""
    kinds: int = 0
    """Number of kinds of replicas whose bounds the search has computed or will compute next."""
    simulated: int = 0
    """Number of simulated cases."""
    cheapest_usd_per_h: float = inf
    """Cost of the cheapest fleet that meets the service level [USD/h]; infinite before any."""
    queued: int = 0
    """Number of queued fleets that may be cheaper or on the front of cost against latency."""
