"""Capacity against theory, and against an exhaustive sweep."""

from math import exp
from pathlib import Path
from typing import Any

import pytest
from scipy.optimize import brentq

from sim.catalog.catalog import load_catalog
from sim.scenario.load import load
from sim.study.capacity import Capacity, LoadAxis, capacities
from sim.study.cores import Cores
from sim.yamlio import dump

STEP_S, TOKENS = 1e-3, 500
SERVICE_S = STEP_S * TOKENS


def scenario(folder: Path, arrivals: dict[str, Any], output: dict[str, Any], **more: Any) -> Any:
    batching = {"policy": "vllm", "max_num_seqs": 1, "max_num_batched_tokens": 64, "num_gpu_blocks": 1_000_000}
    step = {"model": "affine", "base_s": STEP_S, "per_token_s": 0, "per_context_token_s": 0}
    data = {
        "name": "capacity",
        "workload": {
            "arrivals": arrivals,
            "lengths": {"prompt": {"distribution": "fixed", "value": 1}, "output": output},
        },
        "horizon_s": 4000,
        "warmup_s": 200,
        "meter_interval_s": 4000,
        "requests": "none",
        "seed": 5,
        "replications": 8,
        "slo": {"ttft_s": 3.0, "attainment": 0.95},
        "fleets": [{"name": "queue", "pools": [{"steptime": step, "batching": batching}]}],
    } | more
    path = folder / "capacity.yaml"
    path.write_text(dump(data))
    return load(path, (), catalog=load_catalog())


def found(loaded: Any, out: Path, relative: float = 0.01) -> Capacity:
    (capacity,) = capacities(loaded, load_catalog(), out, Cores(2), relative)
    return capacity


def test_capacity_of_m_m_1_is_where_theory_says(tmp_path: Path) -> None:
    loaded = scenario(tmp_path, {"process": "poisson", "rate_rps": 1.0}, {"distribution": "geometric", "mean": TOKENS})
    mu, limit = 1 / SERVICE_S, 3.0 - STEP_S

    def late(rate: float) -> float:
        # P(wait > t) = rho exp(-(mu - lambda) t)
        return rate / mu * exp(-(mu - rate) * limit) - 0.05

    theory = brentq(late, 0.1, 0.999 * mu)
    capacity = found(loaded, tmp_path / "out", 0.02)
    assert capacity.half_width is not None
    assert capacity.half_width < 0.1 * theory
    # 95 % interval widened to 99.9 % for seven degrees of freedom: 5.41 / 2.36
    assert abs(capacity.mean - theory) < 2.29 * capacity.half_width + 0.02 * theory


def test_clients_come_in_whole_numbers(tmp_path: Path) -> None:
    arrivals = {"process": "closed_loop", "concurrency": 2}
    loaded = scenario(tmp_path, arrivals, {"distribution": "fixed", "value": TOKENS}, horizon_s=100, warmup_s=20)
    capacity = found(loaded, tmp_path / "out")
    # the last of n clients waits for n - 1 answers of half a second and takes a step: six others are one too many
    assert capacity.mean == 6
    assert {one.capacity for one in capacity.found} == {6.0}


def test_a_second_search_simulates_nothing(tmp_path: Path) -> None:
    arrivals = {"process": "poisson", "rate_rps": 1.0}
    loaded = scenario(
        tmp_path, arrivals, {"distribution": "fixed", "value": TOKENS}, horizon_s=300, warmup_s=30, replications=2
    )
    first = found(loaded, tmp_path / "out", 0.05)
    cases = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("case.json")}
    again = found(loaded, tmp_path / "out", 0.05)
    assert again == first
    assert cases == {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("case.json")}


def test_a_burst_has_no_rate(tmp_path: Path) -> None:
    loaded = scenario(tmp_path, {"process": "burst", "num_requests": 5}, {"distribution": "fixed", "value": 10})
    with pytest.raises(ValueError, match="burst has no rate"):
        LoadAxis.of(loaded)
