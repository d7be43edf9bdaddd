"""Where KV goes that the GPU has no room for: host memory, an SSD, a store that replicas share."""

from typing import Annotated, Literal

from pydantic import Field

from sim.spec import NonNegative, Positive, Spec


class KvTier(Spec):
    """One tier below the GPU's KV cache. It keeps the blocks used last; the others go to the next tier or are lost."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    """host, ssd, store, ..."""
    capacity_gb: Positive
    """Room for the KV of one replica, or with `shared` of all replicas of the pool [10^9 bytes]."""
    read_bytes_per_s: Positive
    """From the tier to the GPUs of a replica."""
    latency_s: NonNegative = 0.0
    """Of a request that reads from it, however much [s]."""
    write: Literal["evict", "through"] = "evict"
    """When blocks come: when the tier above gives them up, or as soon as they are computed."""
    shared: bool = False
    """One for all replicas of the pool."""
