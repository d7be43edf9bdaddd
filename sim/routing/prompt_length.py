"""Routing by prompt length: each class of lengths has pools of its own."""

from collections.abc import Sequence
from math import inf
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from sim.records import Request
from sim.routing.buckets import Buckets
from sim.spec import Count, Positive, Spec


class LengthClass(Spec):
    """Class of prompt lengths above the limit of the class before."""

    up_to_prompt_tokens: Count | None = None
    """Longest prompt of the class [tokens]; left out in the last class, which has no limit."""
    pools: Annotated[dict[str, Positive], Field(min_length=1)]
    """Pool -> its share of these requests, in any unit."""


class ByLength(Spec):
    """Pools by prompt length; within a pool the replica with the fewest requests is chosen.

    The length of the answer is unknown when a request arrives, so it is not considered. Where a class has several pools
    each gets its share of the requests, evenly in time. A pool without a serving replica is left out.
    """

    policy: Literal["by_length"]
    classes: Annotated[tuple[LengthClass, ...], Field(min_length=1)]
    """Classes of prompt lengths, from the shortest prompts to the longest."""

    @model_validator(mode="after")
    def _complete_and_in_order(self) -> Self:
        *bounded, last = (one.up_to_prompt_tokens for one in self.classes)
        if last is not None:
            raise ValueError(
                "classes: the last one must have no up_to_prompt_tokens; otherwise no class takes longer prompts"
            )
        limits = [inf if one is None else one for one in bounded]
        if any(low >= high for low, high in zip([0, *limits], [*limits, inf], strict=True)):
            raise ValueError("classes: up_to_prompt_tokens must be there and rise from class to class")
        return self

    def start(self, pools: Sequence[str], rng: "np.random.Generator") -> "LengthClassReplicas":
        """Return the running router over replicas of these *pools*, one name per replica."""
        return LengthClassReplicas(self.classes, pools)


class LengthClassReplicas:
    """Router by prompt length: shares of the classes, and open replicas of each pool by outstanding requests."""

    def __init__(self, classes: Sequence[LengthClass], pools: Sequence[str]) -> None:
        self._pool = list(pools)
        """Pool of each replica."""
        members = {name: [i for i, pool in enumerate(pools) if pool == name] for name in dict.fromkeys(pools)}
        self._buckets = {pool: Buckets(replicas) for pool, replicas in members.items()}
        self._open = {pool: len(replicas) for pool, replicas in members.items()}
        """Pool -> number of open replicas."""
        self._limits = [inf if one.up_to_prompt_tokens is None else one.up_to_prompt_tokens for one in classes]
        self._classes = [{p: share for p, share in one.pools.items() if p in members} for one in classes]
        self._shares = [dict(shares) for shares in self._classes]
        """Shares per class of the pools with an open replica."""
        self._sent: list[dict[str, float]] = [dict.fromkeys(shares, 0) for shares in self._shares]

    def choose(self, request: Request) -> int:
        """Return the index of the replica for *request*; -1 while no pool of its class serves."""
        tokens = request.prompt_tokens
        position = next(i for i, limit in enumerate(self._limits) if tokens <= limit)
        shares, sent = self._shares[position], self._sent[position]
        if not shares:
            return -1
        pool = min(shares, key=lambda name: (sent[name] + 1) / shares[name])
        sent[pool] += 1
        return self._buckets[pool].choose(request)

    def joined(self, replica: int, request: Request) -> None:
        """Count *request*, which is sent to *replica*."""
        self._buckets[self._pool[replica]].joined(replica, request)

    def left(self, replica: int, request: Request) -> None:
        """Discount *request*, which has left *replica*."""
        self._buckets[self._pool[replica]].left(replica, request)

    def opened(self, replica: int, outstanding: int) -> None:
        """Open *replica*; a pool that was closed gets its share from now on, without catching up."""
        pool = self._pool[replica]
        self._buckets[pool].opened(replica, outstanding)
        self._open[pool] += 1
        if self._open[pool] == 1:
            self._share_out()
            for shares, sent in zip(self._shares, self._sent, strict=True):
                others = [sent[name] / share for name, share in shares.items() if name != pool]
                if pool in shares and others:  # the pool does not catch up on requests sent while it was closed
                    sent[pool] = max(sent[pool], min(others) * shares[pool])

    def closed(self, replica: int) -> None:
        """Close *replica*; a pool without open replicas is left out."""
        pool = self._pool[replica]
        self._buckets[pool].closed(replica)
        self._open[pool] -= 1
        if not self._open[pool]:
            self._share_out()

    def _share_out(self) -> None:
        self._shares = [{p: share for p, share in shares.items() if self._open[p]} for shares in self._classes]
