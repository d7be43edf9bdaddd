"""Tenants: customers or teams that share a fleet, each with a share, a weight and a rate limit."""

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from sim.spec import Count, NonNegative, Positive, Spec

UNATTRIBUTED = "(nobody)"
"""Name of the row, next to the tenants, of costs that no request causes, mainly idle time."""


class RateLimit(Spec):
    """Token bucket of requests; a request that finds it empty is refused without a retry."""

    requests_per_s: Positive
    """Rate at which the bucket refills [requests/s]."""
    burst: Count = 1
    """Capacity of the bucket, which is full at the start [requests]."""


class Tenant(Spec):
    """Tenant that shares the fleet."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    """Name of the tenant, as in a trace's column `tenant` and in outputs."""
    share: NonNegative = 1.0
    """Share of drawn requests, or of sessions, in any unit; a trace has its own shares."""
    weight: Positive = 1.0
    """Weight with `scheduling: fair`: a tenant of weight 2 is entitled to twice the tokens of a tenant of weight 1."""
    priority: int | None = None
    """Priority of all its requests with `scheduling: priority`, lower first; default: the trace's, else 0."""
    rate_limit: RateLimit | None = None
    """Rate limit of the tenant; default: none."""
    adapter: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """LoRA adapter that all its requests use; default: as drawn by the workload's `adapters`."""


def drawn_names(tenants: Sequence[Tenant], u: NDArray[np.float64]) -> list[str]:
    """Return names of *tenants*, selected by their shares at the uniform numbers *u*."""
    ends = np.cumsum([tenant.share for tenant in tenants])
    places = np.minimum(np.searchsorted(ends / ends[-1], u, side="right"), len(tenants) - 1)
    return [tenants[place].name for place in places.tolist()]
