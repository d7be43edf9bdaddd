"""Replicas as queues of theory: mean waiting times agree at 99.9 % confidence, with a fixed seed.

A step takes `base_s` whatever is in it, so a request is served for output_tokens x base_s: geometric lengths make the
service exponential (to one part in the mean length), fixed lengths make it deterministic, and max_num_seqs is the
number of servers.
"""

from math import factorial
from typing import Any

import numpy as np
import pytest
from scipy.special import stdtrit  # scipy.stats takes seconds to import

pytestmark = pytest.mark.slow

REPLICATIONS = 30
CONFIDENCE = 0.999
STEP_S = 1e-4
MEAN_TOKENS = 5000
SERVICE_S = STEP_S * MEAN_TOKENS


def queue(servers: int, utilisation: float, output: dict[str, Any], requests: int) -> dict[str, Any]:
    """Poisson arrivals at *servers* seats that are busy for *utilisation* of the time."""
    rate = utilisation * servers / SERVICE_S
    horizon = requests / rate
    batching = {
        "policy": "vllm", "max_num_seqs": servers, "max_num_batched_tokens": 64 * servers, "num_gpu_blocks": 10_000_000,
    }  # fmt: skip
    pool = {
        "steptime": {"model": "affine", "base_s": STEP_S, "per_token_s": 0, "per_context_token_s": 0},
        "batching": batching,
    }
    return {
        "workload": {
            "arrivals": {"process": "poisson", "rate_rps": rate},
            "lengths": {"prompt": {"distribution": "fixed", "value": 1}, "output": output},
        },
        "horizon_s": horizon,
        "warmup_s": horizon / 10,
        "meter_interval_s": horizon,
        "seed": 1,
        "replications": REPLICATIONS,
        "fleets": [{"name": "queue", "pools": [pool]}],
    }


def mean_waits(results) -> np.ndarray:
    """Mean time from arrival to admission of each replication [s]."""
    means = []
    for result in results:
        start, end = result.window_s
        means.append(np.mean([r.started_s - r.arrived_s for r in result.log.requests if start <= r.arrived_s < end]))
    return np.array(means)


def assert_mean(values: np.ndarray, theory: float) -> None:
    half = stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2) * values.std(ddof=1) / len(values) ** 0.5
    assert half < 0.25 * theory, "the interval is too wide to say anything"
    assert abs(values.mean() - theory) < half, f"{values.mean():.5f} +- {half:.5f} against {theory:.5f}"


GEOMETRIC = {"distribution": "geometric", "mean": MEAN_TOKENS}
FIXED = {"distribution": "fixed", "value": MEAN_TOKENS}


def test_geometric_lengths_on_one_seat_are_m_m_1(simulate) -> None:
    load = 0.6
    assert_mean(mean_waits(simulate(queue(1, load, GEOMETRIC, 300))), load / (1 - load) * SERVICE_S)


def test_fixed_lengths_on_one_seat_are_m_d_1(simulate) -> None:
    load = 0.7
    # Pollaczek-Khinchine without variance
    assert_mean(mean_waits(simulate(queue(1, load, FIXED, 250))), load / (2 * (1 - load)) * SERVICE_S)


def test_several_seats_are_erlang_c(simulate) -> None:
    load, servers = 0.7, 3
    offered = load * servers
    waiting = offered**servers / factorial(servers) / (1 - load)
    erlang_c = waiting / (sum(offered**k / factorial(k) for k in range(servers)) + waiting)
    theory = erlang_c * SERVICE_S / (servers * (1 - load))
    # an admission waits for the step under way, half a step on average where somebody is being served
    assert_mean(mean_waits(simulate(queue(servers, load, GEOMETRIC, 600))), theory + STEP_S / 2)
