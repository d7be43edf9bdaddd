"""Hot, warm and cold spares in a search: how many of each the share over failures takes, and what they cost."""

from functools import partial
from pathlib import Path

import pytest

from sim.catalogue.catalog import load_catalog
from sim.report.size import sentences, size_rows, write_winner
from sim.report.size_candidates import spares_table
from sim.scenario.reading.errors import ScenarioErrors
from sim.scenario.reading.load import load, load_for_size
from sim.scenario.schema import Fleet, Scenario
from sim.study.availability import serving_states
from sim.study.execution.cores import ProcessPool
from sim.study.size import trials
from sim.study.size.search import search
from sim.study.size.trials import with_failures

SCENARIO = """\
name: s
model: llama3.1-8b
workload:
  arrivals: {process: poisson, rate_rps: 8}
  lengths: {prompt: {distribution: fixed, value: 400}, output: {distribution: fixed, value: 40}}
horizon_s: 6
warmup_s: 1
slo: {ttft_s: 2, tpot_s: 0.1, attainment: 0.9, availability: 0.99}
size:
  gpus: [rtx-4090]
  servers: {rtx-4090: workstation-4x4090}
  tensor_parallel_sizes: [4]
  costs: {bought: {acquisition: buy, quotes: {rtx-4090: 1900, workstation-4x4090: 3400}}}
  failures: {server: {mtbf_h: 1000, repair_h: 24}, detection_s: 5}
  cold_start: {total_s: 600}
  spares: {takeover_s: 10}
  max_replicas: 3
site: {electricity_usd_per_kwh: 0.12, pue: 1.5}
finance: {method: annuity, discount_rate: 0.08, life_years: 4, residual_fraction: 0.2}
"""
CATALOG = load_catalog()


def scenario_of(folder: Path, old: str = "", new: str = "") -> Scenario:
    assert not old or SCENARIO.count(old) == 1
    (folder / "s.yaml").write_text(SCENARIO.replace(old, new) if old else SCENARIO)
    return load_for_size(folder / "s.yaml", (), catalog=CATALOG)


@pytest.mark.slow
def test_each_kind_of_spare_is_priced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "serving_states", partial(serving_states, failures=500))
    scenario = scenario_of(tmp_path)
    found = search(scenario, CATALOG, tmp_path / "out", ProcessPool(1))
    met = {one.standby.kind if one.standby else "hot": one for one in found.candidates if one.status == "meets"}
    # one server works 1000 of 1024 hours, 97.7 %; of two one works 99.95 %, and starts and alarms take the rest
    assert found.winner is met["cold"]
    assert (met["cold"].replicas, met["cold"].total, met["cold"].gpus) == (1, 2, 8)
    assert met["cold"].usd_per_h < met["warm"].usd_per_h < met["hot"].usd_per_h
    # the warm one idles at its own power; the cold one draws nothing, and both cost as much to buy
    needs = [met[kind].needs for kind in ("hot", "warm", "cold")]
    assert needs[0].capex_usd == needs[1].capex_usd == needs[2].capex_usd
    assert met["cold"].metrics["share_over_failures"] == pytest.approx(0.9994, abs=2e-3)
    assert [row[2] for row in spares_table(found, scenario).rows] == ["1", "1", "1"]
    assert "N+1" in sentences(found, scenario)[1]
    assert size_rows(found, scenario)[0]["spare_kind"] == "cold"


def test_the_winner_states_what_fails_whatever_its_spares(tmp_path: Path) -> None:
    size = scenario_of(tmp_path).size
    pool = {"gpu": "rtx-4090", "server": "workstation-4x4090", "cold_start": {"total_s": 5}}
    hot = Fleet.model_validate({"name": "f", "pools": [pool]})
    (found,) = with_failures(hot, size).pools
    assert (found.failures, found.cold_start) == (size.failures, size.cold_start)
    (found,) = with_failures(hot, size.model_copy(update={"cold_start": None})).pools
    assert found.cold_start.total_s == 5
    write_winner(tmp_path / "winner.yaml", hot, scenario_of(tmp_path), "winner")
    assert load(tmp_path / "winner.yaml", catalog=CATALOG).fleets[0].pools[0].failures == size.failures


@pytest.mark.slow
def test_rented_cards_without_a_server_have_hot_spares_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "serving_states", partial(serving_states, failures=200))
    costs = "{bought: {acquisition: buy, quotes: {rtx-4090: 1900, workstation-4x4090: 3400}}}"
    rented = SCENARIO.replace("  servers: {rtx-4090: workstation-4x4090}\n", "").replace(
        "{server: {mtbf", "{gpu: {mtbf"
    )
    rented = rented.replace(costs, "{rented: {acquisition: rent, quotes: {rtx-4090: 0.4}}}")
    (tmp_path / "s.yaml").write_text(rented)
    scenario = load_for_size(tmp_path / "s.yaml", (), catalog=CATALOG)
    rows = spares_table(search(scenario, CATALOG, tmp_path / "out", ProcessPool(1)), scenario).rows
    assert rows[0][0] == "hot"
    assert [row[1] for row in rows[1:]] == 2 * ["spares: need a server to run in: the pool names none"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("  cold_start: {total_s: 600}\n", "", "size.spares.kinds: a cold spare starts first: give size.cold_start"),
        ("{takeover_s: 10}", "{kinds: [hot], takeover_s: 10}", "size.spares.takeover_s: applies to warm spares"),
        ("{takeover_s: 10}", "{kinds: [warm, warm]}", "size.spares.kinds: warm is given twice"),
        ("{takeover_s: 10}", "{kinds: [warn]}", "size.spares.kinds.0: "),
        ("server: {mtbf_h: 1000,", "server: {rate: rsc1-servr,", "size.failures.server.rate: unknown failure rate"),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(ScenarioErrors) as raised:
        scenario_of(tmp_path, old, new)
    (line,) = str(raised.value).splitlines()
    assert message in line


def test_spares_without_failures_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioErrors) as raised:
        scenario_of(tmp_path, "  failures: {server: {mtbf_h: 1000, repair_h: 24}, detection_s: 5}\n", "")
    assert "size.spares: are kept for failures: give size.failures" in str(raised.value)
