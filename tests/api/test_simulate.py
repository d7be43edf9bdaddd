"""`sim.simulate`: the referee's timestamps, from arrays."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import sim

STEP = {"model": "affine", "base_s": 0.01, "per_token_s": 0.001, "per_context_token_s": 0.0}
POOL: dict[str, Any] = {
    "steptime": STEP,
    "batching": {
        "policy": "vllm",
        "max_num_seqs": 2,
        "max_num_batched_tokens": 100,
        "num_gpu_blocks": 100,
        "max_model_len": 1000,
    },
}


def test_timestamps_by_hand() -> None:
    """A prompt of 40 takes 0.05 s, each further token 0.011 s."""
    done = sim.simulate({"arrival_s": [0], "prompt_tokens": [40], "output_tokens": [3]}, POOL)
    assert done.first_token_s.item() == pytest.approx(0.05)
    assert done.finished_s.item() == pytest.approx(0.05 + 2 * 0.011)
    assert done.status.item() == "finished"


@pytest.mark.slow
def test_rows_come_back_in_the_order_and_with_the_index_of_the_input() -> None:
    frame = pd.DataFrame(
        {"arrived_s": [9.0, 0.0, 4.0], "prompt_tokens": [10, 20, 2000], "output_tokens": [1, 1, 1]}, index=list("xyz")
    )
    done = sim.simulate(frame, {"pools": [POOL], "routing": {"policy": "round_robin"}})
    assert list(done.index) == ["x", "y", "z"]
    assert done.prompt_tokens.tolist() == [10, 20, 2000]
    assert done.status.tolist() == ["finished", "finished", "rejected"]
    assert np.isnan(done.loc["z", "finished_s"])
    again = sim.simulate(done, POOL)
    pd.testing.assert_frame_equal(done, again)


def test_an_earlier_run_is_simulated_again_to_the_same_timestamps(small_run: "sim.Run") -> None:
    one = small_run.requests.query("fleet == 'two' and rate_rps == 2 and replication == 1").reset_index(drop=True)
    done = sim.simulate(one, small_run.scenario.fleets[1])
    assert np.allclose(done.finished_s, one.finished_s, rtol=0, atol=1e-12)
    assert done.replica.tolist() == one.replica.tolist()


@pytest.mark.slow
def test_wrong_columns_and_wrong_fleets_are_reported() -> None:
    good = {"arrived_s": [0.0], "prompt_tokens": [1], "output_tokens": [1]}
    for wrong, told in (
        ({"prompt_tokens": [0]}, "prompt_tokens: every request of a language model has at least 1"),
        ({"output_tokens": [0]}, "output_tokens: every request has at least 1, not 0"),
        ({"output_tokens": [1.5]}, "output_tokens: whole numbers"),
        ({"arrived_s": [-1.0]}, "arrived_s: time begins at 0"),
        ({"arrived_s": [np.nan]}, "arrived_s: finite numbers"),
        ({"arrived_s": [1.7e9]}, "arrived_s: counts from the start: take the first request's time from all of them"),
        ({"prompt_tokens": [10**30]}, r"prompt_tokens: 1e\+30 is too large to be exact"),
        ({"output_tokens": [1 + 2j]}, "output_tokens: whole numbers"),
        ({"output_tokens": [1, 2]}, "of equal length, but arrived_s has 1, prompt_tokens has 1, output_tokens has 2"),
    ):
        with pytest.raises(ValueError, match=told):
            sim.simulate(good | wrong, POOL)
    with pytest.raises(ValueError, match="output_tokens: is missing"):
        sim.simulate({"arrived_s": [0.0], "prompt_tokens": [1]}, POOL)
    with pytest.raises(ValueError, match=r"^prompt_tokens: every request of a language model has at least 1"):
        sim.simulate({"arrived_s": [0.0]}, POOL)
    with pytest.raises(sim.ScenarioErrors, match=r"^batching: max_num_batched_tokens"):
        sim.simulate(good, POOL | {"batching": POOL["batching"] | {"max_num_seqs": 500}})
    with pytest.raises(sim.ScenarioErrors, match=r"^gpu: unknown gpu"):
        sim.simulate(good, {"gpu": "rtx-409", "model": "llama3.1-8b"})
    with pytest.raises(sim.Infeasible, match="weights"):
        sim.simulate(good, {"gpu": "l4", "model": "qwen2-72b-instruct"})


def test_requests_of_a_service_have_no_tokens() -> None:
    """A batch of two waits 0.01 s for a third, then takes 0.004 + 2 x 0.001 s."""
    step = {"model": "affine_batch", "base_s": 0.004, "per_item_s": 0.001}
    service = {"steptime": step, "batching": {"policy": "dynamic", "max_batch_size": 3, "max_queue_delay_s": 0.01}}
    done = sim.simulate({"arrived_s": [0.0, 0.0]}, service)
    assert done.finished_s.tolist() == pytest.approx([0.016, 0.016])
    pd.testing.assert_frame_equal(done, sim.simulate(done, service))  # an earlier answer, as it is
    with pytest.raises(sim.ScenarioErrors, match=r"^prompt_tokens, output_tokens: a request of a service is one unit"):
        sim.simulate({"arrived_s": [0.0], "prompt_tokens": [5], "output_tokens": [5]}, service)


@pytest.mark.slow
def test_what_a_fleet_or_a_pool_costs_is_ignored() -> None:
    asked, cost = {"arrived_s": [0.0], "prompt_tokens": [1], "output_tokens": [1]}, {"cost": {"acquisition": "rent"}}
    for fleet in (POOL | cost, {"pools": [POOL | cost]}, {"pools": [POOL]} | cost):
        assert sim.simulate(asked, fleet).status.item() == "finished"


def test_vllms_own_scheduler_agrees(root: Path) -> None:
    case = json.loads((root / "tests/referee/priority.json").read_text())
    arrived_s, prompts, outputs, priorities = zip(*case["requests"], strict=True)
    config, given = case["config"], ("max_num_seqs", "max_num_batched_tokens", "block_size", "max_model_len")
    batching = {name: config[name] for name in given} | {"num_gpu_blocks": config["num_blocks"]}
    pool = {"steptime": {"model": "affine"} | case["step_time"]}
    pool["batching"] = batching | {"policy": "vllm", "scheduling": "priority"}
    asked = {"arrived_s": arrived_s, "prompt_tokens": prompts, "output_tokens": outputs, "priority": priorities}
    done = sim.simulate(asked, pool)
    assert np.allclose(done.first_token_s, case["results"]["first_token_s"], rtol=0, atol=1e-9)
    assert np.allclose(done.finished_s, case["results"]["finish_s"], rtol=0, atol=1e-9)


def test_the_package_has_the_name_of_its_distribution_too() -> None:
    import gpufleet
    from gpufleet import simulate

    assert gpufleet is sim
    assert simulate is sim.simulate
