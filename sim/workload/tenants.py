"""Who asks: customers or teams that share a fleet, each with its share, its weight and its limit."""

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from sim.spec import Count, NonNegative, Positive, Spec

NOBODY = "(nobody)"
"""Beside the tenants in tables of who pays: what no request causes, idle time above all."""


class RateLimit(Spec):
    """A bucket of requests that fills at a rate: a request that finds it empty is refused, and for good."""

    requests_per_s: Positive
    burst: Count = 1
    """Requests that the bucket holds, and has at the start."""


class Tenant(Spec):
    """One of those who share the fleet."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    """As a trace has it in its column `tenant`, and as outputs show it."""
    share: NonNegative = 1.0
    """Of drawn requests, or of sessions, in any unit; a trace has shares of its own."""
    weight: Positive = 1.0
    """With `scheduling: fair`: a tenant of weight 2 is owed twice the tokens of one of weight 1."""
    priority: int | None = None
    """With `scheduling: priority`: of all its requests, lower first. Left out: as the trace says, else 0."""
    rate_limit: RateLimit | None = None
    """Left out: none."""
    adapter: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """LoRA adapter that all its requests ask for; left out: as the workload's `adapters` say."""


def drawn_names(tenants: Sequence[Tenant], u: NDArray[np.float64]) -> list[str]:
    """Names of *tenants* by their shares at the uniform numbers *u*."""
    ends = np.cumsum([tenant.share for tenant in tenants])
    places = np.minimum(np.searchsorted(ends / ends[-1], u, side="right"), len(tenants) - 1)
    return [tenants[place].name for place in places.tolist()]
