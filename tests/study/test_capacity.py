"""Capacity against theory, and against an exhaustive sweep.

The capacity of a fleet whose prompts are computed on replicas of their own.

Capacity against an exhaustive sweep over a fine grid of loads, each simulated and judged by itself.
"""

from itertools import combinations
from math import exp, factorial, fsum, inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coarse_answers import answer_coarsely
from scipy.optimize import brentq
from split_fleets import POOL

import sim
from sim.catalogue.catalog import load_catalog
from sim.report.capacity import search_rows
from sim.scenario.reading.load import load
from sim.scenario.slo import Slo
from sim.study import capacity as capacity_module
from sim.study.capacity import FleetCapacity, capacities, why_no_capacity
from sim.study.execution.cases import run_points
from sim.study.execution.cores import ProcessPool
from sim.study.load_axis import LoadAxis
from sim.study.metrics.service_level import attainment_of
from sim.study.metrics.statistics import half_width, mean
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
        "horizon_s": 1000,
        "warmup_s": 100,
        "meter_interval_s": 1000,
        "requests": "none",
        "seed": 5,
        "replications": 6,
        "slo": {"ttft_s": 3.0, "attainment": 0.95},
        "fleets": [{"name": "queue", "pools": [{"steptime": step, "batching": batching}]}],
    } | more
    path = folder / "capacity.yaml"
    path.write_text(dump(data))
    return load(path, (), catalog=load_catalog())


def found(loaded: Any, out: Path, relative: float = 0.01) -> FleetCapacity:
    (capacity,) = capacities(loaded, load_catalog(), out, ProcessPool(1), relative)
    return capacity


@pytest.mark.slow
def test_capacity_of_m_m_1_is_where_theory_says(tmp_path: Path) -> None:
    arrivals, output = {"process": "poisson", "rate_rps": 1.0}, {"distribution": "geometric", "mean": TOKENS}
    loaded = scenario(tmp_path, arrivals, output, horizon_s=400, warmup_s=40)
    mu, limit = 1 / SERVICE_S, 3.0 - STEP_S

    def late(rate: float) -> float:
        # P(wait > t) = rho exp(-(mu - lambda) t)
        return rate / mu * exp(-(mu - rate) * limit) - 0.05

    theory = brentq(late, 0.1, 0.999 * mu)
    capacity = found(loaded, tmp_path / "out", 0.02)
    assert capacity.half_width is not None
    assert capacity.half_width < 0.2 * theory
    # 95 % interval widened to 99.9 % for five degrees of freedom: 6.87 / 2.57
    assert abs(capacity.mean - theory) < min(2.67 * capacity.half_width + 0.02 * theory, 0.1 * theory)


@pytest.mark.slow
def test_capacity_of_m_d_1_is_where_theory_says(tmp_path: Path) -> None:
    arrivals, output = {"process": "poisson", "rate_rps": 1.0}, {"distribution": "fixed", "value": TOKENS}
    loaded = scenario(tmp_path, arrivals, output, horizon_s=280, warmup_s=28)
    limit = 3.0 - STEP_S

    def late(rate: float) -> float:
        # P(wait <= t) of M/D/1 (Erlang 1909; Tijms, A First Course in Stochastic Models, section 9.3)
        waits = [rate * (limit - k * SERVICE_S) for k in range(int(limit / SERVICE_S) + 1)]
        return 0.95 - (1 - rate * SERVICE_S) * fsum(exp(w) * (-w) ** k / factorial(k) for k, w in enumerate(waits))

    theory = brentq(late, 0.1, 0.999 / SERVICE_S)
    capacity = found(loaded, tmp_path / "out", 0.02)
    assert capacity.half_width is not None
    assert capacity.half_width < 0.1 * theory
    assert abs(capacity.mean - theory) < min(2.67 * capacity.half_width, 0.05 * theory)
    loads = [{load.load for load in one.loads} for one in capacity.found]
    assert all(not a & b for a, b in combinations(loads, 2)), "no two replications search on one grid"


@pytest.mark.slow
def test_capacity_does_not_depend_on_the_first_load(tmp_path: Path) -> None:
    output, means = {"distribution": "fixed", "value": TOKENS}, []
    for start_rps in (1e-3, 20.0):
        arrivals = {"process": "poisson", "rate_rps": start_rps}
        loaded = scenario(tmp_path, arrivals, output, horizon_s=110, warmup_s=11, replications=2)
        means.append(found(loaded, tmp_path / "out", 0.05).mean)
    assert means[0] == pytest.approx(1.7, rel=0.1)
    assert means[0] == means[1], "to the last digit"


@pytest.mark.slow
def test_capacity_is_infinite_where_the_largest_load_meets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrivals = {"process": "constant", "rate_rps": 1.2}  # the search begins at 1
    loaded = scenario(tmp_path, arrivals, {"distribution": "fixed", "value": TOKENS}, horizon_s=300, replications=1)
    monkeypatch.setattr(capacity_module, "WIDEST", 4.0)
    assert found(loaded, tmp_path / "out").mean == pytest.approx(2.0, rel=0.02), "2.4 a second is too much"
    monkeypatch.setattr(capacity_module, "WIDEST", 2.0)
    assert (beyond := found(loaded, tmp_path / "out")).mean == inf
    assert not beyond.requests_run_out


@pytest.mark.slow
def test_load_without_requests_in_the_window_is_ignored(tmp_path: Path) -> None:
    # 60 requests, half of a second each: from one a second on they all arrive within the warm-up
    arrivals = {"process": "poisson", "rate_rps": 0.1, "num_requests": 60}
    output = {"distribution": "fixed", "value": 20}
    loaded = scenario(tmp_path, arrivals, output, horizon_s=None, warmup_s=60, replications=2)
    one = found(loaded, tmp_path / "out")
    assert (one.mean, one.requests_run_out) == (inf, True)
    rows = [row for row in search_rows([one], LoadAxis.of(loaded)) if row["rate_rps"] > one.at_least]
    assert {(row["slo_attainment"], row["meets_slo"]) for row in rows[-1:]} == {(None, None)}


def test_a_profile_needs_a_window_that_covers_it(tmp_path: Path) -> None:
    arrivals = {"process": "profile", "hourly_rps": [1, 2, 3]}
    loaded = scenario(tmp_path, arrivals, {"distribution": "fixed", "value": 10})
    assert why_no_capacity(loaded).startswith("horizon_s: ends before the profile of 3 hours does")
    assert not why_no_capacity(loaded.model_copy(update={"horizon_s": 10800.0}))


@pytest.mark.slow
def test_clients_in_think_time_do_not_limit_capacity(tmp_path: Path) -> None:
    arrivals = {"process": "closed_loop", "concurrency": 20, "think_s": 30}
    output = {"distribution": "fixed", "value": TOKENS}
    loaded = scenario(tmp_path, arrivals, output, horizon_s=300, warmup_s=60, replications=2)
    # half a second of work every 30 s and more: some 50 clients use four fifths of the seat
    assert 45 < found(loaded, tmp_path / "out", 0.05).mean < 66


@pytest.mark.slow
def test_clients_come_in_whole_numbers(tmp_path: Path) -> None:
    arrivals = {"process": "closed_loop", "concurrency": 2}
    loaded = scenario(tmp_path, arrivals, {"distribution": "fixed", "value": TOKENS}, horizon_s=100, warmup_s=20)
    capacity = found(loaded, tmp_path / "out")
    # the last of n clients waits for n - 1 answers of half a second and takes a step: six others are one too many
    assert capacity.mean == 6
    assert {one.capacity for one in capacity.found} == {6.0}


@pytest.mark.slow
def test_a_second_search_simulates_nothing(tmp_path: Path) -> None:
    arrivals = {"process": "poisson", "rate_rps": 1.0}
    loaded = scenario(
        tmp_path, arrivals, {"distribution": "fixed", "value": TOKENS}, horizon_s=60, warmup_s=6, replications=2
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


@pytest.mark.slow
def test_first_tokens_alone_have_the_capacity_of_the_pool_that_makes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """With an endless link and answers that end at once, first tokens come as from a fleet of prompts only."""
    answer_coarsely(monkeypatch.setattr)
    lengths = {
        "prompt": {"distribution": "uniform", "min": 200, "max": 800},
        "output": {"distribution": "fixed", "value": 3},
    }
    workload = {"arrivals": {"process": "poisson", "rate_rps": 1}, "lengths": lengths}
    asked = {
        "name": "s",
        "horizon_s": 8,
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


RELATIVE = 0.02
SCENARIO = {
    "name": "sweep",
    "workload": {
        "arrivals": {"process": "poisson", "rate_rps": 4.0},
        "lengths": {
            "prompt": {"distribution": "fixed", "value": 50},
            "output": {"distribution": "geometric", "mean": 40},
        },
    },
    "horizon_s": 32,
    "warmup_s": 8,
    "requests": "none",
    "meter_interval_s": 40,
    "seed": 11,
    "replications": 5,
    "slo": {"ttft_s": 0.5, "attainment": 0.95},
    "fleets": [
        {
            "name": "a",
            "pools": [
                {
                    "steptime": {"model": "affine", "base_s": 0.02, "per_token_s": 1.0e-4, "per_context_token_s": 0},
                    "batching": {
                        "policy": "vllm", "max_num_seqs": 8, "max_num_batched_tokens": 512, "num_gpu_blocks": 2000,
                    },
                }
            ],
        }
    ],
}  # fmt: skip


@pytest.mark.slow
def test_capacity_lies_within_its_interval_of_an_exhaustive_sweep(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(dump(SCENARIO))
    catalog = load_catalog()
    (found,) = capacities(
        load(tmp_path / "s.yaml", catalog=catalog), catalog, tmp_path / "search", ProcessPool(1), RELATIVE
    )
    assert found.half_width is not None
    assert all(one.loads for one in found.found)

    grid = np.geomspace(0.75 * found.mean, 1.3 * found.mean, 18).round(4).tolist()
    (tmp_path / "s.yaml").write_text(dump(SCENARIO | {"sweep": {"workload.arrivals.rate_rps": grid}}))
    cases = run_points(
        load(tmp_path / "s.yaml", catalog=catalog), catalog, tmp_path / "sweep", ProcessPool(1), lambda *_: None
    )
    best, slo = [], Slo.model_validate(SCENARIO["slo"])
    for replication in range(5):
        mine = [case for case in cases if case.replication == replication]
        good = [attainment_of(slo, [case.metrics]).good for case in mine]
        assert good[0]
        assert not good[-1]
        broken = mine[good.index(False)]
        # the last grid load below the first that breaks the service level, and half a step on
        best.append(broken.axes["rate_rps"] * (1 - np.log(grid[1] / grid[0]) / 2))
    assert abs(found.mean * (1 + RELATIVE / 2) - mean(best)) < found.half_width
    spread = half_width(best)
    assert spread is not None
    assert abs(found.mean - mean(best)) < spread
    # the search tries far fewer loads
    assert sum(one.simulated for one in found.found) < len(cases) / 2
