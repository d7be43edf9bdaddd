"""One small scenario with two fleets and prices; its runs are shared by the tests."""

from collections.abc import Iterator
from typing import Any

import pytest

import sim
from sim import registry


@pytest.fixture(autouse=True, scope="module")
def _registered() -> Iterator[None]:
    """A policy that a test registers is gone after its file: messages of other tests list the built-in ones alone."""
    yield
    registry._SPECS.clear()


def small() -> dict[str, Any]:
    """Two fleets whose steps are given, at two loads."""
    affine = {"model": "affine", "base_s": 0.02, "per_token_s": 1e-4, "per_context_token_s": 1e-7}
    batching = {"policy": "vllm", "max_num_seqs": 8, "max_num_batched_tokens": 512, "num_gpu_blocks": 400}
    pool = {"gpu": "l4", "steptime": affine, "batching": batching}
    lengths = {"distribution": "geometric", "mean": 40}
    return {
        "name": "small",
        "question": "One card or two?",
        "workload": {
            "arrivals": {"process": "poisson", "rate_rps": 2},
            "lengths": {"prompt": lengths, "output": lengths},
        },
        "horizon_s": 20,
        "seed": 3,
        "replications": 2,
        "slo": {"ttft_s": 0.5, "tpot_s": 0.05, "attainment": 0.9},
        "site": {"electricity_usd_per_kwh": 0.12, "pue": 1.3},
        "fleets": [
            {"name": "one", "pools": [pool], "cost": {"acquisition": "rent", "quotes": {"l4": 0.5}}},
            {"name": "two", "pools": [pool | {"replicas": 2}], "cost": {"acquisition": "rent", "quotes": {"l4": 0.5}}},
        ],
        "sweep": {"workload.arrivals.rate_rps": [1, 2]},
    }


@pytest.fixture
def scenario() -> dict[str, Any]:
    return small()


@pytest.fixture(scope="session")
def small_run() -> sim.Run:
    return sim.run(small(), workers=1, quiet=True)
