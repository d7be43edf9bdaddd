"""`gpufleet check` in about ten lines: what fits, what would fit, and what a run takes."""

from pathlib import Path

import pytest
from rich.console import Console

from sim.catalogue.catalog import load_catalog
from sim.report.check_summary import REQUESTS_PER_S, check_summary, fit_table, long_run_note, run_requests, what_fits
from sim.scenario.reading.load import load
from sim.scenario.resolving.case import resolve
from sim.scenario.resolving.describe import describe
from sim.scenario.sweep import cases

SCENARIO = Path(__file__).parents[2] / "scenarios" / "4x4090-vs-2xa100.yaml"


def test_requests_are_rate_times_horizon_over_all_cases() -> None:
    catalog = load_catalog()
    scenario = load(SCENARIO, ["horizon_s=1000", "replications=2"], catalog=catalog)
    wanted = cases(scenario)
    assert run_requests(scenario, wanted) == pytest.approx(2 * 2 * 1000 * (0.25 + 0.5 + 1 + 2 + 4))
    assert long_run_note(scenario, 2) == ""
    longer = load(SCENARIO, [f"horizon_s={600 * REQUESTS_PER_S}", "sweep=null"], catalog=catalog)
    assert "min on 2 cores" in long_run_note(longer, 2)


def test_windows_leave_room_for_more_sequences_at_full_context() -> None:
    batching = {"max_model_len": 262_144, "max_num_seqs": 1024, "max_num_batched_tokens": 8192, "block_size": 64}
    windows = [{"window": None}, *[{"window": 1024}] * 20]
    pool = {"batching": batching | {"kv_groups": windows, "num_gpu_blocks": 73_002, "async_scheduling": True}}
    plan = {"fleet": "thor", "infeasible": "", "pools": [pool | {"name": "a", "gpu": "", "pipeline_parallel_size": 1}]}
    plan["pools"][0]["kv_tokens"] = 212_439
    [row] = fit_table([plan]).rows
    assert row[-1] == str(73_001 // (4096 + 20 * (-(-(1023 + 2 * 8192) // 64) + 1)))


@pytest.mark.slow
def test_each_pool_that_does_not_fit_has_its_own_changes() -> None:
    catalog = load_catalog()
    pools = "[{gpu: rtx-4090, tensor_parallel_size: 4}, {name: small, gpu: rtx-4090}, {name: tiny, gpu: l4}]"
    sets = ["sweep=null", f"fleets=[{{name: three, pools: {pools}}}]"]
    found = what_fits(load(SCENARIO, sets, catalog=catalog), catalog, "three")
    assert set(found) == {"small", "tiny"}
    assert all(found.values()), found


@pytest.mark.slow
def test_a_misfit_comes_first_with_changes_that_fit() -> None:
    catalog = load_catalog()
    scenario = load(SCENARIO, ["quantization=none", "sweep=null"], catalog=catalog)
    plans = [(case.axes, describe(resolve(scenario, case, catalog), catalog)) for case in cases(scenario)]
    console = Console(width=80, file=None)
    with console.capture() as captured:
        console.print(*check_summary(scenario, catalog, plans, 2))
    lines = captured.get().splitlines()
    assert lines[0].startswith("4x RTX 4090 cannot run: needs")
    assert max(map(len, lines)) <= 80
    changes = what_fits(scenario, catalog, "4x RTX 4090")[""]
    assert "tensor_parallel_size=8" in changes
    for change in changes:
        sets = ["quantization=none", "sweep=null", f"fleets.4x RTX 4090.pools.0.{change}"]
        if change.startswith("quantization"):
            changed = load(SCENARIO, sets, catalog=catalog)
            assert not resolve(changed, cases(changed)[0], catalog).infeasible
