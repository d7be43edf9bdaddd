"""Routing by prefix caches: requests go to replicas that have much of their prompt cached.

`CacheAware` is SGLang's router, `PrefixScore` llm-d's scheduler. Both use an index of the prompt blocks that replicas
have: those that the router remembers having sent, or those that the engines report.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from sim.records import Request
from sim.routing.least_loaded import OutstandingLoads
from sim.spec import Count, Fraction, NonNegative, Positive, Spec, Tagged, WholeNumber


class Approximate(Spec):
    """Approximate index: the prompts sent to each replica, least recently used ones evicted first.

    The router does not learn which blocks the engine has evicted, nor the answers.
    """

    kind: Literal["approximate"]
    tokens_per_replica: Count = 500_000
    """Prompt tokens remembered per replica. llm-d's default is 31,250 blocks of 16 tokens."""

    def start(self, replicas: int) -> "ApproximateIndex":
        """Return the index of a number of *replicas*."""
        return ApproximateIndex(replicas, self.tokens_per_replica)


class Exact(Spec):
    """Exact index: the engines report each block that they store or evict, of prompts and answers."""

    kind: Literal["exact"]
    delay_s: NonNegative = 0.0
    """Delay from the event to the router [s]."""

    def start(self, replicas: int) -> "ExactIndex":
        """Return the index of a number of *replicas*."""
        return ExactIndex(replicas, self.delay_s)


IndexSpec = Annotated[Approximate | Exact, Tagged("kind")]


class PrefixIndex:
    """Index from block ids to the replicas that have them, as bits of an integer: one dict for all replicas."""

    def __init__(self, replicas: int) -> None:
        self._holders: dict[int, int] = {}
        self.blocks = [0] * replicas
        """Number of blocks of each replica in the index."""
        self._stride = 1
        """Trace blocks per KV block where a KV block holds several: only the last of them is reported."""

    def matches(self, request: Request, most_blocks: int | None = None) -> list[tuple[int, int]]:
        """Return the cached prefixes of the prompt of *request* as (bits of replicas, leading tokens).

        The fewest tokens come first, and each replica is in one entry; replicas without a cached prefix are left out.
        Only the first *most_blocks* blocks are looked up.
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
        """Add *blocks* to the index of *replica*, or remove them. Called over a dozen times per request."""
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
        """Record that *request* goes to *replica*."""


def replicas_of(bits: int) -> list[int]:
    """Return the replicas whose bits are set in *bits*."""
    found = []
    while bits:
        lowest = bits & -bits
        found.append(lowest.bit_length() - 1)
        bits ^= lowest
    return found


class ApproximateIndex(PrefixIndex):
    """Approximate index (see `Approximate`)."""

    def __init__(self, replicas: int, tokens_per_replica: int) -> None:
        super().__init__(replicas)
        self._tokens = tokens_per_replica
        self._recent: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(replicas)]
        """Replica -> blocks in its index, least recently used first."""

    def sent(self, request: Request, replica: int) -> None:
        """See `PrefixIndex.sent`."""
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


class ExactIndex(PrefixIndex):
    """Exact index (see `Exact`)."""

    def __init__(self, replicas: int, delay_s: float) -> None:
        super().__init__(replicas)
        self._delay_s = delay_s
        self._clock: Callable[[], float] = lambda: 0.0
        self._kv_block_tokens = 1
        self._size = 1
        """Tokens per block of the trace."""
        self._coming: deque[tuple[float, int, list[int], bool]] = deque()
        """Queue of (delivery time [s], replica, blocks, whether they are stored) of reports on their way."""

    def attach(self, clock: Callable[[], float], kv_block_tokens: int) -> None:
        """Set the *clock* for the times of reports, and the tokens of a KV block of the engines."""
        self._clock, self._kv_block_tokens = clock, kv_block_tokens

    def listener(self, replica: int) -> Callable[[list[object], bool], None]:
        """Return the callback of the cache of *replica*: gets block names, and whether they are stored or evicted."""
        delay_s, report_later = self._delay_s, self._coming.append

        def report(names: list[object], stored: bool) -> None:
            size = self._size
            blocks = [name // size for name in names if isinstance(name, int) and not (name + 1) % size]
            if not blocks:
                return
            if delay_s:
                report_later((self._clock() + delay_s, replica, blocks, stored))
            else:
                self._update(replica, blocks, stored)

        return report

    def matches(self, request: Request, most_blocks: int | None = None) -> list[tuple[int, int]]:
        """See `PrefixIndex.matches`. Reports delivered by now are included."""
        self._size = request.hash_block_tokens
        self._stride = max(1, self._kv_block_tokens // self._size)
        if self._coming:
            self._take_in(self._clock())
        return super().matches(request, most_blocks)

    def _take_in(self, now: float) -> None:
        """Apply the reports delivered by *now*."""
        coming = self._coming
        while coming and coming[0][0] <= now:
            _, replica, blocks, stored = coming.popleft()
            self._update(replica, blocks, stored)


class CacheAware(Spec):
    """Cache-aware routing of SGLang, with its defaults (docs.sglang.io, SGLang Model Gateway, load balancing policies).

    Where the most loaded replica has both `balance_abs_threshold` more requests than the least loaded and
    `balance_rel_threshold` times as many, the least loaded is chosen. Otherwise the replica with the longest cached
    prefix is, if the prefix is more than `cache_threshold` of the prompt; otherwise the one with the fewest blocks in
    the index.
    """

    policy: Literal["cache_aware"]
    cache_threshold: Fraction = 0.3
    """Fraction of the prompt that the longest cached prefix must exceed for its replica to be chosen."""
    balance_abs_threshold: WholeNumber = 64
    """Difference in outstanding requests between the most and the least loaded replica up to which loads count as
    balanced."""
    balance_rel_threshold: Annotated[Positive, Field(ge=1)] = 1.5
    """Ratio of outstanding requests of the most to the least loaded replica up to which loads count as balanced."""
    index: IndexSpec = Approximate(kind="approximate")
    """Index of the replicas' caches."""

    def start(self, pools: Sequence[str], rng: "np.random.Generator") -> "LongestPrefix":
        """Return the running router over replicas of these *pools*, one name per replica."""
        return LongestPrefix(self, len(pools))


class LongestPrefix(OutstandingLoads):
    """Router that chooses the longest cached prefix while loads are balanced."""

    def __init__(self, spec: CacheAware, replicas: int) -> None:
        super().__init__(replicas)
        self._spec = spec
        self.index: PrefixIndex = spec.index.start(replicas)

    def choose(self, request: Request) -> int:
        """Return the index of the replica for *request*; -1 if none is open."""
        chosen = self._choose_replica(request)
        if chosen >= 0:
            self.index.sent(request, chosen)
        return chosen

    def _choose_replica(self, request: Request) -> int:
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
    """Scorers of llm-d with the weights of its default profile: the replica with the highest sum of weight x score.

    Each score is between 0 and 1; a tie goes to the fewest outstanding requests. llm-d scrapes waiting requests and KV
    usage from the engines (llm-d.ai, architecture of the router's scheduler); here a router counts outstanding requests
    and their prompt tokens, without delay.
    """

    policy: Literal["prefix_score"]
    prefix_weight: NonNegative = 3.0
    """Weight of the fraction of the prompt that the replica has cached."""
    queue_weight: NonNegative = 2.0
    """Weight of the outstanding-request score: 1 for the replica with the fewest requests, 0 for the most."""
    kv_weight: NonNegative = 2.0
    """Weight of the outstanding-prompt-token score: 1 for the replica with the fewest tokens, 0 for the most."""
    max_prefix_blocks: Count = 256
    """Number of leading blocks of a prompt that are looked up."""
    index: IndexSpec = Approximate(kind="approximate")
    """Index of the replicas' caches."""

    def start(self, pools: Sequence[str], rng: "np.random.Generator") -> "BestScore":
        """Return the running router over replicas of these *pools*, one name per replica."""
        return BestScore(self, len(pools))


class BestScore(OutstandingLoads):
    """Router that chooses the highest weighted score."""

    def __init__(self, spec: PrefixScore, replicas: int) -> None:
        super().__init__(replicas)
        self._spec = spec
        self.index: PrefixIndex = spec.index.start(replicas)

    def choose(self, request: Request) -> int:
        """Return the index of the replica for *request*; -1 if none is open."""
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
        """Return a score per open replica: 1 for the lowest count, 0 for the highest; 1 for all if equal."""
        if len(self.open) < len(counts):
            counts = [counts[replica] for replica in self.open]
        most, fewest = max(counts), min(counts)
        span = most - fewest
        return [(most - count) / span for count in counts] if span else [1.0] * len(counts)
