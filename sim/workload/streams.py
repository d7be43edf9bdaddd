"""Random numbers by name and by request."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Streams = Callable[[str], np.random.Generator]
"""Maps a name to a *fresh* PCG64 generator, the same one at every call: `partial(rng.stream, seed, replication)`."""

LEAST = 2.0**-54
"""Stands for a uniform number of exactly 0, whose normal quantile would be -inf."""


def uniforms(streams: Streams, name: str, start: int, count: int) -> NDArray[np.float64]:
    """Numbers *start* to *start + count* of the uniform stream *name*, strictly between 0 and 1.

    Request i always gets number i, however many are asked for at once. Skipping ahead costs nothing.
    """
    generator = streams(name)
    bits = generator.bit_generator
    if not isinstance(bits, np.random.PCG64):
        raise TypeError("streams must be PCG64 generators, which can skip ahead")
    bits.advance(start)
    return np.maximum(generator.random(count), LEAST)
