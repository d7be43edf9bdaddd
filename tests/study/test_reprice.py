"""A finished run at other prices: what changes is money alone, and at the same prices nothing does."""

import filecmp
import shutil
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sim.catalogue.catalog import load_catalog
from sim.fleet.fleet import RunningFleet
from sim.records import FleetLog
from sim.scenario.reading.errors import ScenarioErrors
from sim.scenario.reading.load import load
from sim.scenario.sweep import cases
from sim.study.execution.cases import CaseJob
from sim.study.execution.digest import digest
from sim.study.execution.store import load_case
from sim.study.metrics.columns import column
from sim.study.points import summarize
from sim.study.reprice import keep_scenario, load_repriced, reprice
from sim.yamlio import dump, parse

FILES = ("case.json", "tables.arrow")
POOL = {
    "gpu": "rtx-4090",
    "replicas": 2,
    "server": "workstation-4x4090",
    "steptime": {"model": "affine", "base_s": 0.015, "per_token_s": 2e-5, "per_context_token_s": 1e-7},
    "batching": {"policy": "vllm", "max_num_seqs": 16, "max_num_batched_tokens": 512, "num_gpu_blocks": 200},
}
SCENARIO = {
    "name": "priced",
    "model": "qwen2.5-7b",
    "workload": {
        "arrivals": {"process": "poisson", "rate_rps": 2},
        "lengths": {side: {"distribution": "geometric", "mean": 150} for side in ("prompt", "output")},
    },
    "horizon_s": 20,
    "warmup_s": 7,
    "meter_interval_s": 13,
    "cost_per_request": True,
    "fleets": [
        {"name": "own", "pools": [POOL], "cost": {"acquisition": "buy"}},
        {"name": "rented", "pools": [POOL], "cost": {"acquisition": "rent", "quotes": {"rtx-4090": 0.4}}},
    ],
    "site": {"electricity_usd_per_kwh": 0.2, "pue": 1.4, "hosting": "none"},
    "finance": {"method": "annuity", "discount_rate": 0.08, "life_years": 4},
    "sweep": {"workload.arrivals.rate_rps": [2, 6]},
}


def finished_run(folder: Path, **more) -> Path:
    """Write the files of a finished `gpufleet run`, as far as repricing needs them."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    path, catalog = folder / "source.yaml", load_catalog()
    path.write_text(dump(SCENARIO | more))
    scenario = load(path, (), catalog=catalog)
    for case in cases(scenario):
        CaseJob(scenario, case, folder / "points" / digest(scenario, case, catalog), catalog).run()
    keep_scenario(folder, scenario)
    return folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finished_run(tmp_path_factory.mktemp("priced") / "run")


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return shutil.copytree(finished, tmp_path / "run")


def repriced(run: Path, *sets: str):
    catalog = load_catalog()
    return reprice(run, load_repriced(run, sets, catalog), catalog, run.with_name("again"))


def stored(run: Path):
    return [load_case(folder) for folder in (run / "points").iterdir()]


def find(found, fleet, rate):
    return next(case for case in found if case.fleet == fleet and case.axes["rate_rps"] == rate)


@pytest.mark.slow
@given(
    seed=st.integers(0, 10**6),
    usd=st.sampled_from([0.0, 0.037, 1.9]),
    discount=st.floats(0.001, 0.2),
    quote=st.floats(0.01, 10),
    starts_at=st.sampled_from([None, "2026-02-28T23:59:20"]),
)
@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_same_prices_change_nothing_to_the_last_digit(tmp_path: Path, seed, usd, discount, quote, starts_at):
    own, rented = SCENARIO["fleets"]
    fleets = [own, rented | {"cost": {"acquisition": "rent", "quotes": {"rtx-4090": quote}}}]
    by_hour = {"electricity": {"hourly_usd_per_kwh": [usd] * 23 + [1]}}
    electricity = {"electricity_usd_per_kwh": usd} if starts_at is None else by_hour
    site = {**electricity, "pue": 1.3, "hosting": "none"}
    finance = SCENARIO["finance"] | {"discount_rate": discount}
    run = finished_run(tmp_path / "run", seed=seed, fleets=fleets, site=site, finance=finance, starts_at=starts_at)
    shutil.rmtree(tmp_path / "again", ignore_errors=True)
    repriced(run)
    names = sorted(folder.name for folder in (run / "points").iterdir())
    assert sorted(folder.name for folder in (tmp_path / "again" / "points").iterdir()) == names
    for name in names:
        before, after = run / "points" / name, tmp_path / "again" / "points" / name
        assert load_case(before).metrics == load_case(after).metrics
        _, different, missing = filecmp.cmpfiles(before, after, FILES[1:], shallow=False)
        assert (different, missing) == ([], [])


@pytest.mark.slow
def test_a_request_that_moves_pays_each_pool_for_what_it_took_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs, run_as_planned = [], RunningFleet.run

    def run_moving(fleet: RunningFleet) -> FleetLog:
        for at_s in (10.0, 20.01, 30.0):
            fleet._env.timeout(at_s).callbacks.append(lambda _: move_all(fleet))
        logs.append(run_as_planned(fleet))
        return logs[-1]

    monkeypatch.setattr(RunningFleet, "run", run_moving)
    other = {"name": "second", "gpu": "a100-80gb-pcie", "replicas": 1, "server": "server-8xa100-pcie"}
    pools = [POOL | {"name": "first", "replicas": 1}, POOL | other]
    many = SCENARIO["workload"] | {"arrivals": {"process": "poisson", "rate_rps": 9}}
    rents = {"acquisition": "rent", "quotes": {"rtx-4090": 0.4, "a100-80gb-pcie": 1.2}}
    run = finished_run(
        tmp_path / "run",
        fleets=[{"name": "two", "pools": pools, "cost": rents}],
        sweep=None,
        workload=many,
        horizon_s=33,
    )
    (log,), (case,) = logs, stored(run)
    assert sum(len(request.left) for request in log.requests) > 15
    taken = [defaultdict(float), defaultdict(float)]
    for hop in (hop for request in log.requests for hop in request.hops):
        for name, seconds in asdict(hop.busy).items():
            taken[hop.replica][name] += seconds
    for replica in (0, 1):
        mine = [one for one in log.intervals if one.replica == replica and 7 <= one.start_s < 33]
        for name in ("prefill_s", "recompute_s"):
            assert taken[replica][name] == pytest.approx(sum(getattr(one, name) for one in mine))
    money = defaultdict(float)
    for row in case.costs().to_pylist():
        money[row["pool"], row["phase"]] += row["amount_usd"]
    for request, usd in zip(log.requests, case.requests()["cost_usd"].to_pylist(), strict=True):
        owed = 0.0
        for hop in request.hops:
            for name, seconds in asdict(hop.busy).items():
                owed += money[pools[hop.replica]["name"], name[:-2]] * seconds / (taken[hop.replica][name] or 1)
        assert usd == pytest.approx(owed, abs=1e-8)
    repriced(run)
    names = [folder.name for folder in (run / "points").iterdir()]
    for name in names:
        compared = filecmp.cmpfiles(run / "points" / name, tmp_path / "again" / "points" / name, FILES[1:], False)
        assert compared == ([*FILES[1:]], [], [])


def move_all(fleet: RunningFleet) -> None:
    """Takes every request at the first replica to the second."""
    source, target = fleet._replicas
    now = fleet._env.now
    for request in [one for one in fleet._source.requests if one.replica == 0 and not one.rejected]:
        if source.evict([request], now):
            fleet._router.left(0, request)
            request.replica, request.came_s = 1, now
            target.offer(request, now)
            fleet._router.joined(1, request)
    target.replan(now)


@pytest.mark.slow
def test_repricing_equals_a_new_run(run: Path, tmp_path: Path) -> None:
    changed = {"site": SCENARIO["site"] | {"electricity_usd_per_kwh": 0.5, "pue": 1.1}}
    anew = stored(finished_run(tmp_path / "other", **changed))
    again = repriced(run, "site.electricity_usd_per_kwh=0.5", "site.pue=1.1")
    for case in again:
        assert case.metrics == find(anew, case.fleet, case.axes["rate_rps"]).metrics
    before = find(stored(run), "rented", 2)
    assert find(again, "rented", 2).metrics["cost_usd"] == before.metrics["cost_usd"]


@pytest.mark.slow
def test_prices_change_only_the_columns_declared_to_depend_on_them(run: Path) -> None:
    again = repriced(run, "site.electricity_usd_per_kwh=0.5", "site.pue=1.1", "finance.life_years=3")
    both = (summarize(found, ["rate_rps"], {}) for found in (stored(run), again))
    rows = [{(point.fleet, point.axes["rate_rps"]): point.row for point in points} for points in both]
    changed = {
        name.removesuffix("_ci95")
        for key, row in rows[0].items()
        for name, value in row.items()
        if value != rows[1][key][name]
    }
    assert {"usd_per_million_output_tokens", "facility_power_w_mean"} <= changed
    assert [name for name in changed if not column(name).depends_on_prices] == []


@pytest.mark.slow
@pytest.mark.parametrize("cost", ["null", "{acquisition: rent, quotes: {rtx-4090: 1}}"])
def test_terms_add_and_remove_their_figures(tmp_path: Path, cost: str) -> None:
    everything = {
        "finance": SCENARIO["finance"] | {"fx": {"RMB": 0.138}, "currency": "RMB"},
        "api": {"input": 0.3, "output": 0.6},
        "carbon": {"grid_g_per_kwh": 400},
    }
    run = finished_run(tmp_path / "run", **everything)
    again = repriced(run, f"fleets.own.cost={cost}", "api=null", "carbon=null", "finance.currency=USD")
    own, rented = SCENARIO["fleets"]
    fleets = [own | {"cost": parse(cost)}, rented]
    anew = stored(finished_run(tmp_path / "anew", fleets=fleets))
    assert sorted(map(repr, (sorted(case.metrics.as_data().items()) for case in again))) == sorted(
        map(repr, (sorted(case.metrics.as_data().items()) for case in anew))
    )


@pytest.mark.slow
def test_requests_and_what_no_request_caused_sum_to_the_bill(run: Path) -> None:
    for case in [*stored(run), *repriced(run, "fleets.rented.cost.quotes.rtx-4090=3")]:
        requests = sum(round(usd * 1e9) for usd in case.requests()["cost_usd"].to_pylist())
        rows = case.costs().to_pylist()
        idle = sum(round(row["amount_usd"] * 1e9) for row in rows if row["phase"] == "idle")
        assert requests + idle == sum(round(row["amount_usd"] * 1e9) for row in rows)
        assert requests + idle == round(case.metrics["cost_usd"] * 1e9)


def test_waste_is_in_the_metrics(run: Path) -> None:
    case = find(stored(run), "rented", 6)
    hours = case.metrics["window_h"]
    phases = case.metrics["phase_usd_per_h"]
    assert case.metrics["preemptions"] > 0
    assert case.metrics["preemption_waste_usd"] == pytest.approx(phases["recompute"] * hours)
    assert case.metrics["preemption_waste_usd"] > 0
    assert sum(phases.values()) == pytest.approx(case.metrics["cost_usd"] / hours)
    order = [case.metrics[f"usd_per_request_p{q}"] for q in (50, 95, 99)]
    assert order == sorted(order)


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("slo.ttft_s=3", "not a cost input"),
        ("fleets.own.pools.0.replicas=3", "not a cost input"),
        ("starts_at=2026-01-01T00:00:00", "not a cost input"),
        ("fleets.own.cost.share=true", "simulate it anew"),
        ("site.pu=3", "did you mean pue"),
        ("site.pue=0.5", "site.pue"),
    ],
)
def test_what_needs_a_simulation_is_refused(run: Path, option: str, says: str) -> None:
    with pytest.raises(ScenarioErrors, match=says):
        repriced(run, option)


@pytest.mark.slow
def test_swept_price_cannot_be_set(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "run", sweep={"site.pue": [1.2, 1.5]})
    with pytest.raises(ScenarioErrors, match="is swept"):
        repriced(run, "site.pue=1.3")


@pytest.mark.slow
def test_an_hourly_tariff_needs_readings_at_the_hours(tmp_path: Path) -> None:
    hourly = "site={electricity: {hourly_usd_per_kwh: [" + "0.1, " * 23 + "1]}, pue: 1, hosting: none}"
    with pytest.raises(ScenarioErrors, match="starts_at"):
        repriced(finished_run(tmp_path / "run"), hourly)
    run = finished_run(tmp_path / "run", starts_at="2026-01-31T22:59:30", horizon_s=60)
    own = find(repriced(run, hourly), "own", 2)
    energy = [row for row in own.costs().to_pylist() if row["component"] == "energy"]
    assert {(row["unit_price_usd"], row["start_s"] < 30) for row in energy} == {(0.1, True), (1.0, False)}


def test_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioErrors, match="not a finished run"):
        load_repriced(tmp_path, (), load_catalog())


@pytest.mark.slow
def test_the_command_leaves_the_same_files(gpufleet, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(dump(SCENARIO | {"load_profile": {2: 8000, 5: 760}, "horizon_s": 16}))
    assert gpufleet("run", "s.yaml", "--out", "run", "--no-report", "--quiet").returncode == 0
    done = gpufleet("price", "run", "--no-report")
    assert (done.returncode, done.stderr) == (0, "")
    assert "results in run-repriced" in done.stdout
    tables = ["summary.csv", "requests.csv", "usage.csv", "costs.csv", "year.csv", "resolved.yaml", "scenario.yaml"]
    same, different, missing = filecmp.cmpfiles(tmp_path / "run", tmp_path / "run-repriced", tables, shallow=False)
    assert (sorted(same), different, missing) == (sorted(tables), [], [])
    refused = gpufleet("price", "run", "--set", "horizon_s=60")
    assert refused.returncode == 2
    assert refused.stderr.startswith("--set horizon_s: is not a cost input")
    assert not (tmp_path / "run-repriced-repriced").exists()
    beyond = gpufleet("price", "run", "--set", "site.electricity_usd_per_kwh=1e300", "--out", "dear")
    told = "--set site.electricity_usd_per_kwh: is too large: at most 1e+30\n"
    assert (beyond.returncode, beyond.stderr, (tmp_path / "dear").exists()) == (2, told, False)
    dearest = ("--set", "site.electricity_usd_per_kwh=1e29")
    assert gpufleet("price", "run", *dearest, "--out", "dear", "--no-report").returncode == 0
