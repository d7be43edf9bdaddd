"""The capacity of a fleet whose prompts are computed on replicas of their own."""

import pytest
from split_fleets import POOL

import sim


def test_first_tokens_alone_have_the_capacity_of_the_pool_that_makes_them() -> None:
    """With an endless link and answers that nobody waits for, first tokens come as from a fleet of prompts only."""
    lengths = {
        "prompt": {"distribution": "uniform", "min": 200, "max": 800},
        "output": {"distribution": "fixed", "value": 3},
    }
    workload = {"arrivals": {"process": "poisson", "rate_rps": 1}, "lengths": lengths}
    asked = {
        "name": "s",
        "horizon_s": 12,
        "seed": 3,
        "slo": {"ttft_s": 3.0},
        "requests": "none",
        "workload": workload,
        "precision": {"relative": 0.9},
    }
    slow = POOL | {"steptime": {"model": "affine", "base_s": 0.5, "per_token_s": 0.001, "per_context_token_s": 0}}
    prompts = slow | {"name": "p"}
    split = {
        "name": "split", "kv_transfer": {"bytes_per_s": 1e30},
        "pools": [prompts | {"role": "prefill"}, slow | {"name": "d", "role": "decode"}],
    }  # fmt: skip
    found = sim.capacity(asked | {"fleets": [split]}, replications=1, workers=1, quiet=True).table
    lengths["output"]["value"] = 1
    alone = sim.capacity(
        asked | {"fleets": [{"name": "alone", "pools": [prompts]}]}, replications=1, workers=1, quiet=True
    ).table
    assert found.rate_rps[0] == pytest.approx(alone.rate_rps[0])
    assert found.rate_rps[0] > 0
