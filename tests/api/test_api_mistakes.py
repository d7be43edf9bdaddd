"""What a caller gets wrong ends in a sentence, never in an empty answer or an endless loop."""

import os
from pathlib import Path
from typing import Any

import pytest

import sim
from sim.registry import policies

POOL: dict[str, Any] = {
    "steptime": {"model": "affine", "base_s": 1.0, "per_token_s": 0.0, "per_context_token_s": 0.0},
    "batching": {"policy": "vllm", "max_num_seqs": 1, "max_num_batched_tokens": 100, "num_gpu_blocks": 100},
}
TWO = {"pools": [POOL | {"replicas": 2}]}
ASKED = {"arrived_s": [0.0, 0.1], "prompt_tokens": [5, 50], "output_tokens": [1, 9]}


class Nowhere:
    def choose(self, request: sim.Request) -> int:
        return -1


class Backwards:
    def leap(self, batch: sim.Batch) -> sim.Leap:
        return sim.Leap(-1.0)


@pytest.mark.parametrize(
    ("kind", "make", "fleet", "told"),
    [
        (
            "routing",
            Nowhere,
            {"pools": [POOL | {"replicas": 2}], "routing": {"policy": "wrong"}},
            "chose replica -1 of 2",
        ),
        (
            "steptime",
            Backwards,
            POOL | {"steptime": {"model": "wrong"}},
            "Backwards: a step lasts a finite time above 0",
        ),
    ],
)
def test_an_impossible_policy_ends(kind: Any, make: Any, fleet: dict[str, Any], told: str) -> None:
    sim.register(kind, "wrong")(make)
    try:
        with pytest.raises(ValueError, match=told):
            sim.simulate(ASKED, fleet)
    finally:
        policies._SPECS.clear()


def test_arguments_of_another_type_are_named() -> None:
    import pandas as pd

    dates = pd.DataFrame(ASKED).assign(arrived_s=pd.to_datetime(["2024-01-01", "2024-01-02"]))
    with pytest.raises(ValueError, match="seconds from the start"):
        sim.simulate(dates, POOL)
    with pytest.raises(TypeError, match="a fleet is a dict"):
        sim.simulate(ASKED, None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="set is a dict"):
        sim.check("4x4090-vs-2xa100", "horizon_s=30")  # type: ignore[arg-type]


def test_an_answer_keeps_its_folder_when_the_current_directory_changes(
    scenario: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = sim.run(scenario, {"sweep": None}, 1, "here", workers=1, quiet=True)
    os.chdir("/")
    assert len(run.summary) == 2
    gone = sim.run(scenario, {"sweep": None}, 1, tmp_path / "here", workers=1, quiet=True)
    (tmp_path / "here").rename(tmp_path / "there")
    with pytest.raises(FileNotFoundError, match="is gone"):
        _ = gone.costs
