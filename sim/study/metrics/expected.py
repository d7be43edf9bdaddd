"""What requests bring in the mean: the workload's own figures, where those of a small sample are off by luck."""

from functools import partial

import numpy as np

from sim.rng import stream
from sim.scenario.schema import Scenario

POINTS = 100_000
"""Cumulative probabilities at which the lengths are averaged."""
SESSION_REQUESTS = 5_000
"""Requests of sessions that are drawn for their means: what was said before has no formula."""


def mean_tokens(scenario: Scenario) -> tuple[float, float]:
    """Mean prompt and output tokens of a request: of the trace, or of the laws of its lengths as they are clipped."""
    workload = scenario.workload
    if workload.trace is not None:
        requests = workload.trace.requests(None)
        return float(np.mean(requests.prompt_tokens)), float(np.mean(requests.output_tokens))
    if workload.lengths is None:
        return 0.0, 1.0  # a unit of work
    if workload.sessions is not None:
        lengths = workload.lengths_table(partial(stream, 0, 0), 0, SESSION_REQUESTS)
        return float(np.mean(lengths[0])), float(np.mean(lengths[1]))
    levels = (np.arange(POINTS) + 0.5) / POINTS
    prompt, output = workload.lengths.prompt.quantile(levels), workload.lengths.output.quantile(levels)
    return float(np.mean(prompt)), float(np.mean(output))


def rate_per_load(scenario: Scenario) -> float | None:
    """Requests per second at a load of 1, as `capacity` counts loads; None where only a simulation can find it."""
    workload = scenario.workload
    if workload.closed_loop() is not None:
        return None
    if workload.trace is None:
        return 1.0
    rate_rps = workload.mean_rate_rps()
    return None if rate_rps is None else rate_rps / workload.trace.rate_scale
