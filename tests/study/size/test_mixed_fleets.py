"""Mixed fleets: the integer program against an enumeration, and the search against simulations of cheaper fleets."""

import csv
from itertools import product
from math import inf
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from typer.testing import CliRunner

from sim.catalogue.catalog import load_catalog
from sim.cli import app
from sim.routing import ByLength
from sim.scenario.reading.errors import ScenarioErrors
from sim.scenario.reading.load import load
from sim.scenario.schema import Fleet, Scenario
from sim.study.execution.cores import ProcessPool
from sim.study.size.mixed_fleets import KindLimits, cheapest_mix
from sim.study.size.search import Search, search

pytestmark = pytest.mark.slow

SCENARIO = """\
name: m
model: llama3.1-8b
workload:
  arrivals: {process: poisson, rate_rps: 6}
  lengths:
    prompt: {distribution: lognormal, mean: 1200, cv: 2.0, max: 16000}
    output: {distribution: lognormal, mean: 150, cv: 0.8, max: 800}
horizon_s: 20
warmup_s: 7
replications: 1
requests: none
slo: {ttft_s: 0.6, tpot_s: 0.05}
max_model_len: 20000
fleets:
  - name: own
    pools: [{gpu: h100-80gb-sxm}]
    cost: {acquisition: rent, quotes: {h100-80gb-sxm: 4.0}}
size:
  gpus: [l4, rtx-4090, l40s]
  tensor_parallel_sizes: [1]
  max_replicas: 4
  mixed: {length_classes: 3}
  costs:
    rented: {acquisition: rent, quotes: {l4: 0.45, rtx-4090: 0.5, l40s: 0.9}}
"""


@st.composite
def problems(draw: st.DrawFn) -> tuple[KindLimits, dict[tuple[int, int], float], float]:
    kinds, classes, most = draw(st.integers(2, 4)), draw(st.integers(2, 3)), draw(st.integers(1, 2))

    def table(low: float, high: float, zero: bool = False) -> np.ndarray:
        cell = st.floats(low, high)
        row = st.lists(cell | st.just(0.0) if zero else cell, min_size=kinds, max_size=kinds)
        rows = st.lists(row, min_size=classes, max_size=classes)
        return np.array(draw(rows))

    steps = [sorted(draw(st.lists(st.floats(1, 10), min_size=most, max_size=most))) for _ in range(kinds)]
    rates = np.array(draw(st.lists(st.floats(0.5, 4), min_size=classes, max_size=classes)))
    reached = {(u, n): draw(st.floats(0.3, 1)) for u in range(kinds) for n in range(1, most + 1)}
    families = tuple("a" if u < 2 else str(u) for u in range(kinds))
    told = KindLimits(rates, table(0.5, 5, zero=True), table(0.7, 1), tuple(map(tuple, steps)), families)
    return told, reached, draw(st.floats(0.5, 0.95))


def least_by_enumeration(kinds: KindLimits, reached: dict[tuple[int, int], float], least_good: float) -> float:
    classes, count = kinds.most_rps.shape
    least = inf
    for counts in product(*(range(len(costs) + 1) for costs in kinds.usd_per_h)):
        chosen = [u for u in range(count) if counts[u]]
        if len(chosen) != 2 or len({kinds.families[u] for u in chosen}) < 2:
            continue
        busy, good = kinds.busy[:, chosen], (kinds.shares[:, None] * kinds.good)[:, chosen]
        room = [counts[u] * reached[u, counts[u]] for u in chosen]
        per_pool = np.zeros((2, classes * 2))
        for place in range(2):
            per_pool[place, place::2] = busy[:, place]
        each = np.kron(np.eye(classes), np.ones(2))
        bounds = [(0.0, float(value > 0)) for value in kinds.most_rps[:, chosen].ravel()]
        rows, limits = np.vstack([per_pool, -good.ravel()]), np.append(room, -least_good)
        found = linprog(np.zeros(classes * 2), A_ub=rows, b_ub=limits, A_eq=each, b_eq=np.ones(classes), bounds=bounds)
        if found.status == 0:
            least = min(least, sum(kinds.usd_per_h[u][counts[u] - 1] for u in chosen))
    return least


@given(problems())
@settings(max_examples=30)
def test_no_counts_are_cheaper(problem: tuple[KindLimits, dict[tuple[int, int], float], float]) -> None:
    kinds, reached, least_good = problem
    mix = cheapest_mix(kinds, reached, least_good, 2, [])
    least = least_by_enumeration(kinds, reached, least_good)
    if mix is None:
        assert least == inf
        return
    assert mix.usd_per_h == pytest.approx(least, rel=1e-3)
    assert mix.split.sum(axis=1) == pytest.approx(1.0, abs=0.002)
    for (u, n), loaded in zip(mix.counts, mix.utilisation, strict=True):
        assert loaded <= reached[u, n] * 1.01 + 0.01  # shares are rounded
    other = cheapest_mix(kinds, reached, least_good, 2, [mix.counts])
    assert other is None or (other.counts != mix.counts and other.usd_per_h >= mix.usd_per_h - 1e-6)


def scenario_of(folder: Path, text: str = SCENARIO) -> Scenario:
    (folder / "m.yaml").write_text(text)
    return load(folder / "m.yaml", catalog=load_catalog())


def cut_at(border: int, short: dict[str, object], long: dict[str, object]) -> Fleet:
    """Prompts of up to *border* tokens to the first pool, longer ones to the second."""
    classes = [{"up_to_prompt_tokens": border, "pools": {"short": 1}}, {"pools": {"long": 1}}]
    pools = [{"name": "short", **short}, {"name": "long", **long}]
    return Fleet.model_validate({"name": "f", "pools": pools, "routing": {"policy": "by_length", "classes": classes}})


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder m.yaml stands in, with its answer in out/, and what the command printed."""
    folder = tmp_path_factory.mktemp("mixed")
    (folder / "m.yaml").write_text(SCENARIO)
    done = CliRunner().invoke(app, ["size", str(folder / "m.yaml"), "--out", str(folder / "out"), "--no-report"])
    assert done.exit_code == 0, done.stderr
    return folder, done.stdout


def test_a_mixed_fleet_wins_and_no_cheaper_one_meets(answered: tuple[Path, str]) -> None:
    folder, told = answered
    assert "the search proposes no cheaper fleet" in told
    scenario, catalog = scenario_of(folder), load_catalog()
    assert scenario.size is not None
    (winner,) = load(folder / "out/winner.yaml", catalog=catalog).fleets
    assert isinstance(winner.routing, ByLength)
    with (folder / "out/size.csv").open() as file:
        winner_usd_per_h = float(next(csv.DictReader(file))["usd_per_h"])
    unmixed = scenario.size.model_copy(update={"mixed": None})
    plain = search(scenario.model_copy(update={"size": unmixed}), catalog, folder / "out", ProcessPool(1))
    assert plain.winner is not None
    assert plain.mixed is None
    assert winner_usd_per_h < plain.winner.usd_per_h
    prices = {"l4": 0.45, "rtx-4090": 0.5, "l40s": 0.9}
    looking, meeting = Search(scenario, scenario.size, catalog, folder / "out", ProcessPool(1)), []
    cheaper = [
        (a, n, b, m)
        for (a, b), n, m in product(product(prices, repeat=2), (1, 2, 3), (1, 2, 3))
        if a != b and 0.8 * winner_usd_per_h < n * prices[a] + m * prices[b] < winner_usd_per_h - 0.001
    ]
    assert len(cheaper) > 3
    for (a, n, b, m), border in product(cheaper, (1500, 4000)):
        one = cut_at(border, {"gpu": a, "replicas": n}, {"gpu": b, "replicas": m})
        (outcome,) = looking._trials.of([one])
        meeting += [(a, n, b, m, border)] if outcome.meets else []
    assert not meeting


def test_the_winner_runs_and_the_answer_states_the_pool_of_each_prompt_length(
    answered: tuple[Path, str], tmp_path: Path
) -> None:
    folder, told = answered
    assert "Routing between its pools: by length: prompts of up to " in told
    assert "simulations of mixed fleets the search proposes no cheaper fleet; another" in told
    with (folder / "out/size.csv").open() as file:
        table = list(csv.DictReader(file))
    assert len({row["fleet"] for row in table}) == len(table)
    command = ["run", str(folder / "out/winner.yaml"), "--out", str(tmp_path / "run"), "--no-report", "--quiet"]
    assert CliRunner().invoke(app, command).exit_code == 0
    with (tmp_path / "run/summary.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert row["fleet"] == table[0]["fleet"]
    assert row["meets_slo"] == "true"
    assert float(row["cost_usd_per_month"]) == pytest.approx(float(table[0]["usd_per_month"]))


def test_every_pool_has_spares(tmp_path: Path) -> None:
    text = SCENARIO.replace("max_replicas: 4", "max_replicas: 4\n  spare_replicas: 1")
    text = (
        text.replace("length_classes: 3", "length_classes: 2")
        .replace("horizon_s: 20\nwarmup_s: 7", "horizon_s: 4\nwarmup_s: 1")
        .replace("gpus: [l4, rtx-4090, l40s]", "gpus: [l4, rtx-4090]")
    )
    found = search(scenario_of(tmp_path, text), load_catalog(), tmp_path / "out", ProcessPool(1))
    mixed = [one for one in found.candidates if one.fleet is not None and len(one.fleet.pools) > 1]
    assert mixed
    for one in mixed:
        assert one.fleet is not None
        assert sum(pool.replicas for pool in one.fleet.pools) == one.replicas + len(one.fleet.pools)
        assert "+1x (" in one.name


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("poisson, rate_rps: 6", "closed_loop, concurrency: 4", "m.yaml:22: size.mixed: needs arrivals"),
        ("length_classes: 3", "length_classes: 1", "size.mixed.length_classes: "),
        ("length_classes: 3", "most_kinds: 1", "size.mixed.most_kinds: "),
    ],
)
def test_bad_input(tmp_path: Path, old: str, new: str, line: str) -> None:
    with pytest.raises(ScenarioErrors) as error:
        scenario_of(tmp_path, SCENARIO.replace(old, new))
    assert line in str(error.value)


BOXES = """\
name: b
model: llama3.1-8b
workload:
  arrivals: {process: poisson, rate_rps: 25}
  lengths:
    prompt: {distribution: lognormal, mean: 400, cv: 1.0, max: 2000}
    output: {distribution: lognormal, mean: 120, cv: 0.8, max: 600}
horizon_s: 10
warmup_s: 4
slo: {ttft_s: 1, tpot_s: 0.04}
max_model_len: 4096
fleets:
  - name: own
    pools: [{gpu: h100-80gb-sxm}]
    cost: {acquisition: rent, quotes: {h100-80gb-sxm: 4.0}}
size:
  gpus: [rtx-4090]
  servers: {rtx-4090: workstation-2x4090}
  tensor_parallel_sizes: [1]
  mixed: {}
  costs:
    bought: {acquisition: buy, quotes: {rtx-4090: 1000, workstation-2x4090: 9000}}
    rented: {acquisition: rent, quotes: {rtx-4090: 0.25}}
site: {electricity_usd_per_kwh: 0.1, pue: 1.2, hosting: none}
finance: {method: annuity, discount_rate: 0.08, life_years: 6, residual_fraction: 0.2}
"""


def test_one_card_is_rented_beside_a_full_box(tmp_path: Path) -> None:
    found = search(scenario_of(tmp_path, BOXES), load_catalog(), tmp_path / "out", ProcessPool(1))
    for one in found.candidates:
        if one.usd_per_h is not None:
            assert (one.floor_usd_per_h or 0) < one.usd_per_h * (1 + 1e-6)
    assert found.winner is not None
    assert found.winner.fleet is not None
    pools = {pool.cost.acquisition: pool.replicas for pool in found.winner.fleet.pools if pool.cost is not None}
    assert pools == {"buy": 2, "rent": 1}
