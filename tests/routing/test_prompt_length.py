"""Prompts by length to pools of their own: the router against a naive one, whole fleets, pools with their own costs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from small_scenario import ran

from sim.case.result import CaseResult
from sim.catalogue.catalog import load_catalog
from sim.records import Request
from sim.routing import ByLength
from sim.scenario.reading.errors import ScenarioErrors
from sim.units import NANO_PER_USD

CATALOG = load_catalog()
SCENARIO = """\
name: mixed
model: llama3.1-8b
workload:
  arrivals: {process: poisson, rate_rps: 3}
  lengths:
    prompt: {distribution: lognormal, mean: 700, cv: 1.5, max: 6000}
    output: {distribution: geometric, mean: 80, max: 600}
horizon_s: 300
warmup_s: 0
fleets:
  - name: both
    pools:
      - {gpu: rtx-4090, replicas: 3, server: workstation-4x4090, cost: {acquisition: buy}}
      - {gpu: l40s, name: large, replicas: 2, cost: {acquisition: rent, quotes: {l40s: 0.9}}}
    routing:
      policy: by_length
      classes:
        - {up_to_prompt_tokens: 400, pools: {rtx-4090: 1}}
        - {up_to_prompt_tokens: 1500, pools: {rtx-4090: 1, large: 3}}
        - {pools: {large: 1}}
site: {electricity_usd_per_kwh: 0.2, pue: 1.5, hosting: none}
finance: {method: annuity, discount_rate: 0.08, life_years: 4, residual_fraction: 0.2}
"""


def run(folder: Path, text: str = SCENARIO) -> CaseResult:
    return ran(folder, text)


def router(classes: list[dict[str, Any]], pools: list[str]) -> Any:
    spec = ByLength.model_validate({"policy": "by_length", "classes": classes})
    return spec.start(pools, np.random.default_rng(0))


def prompt(tokens: int) -> Request:
    return Request(0, 0.0, tokens, 1)


@pytest.mark.slow
def test_each_request_goes_to_the_pools_of_its_length_class(tmp_path: Path) -> None:
    result = run(tmp_path)
    requests = result.log.requests
    at = {0: [], 1: []}
    for one in requests:
        assert one.finished_s == one.finished_s
        at[result.log.pool_of_replica[one.replica]].append(one.prompt_tokens)
    assert max(at[0]) <= 1500
    assert min(at[1]) > 400
    between = [sum(400 < tokens <= 1500 for tokens in at[pool]) for pool in (0, 1)]
    # one to three, never out of step by more than a request
    assert abs(3 * between[0] - between[1]) <= 3
    assert len({one.replica for one in requests}) == 5


@pytest.mark.slow
@given(
    pools=st.lists(st.sampled_from("abc"), min_size=3, max_size=9).filter(lambda names: set(names) == set("abc")),
    limits=st.tuples(st.integers(1, 50), st.integers(51, 99)),
    shares=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    events=st.lists(st.tuples(st.integers(1, 150), st.integers(0, 30)), max_size=80),
)
@settings(max_examples=60)
def test_the_router_against_a_naive_one(
    pools: list[str], limits: tuple[int, int], shares: tuple[int, int], events: list[tuple[int, int]]
) -> None:
    split = {"b": shares[0], "c": shares[1]}
    bounded = [
        {"up_to_prompt_tokens": limits[0], "pools": {"a": 1}},
        {"up_to_prompt_tokens": limits[1], "pools": split},
    ]
    running = router([*bounded, {"pools": {"c": 2}}], pools)
    outstanding, sent, leaving = [0] * len(pools), {"b": 0, "c": 0}, []
    for clock, (tokens, stay) in enumerate(events):
        for due, replica in [one for one in leaving if one[0] <= clock]:
            running.left(replica, prompt(1))
            outstanding[replica] -= 1
            leaving.remove((due, replica))
        chosen = running.choose(prompt(tokens))
        pool = pools[chosen]
        if tokens <= limits[0]:
            assert pool == "a"
        elif tokens > limits[1]:
            assert pool == "c"
        else:
            sent[pool] += 1
            total = sum(sent.values())
            for name, share in split.items():
                assert abs(sent[name] - total * share / sum(shares)) <= 1
        assert outstanding[chosen] == min(count for count, name in zip(outstanding, pools, strict=True) if name == pool)
        running.joined(chosen, prompt(tokens))
        outstanding[chosen] += 1
        leaving.append((clock + 1 + stay, chosen))


def test_pools_without_serving_replicas_are_left_out() -> None:
    classes = [{"up_to_prompt_tokens": 10, "pools": {"a": 1}}, {"pools": {"a": 1, "b": 1}}]
    running = router(classes, ["b", "b"])
    assert running.choose(prompt(5)) == -1
    assert running.choose(prompt(11)) in (0, 1)


@pytest.mark.slow
def test_requests_wait_while_their_pool_is_switched_off(tmp_path: Path) -> None:
    late = 'schedule: {replicas: {"00:00": 0, "00:02": 2}, starting_s: 10}'
    text = SCENARIO.replace("name: large, replicas: 2", f"name: large, replicas: 2, {late}")
    result = run(tmp_path, text.replace("name: mixed", "name: mixed\nstarts_at: 2026-07-01T00:00:00"))
    long = [one for one in result.log.requests if one.prompt_tokens > 1500]
    assert min(one.started_s for one in long) >= 130
    assert min(one.arrived_s for one in long) < 60
    assert all(result.log.pool_of_replica[one.replica] == 1 for one in long)
    assert any(one.started_s < 60 for one in result.log.requests if 400 < one.prompt_tokens <= 1500)


@pytest.mark.parametrize(
    ("classes", "text"),
    [
        ([{"up_to_prompt_tokens": 5, "pools": {"a": 1}}], "the last one must have no"),
        ([{"pools": {"a": 1}}, {"pools": {"a": 1}}], "must be there and rise"),
        ([*2 * [{"up_to_prompt_tokens": 9, "pools": {"a": 1}}], {"pools": {"a": 1}}], "must be there and rise"),
        ([{"pools": {"a": 0}}], "greater than 0"),
        ([{"pools": {}}], "at least 1"),
    ],
)  # fmt: skip
def test_invalid_length_classes_are_refused(classes: list[dict[str, Any]], text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        ByLength.model_validate({"policy": "by_length", "classes": classes})


@pytest.mark.slow
def test_each_pool_pays_in_its_own_way(tmp_path: Path) -> None:
    result = run(tmp_path)
    ledger = result.ledger
    assert ledger is not None
    paid = {(row.pool, row.component) for row in ledger.rows}
    assert paid == {("rtx-4090", name) for name in ("gpu_capital", "server_capital", "energy")} | {("large", "rental")}
    rent = sum(row.amount_nano_usd for row in ledger.rows if row.component == "rental") / NANO_PER_USD
    assert rent == pytest.approx(2 * 0.9 * 300 / 3600)
    assert {row.source for row in ledger.rows if row.pool == "large"} == {"scenario: pools.1.cost.quotes.l40s"}


@pytest.mark.slow
def test_pools_with_the_same_terms_share_servers(tmp_path: Path) -> None:
    def capital(first: str, second: str) -> float:
        text = SCENARIO.replace("replicas: 3, server: workstation-4x4090, cost: {acquisition: buy}", first)
        text = text.replace(
            "gpu: l40s, name: large, replicas: 2, cost: {acquisition: rent, quotes: {l40s: 0.9}}", second
        )
        ledger = run(tmp_path, text).ledger
        assert ledger is not None
        return sum(row.amount_nano_usd for row in ledger.rows if row.component == "server_capital") / NANO_PER_USD

    small = "name: rtx-4090, replicas: 2, server: workstation-4x4090, cost: {acquisition: buy}"
    other = "gpu: rtx-4090, name: large, replicas: 2, server: workstation-4x4090, cost: {acquisition: buy"
    together = capital(small, f"{other}}}")
    apart = capital(small, f"{other}, quotes: {{rtx-4090: 1600}}}}")
    assert apart == pytest.approx(2 * together)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("{large: 1}}", "{lage: 1}}", "s.yaml:20: fleets.0.routing.classes.2.pools.lage: there is no pool 'lage'"),
        ("        - {pools: {large: 1}}", "        - {pools: {rtx-4090: 1}}", None),
        ("name: large,", "name: largest,", "no class is routed to the pool largest"),
        ("quotes: {l40s: 0.9}", "quotes: {l4000: 0.9}", "fleets.0.pools.1.cost.quotes.l4000: unknown gpu or server"),
        ("{acquisition: rent, quotes: {l40s: 0.9}}", "null", "s.yaml:14: fleets.0.pools.1.cost: is missing: other"),
        ("quotes: {l40s: 0.9}", "price: l40s/nobody", "s.yaml:14: fleets.0.pools.1.cost.price: "),
        (", quotes: {l40s: 0.9}", "", "s.yaml:14: fleets.0.pools.1.cost"),
        (SCENARIO.splitlines()[-1], "", "finance: buying needs finance"),
    ],
)
def test_bad_input(tmp_path: Path, old: str, new: str, line: str | None) -> None:
    assert SCENARIO.count(old) == 1
    text = SCENARIO.replace(old, new)
    if line is None:
        assert run(tmp_path, text).log.requests
        return
    with pytest.raises(ScenarioErrors) as error:
        run(tmp_path, text)
    assert line in str(error.value)
