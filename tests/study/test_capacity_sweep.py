"""Capacity against an exhaustive sweep over a fine grid of loads, each simulated and judged by itself."""

from pathlib import Path

import numpy as np

from sim.catalogue.catalog import load_catalog
from sim.scenario.reading.load import load
from sim.scenario.slo import Slo
from sim.study.capacity import capacities
from sim.study.execution.cases import run_points
from sim.study.execution.cores import Cores
from sim.study.metrics.service_level import standing
from sim.study.metrics.statistics import half_width, mean
from sim.yamlio import dump

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


def test_capacity_lies_within_its_interval_of_an_exhaustive_sweep(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(dump(SCENARIO))
    catalog = load_catalog()
    (found,) = capacities(load(tmp_path / "s.yaml", catalog=catalog), catalog, tmp_path / "search", Cores(1), RELATIVE)
    assert found.half_width is not None
    assert all(one.tried for one in found.found)

    grid = np.geomspace(0.75 * found.mean, 1.3 * found.mean, 18).round(4).tolist()
    (tmp_path / "s.yaml").write_text(dump(SCENARIO | {"sweep": {"workload.arrivals.rate_rps": grid}}))
    cases = run_points(
        load(tmp_path / "s.yaml", catalog=catalog), catalog, tmp_path / "sweep", Cores(1), lambda *_: None
    )
    best, slo = [], Slo.model_validate(SCENARIO["slo"])
    for replication in range(5):
        mine = [case for case in cases if case.replication == replication]
        good = [standing(slo, [case.metrics]).good for case in mine]
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
