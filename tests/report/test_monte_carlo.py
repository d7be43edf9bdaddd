"""Futures from the command line: what is written and said, the same bytes every time, and pictures."""

import csv
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from sim.catalogue.catalog import load_catalog
from sim.cli import app
from sim.report.charts.tornado import TornadoBar, side_bars
from sim.report.charts.vega_bars import bar_figure
from sim.report.monte_carlo import disputed
from sim.study.loaded_runs import RunAnswers
from sim.study.monte_carlo import MILLION, FleetDraws, MonteCarloStudy, disputes_of
from sim.yamlio import dump

pytestmark = pytest.mark.slow

POOL = {"gpu": "rtx-4090", "server": "workstation-4x4090"}
SCENARIO: dict[str, Any] = {
    "name": "which",
    "question": "Buy or rent?",
    "model": "qwen2.5-7b",
    "workload": {
        "arrivals": {"process": "poisson", "rate_rps": {"triangular": [1, 2, 3]}},
        "lengths": {side: {"distribution": "geometric", "mean": 100} for side in ("prompt", "output")},
    },
    "horizon_s": 24,
    "requests": "none",
    "fleets": [
        {"name": "own", "pools": [POOL], "cost": {"acquisition": "buy", "share": True}},
        {
            "name": "rented",
            "pools": [POOL],
            "cost": {"acquisition": "rent", "quotes": {"rtx-4090": {"uniform": [0.1, 0.3], "note": "two offers"}}},
        },
    ],
    "site": {"electricity_usd_per_kwh": {"triangular": [0.1, 0.2, 0.4]}, "pue": 1.4, "hosting": "none"},
    "finance": {"method": "annuity", "discount_rate": 0.08, "life_years": 4},
    "sweep": {"workload.arrivals.rate_rps": [1, 3]},
    "slo": {"ttft_s": 3},
    "futures": {"draws": 100},
}


def command(*args: str | Path) -> str:
    result = CliRunner().invoke(app, list(map(str, args)))
    assert result.exit_code == 0, result.output
    return result.output


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("futures")
    (folder / "which.yaml").write_text(dump(SCENARIO))
    told = command("run", folder / "which.yaml", "--workers", "1", "--out", folder / "out")
    (folder / "told.txt").write_text(told)
    return folder / "out"


def test_the_answer_is_printed_and_written(out: Path) -> None:
    told = (out.parent / "told.txt").read_text()
    futures, page = table(out / "futures.csv"), (out / "report.html").read_text()
    share = {row["fleet"]: float(row["cheapest_share"]) for row in futures}
    best = max(share, key=lambda fleet: share[fleet])
    assert share.keys() == {"own", "rented"}
    assert sum(share.values()) == pytest.approx(1)
    sentence = f"{best} is cheaper per million output tokens than"
    assert sentence in told
    assert f"{100 * share[best]:.1f}\u00a0% of 100 draws (95 % interval of the draws:" in told
    assert sentence in page
    assert sentence in json.loads((out / "manifest.json").read_text())["futures"][0]
    assert page.count("each input alone, 10 % (blue) to 90 % quantile (orange)") == 3
    assert "two offers" in page


def _drawn(fleet: str, central: float, draws: list[float]) -> FleetDraws:
    return FleetDraws(fleet, {}, {MILLION: central}, {MILLION: np.array(draws)}, {}, {})


def _told(points: list[Any], *outcomes: FleetDraws, models: dict[str, str] | None = None) -> list[str]:
    study = MonteCarloStudy((), {(): np.zeros(100)}, outcomes, False, models or {})
    return disputed(disputes_of(study, points))


def test_a_verdict_states_that_central_values_decide_where_the_draws_favour_another_fleet() -> None:
    """A costs 1.00 against 1.10 at the centre, and less in 46 of 100 draws."""
    points: list[Any] = [SimpleNamespace(fleet=name, axes={}, certainly_good=True) for name in "AR"]
    low, rented = _drawn("A", 1.0, [0.9] * 46 + [1.5] * 54), _drawn("R", 1.1, [1.1] * 100)
    assert _told(points, low, rented) == [
        "The ranking uses central values; R is cheaper than A in 54.0\u00a0% of 100 draws."
    ]
    assert _told(points, _drawn("A", 1.0, [0.9] * 54 + [1.5] * 46), rented) == []
    assert _told(points, _drawn("A", 1.1, [0.9] * 46 + [1.5] * 54), rented) == []
    assert _told(points, low, rented, models={"A": "one", "R": "other"}) == []
    points[1].certainly_good = False  # so the verdict does not compare it
    assert _told(points, low, rented) == []


def test_the_headline_states_its_basis(tmp_path: Path) -> None:
    """Rent of 0.09 to 0.5 with its mode at 0.1 is dear in most draws: 0.21 in the middle."""
    skewed = SCENARIO | {"sweep": None, "name": "skewed"}
    skewed["workload"] = SCENARIO["workload"] | {"arrivals": {"process": "poisson", "rate_rps": 2}}
    rents = [{"triangular": [0.09, 0.1, 0.5]}, 0.13]
    skewed["fleets"] = [
        {"name": name, "pools": [POOL], "cost": {"acquisition": "rent", "quotes": {"rtx-4090": rent}}}
        for name, rent in zip("AR", rents, strict=True)
    ]
    (tmp_path / "skewed.yaml").write_text(dump({key: value for key, value in skewed.items() if value is not None}))
    out = tmp_path / "out"
    told = command("run", tmp_path / "skewed.yaml", "--workers", "1", "--out", out, "--format", "json")
    headline, share = json.loads(told)["verdict"]["headline"], table(out / "futures.csv")[1]["cheapest_share"]
    said = f"The ranking uses central values; R is cheaper than A in {100 * float(share):.1f}\u00a0% of 100 draws."
    assert headline.startswith("A is cheaper")
    assert headline.endswith(said)
    assert said in (out / "report.html").read_text()
    assert said in command("diff", out, out)
    answers = RunAnswers(out, load_catalog())
    (own,) = answers.under({}).disputes
    assert (own.central, own.drawn, own.share) == ("A", "R", pytest.approx(float(share)))
    assert answers.under({"site.pue": 1.2}).disputes == ()  # nothing is drawn for other terms


def test_tables_agree_with_one_another(out: Path) -> None:
    draws, futures, tornado = (table(out / f"{name}.csv") for name in ("draws", "futures", "tornado"))
    assert len(draws) == 100
    for row in futures:
        costs = [float(draw[f"{row['fleet']} usd_per_million_output_tokens"]) for draw in draws]
        assert float(row["usd_per_million_output_tokens_mean"]) == pytest.approx(sum(costs) / 100)
        assert min(costs) <= float(row["usd_per_million_output_tokens_p5"]) <= max(costs)
    own, rented = ({row["input"]: row for row in tornado if row["of"] == name} for name in ("own", "rented"))
    [gap] = {row["of"] for row in tornado} - {"own", "rented"}
    for row in (row for row in tornado if row["of"] == gap):
        more, less = (own, rented) if gap == "own minus rented" else (rented, own)
        name = "usd_per_month_at_high"
        assert float(row[name]) == pytest.approx(float(more[row["input"]][name]) - float(less[row["input"]][name]))


def test_the_same_seed_gives_the_same_bytes_and_another_does_not(out: Path) -> None:
    again, other = out.parent / "again", out.parent / "other"
    shutil.copytree(out / "points", again / "points")
    command("run", out.parent / "which.yaml", "--workers", "1", "--out", again, "--quiet")
    for name in ("futures.csv", "draws.csv", "tornado.csv", "futures.png", "report.html"):
        assert (again / name).read_bytes() == (out / name).read_bytes(), name
    command("run", out.parent / "which.yaml", "--workers", "1", "--out", other, "--quiet", "--no-report", "--seed", "1")
    assert (other / "draws.csv").read_bytes() != (out / "draws.csv").read_bytes()


def test_a_finished_run_is_drawn_anew_at_other_terms(out: Path) -> None:
    priced = out.parent / "priced"
    sets = ("--set", "site.electricity_usd_per_kwh=0.2", "--set", "finance.life_years={uniform: [3, 6]}")
    told = command("price", out, *sets, "--set", "futures.draws=120", "--no-report", "--out", priced)
    assert "of 120 draws" in told
    assert not (priced / "futures.png").exists()
    assert {row["input"] for row in table(priced / "tornado.csv")} == {
        "workload.arrivals.rate_rps",
        "rent of rtx-4090",
        "finance.life_years",
    }


def test_check_lists_the_uncertain_inputs(out: Path) -> None:
    told = command("check", out.parent / "which.yaml", "--details")
    assert "100 Monte Carlo draws of these inputs; all else uses the central values:" in told
    assert "site.electricity_usd_per_kwh: 0.2 (mode), triangular, 10 % below 0.155" in told


def test_a_wrong_distribution_leaves_nothing_behind(out: Path) -> None:
    wrong = out.parent / "wrong"
    arguments = ["run", str(out.parent / "which.yaml"), "--out", str(wrong), "--set", "site.pue={uniform: [2, 1]}"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert "--set site.pue: site.pue.uniform: low 2 lies above high 1" in result.output
    assert not wrong.exists()


def test_the_widest_bar_is_on_top_with_its_ends_at_the_right_values() -> None:
    inputs = [TornadoBar("narrow", 9, 11, "a", "b"), TornadoBar("wide", 20, 5, "c", "d")]
    spec = bar_figure("title", "", side_bars(10.0, inputs), "USD", 10.0).spec
    assert spec["encoding"]["y"]["sort"] == ["wide", "narrow"]
    rows = spec["layer"][0]["data"]["values"]
    assert {tuple(sorted((row["x"], row["x2"]))) for row in rows} == {(9, 10), (10, 11), (10, 20), (5, 10)}
    assert {row["t"]: (row["at"], row["side"]) for row in rows} == {
        "a": (9, "right"),
        "b": (11, "left"),
        "c": (20, "left"),
        "d": (5, "right"),
    }
