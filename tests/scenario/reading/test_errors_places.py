"""Mistakes in the input: all at once, each blamed on the value, the file or the option that made it."""

import os
from pathlib import Path

import pytest

from sim.catalogue.catalog import load_catalog
from sim.scenario.reading.errors import ScenarioErrors
from sim.scenario.reading.load import load
from sim.workload import TraceError
from sim.workload.traces.csv_formats import CsvTrace
from sim.workload.traces.mooncake import MooncakeTrace

BASE = """\
name: a
model: llama3.1-8b
workload:
  arrivals: {process: poisson, rate_rps: 4}
  lengths: {prompt: {distribution: fixed, value: 100}, output: {distribution: fixed, value: 50}}
horizon_s: 100
warmup_s: 10
fleets:
  - name: ada
    pools: [{gpu: rtx-4090, replicas: 2, server: workstation-2x4090}]
    cost: {acquisition: buy, quotes: {rtx-4090: 1900, workstation-2x4090: 2000}}
  - name: l40s
    pools: [{gpu: l40s}]
    cost: {acquisition: rent, quotes: {l40s: 0.9}}
site: {electricity_usd_per_kwh: 0.12, pue: 1.4}
finance: {method: annuity, discount_rate: 0.08, life_years: 4}
sweep: {workload.arrivals.rate_rps: [1, 2]}
"""


def told(path: Path, *sets: str) -> list[str]:
    """The errors, files by their names alone."""
    with pytest.raises(ScenarioErrors) as caught:
        load(path, sets, catalog=load_catalog())
    return str(caught.value).replace(f"{path.parent}/", "").splitlines()


@pytest.fixture
def base(tmp_path: Path) -> Path:
    path = tmp_path / "a.yaml"
    path.write_text(BASE)
    return path


def test_each_axis_is_blamed_for_its_own_values(base: Path) -> None:
    path = base.with_name("b.yaml")
    path.write_text(
        'base: a.yaml\nsweep:\n  workload.arrivals.rate_rsp: [1]\n  horizon_s: [.nan]\n  warmup_s: ["x"]\n'
        "  fleets.ada.pools.0.replicas: [0]\n"
    )
    assert told(path) == [
        "b.yaml:3: sweep.workload.arrivals.rate_rsp: unknown key; did you mean rate_rps?",
        "b.yaml:4: sweep.horizon_s.0: must be a finite number, not nan",
        "b.yaml:5: sweep.warmup_s.0: a number of seconds or auto is needed, not 'x'",
        "b.yaml:6: sweep.fleets.ada.pools.0.replicas.0: must be above 0, not 0",
    ]


def test_of_several_axes_the_one_that_makes_the_trouble_is_blamed(base: Path) -> None:
    base.write_text(BASE.replace("sweep: {", "sweep: {seed: [1, 2], horizon_s: [100, 5], "))
    (one,) = told(base)
    assert one == "a.yaml:17: sweep.horizon_s.1: warmup_s: must be below horizon_s (5), not 10"


@pytest.mark.parametrize(
    ("option", "error"),
    [
        ("sitee.pue=1.2", "--set sitee.pue: sitee: unknown key; did you mean site?"),
        ("fleets.ada.pool.0.replicas=2", "--set fleets.ada.pool.0.replicas: fleets.0.pool: unknown key"),
        ("site=null", "--set site: fleets.0.site: buying needs a site"),
        ("model=null", "--set model: fleets.0.pools.0.model: is missing"),
        ('replications="2"', "--set replications: a whole number is needed, not '2'"),
        ("workload.arrivals.rate_rsp=2", "--set workload.arrivals.rate_rsp: unknown key; did you mean rate_rps?"),
    ],
)
def test_what_an_option_has_made_or_taken_away_names_the_option(base: Path, option: str, error: str) -> None:
    assert told(base, option)[0].startswith(error)


def test_no_mistake_hides_another(base: Path) -> None:
    text = BASE.replace("name: a\n", 'name: "a\\x07"\nmodle: llama3.1-8b\n').replace("name: l40s", "name: ada")
    text = text.replace("horizon_s: 100", "horizon_s: -1\nhorizon_s: 100")
    base.write_text(text.replace("sweep: {", "sweep: {workload.arrivals.rate_rsp: [1], fleets.adda.name: [b], "))
    assert [line.partition(": ")[2] for line in told(base, "fleets.zz.name=b", "horizon=[")] == [
        "the text 'a\\x07' holds the control character '\\x07'",
        "modle: unknown key; did you mean model?",
        "horizon_s: must be above 0, not -1",
        "the key 'horizon_s' stands twice",
        "fleets.1.name: the name 'ada' stands twice",
        "sweep.fleets.adda.name: fleets has no item named 'adda'; did you mean ada?",
        "sweep.workload.arrivals.rate_rsp: unknown key; did you mean rate_rps?",
        "fleets has no item named 'zz'; known here: ada",
        "is no valid YAML: did not find expected node content",
    ]


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("ada ", "fleets.1.name: a name begins and ends without blanks: 'ada '"),
        ("ad\u202ea", "fleets.1.name: a name holds no invisible characters: U+202E in 'ad\\u202ea'"),
        ("ad\u200ba", "fleets.1.name: a name holds no invisible characters: U+200B in 'ad\\u200ba'"),
        ("ａda", "fleets.1.name: the name 'ａda' stands twice"),  # a full-width letter
    ],
)
def test_names_that_look_alike_are_no_names(base: Path, name: str, error: str) -> None:
    base.write_text(BASE.replace("name: l40s", f'name: "{name}"'))
    assert told(base) == [f"a.yaml:12: {error}"]


def test_a_pipe_is_not_waited_for(base: Path) -> None:
    pipe = base.with_name("pipe")
    os.mkfifo(pipe)
    assert told(pipe) == ["pipe: cannot be read: it is no regular file"]
    for trace in (CsvTrace(path=str(pipe), format="csv"), MooncakeTrace(path=str(pipe), format="mooncake")):
        with pytest.raises(TraceError, match="it is no regular file"):
            trace.read()
