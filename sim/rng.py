"""Named random streams from one seed: a draw in one part of the model never shifts the draws of another."""

from zlib import crc32

import numpy as np


def stream(seed: int, replication: int, name: str) -> np.random.Generator:
    """Return the random stream *name* of one replication, the same in every fleet and at every sweep point.

    Fleets compared under one seed therefore get the same requests (common random numbers).
    """
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, replication, crc32(name.encode())])))
