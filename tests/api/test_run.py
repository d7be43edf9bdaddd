"""`import sim` gives the same answers as the command line, and writes no file unless asked to."""

import gc
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import sim
from sim.cli import app
from sim.report.charts.chart import Chart
from sim.yamlio import dump


@pytest.mark.slow
def test_importing_sim_imports_nothing_else() -> None:
    heavy = ("numpy", "pandas", "pydantic", "vl_convert", "typer")
    code = f"import sim, sys; print([name for name in sys.modules if name in {heavy}])"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
    assert "run" in dir(sim)
    with pytest.raises(AttributeError, match="no attribute 'rum'"):
        _ = sim.rum  # type: ignore[attr-defined]


@pytest.mark.slow
def test_frames_are_the_files_of_the_command_line(scenario: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(dump(scenario | {"horizon_s": 10}))
    out = tmp_path / "cli"
    done = CliRunner().invoke(app, ["run", str(tmp_path / "small.yaml"), "--out", str(out), "--workers", "1"])
    assert done.exit_code == 0, done.stderr
    run = sim.run(tmp_path / "small.yaml", out=tmp_path / "api", workers=1, quiet=True)
    for name in ("summary.csv", "paired.csv", "requests.csv", "usage.csv", "costs.csv", "curves.png", "report.html"):
        assert (out / name).read_bytes() == (run.folder / name).read_bytes(), name
    assert run.verdict in done.stdout or run.verdict  # the table stands there, the sentence in the report
    pd.testing.assert_frame_equal(run.summary, pd.read_csv(out / "summary.csv"))


@pytest.mark.slow
def test_nothing_is_written_and_the_folder_goes_with_the_result(
    scenario: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = sim.run(scenario, {"sweep": None}, 1, workers=1, quiet=True)
    folder = run.folder
    assert (folder / "summary.csv").exists()
    assert not list(tmp_path.iterdir())
    dear = run.price({"site.pue": 1.6})
    del run
    gc.collect()
    assert not folder.exists()
    assert dear.summary.energy_kwh.gt(0).all()


@pytest.mark.slow
def test_a_run_has_frames_with_units(small_run: "sim.Run") -> None:
    assert len(small_run.summary) == 4
    assert {"fleet", "rate_rps", "ttft_s_p95", "usd_per_million_output_tokens"} <= set(small_run.summary.columns)
    assert set(small_run.paired["first"]) == {"one"}
    assert len(small_run.requests) == 2 * small_run.summary.requests.sum()  # a mean over two replications
    assert small_run.usage.gpu_energy_j.sum() > 0
    assert np.isclose(
        small_run.costs.query("fleet=='two' and rate_rps==2").amount_usd.sum(),
        small_run.summary.query("fleet=='two' and rate_rps==2").cost_usd_per_h.item() * 2 * 20 / 3600,
    )
    assert small_run.year.empty


def test_a_notebook_shows_verdict_table_and_picture(small_run: "sim.Run") -> None:
    html = small_run._repr_html_()
    for piece in (small_run.verdict, "<th", "within SLO", "data:image/png;base64,"):
        assert piece in html
    assert "<script" not in html
    assert "{{" not in html
    assert repr(small_run).startswith("<sim.Run small: ")
    assert str(small_run).count("\n- ") == len(small_run.findings)


@pytest.mark.slow
def test_a_pickled_run_takes_its_files_along(small_run: "sim.Run") -> None:
    again: sim.Run = pickle.loads(pickle.dumps(small_run))
    assert again.folder != small_run.folder
    assert again.requests.equals(small_run.requests)
    assert again.price({"site.pue": 2}).summary.shape == small_run.summary.shape
    assert isinstance(again.plot(again.plots[0]), Chart)
    folder = again.folder
    del again
    gc.collect()
    assert not folder.exists()


@pytest.mark.slow
def test_plots_are_charts(small_run: "sim.Run") -> None:
    assert "cost_vs_latency" in small_run.plots
    whole, some = small_run.plot(), small_run.plot("cost_vs_latency")
    assert isinstance(some, Chart)
    assert 0 < len(some.spec["vconcat"]) < len(whole.spec["vconcat"]) == len(small_run.plot(None).spec["vconcat"])
    assert some._repr_png_().startswith(b"\x89PNG")
    assert some._repr_mimebundle_()["image/png"] == some._repr_png_()
    with pytest.raises(ValueError, match="did you mean cost_vs_latency"):
        small_run.plot("cost_vs_latencies")


@pytest.mark.slow
def test_another_price_needs_no_simulation(small_run: "sim.Run") -> None:
    double = small_run.price({"fleets.one.cost.quotes.l4": 1.0})
    before, after = (each.summary.set_index("fleet").cost_usd_per_h for each in (small_run, double))
    assert np.allclose(after["one"], 2 * before["one"])
    assert np.allclose(after["two"], before["two"])
    assert double.summary.ttft_s_p95.equals(small_run.summary.ttft_s_p95)
    with pytest.raises(sim.ScenarioErrors, match=r'^set\["workload\.arrivals\.rate_rps"\]: is not a cost input'):
        small_run.price({"workload.arrivals.rate_rps": 3})
    (small_run.folder / "scenario.yaml").rename(small_run.folder / "kept")
    with pytest.raises(sim.ScenarioErrors, match=r"^is not a finished run"):
        small_run.price({"site.pue": 2})
    (small_run.folder / "kept").rename(small_run.folder / "scenario.yaml")


@pytest.mark.slow
def test_a_scenario_may_be_an_object_an_array_or_a_shipped_name(scenario: dict[str, Any]) -> None:
    scenario["sweep"] = {
        "workload.arrivals.rate_rps": np.array([1, 2]),
        "fleets.one.pools.0.replicas": pd.Series([1, 2]),
    }
    loaded = sim.check(scenario).scenario
    assert isinstance(loaded, sim.Scenario)
    assert sim.check(loaded).scenario == loaded
    assert sim.check("4x4090-vs-2xa100").scenario.name == "4x4090-vs-2xa100"
    with pytest.raises(TypeError, match="not list"):
        sim.check([scenario])  # type: ignore[arg-type]


@pytest.mark.slow
def test_errors_of_a_dict_name_places_those_of_a_file_lines(scenario: dict[str, Any], tmp_path: Path) -> None:
    scenario["fleets"][0]["pools"][0] = {"gpu": "rtx-409", "replicsa": 1}
    scenario["fleets"][1]["name"] = object()
    with pytest.raises(sim.ScenarioErrors) as told:
        sim.run(scenario)
    assert str(told.value) == "fleets.1.name: object cannot be used in a scenario"
    scenario["fleets"][1]["name"] = "two"
    with pytest.raises(sim.ScenarioErrors) as told:
        sim.run(scenario, {"slo.attainment": 2})
    lines = str(told.value).splitlines()
    assert "fleets.0.pools.0.replicsa: unknown key; did you mean replicas?" in lines
    assert "fleets.0.pools.0.gpu: unknown gpu 'rtx-409'; did you mean rtx-4090 or rtx-4090d?" in lines
    assert 'set["slo.attainment"]: must be at most 1, not 2' in lines
    path = tmp_path / "wrong.yaml"
    path.write_text(dump(scenario))
    with pytest.raises(sim.ScenarioErrors) as told:
        sim.check(path)
    printed = CliRunner().invoke(app, ["check", str(path), "--details"])
    assert printed.stderr.strip() == str(told.value)
    assert f"{path}:" in str(told.value)


@pytest.mark.slow
def test_paths_in_a_dict_start_at_the_current_directory(
    scenario: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,10,5\n1,10,5\n")
    scenario |= {"workload": {"trace": {"path": "mine.csv", "format": "csv"}}, "sweep": None}
    monkeypatch.chdir(tmp_path)
    run = sim.run(scenario, workers=1, quiet=True)
    assert run.summary.requests.tolist() == [2, 2]


@pytest.mark.slow
def test_no_fleet_that_runs_is_an_exception_with_the_table(scenario: dict[str, Any]) -> None:
    scenario["fleets"] = [{"name": "tiny", "model": "qwen2-72b-instruct", "pools": [{"gpu": "l4"}]}]
    with pytest.raises(sim.Infeasible, match=r"^fleets\.tiny: ") as told:
        sim.run(scenario, workers=1, quiet=True)
    assert told.value.result.summary.status.eq("infeasible").all()
    with pytest.raises(sim.Infeasible, match=r"^tiny: "):
        sim.check(scenario)
    scenario["sweep"], scenario["fleets"][0]["cost"] = None, {"acquisition": "rent", "quotes": {"l4": 0.5}}
    scenario["finance"] = {"method": "straight_line", "life_years": 4}
    scenario["plan"] = {"years": 1, "starts": "2027-01", "discount_rate": 0.1, "demand": {"growth_per_year": 0}}
    for ask in (sim.capacity, sim.sensitivity, sim.breakeven, sim.plan):
        with pytest.raises(sim.Infeasible, match=r"^fleets\.tiny: needs") as told:
            ask(scenario, workers=1, quiet=True)
        assert told.value.result.plots == ()
        with pytest.raises(ValueError, match="there is nothing to plot"):
            told.value.result.plot()


@pytest.mark.slow
def test_a_job_is_a_run_without_requests() -> None:
    run = sim.run("training-4090-vs-a100", {"sweep": None})
    assert isinstance(run, sim.JobRun)
    assert len(run.summary) == 3
    assert run.requests.empty
    assert run.paired.empty
    assert run.jobs.empty
    assert (run.price({"site.electricity_usd_per_kwh": 0.3}).summary.cost_usd > run.summary.cost_usd).all()
    assert isinstance(sim.check("training-4090-vs-a100"), sim.JobCheck)
    assert (get_type_hints(sim.run)["return"], get_type_hints(sim.check)["return"]) == (sim.Run, sim.CheckResult)


def test_a_scenario_for_size_may_have_no_fleets_to_check() -> None:
    found = sim.check("size-documents-8b", {"fleets": None})
    assert found.verdict == "0 cases to simulate. No fleets: sim.size chooses them."


@pytest.mark.slow
def test_a_folder_of_another_question_is_refused(scenario: dict[str, Any], tmp_path: Path) -> None:
    sim.run(scenario, {"sweep": None}, 1, tmp_path / "out", workers=1, quiet=True)
    with pytest.raises(sim.FolderRefused, match="another question") as told:
        sim.run(scenario, {"horizon_s": 10, "sweep": None}, 1, tmp_path / "out", workers=1, quiet=True)
    assert str(told.value).startswith(f"out={tmp_path / 'out'}: holds results")
    assert str(told.value).endswith("; force=True replaces them, another folder as out= keeps both")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("")
    with pytest.raises(sim.FolderRefused, match="not a gpufleet run"):
        sim.run(scenario, out=tmp_path / "other")


@pytest.mark.slow
def test_progress_is_silent_when_quiet(scenario: dict[str, Any], capfd: pytest.CaptureFixture[str]) -> None:
    sim.run(scenario, {"sweep": None}, 1, workers=1, quiet=True)
    assert capfd.readouterr() == ("", "")
