"""Time and memory of a router with an exact prefix index.

    python benchmarks/prefix_index.py conversation_trace.jsonl [--requests 1000000] [--replicas 64]

A recorded trace with block names is copied to 1,000,000 requests, on replicas that keep their most recent blocks. The
trace is that of kvcache-ai/Mooncake (FAST25-release/traces); it is not part of this repository. Each copy has its own
blocks, and 16 copies run at once. Results are not asserted, as times depend on the machine.
"""

import argparse
import json
import resource
import time
from collections import OrderedDict, deque
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from sim.records import Request
from sim.routing.prefix_cache import CacheAware, Exact, ExactIndex

BLOCK = 512
"""Tokens per block of the trace."""
COPIES = 16
"""Number of concurrent copies of the trace."""
RUNNING = 32
"""Number of concurrent requests per replica."""


def requests_of(path: Path, count: int) -> Iterator[Request]:
    """Yield *count* requests in rounds of `COPIES` concurrent copies, each copy with its own blocks."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    blocks = 1 + max(max(row["hash_ids"]) for row in rows if row["hash_ids"])
    index = 0
    while index < count:
        first = index // len(rows)
        for row in rows:
            for copy in range(first, first + COPIES):
                ids = tuple(block + copy * blocks for block in row["hash_ids"])
                tokens = row["input_length"], row["output_length"]
                yield Request(index, 0.0, *tokens, block_hashes=ids, hash_block_tokens=BLOCK)
                index += 1


def main() -> None:
    """Route the requests one by one; a replica's oldest request ends when it has more than `RUNNING`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--replicas", type=int, default=64)
    parser.add_argument("--blocks", type=int, default=20_000, help="that a replica keeps")
    args = parser.parse_args()

    spec = CacheAware(policy="cache_aware", index=Exact(kind="exact", delay_s=0.05))
    router = spec.start(["pool"] * args.replicas, np.random.default_rng(0))
    assert isinstance(router.index, ExactIndex)
    now = 0.0
    router.index.attach(lambda: now, BLOCK)
    reports = [router.index.listener(replica) for replica in range(args.replicas)]
    kept: list[OrderedDict[object, None]] = [OrderedDict() for _ in range(args.replicas)]
    running: list[deque[Request]] = [deque() for _ in range(args.replicas)]
    index_s, tokens, hits = 0.0, 0, 0
    for number, request in enumerate(requests_of(args.trace, args.requests)):
        if number == args.requests:
            break
        now += 0.001
        began = time.process_time()
        chosen = router.choose(request)
        router.joined(chosen, request)
        index_s += time.process_time() - began
        cache, new = kept[chosen], []
        names = [block * BLOCK + BLOCK - 1 for block in request.block_hashes[: request.prompt_tokens // BLOCK]]
        found = next((place for place, name in enumerate(names) if name not in cache), len(names))
        tokens, hits = tokens + len(names), hits + found
        for name in reversed(names):
            if name in cache:
                cache.move_to_end(name)
            else:
                cache[name] = None
                new.append(name)
        gone = [cache.popitem(last=False)[0] for _ in range(len(cache) - args.blocks)]
        began = time.process_time()
        reports[chosen](new[::-1], True)
        reports[chosen](gone, False)
        running[chosen].append(request)
        if len(running[chosen]) > RUNNING:
            router.left(chosen, running[chosen].popleft())
        index_s += time.process_time() - began
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{args.requests:,} requests on {args.replicas} replicas, {hits / tokens:.0%} of blocks found")
    print(f"router and index {index_s:.1f} s, whole process {time.process_time():.1f} s, peak {peak_mib:,.0f} MiB")


if __name__ == "__main__":
    main()
