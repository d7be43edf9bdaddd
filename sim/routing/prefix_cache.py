"""Routing by prefix caches: requests go where much of their prompt is cached already.

`CacheAware` is SGLang's router, `PrefixScore` llm-d's scheduler. Both look into an index of which replicas have
which blocks of prompts: those that the router remembers having sent, or those that the engines report.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from sim.records import Request
from sim.routing.least_loaded import OutstandingLoads
from sim.spec import Count, Fraction, NonNegative, Positive, Spec, WholeNumber


class Approximate(Spec):
    """The router remembers the prompts that it has sent to each replica, and forgets those not used for longest. It
    does not know what the engine has evicted, nor the answers.
    """

    kind: Literal["approximate"]
    tokens_per_replica: Count = 500_000
    """Prompt tokens that it remembers of each replica. llm-d's default is 31,250 blocks of 16 tokens."""

    def start(self, replicas: int) -> "RememberedIndex":
        """The index of a number of *replicas*."""
        return RememberedIndex(replicas, self.tokens_per_replica)


class Exact(Spec):
    """The engines report each block that they store or evict, prompts and answers."""

    kind: Literal["exact"]
    delay_s: NonNegative = 0.0
    """From the event to the router."""

    def start(self, replicas: int) -> "ReportedIndex":
        """The index of a number of *replicas*."""
        return ReportedIndex(replicas, self.delay_s)


IndexSpec = Annotated[Approximate | Exact, Field(discriminator="kind")]


class PrefixIndex:
    """Ids of blocks with the replicas that have them, as bits of an integer: one dict for all replicas."""

    def __init__(self, replicas: int) -> None:
        self._holders: dict[int, int] = {}
        self.blocks = [0] * replicas
        """Of each replica."""
        self._stride = 1
        """A KV block may have room for several blocks of the trace: only the last of them is reported."""

    def matches(self, request: Request, most_blocks: int | None = None) -> list[tuple[int, int]]:
        """Which replicas have how much of the prompt of *request*: (their bits, leading tokens), the fewest tokens
        first, each replica once; without those that have none. Only the first *most_blocks* are looked at.
        """
        size, stride = request.hash_block_tokens, self._stride
        count = request.prompt_tokens // size
        ids = request.block_hashes[: count if most_blocks is None else min(count, most_blocks)]
        holders = self._holders
        found: list[tuple[int, int]] = []
        mask, depth = -1, 0
        for place, block in enumerate(ids[stride - 1 :: stride], 1):
            here = holders.get(block, 0) & mask
            if here != mask:
                if depth:
                    found.append((mask & ~here, depth * size))
                if not here:
                    return found
                mask = here
            depth = place * stride
        if depth:
            found.append((mask, depth * size))
        return found

    def _update(self, replica: int, blocks: Sequence[int], stored: bool) -> None:
        """*replica* has *blocks* from now on, or has them no longer: a dozen and more per request."""
        holders, bit, changed = self._holders, 1 << replica, 0
        known = holders.get
        if stored:
            for block in blocks:
                held = known(block, 0)
                if not held & bit:
                    changed += 1
                    holders[block] = held | bit
        else:
            for block in blocks:
                held = known(block, 0)
                if held == bit:
                    changed -= 1
                    del holders[block]
                elif held & bit:
                    changed -= 1
                    holders[block] = held ^ bit
        self.blocks[replica] += changed

    def sent(self, request: Request, replica: int) -> None:
        """*request* goes to *replica*."""


def replicas_of(bits: int) -> list[int]:
    """The replicas that *bits* stand for."""
    found = []
    while bits:
        lowest = bits & -bits
        found.append(lowest.bit_length() - 1)
        bits ^= lowest
    return found


class RememberedIndex(PrefixIndex):
    """See `Approximate`."""

    def __init__(self, replicas: int, tokens_per_replica: int) -> None:
        super().__init__(replicas)
        self._tokens = tokens_per_replica
        self._recent: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(replicas)]
        """Of each replica, the block not used for longest first."""

    def sent(self, request: Request, replica: int) -> None:
        """*request* goes to *replica*."""
        recent, new = self._recent[replica], []
        for block in reversed(request.block_hashes[: request.prompt_tokens // request.hash_block_tokens]):
            if block in recent:
                recent.move_to_end(block)
            else:
                recent[block] = None
                new.append(block)
        self._update(replica, new, True)
        room = self._tokens // request.hash_block_tokens
        self._update(replica, [recent.popitem(last=False)[0] for _ in range(len(recent) - room)], False)


class ReportedIndex(PrefixIndex):
    """See `Exact`."""

    def __init__(self, replicas: int, delay_s: float) -> None:
        super().__init__(replicas)
        self._delay_s = delay_s
        self._clock: Callable[[], float] = lambda: 0.0
        self._kv_block_tokens = 1
        self._size = 1
        """Tokens of a block of the trace."""
        self._coming: deque[tuple[float, int, list[int], bool]] = deque()
        """(when it is heard of, replica, blocks, whether they are stored) of what has been reported."""

    def attach(self, clock: Callable[[], float], kv_block_tokens: int) -> None:
        """Events get their times from *clock*; a KV block of the engines has *kv_block_tokens*."""
        self._clock, self._kv_block_tokens = clock, kv_block_tokens

    def listener(self, replica: int) -> Callable[[list[object], bool], None]:
        """What the cache of *replica* reports to: names of blocks, and whether they are stored or evicted."""
        delay_s, hear_later = self._delay_s, self._coming.append

        def report(names: list[object], stored: bool) -> None:
            size = self._size
            blocks = [name // size for name in names if isinstance(name, int) and not (name + 1) % size]
            if not blocks:
                return
            if delay_s:
                hear_later((self._clock() + delay_s, replica, blocks, stored))
            else:
                self._update(replica, blocks, stored)

        return report

    def matches(self, request: Request, most_blocks: int | None = None) -> list[tuple[int, int]]:
        """See `PrefixIndex.matches`; what has been reported by now counts."""
        self._size = request.hash_block_tokens
        self._stride = max(1, self._kv_block_tokens // self._size)
        if self._coming:
            self._take_in(self._clock())
        return super().matches(request, most_blocks)

    def _take_in(self, now: float) -> None:
        """Adds and removes what has been reported by *now*."""
        coming = self._coming
        while coming and coming[0][0] <= now:
            _, replica, blocks, stored = coming.popleft()
            self._update(replica, blocks, stored)


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


class LongestPrefix(OutstandingLoads):
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


class BestScore(OutstandingLoads):
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
