"""Requests go where most of their prompt is, unless the load is out of balance: SGLang's router."""

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from sim.records import Request
from sim.routing.cache.index import Approximate, IndexSpec, PrefixIndex, replicas_of
from sim.routing.cache.loads import Loads
from sim.spec import Fraction, Positive, Spec, WholeNumber


class CacheAware(Spec):
    """SGLang's policy with its defaults (docs.sglang.io, SGLang Model Gateway, load balancing policies).

    Where the busiest replica has both `balance_abs_threshold` more requests than the idlest and
    `balance_rel_threshold` times as many, the idlest is chosen. Else the replica with the longest prefix, if that is
    more than `cache_threshold` of the prompt; else the one of which the index knows the fewest blocks.
    """

    policy: Literal["cache_aware"]
    cache_threshold: Fraction = 0.3
    balance_abs_threshold: WholeNumber = 64
    balance_rel_threshold: Annotated[Positive, Field(ge=1)] = 1.5
    index: IndexSpec = Approximate(kind="approximate")
    """What the router knows of the caches."""

    def start(self, pools: Sequence[str], rng: np.random.Generator) -> "LongestPrefix":
        """The running router over replicas of these *pools*, one name a replica."""
        return LongestPrefix(self, len(pools))


class LongestPrefix(Loads):
    """The running policy."""

    def __init__(self, spec: CacheAware, replicas: int) -> None:
        super().__init__(replicas)
        self._spec = spec
        self.index: PrefixIndex = spec.index.start(replicas)

    def choose(self, request: Request) -> int:
        """Index of the replica for *request*; -1 if none is open."""
        chosen = self._chosen(request)
        if chosen >= 0:
            self.index.sent(request, chosen)
        return chosen

    def _chosen(self, request: Request) -> int:
        spec, loads = self._spec, self.requests
        if len(self.open) < len(loads):
            loads = [loads[replica] for replica in self.open]
        if not loads:
            return -1
        most, fewest = max(loads), min(loads)
        if most - fewest > spec.balance_abs_threshold and most > spec.balance_rel_threshold * fewest:
            return self.least()
        for bits, tokens in reversed(self.index.matches(request)):
            if tokens <= spec.cache_threshold * request.prompt_tokens:
                break
            if among := [replica for replica in replicas_of(bits) if replica in self.open]:
                return self.least(among)
        known = self.index.blocks
        fewest = min(map(known.__getitem__, self.open))
        return self.least([replica for replica in self.open if known[replica] == fewest])
