"""Requests go to the replica with the best weighted score of prefix, queue and KV: llm-d's scheduler."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from sim.records import Request
from sim.routing.cache.index import Approximate, IndexSpec, PrefixIndex, replicas_of
from sim.routing.cache.loads import Loads
from sim.spec import Count, NonNegative, Spec


class PrefixScore(Spec):
    """llm-d's scorers with the weights of its default profile (llm-d.ai, architecture of the router's scheduler): the
    highest sum of weight x score, each score between 0 and 1; a tie goes to the fewest outstanding requests.

    llm-d scrapes waiting requests and KV usage from the engines; here a router counts outstanding requests and the
    tokens of their prompts, without delay.
    """

    policy: Literal["prefix_score"]
    prefix_weight: NonNegative = 3.0
    """Of the share of the prompt that the replica has."""
    queue_weight: NonNegative = 2.0
    """Of how few outstanding requests it has: 1 the fewest of all replicas, 0 the most."""
    kv_weight: NonNegative = 2.0
    """Of how few prompt tokens these have: 1 the fewest of all replicas, 0 the most."""
    max_prefix_blocks: Count = 256
    """Blocks of a prompt that are looked at, from its start."""
    index: IndexSpec = Approximate(kind="approximate")
    """What the router knows of the caches."""

    def start(self, pools: Sequence[str], rng: np.random.Generator) -> "BestScore":
        """The running router over replicas of these *pools*, one name a replica."""
        return BestScore(self, len(pools))


class BestScore(Loads):
    """The running policy."""

    def __init__(self, spec: PrefixScore, replicas: int) -> None:
        super().__init__(replicas)
        self._spec = spec
        self.index: PrefixIndex = spec.index.start(replicas)

    def choose(self, request: Request) -> int:
        """Index of the replica for *request*; -1 if none is open."""
        spec = self._spec
        if not self.open:
            return -1
        matches = self.index.matches(request, spec.max_prefix_blocks)
        found = {replica: tokens for bits, tokens in matches for replica in replicas_of(bits)}
        seen = min(request.prompt_tokens, spec.max_prefix_blocks * request.hash_block_tokens) or 1
        few_requests, few_tokens = self._fewness(self.requests), self._fewness(self.kv_tokens)
        scores = {
            replica: spec.prefix_weight * found.get(replica, 0) / seen
            + spec.queue_weight * few_requests[replica]
            + spec.kv_weight * few_tokens[replica]
            for replica in self.open
        }
        best = max(scores.values())
        chosen = self.least(replica for replica, score in scores.items() if score == best)
        self.index.sent(request, chosen)
        return chosen

    def _fewness(self, counts: Sequence[int]) -> dict[int, float]:
        """1 for the open replica with the fewest, 0 for the one with the most; 1 for all where all have as many."""
        most, fewest = max(counts[i] for i in self.open), min(counts[i] for i in self.open)
        span = most - fewest
        return {i: (most - counts[i]) / span if span else 1.0 for i in self.open}
