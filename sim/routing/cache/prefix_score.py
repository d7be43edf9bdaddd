"""Requests go to the replica with the best weighted score of prefix, queue and KV: llm-d's scheduler."""

from collections.abc import Sequence
from itertools import islice
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
        seen = min(request.prompt_tokens, spec.max_prefix_blocks * request.hash_block_tokens) or 1
        shares = [0.0] * len(self.requests)
        for bits, tokens in self.index.matches(request, spec.max_prefix_blocks):
            for replica in replicas_of(bits):
                shares[replica] = spec.prefix_weight * tokens / seen
        few_requests, few_tokens = self._fewness(self.requests), self._fewness(self.kv_tokens)
        of_queue, of_kv = spec.queue_weight, spec.kv_weight
        scores = [
            shares[replica] + of_queue * requests + of_kv * tokens
            for replica, requests, tokens in zip(self.open, few_requests, few_tokens, strict=True)
        ]
        best = max(scores)
        if scores.count(best) == 1:
            chosen = next(islice(self.open, scores.index(best), None))
        else:
            chosen = self.least(replica for replica, score in zip(self.open, scores, strict=True) if score == best)
        self.index.sent(request, chosen)
        return chosen

    def _fewness(self, counts: Sequence[int]) -> list[float]:
        """Of each open replica, 1 for the one with the fewest, 0 for the one with the most; 1 for all where all have as
        many.
        """
        if len(self.open) < len(counts):
            counts = [counts[replica] for replica in self.open]
        most, fewest = max(counts), min(counts)
        span = most - fewest
        return [(most - count) / span for count in counts] if span else [1.0] * len(counts)
