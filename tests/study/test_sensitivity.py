"""Sensitivities against closed forms, counterfactuals against their source fleets, and the command end to end."""

import csv
from dataclasses import replace
from math import fsum
from pathlib import Path
from types import SimpleNamespace

import pytest
from pages import charts_of, text_of
from small_scenario import TWO_OR_ONE
from typer.testing import CliRunner

from sim.catalogue.catalog import load_catalog
from sim.cli import app
from sim.fleet.fleet import RunningFleet
from sim.scenario.reading.load import load
from sim.scenario.resolving.case import resolve
from sim.scenario.resolving.resolved import CasePlan
from sim.scenario.sweep import Case
from sim.steptime.roofline import RooflineStepTime
from sim.study import cost_gap as gap_of_fleets
from sim.study.cost_gap import (
    GROUPS,
    LINK,
    MEMORY,
    PHYSICAL,
    POWER,
    PRICE,
    coalitions,
    cost_of,
    counterfactual,
    explain,
    metered_together,
    would_run_alike,
)
from sim.study.execution.cores import ProcessPool
from sim.study.sensitivity import swings

METRIC = "usd_per_million_output_tokens"
ASKED = (
    "sensitivity: {inputs: {site.electricity_usd_per_kwh: [0.1, 0.4], workload.lengths.prompt.value: {relative: 0.1}}}"
)


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gap_of_fleets, "FULL_HORIZON_S", 5.0)


def loaded(folder: Path, text: str = TWO_OR_ONE):
    path = folder / "s.yaml"
    path.write_text(text)
    return load(path, catalog=load_catalog())


def run(folder: Path, text: str, *options: str) -> SimpleNamespace:
    (folder / "s.yaml").write_text(text)
    result = CliRunner().invoke(
        app, ["sensitivity", str(folder / "s.yaml"), "--out", str(folder / "out"), "--workers", "1", *options]
    )
    return SimpleNamespace(code=result.exit_code, out=result.stdout, err=result.stderr)


def costs(plan: CasePlan, *payers: CasePlan) -> tuple[float, float, float]:
    return cost_of(plan, RunningFleet(plan).run(), payers)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_a_straight_line_moves_cost_as_one_over_life(tmp_path: Path) -> None:
    # capital per hour = 7,000 / (life * 8,760) whatever is simulated: twice from 4 to 2 years, half from 4 to 8
    inputs = "{finance.life_years: [2, 8], site.electricity_usd_per_kwh: [0.1, 0.4]}"
    text = f"{TWO_OR_ONE}sensitivity: {{inputs: {inputs}}}\n"
    found = swings(loaded(tmp_path, text), load_catalog(), tmp_path, ProcessPool(1))
    life, power = found.swings
    now, short, long = found.base["two"].value, life.low["two"].value, life.high["two"].value
    tokens_per_h = 7000 / (8760 * 4) / (now - long) / 2  # in millions: half of the capital is saved
    assert short - now == pytest.approx(7000 / (8760 * 4) / tokens_per_h)
    assert short - now == pytest.approx(2 * (now - long))
    # all that is left is energy, in proportion to its price
    energy = now - 7000 / (8760 * 4) / tokens_per_h
    assert power.low["two"].value == pytest.approx(now - energy / 2)
    assert power.high["two"].value == pytest.approx(now + energy)
    assert power.low["one"].value == life.high["one"].value == found.base["one"].value


@pytest.mark.slow
def test_counterfactual_with_all_groups_of_one_fleet_equals_that_fleet(tmp_path: Path) -> None:
    scenario, catalog = loaded(tmp_path), load_catalog()
    two, one = (resolve(scenario, Case(name, {}, {}, 0), catalog) for name in ("two", "one"))
    base = swings(scenario, catalog, tmp_path, ProcessPool(1)).base
    usd, _, millions = costs(counterfactual(two, one, set(PHYSICAL)), two, one)
    assert usd / millions == pytest.approx(base["two"].value, rel=1e-9)
    _, usd, millions = costs(counterfactual(two, one, set()), two, one)
    assert usd / millions == pytest.approx(base["one"].value, rel=1e-9)
    assert counterfactual(two, one, {LINK}).pools[0].steptime.inputs.link == two.pools[0].steptime.inputs.link


def test_more_memory_changes_nothing_where_the_peak_left_room(tmp_path: Path) -> None:
    plan = resolve(loaded(tmp_path), Case("one", {}, {}, 0), load_catalog())

    def with_blocks(count: int) -> CasePlan:
        pool = plan.pools[0]
        return replace(
            plan, pools=(replace(pool, batching=pool.batching.model_copy(update={"num_gpu_blocks": count})),)
        )

    ample = with_blocks(10_000)
    expected = RunningFleet(ample).run()
    peak, alike = expected.meters[0].kv_peak_blocks, []
    for count in (peak // 2, peak + 1, peak + 100):
        less = with_blocks(count)
        log = RunningFleet(less).run()
        alike.append(would_run_alike(ample, less, log))
        if alike[-1]:
            assert log.intervals == expected.intervals
            assert [one.finished_s for one in log.requests] == [one.finished_s for one in expected.requests]
    assert alike == [False, False, True]
    assert not would_run_alike(less, ample, expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    "layout",
    [
        "tensor_parallel_size: 2, batching: {max_num_seqs: 4, async_scheduling: true}",
        "tensor_parallel_size: 2, batching: {max_num_seqs: 4, async_scheduling: false}",
        "pipeline_parallel_size: 2, batching: {max_num_seqs: 4}",
        "pipeline_parallel_size: 2, batching: {max_num_seqs: 4}, engine: sglang",
    ],
)
def test_one_run_meters_both_powers(tmp_path: Path, layout: str) -> None:
    pools = "tensor_parallel_size: 2, server: workstation-2x4090, batching: {max_num_seqs: 4}"
    scenario = loaded(tmp_path, TWO_OR_ONE.replace(pools, f"server: workstation-2x4090, {layout}"))
    two, one = (resolve(scenario, Case(name, {}, {}, 0), load_catalog()) for name in ("two", "one"))
    pool = two.pools[0]
    assert metered_together(two, one)
    for chosen in (frozenset({gap_of_fleets.LAYOUT}), frozenset(PHYSICAL)):
        other = chosen ^ {POWER}
        log = RunningFleet(counterfactual(two, one, chosen, both_powers=True)).run()
        apart = [RunningFleet(counterfactual(two, one, each)).run().intervals for each in (chosen, other)]
        assert [log.intervals, log.second_intervals] == apart
        assert apart[0] != apart[1]
    capped = replace(pool.steptime.inputs, speed=0.9)
    slower = replace(two, pools=(replace(pool, steptime=RooflineStepTime(pool.steptime.spec, capped)),))
    assert not metered_together(slower, one)


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [40, 4000])
def test_counterfactuals_at_full_load_share_their_steps(tmp_path: Path, blocks: int) -> None:
    scenario, names = loaded(tmp_path), ("two", "one")
    two, one = (gap_of_fleets._at_load(resolve(scenario, Case(name, {}, {}, 0), load_catalog()), 8) for name in names)
    pool = one.pools[0]
    short = pool.batching.model_copy(update={"num_gpu_blocks": blocks, "max_model_len": 600})
    one = replace(one, pools=(replace(pool, batching=short),))
    gap_of_fleets._STEPS.clear()
    most = len(PHYSICAL) - 1
    for chosen in (one for one in coalitions(PHYSICAL) if not 1 < len(one) < most):
        plan = counterfactual(two, one, chosen, both_powers=POWER not in chosen)
        log, fresh = gap_of_fleets._retimed((f"test {blocks}", 8), plan), RunningFleet(plan).run()
        assert log is not None
        assert (log.intervals, log.second_intervals) == (fresh.intervals, fresh.second_intervals)
        assert cost_of(plan, log, (two, one)) == cost_of(plan, fresh, (two, one))
        assert (MEMORY in chosen or blocks > 40) == (fresh.meters[0].preemptions == 0)
    assert len(gap_of_fleets._STEPS) == 2


@pytest.mark.slow
def test_the_gap_is_the_sum_of_its_parts(tmp_path: Path) -> None:
    scenario, catalog = loaded(tmp_path), load_catalog()
    base = swings(scenario, catalog, tmp_path, ProcessPool(1)).base
    own, full = explain(scenario, catalog, tmp_path, ProcessPool(1), "two", "one").gaps
    assert tuple(own.parts) == GROUPS
    assert own.usd == pytest.approx(base["two"].value - base["one"].value, rel=1e-9)
    for gap in (own, full):
        assert fsum(gap.parts.values()) == pytest.approx(gap.usd, abs=1e-12)
    assert full.clients == 4


@pytest.mark.slow
def test_gap_of_equal_fleets_is_zero(tmp_path: Path) -> None:
    gaps = explain(loaded(tmp_path), load_catalog(), tmp_path, ProcessPool(1), "one", "one").gaps
    assert [part for gap in gaps for part in gap.parts.values()] == [0.0] * 2 * len(GROUPS)


@pytest.mark.slow
def test_gap_to_a_more_expensive_copy_is_price_alone(tmp_path: Path) -> None:
    text = TWO_OR_ONE.replace(
        "gpu: rtx-4090, tensor_parallel_size: 2, server: workstation-2x4090", "gpu: a100-80gb-pcie"
    )
    text = text.replace(
        "{acquisition: buy, quotes: {rtx-4090: 2000, workstation-2x4090: 3000}}",
        "{acquisition: rent, quotes: {a100-80gb-pcie: 3}}",
    )
    (own, full) = explain(loaded(tmp_path, text), load_catalog(), tmp_path, ProcessPool(1), "two", "one").gaps
    for gap in (own, full):
        assert gap.parts[PRICE] == gap.usd == pytest.approx(gap.second_usd)
        assert not any(part for group, part in gap.parts.items() if group != PRICE)


@pytest.mark.slow
def test_the_command_answers_and_simulates_once(tmp_path: Path) -> None:
    text = f"{TWO_OR_ONE}{ASKED}\n".replace("horizon_s: 10", "horizon_s: 4")
    done = run(tmp_path, text)
    assert done.code == 0, done.err
    out = tmp_path / "out"
    table = rows(out / "sensitivity.csv")
    assert [row["of"] for row in table] == ["two", "one", "two minus one"] * 2
    for row in table[2::3]:
        two, one = table[table.index(row) - 2], table[table.index(row) - 1]
        assert float(row["at_high"]) == pytest.approx(float(two["at_high"]) - float(one["at_high"]))
    assert [float(table[3][key]) for key in ("low", "now", "high")] == [180, 200, 220]
    parts = rows(out / "gap.csv")
    assert len(parts) == 2 * len(GROUPS)
    assert "Of the gap of" in done.out
    page = text_of((out / "sensitivity.html").read_text())
    moved = {row["of"] for row in table if row["at_low"] != row["at_high"]}
    assert {"two", "two minus one"} <= moved, "what is rented may cost the same whatever either input"
    assert len(charts_of(page)) == len(moved) + 2
    assert "http:" not in page
    assert (out / "tornado.png").stat().st_size
    assert (out / "gap.png").stat().st_size
    dates = {path: path.stat().st_mtime_ns for name in ("points", "hybrids") for path in (out / name).iterdir()}
    again = run(tmp_path, text, "--no-report")
    assert again.out == done.out
    assert dates == {path: path.stat().st_mtime_ns for name in ("points", "hybrids") for path in (out / name).iterdir()}


@pytest.mark.slow
def test_results_and_intervals_are_those_of_a_run(tmp_path: Path) -> None:
    text = TWO_OR_ONE.replace("horizon_s: 10", "horizon_s: 4\nreplications: 3")
    done = run(tmp_path, f"{text}sensitivity: {{inputs: {{workload.arrivals.rate_rps: [1, 3]}}}}\n", "--no-report")
    assert done.code == 0, done.err
    moved = {row["of"]: row for row in rows(tmp_path / "out/sensitivity.csv")}
    command = ["run", str(tmp_path / "s.yaml"), "--out", str(tmp_path / "run"), "--no-report", "--workers", "1"]
    sweep = ["--set", "sweep={workload.arrivals.rate_rps: [1, 2, 3]}"]
    assert CliRunner().invoke(app, [*command, *sweep]).exit_code == 0
    for row in rows(tmp_path / "run/summary.csv"):
        at = {"1": "low", "2": "now", "3": "high"}[row["rate_rps"]]
        for mine, its in ((f"at_{at}", ""), (f"at_{at}_ci95", "_ci95")):
            # a run rounds each line of so short a window's bill to a nano-dollar
            its_usd = float(row["usd_per_million_output_tokens" + its])
            assert float(moved[row["fleet"]][mine]) == pytest.approx(its_usd, rel=1e-5)
    pairs = {row["rate_rps"]: row for row in rows(tmp_path / "run/paired.csv") if row["metric"] == METRIC}
    for at, rate in (("low", "1"), ("now", "2"), ("high", "3")):
        assert float(moved["two minus one"][f"at_{at}"]) == pytest.approx(float(pairs[rate]["difference"]), rel=1e-5)
        assert float(moved["two minus one"][f"at_{at}_ci95"]) == pytest.approx(
            float(pairs[rate]["difference_ci95"]), rel=1e-5
        )
    own = [row for row in rows(tmp_path / "out/gap.csv") if row["load"] == "own"]
    assert float(own[0]["gap_usd"]) == pytest.approx(float(moved["two minus one"]["at_now"]))
    assert float(own[0]["gap_usd_ci95"]) == pytest.approx(float(moved["two minus one"]["at_now_ci95"]))
    assert all(float(row["part_usd_ci95"]) >= 0 for row in own)
    assert "Utilisation: the cost gap between two and one is $" in done.out


@pytest.mark.slow
def test_infeasible_end_of_a_range_is_reported(tmp_path: Path) -> None:
    asked = "{metric: tpot_s_p95, inputs: {fleets.one.pools.0.batching.gpu_memory_utilization: [0.15, 0.9]}}"
    text = TWO_OR_ONE.replace(
        "batching: {max_num_seqs: 4}}]", "batching: {max_num_seqs: 4, gpu_memory_utilization: 0.9}}]"
    )
    done = run(tmp_path, f"{text}sensitivity: {asked}\n")
    assert done.code == 0, done.err
    assert "one cannot run with gpu_memory_utilization of one at 0.15." in done.out
    assert "no result at one end of the range of gpu_memory_utilization of one" in done.out
    row = next(row for row in rows(tmp_path / "out/sensitivity.csv") if row["of"] == "one")
    assert (row["at_low"], row["state_at_low"], row["state_at_high"]) == ("inf", "cannot run", "")


@pytest.mark.slow
def test_quote_is_varied_like_its_price(tmp_path: Path) -> None:
    asked = "{inputs: {fleets.two.cost.quotes.rtx-4090: {relative: 0.5}}}"
    (one,) = swings(
        loaded(tmp_path, f"{TWO_OR_ONE}sensitivity: {asked}\n"), load_catalog(), tmp_path, ProcessPool(1)
    ).swings
    assert (one.input.name, one.input.unit, one.input.now) == ("quote for rtx-4090 of two", "USD", 2000)
    assert (one.input.low, one.input.high) == (1000, 3000)
    assert one.low["two"].value < one.high["two"].value


def test_every_mistake_is_reported_at_once(tmp_path: Path) -> None:
    asked = (
        "{metric: ttft, between: [two, two], inputs: {site.pues: [1, 2], horizon_s: {relative: 1.5}, site.pue: [2, 1]}}"
    )
    done = run(tmp_path, f"{TWO_OR_ONE}precision: {{metric: ttft, relative: 0}}\nsensitivity: {asked}\n")
    assert done.code == 2
    assert len(done.err.splitlines()) == 7


@pytest.mark.slow
def test_latencies_are_moved_by_the_load_alone(tmp_path: Path) -> None:
    text = TWO_OR_ONE.replace("    cost: {acquisition: rent, quotes: {a100-80gb-pcie: 1.5}}\n", "")
    done = run(tmp_path, f"{text}sensitivity: {{metric: tpot_s_p95}}\n")
    assert done.code == 0, done.err
    named = {row["input"] for row in rows(tmp_path / "out/sensitivity.csv")}
    assert named == {"load", "prompt length", "mean output length"}
    assert not (tmp_path / "out/gap.csv").exists()


@pytest.mark.parametrize(
    ("section", "line"),
    [
        ("{between: [two, on]}", "s.yaml:20: sensitivity.between.1: there is no fleet 'on'; did you mean one?"),
        ("{between: [two, two]}", "sensitivity.between: two different fleets are needed"),
        (
            "{inputs: {site.pues: [1, 2]}}",
            "sensitivity.inputs.site.pues: the scenario does not set it; did you mean pue?",
        ),
        ("{inputs: {name: [1, 2]}}", "sensitivity.inputs.name: name is not an input"),
        ("{inputs: {site.pue: [2, 1]}}", "sensitivity.inputs.site.pue: low (2) must be below high (1)"),
        ("{inputs: {site.pue: [0.5, 2]}}", "sensitivity.inputs.site.pue.0: 0.5 is not allowed there"),
        ("{inputs: {site.pue: {relative: 0.9}}}", "0.14 or 2.66 is not allowed there; give [low, high]"),
        ("{inputs: {fleets.three.pools: [1, 2]}}", "fleets has no item named 'three'"),
        ("{metric: money}", "sensitivity.metric: "),
        (
            "{inputs: {horizon_s: [5, 70]}}\nwarmup_s: 9",
            "horizon_s.0: 5 is not allowed: warmup_s: must be below horizon_s",
        ),
    ],
)
def test_bad_input(tmp_path: Path, section: str, line: str) -> None:
    done = run(tmp_path, f"{TWO_OR_ONE}sensitivity: {section}\n")
    assert done.code == 2
    assert line in done.err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_without_a_cost_there_is_no_question(tmp_path: Path) -> None:
    done = run(tmp_path, TWO_OR_ONE.replace("    cost: {acquisition: rent, quotes: {a100-80gb-pcie: 1.5}}\n", ""))
    assert (done.code, "fleets.1.cost: is missing" in done.err) == (2, True)


@pytest.mark.slow
def test_no_feasible_fleet_reports_the_reasons(tmp_path: Path) -> None:
    small = TWO_OR_ONE.replace("tensor_parallel_size: 2, ", "")
    done = run(tmp_path, small.replace("model: llama3.1-8b", "model: llama3.1-70b"))
    assert (done.code, "fleets.one: needs" in done.err) == (2, True)
    assert "No fleet can run." in done.out
    assert "one is not compared: needs" in done.out
    assert not (tmp_path / "out/tornado.png").exists()
