"""Under which load a server stood that nobody told of."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import ceil, sqrt
from typing import Any

QUEUED = 0.05
"""A server on which more than this share of requests waits has a queue, whose length says nothing about the engine."""
STEADY, CHANCE_SD = 0.25, 2.0
"""A server was filling or draining if its requests in flight at the ends lie further from their mean than this share of
it, and than this number of standard deviations of independent arrivals."""
WAVES, LEAST_REQUESTS, MOST_REQUESTS = 3, 64, 500
"""Requests of a run that stands for a stretch: per client, at least and at most."""
MOST_PARTS = 3
"""Of a stretch in which the load changed."""


def rate_seen(
    requests: float, seconds: float | None, usual: float, running: Sequence[float], waiting: Sequence[float]
) -> dict[str, Any]:
    """Columns of a server that keeps up with *requests* in *seconds*; empty where it did not, or the time is not known.

    *usual*: its requests in flight on average; *running*, *waiting*: at moments, of which the first and the last are
    the ends. Only a server that keeps up is known by its rate, and its first tokens say something about the engine.
    """
    queued = sum(waiting) > QUEUED * sum(running)
    far = max(1.0, STEADY * usual, CHANCE_SD * sqrt(usual))
    if not seconds or queued or any(abs(end - usual) > far for end in (running[0], running[-1])):
        return {}
    count = min(MOST_REQUESTS, max(LEAST_REQUESTS, round(requests)))
    return {"load": "poisson", "rate_req_s": requests / seconds, "num_requests": count}


def kept_in_flight(in_flight: float | None) -> Mapping[str, Any]:
    """Columns of a server whose clients nobody knows: as many requests as it answered on average are kept in flight.

    Its time per token depends on these, whatever came in.
    """
    clients = max(1, round(in_flight or 1.0))
    return {"load": "closed_loop", "concurrency": clients, "num_requests": max(LEAST_REQUESTS, WAVES * clients)}


def cuts(came: Sequence[float]) -> list[tuple[int, int]]:
    """(first page, last page) of runs of about as many requests, MOST_REQUESTS at most; where there are more than
    MOST_PARTS, the first, the last and some between. *came*: requests by each page, since any moment.
    """
    total = came[-1] - came[0]
    number = max(1, ceil(total / MOST_REQUESTS))
    share = [(one - came[0]) / total * number if total > 0 else 0.0 for one in came]
    inner = [next(page for page, one in enumerate(share) if one >= part) for part in range(1, number)]
    edges = [0, *inner, len(came) - 1]
    found = [one for one in pairwise(edges) if one[0] < one[1] and came[one[1]] - came[one[0]] <= 2 * MOST_REQUESTS]
    kept = min(MOST_PARTS, len(found))
    return [found[round(place * (len(found) - 1) / max(1, kept - 1))] for place in range(kept)]
