"""Decisions rest on the prices of the whole calendar, not on those of the simulated hours."""

import csv
from pathlib import Path
from typing import Any

import pytest
from coarse_answers import answer_coarsely
from typer.testing import CliRunner

from sim.cli import app
from sim.study import breakeven
from sim.yamlio import dump

pytestmark = pytest.mark.slow

FIXED = {"distribution": "fixed", "value": 60}
SCENARIO: dict[str, Any] = {
    "name": "by night",
    "workload": {"arrivals": {"process": "constant", "rate_rps": 0.5}, "lengths": {"prompt": FIXED, "output": FIXED}},
    "horizon_s": 10,
    "slo": {"ttft_s": 1, "tpot_s": 0.1},
    "replications": 1,
    "fleets": [
        {
            "name": "own",
            "pools": [
                {
                    "gpu": "rtx-4090",
                    "server": "workstation-2x4090",
                    "steptime": {"model": "affine", "base_s": 0.05, "per_token_s": 1e-5, "per_context_token_s": 1e-8},
                    "batching": {"policy": "vllm", "num_gpu_blocks": 999, "max_num_seqs": 8},
                }
            ],
            "cost": {"acquisition": "buy", "quotes": {"rtx-4090": 1500, "workstation-2x4090": 2000}},
        }
    ],
    "site": {"pue": 1.4, "hosting": "none", "electricity": {"hourly_usd_per_kwh": [0.05] * 8 + [0.45] * 16}},
    "finance": {"method": "annuity", "discount_rate": 0.08, "life_years": 4, "residual_fraction": 0.2},
    "breakeven": {"months": 12, "also": {"own": {"rented": {"acquisition": "rent", "quotes": {"rtx-4090": 0.25}}}}},
}
MEAN = (8 * 0.05 + 16 * 0.45) / 24


@pytest.fixture(autouse=True)
def _coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make answers coarse: only bills are compared here, and tipping points bill every candidate hundreds of times."""
    answer_coarsely(monkeypatch.setattr)
    monkeypatch.setattr(breakeven, "STEPS", 1)
    monkeypatch.setattr(breakeven, "HALVINGS", 1)
    monkeypatch.setattr(breakeven, "_inputs", lambda _: iter(()))


def table(folder: Path, command: str, scenario: dict[str, Any], name: str, key: str) -> dict[str, dict[str, str]]:
    folder.mkdir()
    (folder / "s.yaml").write_text(dump(scenario))
    options = ["--out", str(folder / "out"), "--quiet", "--no-report"]
    options += ["--relative", "0.3"] if command == "capacity" else []
    result = CliRunner().invoke(app, [command, str(folder / "s.yaml"), *options])
    assert result.exit_code == 0, result.output
    with (folder / "out" / name).open() as file:
        return {row[key]: row for row in csv.DictReader(file)}


def test_the_hour_at_which_a_simulation_starts_decides_nothing(tmp_path: Path) -> None:
    found = {}
    for hour in ("02", "10"):
        scenario = SCENARIO | {"starts_at": f"2026-07-01T{hour}:00:00"}
        found[hour] = table(tmp_path / hour, "breakeven", scenario, "ranking.csv", "candidate")
    flat = SCENARIO | {"site": {"pue": 1.4, "hosting": "none", "electricity_usd_per_kwh": MEAN}}
    found["mean"] = table(tmp_path / "mean", "breakeven", flat, "ranking.csv", "candidate")
    for name in found["mean"]:
        usd = [float(ranking[name]["usd_per_h"]) for ranking in found.values()]
        assert usd == pytest.approx([usd[2]] * 3)
    assert len({next(iter(ranking)) for ranking in found.values()}) == 1


def test_capacity_costs_what_the_year_does(tmp_path: Path) -> None:
    night = SCENARIO | {"starts_at": "2026-07-01T02:00:00"}
    flat = SCENARIO | {"site": {"pue": 1.4, "hosting": "none", "electricity_usd_per_kwh": MEAN}}
    usd = [
        float(table(tmp_path / name, "capacity", one, "capacity.csv", "fleet")["own"]["cost_usd_per_h"])
        for name, one in (("night", night), ("mean", flat))
    ]
    assert usd[0] == pytest.approx(usd[1], rel=1e-6)


def test_a_profile_is_billed_hour_by_hour(tmp_path: Path) -> None:
    """All of the load at cheap hours costs less than all of it at dear ones; units carry the peak."""
    arrivals = SCENARIO["workload"]["arrivals"] | {"rate_rps": 2}
    base = SCENARIO | {
        "workload": SCENARIO["workload"] | {"arrivals": arrivals},
        "starts_at": "2026-07-01T02:00:00",
        "sweep": {"workload.arrivals.rate_rps": [0.05, 4]},
    }
    cheap = base | {"load_profile": [4.0] * 8 + [0.05] * 16}
    dear = base | {"load_profile": [0.05] * 16 + [4.0] * 8}
    usd = {}
    for name, scenario in (("cheap", cheap), ("dear", dear)):
        ranking = table(tmp_path / name, "breakeven", scenario, "ranking.csv", "candidate")
        assert float(ranking["own bought"]["rate_rps"]) == pytest.approx((8 * 4 + 16 * 0.05) / 24)
        usd[name] = float(ranking["own bought"]["usd_per_h"])
        assert int(ranking["own bought"]["units"]) > 1
    assert usd["cheap"] < usd["dear"]


@pytest.mark.parametrize("command", ["breakeven", "capacity"])
def test_a_schedule_is_decided_on_by_whole_days_only(tmp_path: Path, command: str) -> None:
    schedule = {"replicas": {"08:00": 2, "20:00": 1}, "starting_s": 0}
    fleet = SCENARIO["fleets"][0] | {
        "pools": [SCENARIO["fleets"][0]["pools"][0] | {"replicas": 2, "schedule": schedule}]
    }
    (tmp_path / "s.yaml").write_text(dump(SCENARIO | {"fleets": [fleet], "starts_at": "2026-07-01T02:00:00"}))
    result = CliRunner().invoke(app, [command, str(tmp_path / "s.yaml"), "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert "measure whole days" in result.stderr
    assert not (tmp_path / "out").exists()
