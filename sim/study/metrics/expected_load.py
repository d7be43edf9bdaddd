"""Mean prompt and output tokens of a workload's requests, computed from its distributions rather than from a sample."""

from collections.abc import Iterator
from functools import partial
from math import fsum

import numpy as np

from sim.rng import stream
from sim.scenario.experiment import Experiment
from sim.scenario.schema import Scenario
from sim.workload import Workload

POINTS = 100_000
"""Number of cumulative probabilities at which the length distributions are averaged."""
SESSION_REQUESTS = 5_000
"""Number of session requests that are drawn for their means: the length of a conversation has no closed form."""


def mean_tokens(scenario: Experiment) -> tuple[float, float]:
    """Return the mean prompt and output tokens of a request, from the trace or the clipped length distributions.

    For several services: of the service whose load is raised, else of all of them, weighted by their rates.

    Raises
    ------
    ValueError
        Where the load of all services is raised and one has no rate.

    """
    raised = _raised(scenario)
    if len(raised) == 1:
        return _tokens(raised[0])
    rates = [one.mean_rate_rps() for one in raised]
    if not all(rates):
        raise ValueError("a service has no rate, so requests have no mean")
    known = [(rate or 0.0, _tokens(one)) for rate, one in zip(rates, raised, strict=True)]
    whole = fsum(rate for rate, _ in known)
    prompt, output = (fsum(rate * each[side] for rate, each in known) / whole for side in (0, 1))
    return prompt, output


def _raised(scenario: Experiment) -> list[Workload]:
    """Return the workloads whose load `capacity` raises."""
    named = [one for one in scenario.services if scenario.service in (None, one.name)]
    return [one.workload for one in named] or [scenario.workload]


def _tokens(workload: Workload) -> tuple[float, float]:
    """Return the mean prompt and output tokens of a request of *workload*."""
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
    """Return the requests per second at a load of 1 (unit of `capacity`); None where only a simulation finds it."""
    raised = _raised(scenario)
    if len(raised) > 1:  # loads are raised in proportion, and a load of 1 is the scenario's own
        return scenario.workload.mean_rate_rps()
    (workload,) = raised
    if workload.closed_loop() is not None:
        return None
    if workload.trace is None:
        return 1.0
    rate_rps = workload.mean_rate_rps()
    return None if rate_rps is None else rate_rps / workload.trace.rate_scale


def constant_tokens_per_s(scenario: Scenario) -> tuple[float, float] | None:
    """Return prompt and output tokens per second of the services and tenants whose load `capacity` does not raise.

    None where only a simulation can find them.
    """
    prompt = output = 0.0
    for workload, part in _constant_loads(scenario):
        rate_rps = workload.mean_rate_rps()
        if rate_rps is None:
            return None
        tokens = _tokens(workload)
        prompt, output = prompt + part * rate_rps * tokens[0], output + part * rate_rps * tokens[1]
    return prompt, output


def _constant_loads(scenario: Scenario) -> Iterator[tuple[Workload, float]]:
    """Yield each workload that keeps its load at least in part, with that part [1]."""
    for one in scenario.services if scenario.service is not None else ():
        if one.name != scenario.service:
            yield one.workload, 1.0
    if scenario.tenant is not None:
        (workload,) = _raised(scenario)
        shares = {one.name: one.share for one in workload.tenants}
        yield workload, 1 - shares[scenario.tenant] / fsum(shares.values())
