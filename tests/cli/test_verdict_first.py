"""`gpufleet run` begins with its verdict, which ranks fleets of different models apart unless asked otherwise."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import sim
from sim.answers.questions import QUESTIONS
from sim.cli import app
from sim.report.words.precision import central_value_notes
from sim.scenario.schema import Scenario
from sim.study.capacity_tolerance import RELATIVE
from sim.yamlio import dump

pytestmark = pytest.mark.usefixtures("coarsely")

FIXED = {"distribution": "fixed", "value": 60}


def fleet(name: str, usd: float, **more: Any) -> dict[str, Any]:
    step = {"model": "affine", "base_s": 0.01, "per_token_s": 1e-5, "per_context_token_s": 1e-8}
    pool = {"gpu": "rtx-4090", "server": "workstation-1x4090", "steptime": step}
    pool["batching"] = {"policy": "vllm", "num_gpu_blocks": 999, "max_num_seqs": 8}
    quotes = {"rtx-4090": usd, "workstation-1x4090": 0}
    return {"name": name, "pools": [pool], "cost": {"acquisition": "buy", "quotes": quotes}} | more


SCENARIO: dict[str, Any] = {
    "name": "first",
    "workload": {"arrivals": {"process": "constant", "rate_rps": 1}, "lengths": {"prompt": FIXED, "output": FIXED}},
    "horizon_s": 20,
    "slo": {"ttft_s": 1, "tpot_s": 0.1},
    "fleets": [fleet("a", 2000), fleet("b", 3000)],
    "site": {"pue": 1.0, "hosting": "none", "electricity_usd_per_kwh": 0.1},
    "finance": {"method": "annuity", "discount_rate": 0, "life_years": 4, "residual_fraction": 0},
}
YEAR = {"sweep": {"workload.arrivals.rate_rps": [0.5, 1]}, "load_profile": {0: 4380, 0.5: 2190, 1: 2190}}
MODELS = {"fleets": [fleet("a", 2000, model="llama3.1-8b"), fleet("b", 3000, model="llama3.1-70b")]}


def headlines(folder: Path, scenario: dict[str, Any]) -> tuple[str, str]:
    """The first line with text of the table, and the headline of the same answer as JSON."""
    (folder / "s.yaml").write_text(dump(scenario))
    told = []
    for form in ("table", "json"):
        options = ["--out", str(folder / "out"), "--no-report", "--workers", "1", "--force", "--format", form]
        done = CliRunner().invoke(app, ["run", str(folder / "s.yaml"), *options])
        assert done.exit_code == 0, done.output
        told.append(done.stdout)
    first = next(line for line in told[0].splitlines() if line.strip())
    return first, json.loads(told[1])["verdict"]["headline"]


@pytest.mark.slow
@pytest.mark.parametrize("more", [{}, YEAR, MODELS | YEAR, {"fleets": [fleet("a", 2000)]}])
def test_the_first_line_is_the_verdict(tmp_path: Path, more: dict[str, Any]) -> None:
    first, headline = headlines(tmp_path, SCENARIO | more)
    assert first == headline
    assert ("a year" in headline) == ("load_profile" in more)


@pytest.mark.slow
def test_python_has_the_same_verdict_of_a_year(tmp_path: Path) -> None:
    first, headline = headlines(tmp_path, SCENARIO | YEAR)
    run = sim.run(SCENARIO | YEAR, quiet=True, workers=1)
    assert run.verdict == headline == first
    cost = [f"${usd:,.0f}" for usd in run.year.usd_per_year]
    assert headline.startswith(f"a is cheaper: {cost[0]} a year against {cost[1]} (b)")
    assert headline.endswith("both meet the SLO in all 4,380 working hours.")


@pytest.mark.slow
def test_different_models_are_one_product_only_where_asked(tmp_path: Path) -> None:
    apart, _ = headlines(tmp_path, SCENARIO | MODELS)
    assert apart.startswith("llama3.1-8b: a meets the SLO at ")
    assert " llama3.1-70b: b meets the SLO at " in apart
    assert "cheaper" not in apart
    together, _ = headlines(tmp_path, SCENARIO | MODELS | {"compare": {"across_models": True}, "name": "second"})
    assert together.startswith("a is cheaper per million output tokens")


@pytest.mark.slow
def test_a_report_on_different_models_compares_within_one(tmp_path: Path) -> None:
    fleets = [*MODELS["fleets"], fleet("c", 4000, model="llama3.1-8b")]
    (tmp_path / "s.yaml").write_text(dump(SCENARIO | YEAR | {"fleets": fleets, "replications": 2, "seed": 5}))
    done = CliRunner().invoke(app, ["run", str(tmp_path / "s.yaml"), "--out", str(tmp_path / "out"), "--workers", "1"])
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Different models (a and c: llama3.1-8b; b: llama3.1-70b): compare curves of one model only." in page
    assert "<th>Model</th><td>llama3.1-8b</td><td>llama3.1-70b</td><td>llama3.1-8b</td>" in page
    assert "Nothing is claimed between" not in page, "the year lies between the simulated loads"
    assert "Difference (a minus b)" not in done.stdout + page


def test_the_sweep_is_named_as_ignored_only_where_it_is_more_than_the_year() -> None:
    def told(command: str, **more: Any) -> str:
        return QUESTIONS[command].ignored(Scenario.model_validate(SCENARIO | more), RELATIVE)

    other = {"sweep": YEAR["sweep"] | {"fleets.0.pools.0.replicas": [1, 2]}}
    assert told("breakeven", **YEAR) == told("size", **YEAR) == told("plan") == ""
    assert told("breakeven", sweep=YEAR["sweep"]).startswith("sweep is ignored")
    assert told("breakeven", **YEAR | other).startswith("sweep is ignored")
    assert told("capacity", **YEAR).startswith("sweep is ignored")


@pytest.mark.slow
def test_breakeven_states_that_central_values_decide() -> None:
    site = SCENARIO["site"] | {"electricity_usd_per_kwh": {"triangular": [0.1, 0.2, 0.4]}}
    asked: dict[str, Any] = SCENARIO | {"requests": "none"}
    drawn = sim.breakeven(asked | {"site": site, "futures": {"draws": 100}}, quiet=True, workers=1)
    said = "The ranking uses central values; gpufleet run draws the uncertain inputs (Monte Carlo)."
    assert said in drawn.verdict + " ".join(drawn.findings)
    assert central_value_notes(False) == []
