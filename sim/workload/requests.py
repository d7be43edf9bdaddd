"""Request tables, and the random numbers of each request.

Request i uses number i of each random stream, so that it is the same request in every fleet.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(slots=True)
class RequestTable:
    """Requests that a workload offers, one array entry each, in arrival order.

    `arrived_s` is empty for a closed loop, where a request arrives when a client is free. `block_hashes[i]` are the ids
    of the leading blocks of prompt and response of request i, `hash_block_tokens` tokens each; equal ids mean equal
    prefixes (an id stands for its block and all blocks before it). Ids beyond the last whole block are ignored.
    """

    arrived_s: NDArray[np.float64]
    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    priority: NDArray[np.int64] | None = None
    block_hashes: Sequence[Sequence[int]] | None = None
    hash_block_tokens: int = 0
    session: list[str] | None = None
    """Session of each request; empty without a session."""
    turn: NDArray[np.int64] | None = None
    """Position of each request in its session, from 1."""
    follows: list[tuple[int, float]] | None = None
    """Row whose response each request waits for (-1: none) and the think time after it [s]; None: unknown."""
    tenant: list[str] | None = None
    """Tenant of each request."""
    service: list[str] | None = None
    """Service that each request addresses."""

    @property
    def has_options(self) -> bool:
        """True if requests have more than arrival, lengths and priority."""
        return any(column is not None for column in (self.block_hashes, self.tenant, self.service))


Streams = Callable[[str], "np.random.Generator"]
"""Function that maps a name to a *fresh* PCG64 generator, the same one at every call: `partial(rng.stream, seed,
replication)`."""

LEAST = 2.0**-54
"""Substitute for a uniform number of exactly 0, whose normal quantile would be -inf."""


def uniforms(streams: Streams, name: str, start: int, count: int) -> NDArray[np.float64]:
    """Return numbers *start* to *start + count* of the uniform stream *name*, strictly between 0 and 1.

    Request i always gets number i, however many are requested at once. Skipping ahead takes constant time.
    """
    generator = streams(name)
    bits = generator.bit_generator
    if not isinstance(bits, np.random.PCG64):
        raise TypeError("streams must be PCG64 generators, which can skip ahead")
    bits.advance(start)
    return np.maximum(generator.random(count), LEAST)
