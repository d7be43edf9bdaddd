"""Candidates that serve different models are ranked for each model on its own, unless the scenario asks otherwise."""

from pathlib import Path
from typing import Any

import pytest

from sim.catalogue.catalog import load_catalog
from sim.report.breakeven import ranking_rows, sentences
from sim.scenario.schema import Scenario
from sim.study import breakeven, breakeven_costs
from sim.study.breakeven import BreakevenAnswer, decide
from sim.study.breakeven_costs import Ledgers
from sim.study.capacity import Capacity, Found
from sim.study.execution.cores import Cores

CATALOG = load_catalog()
FIXED = {"distribution": "fixed", "value": 60}
STEP = {"model": "affine", "base_s": 0.01, "per_token_s": 1e-5, "per_context_token_s": 1e-8}


def fleet(name: str, model: str, usd_per_h: float) -> dict[str, Any]:
    pool = {"gpu": "rtx-4090", "steptime": STEP, "batching": {"policy": "vllm", "num_gpu_blocks": 999}}
    cost = {"acquisition": "rent", "quotes": {"rtx-4090": usd_per_h}}
    return {"name": name, "model": model, "pools": [pool], "cost": cost}


def decided(folder: Path, **more: Any) -> BreakevenAnswer:
    fleets = [fleet("large", "llama3.1-70b", 0.5), fleet("small", "llama3.1-8b", 0.2), fleet("dear", "llama3.1-8b", 9)]
    scenario = Scenario.model_validate(
        {
            "name": "models",
            "workload": {"arrivals": {"process": "constant", "rate_rps": 1}, "lengths": dict.fromkeys(LENGTHS, FIXED)},
            "horizon_s": 10,
            "slo": {"ttft_s": 1},
            "fleets": fleets,
        }
        | more
    )
    found = [Capacity(one["name"], 2.0, None, (Found(one["name"], 0, 2.0, None, 0),)) for one in fleets]
    return decide(scenario, Ledgers(scenario, CATALOG, folder, Cores(1), found), found)


LENGTHS = ("prompt", "output")


@pytest.fixture(autouse=True)
def _few_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(breakeven_costs, "UTILISATIONS", (0.5, 1.0))
    monkeypatch.setattr(breakeven, "LOADS_SHOWN", 2)


def test_each_model_has_its_own_ranking(tmp_path: Path) -> None:
    answer = decided(tmp_path)
    told = sentences(answer)
    assert told[0].startswith("llama3.1-70b: At 1 req/s, large costs $365 a month.")
    assert told[1].startswith("llama3.1-8b: At 1 req/s, small is the cheapest: $146 a month, ")
    assert "across_models" in told[2]
    assert [(row["candidate"], row["model"]) for row in ranking_rows(answer)] == [
        ("large", "llama3.1-70b"), ("small", "llama3.1-8b"), ("dear", "llama3.1-8b")
    ]  # fmt: skip
    assert not answer.tipping

    together = decided(tmp_path, compare={"across_models": True})
    assert sentences(together)[0].startswith("At 1 req/s, small is the cheapest: $146 a month, 60")
    assert [row["candidate"] for row in ranking_rows(together)] == ["small", "large", "dear"]
    assert "model" not in ranking_rows(together)[0]
