"""Figures of a unit at part load: simulated loads, and straight lines between them."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from sim.catalogue.catalog import load_catalog
from sim.scenario.reading.load import load
from sim.study.capacity import FleetCapacity, capacities
from sim.study.execution.cores import ProcessPool
from sim.study.execution.store import load_case
from sim.study.load_axis import LoadAxis
from sim.study.metrics.expected_load import mean_tokens
from sim.study.plan import FRACTIONS, SPARSE, part_loads
from sim.yamlio import dump

SCENARIO: dict[str, Any] = {
    "name": "loads",
    "workload": {
        "arrivals": {"process": "poisson", "rate_rps": 4},
        "lengths": {
            "prompt": {"distribution": "fixed", "value": 100},
            "output": {"distribution": "geometric", "mean": 20},
        },
    },
    "horizon_s": 20,
    "slo": {"ttft_s": 0.5},
    "replications": 2,
    "fleets": [
        {
            "name": "own",
            "pools": [
                {
                    "gpu": "rtx-4090",
                    "replicas": 2,
                    "server": "workstation-4x4090",
                    "steptime": {"model": "affine", "base_s": 0.01, "per_token_s": 1e-5, "per_context_token_s": 1e-8},
                    "batching": {
                        "policy": "vllm",
                        "max_num_seqs": 2,
                        "max_num_batched_tokens": 512,
                        "num_gpu_blocks": 999,
                    },
                }
            ],
        }
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "arrivals", [{"process": "poisson", "rate_rps": 4}, {"process": "closed_loop", "concurrency": 9}]
)
def test_power_and_service_at_part_load(tmp_path: Path, arrivals: dict[str, Any]) -> None:
    path, catalog = tmp_path / "s.yaml", load_catalog()
    path.write_text(dump(SCENARIO | {"workload": SCENARIO["workload"] | {"arrivals": arrivals}}))
    scenario = load(path, catalog=catalog)
    found = list(capacities(scenario, catalog, tmp_path, ProcessPool(1), 0.1))
    [one] = found
    measured = part_loads(scenario, catalog, found, tmp_path, ProcessPool(1))["own"]
    label = LoadAxis.of(scenario).label
    assert measured.loads[0] == 0
    assert measured.loads[-1] == one.mean
    assert arrivals["process"] != "poisson" or 0 < measured.loads[1] < 2 * FRACTIONS[1] * one.mean
    stored = [case for folder in (tmp_path / "points").iterdir() if (case := load_case(folder)) is not None]
    it_kw = [
        sum(interval.server_energy_j for rows in window.intervals.values() for interval in rows) / 3.6e6 / window.hours
        for window in measured.windows
    ]
    dense = [(at, kw) for at, kw in zip(measured.loads, it_kw, strict=True) if SPARSE * one.mean < at < one.mean]
    for load_, kw in dense:
        watts = [case.metrics["it_power_w_mean"] for case in stored if case.axes[label] == load_]
        assert len(watts) == 2
        assert kw == pytest.approx(sum(watts) / 2000)
    assert sorted(it_kw) == it_kw
    slopes = [(kw - it_kw[0]) / at for at, kw in zip(measured.loads[1:], it_kw[1:], strict=True)]
    # requests that overlap share steps, so lone ones use the most energy, but for chance
    assert all(above < 1.05 * below for below, above in pairwise(slopes))
    assert 0 < it_kw[0] < it_kw[1]
    if arrivals["process"] == "poisson":
        assert measured.served_rps(1.7) == pytest.approx(1.7)
    else:
        assert measured.served_rps(measured.loads[1]) > 0
        assert measured.requests_per_s[1] < 0.5 * measured.requests_per_s[-1]


def test_fleets_without_a_capacity_are_left_out(tmp_path: Path) -> None:
    path, catalog = tmp_path / "s.yaml", load_catalog()
    path.write_text(dump(SCENARIO))
    scenario = load(path, catalog=catalog)
    for mean in (0.0, float("inf")):
        assert part_loads(scenario, catalog, [FleetCapacity("own", mean, None, ())], tmp_path, ProcessPool(1)) == {}


def test_tokens_of_a_request_are_those_of_the_workload(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(dump(SCENARIO))
    prompt, output = mean_tokens(load(path, catalog=load_catalog()))
    assert prompt == 100
    assert output == pytest.approx(20, rel=1e-3)
