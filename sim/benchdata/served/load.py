"""Under which load a server stood that nobody told of."""

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Any

QUEUED = 0.05
"""A server on which more than this share of requests waits has a queue, whose length says nothing about the engine."""
STEADY, CHANCE_SD = 0.25, 2.0
"""A server was filling or draining if its requests in flight at the ends lie further from their mean than this share of
it, and than this number of standard deviations of independent arrivals."""
WAVES, LEAST_REQUESTS, MOST_REQUESTS = 3, 64, 500
"""Requests of a run that stands for a stretch: per client, at least and at most."""


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
