"""Mistakes of a caller of the Python API raise an error with a sentence; errors in worker processes reach the caller.

What goes wrong in a worker process reaches its caller as the same error, with all that it says.
"""

import os
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sim
from sim import registry
from sim.benchdata.errors import BenchdataError
from sim.catalogue.data_folder import UnknownId
from sim.catalogue.hf_config.config import ConfigError
from sim.coldstart.start import StartUnknown
from sim.cost.prices import CostError, Problem, RateMissing
from sim.workload.traces.trace_file import MOST_SHOWN, TraceError
from sim.yamlio import YamlError

POOL: dict[str, Any] = {
    "steptime": {"model": "affine", "base_s": 1.0, "per_token_s": 0.0, "per_context_token_s": 0.0},
    "batching": {"policy": "vllm", "max_num_seqs": 1, "max_num_batched_tokens": 100, "num_gpu_blocks": 100},
}
TWO = {"pools": [POOL | {"replicas": 2}]}
METHODS: dict[Any, str] = {"routing": "choose", "steptime": "leap", "batching": "order"}
ASKED = {"arrived_s": [0.0, 0.1], "prompt_tokens": [5, 50], "output_tokens": [1, 9]}


def router(choice: Any) -> type:
    return type("Odd", (), {"choose": lambda self, request: choice})


def steps(leap: Any) -> type:
    return type("Odd", (), {"leap": lambda self, batch: leap})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "told"),
    [
        (router(-1), "chose replica -1 of 2"),
        (router(2), "chose replica 2 of 2"),
        (router(0.5), "router Odd: choose returns the index of a replica, not 0.5"),
        (router(None), "router Odd: choose returns the index of a replica, not None"),
        (steps(sim.Leap(-1.0)), "Odd: a step lasts a finite time above 0"),
        (steps(sim.Leap(1.0, -0.1)), "Odd: steps grow with the contexts, so growth_s is 0 or more, not -0.1"),
        (steps(sim.Leap(1.0, valid_steps=0)), "Odd: valid_steps counts the first step, so it is 1 or more, not 0"),
        (steps(sim.Leap(1.0, load=1.5)), "Odd: load is from 0"),
        (steps(1.0), "Odd: leap returns a sim.Leap, not float"),
        (type("Odd", (), {"order": lambda self, request: np.nan}), "Odd: order returns nan for request 0"),
    ],
)
def test_an_impossible_policy_ends(make: Any, told: str) -> None:
    kind = next(kind for kind, method in METHODS.items() if hasattr(make, method))
    tag, _ = registry.KINDS[kind]
    sim.register(kind, "wrong")(make)
    fleet = TWO if kind == "routing" else POOL
    kept = fleet["batching"] if kind == "batching" else {}
    try:
        with pytest.raises((ValueError, TypeError), match=re.escape(told)):
            sim.simulate(ASKED, fleet | {kind: kept | {tag: "wrong"}})
    finally:
        registry._SPECS.clear()


def test_arguments_of_another_type_are_named() -> None:
    import pandas as pd

    dates = pd.DataFrame(ASKED).assign(arrived_s=pd.to_datetime(["2024-01-01", "2024-01-02"]))
    with pytest.raises(ValueError, match="seconds from the start"):
        sim.simulate(dates, POOL)
    with pytest.raises(TypeError, match="a fleet is a dict"):
        sim.simulate(ASKED, None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="set is a dict"):
        sim.check("4x4090-vs-2xa100", "horizon_s=30")  # type: ignore[arg-type]
    with pytest.raises(sim.ScenarioErrors, match="name: bytes cannot be used in a scenario"):
        sim.check("4x4090-vs-2xa100", {"name": b"x"})


@pytest.mark.parametrize("workers", [0, -1, 1.5, "2"])
def test_workers_are_counted(scenario: dict[str, Any], tmp_path: Path, workers: Any) -> None:
    with pytest.raises(ValueError, match=f"workers: a whole number of at least 1 is needed, not {workers!r}"):
        sim.run(scenario, workers=workers, quiet=True, out=tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("relative", [0, -0.1, 5, "0.1", float("nan")])
def test_a_bracket_has_a_width(scenario: dict[str, Any], relative: Any) -> None:
    with pytest.raises(ValueError, match="relative: a number from 0"):
        sim.capacity(scenario, relative=relative, workers=1, quiet=True)


@pytest.mark.slow
def test_an_answer_keeps_its_folder_and_does_not_take_another_one_s_files_for_its_own(
    scenario: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first = sim.run(scenario, {"sweep": None}, 1, "here", workers=1, quiet=True)
    os.chdir("/")
    assert len(first.summary) == 2
    changed = {"sweep": None, "horizon_s": 5}
    second = sim.run(scenario, changed, 1, tmp_path / "here", workers=1, force=True, quiet=True)
    for use in (lambda: first.costs, lambda: first.requests, first.price):
        with pytest.raises(FileNotFoundError, match="now holds the answer to another question"):
            use()
    (tmp_path / "here").rename(tmp_path / "there")
    for use in (lambda: second.costs, lambda: second.requests, second.price):
        with pytest.raises(FileNotFoundError, match="no longer exists"):
            use()


@pytest.mark.slow
def test_a_fleet_may_have_a_name_that_pandas_takes_for_nothing(scenario: dict[str, Any]) -> None:
    scenario["fleets"][0]["name"] = "NA"
    run = sim.run(scenario, {"sweep": None, "horizon_s": 5}, 1, workers=1, quiet=True)
    assert "NA" in set(run.summary.fleet) & set(run.requests.fleet) & set(run.usage.fleet)


ERRORS = [
    BenchdataError([("runs.csv", 3, "tp is not a number"), ("runs.csv", 0, "has no rows")]),
    UnknownId("gpu", "a10", ("a100-80gb-sxm", "a10g")),
    ConfigError(Path("config.json"), "hidden_size", "is missing"),
    StartUnknown("startup.load_s", "nobody has measured it"),
    CostError(*(Problem(name, "has no price") for name in ("cost.price", "cost.quotes"))),
    RateMissing(Problem("finance.fx", "has no rate for EUR")),
    TraceError([("jobs.csv", line, "no such GPU") for line in range(MOST_SHOWN + 5)], 3),
    TraceError([("trace.csv", 2, "negative"), ("trace.csv", 0, "is empty")]),
    YamlError("scenario.yaml", 7, "a tab"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_survives_the_way_out_of_a_process(error: Exception) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)
