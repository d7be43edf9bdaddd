"""Commitments, spot capacity, and the API as the alternative."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.cost import CostError, Ledger

SPOT = {"availability": 0.9, "discount": 0.575}


def rent(price=2.69, **terms):
    return {"acquisition": "rent", "quotes": {"card": price}, **terms}


def usd_per_h(plan):
    parts = {}
    for charge in plan.charges:
        parts[charge.component] = parts.get(charge.component, 0.0) + charge.units_per_h * charge.price.usd
    return parts


def test_reserved_h100_at_the_published_pair_of_prices(resolve, make_pool):
    # deploybase.ai: an H100 at 2.69 $/h on demand, 1.94 $/h reserved
    terms = {"gpus": 8, "months": 12, "discount": 1 - 1.94 / 2.69}
    assert usd_per_h(resolve(rent(commitment=terms), make_pool(gpus=8))) == {"rental_reserved": pytest.approx(15.52)}


def test_a_commitment_is_paid_whether_used_or_not(resolve, make_pool):
    terms = {"gpus": 8, "months": 12, "discount": 0.25}
    half = resolve(rent(2.0, commitment=terms), make_pool(gpus=4))
    assert usd_per_h(half) == {"rental_reserved": pytest.approx(6.0), "rental_unused": pytest.approx(6.0)}
    more = resolve(rent(2.0, commitment=terms), make_pool(gpus=4, replicas=3))
    assert usd_per_h(more) == {"rental_reserved": pytest.approx(12.0), "rental": pytest.approx(8.0)}
    assert any("committed for 12 months" in note for note in more.notes)


@given(st.integers(1, 64), st.integers(1, 64), st.floats(0, 1))
def test_a_commitment_never_costs_less_than_its_own_hours(resolve, make_pool, used, committed, discount):
    terms = {"gpus": committed, "months": 1, "discount": discount}
    total = sum(usd_per_h(resolve(rent(1.0, commitment=terms), make_pool(gpus=1, replicas=used))).values())
    assert total == pytest.approx(committed * (1 - discount) + max(0, used - committed))


def test_committed_instances_are_whole(resolve, make_pool):
    cost = {
        "acquisition": "rent",
        "quotes": {"card": {"price": 240, "unit": "instance_day", "includes_gpus": 8}},
        "commitment": {"gpus": 12, "months": 1, "discount": 0.5},
    }
    parts = usd_per_h(resolve(cost, make_pool(gpus=8)))
    assert parts == {"rental_reserved": pytest.approx(5.0), "rental_unused": pytest.approx(5.0)}


def test_spot_capacity_makes_up_for_its_interruptions(resolve, make_pool):
    # the rule of fleet-sim and others: N serving machines at availability A need N / A
    parts = usd_per_h(resolve(rent(2.0, spot=SPOT), make_pool(gpus=9)))
    assert parts["rental_spot"] == pytest.approx(9 * 0.85)
    assert sum(parts.values()) == pytest.approx(10 * 0.85)


def test_spot_tops_up_a_commitment(resolve, make_pool):
    cost = rent(2.0, spot={"availability": 0.5}, commitment={"gpus": 2, "months": 1, "discount": 0.5})
    parts = usd_per_h(resolve(cost, make_pool(gpus=4)))
    assert parts == {"rental_reserved": 2.0, "rental_spot": 4.0, "spot_interruptions": 4.0}


def test_a_commitment_for_two_kinds_of_gpu_is_refused(resolve, make_pool):
    cost = {
        "acquisition": "rent",
        "quotes": {"card": 1, "other": 2},
        "commitment": {"gpus": 2, "months": 1, "discount": 0.5},
    }
    with pytest.raises(CostError, match="one kind of GPU"):
        resolve(cost, make_pool("a"), make_pool("b", gpu="other"))


def test_unused_commitment_is_in_the_ledger(resolve, make_pool, make_interval):
    plan = resolve(rent(2.0, commitment={"gpus": 8, "months": 1, "discount": 0}), make_pool(gpus=4))
    ledger = Ledger.of([make_interval(0, 3600, busy=0.3)], plan, 0, 3600)
    assert ledger.by_component() == {"rental_reserved": 8_000_000_000, "rental_unused": 8_000_000_000}


def test_gpt_3_5_turbo_at_a_fifth_of_a_cent_per_thousand_tokens(resolve, make_pool):
    api = resolve(rent(), make_pool(), api={"input": "gpt/read", "output": "gpt/write"}).api
    assert api.usd(600, 0, 400) == pytest.approx(0.002)
    assert set(resolve(rent(), make_pool(), api={"input": "gpt/read", "output": 4}).values) == {"gpt/read"}


def test_cached_prompts_are_cheaper(resolve, make_pool):
    # DeepSeek's list price of 2025: 0.27 $ per million input tokens, 0.07 $ on a cache hit, 1.10 $ output
    api = resolve(rent(), make_pool(), api={"input": 0.27, "output": 1.10, "cached_discount": 1 - 0.07 / 0.27}).api
    assert api.usd(1e6, 0, 0) == pytest.approx(0.27)
    assert api.usd(0, 1e6, 0) == pytest.approx(0.07)
    assert api.usd(1e6, 1e6, 1e6) == pytest.approx(1.44)


@pytest.mark.parametrize(
    ("api", "key", "text"),
    [
        ({"input": "gpt/write", "output": 1}, "api.input", "million_input_tokens is needed"),
        ({"input": "gpt/raed", "output": 1}, "api.input", "did you mean read"),
        ({"input": 1, "output": "claude/write"}, "api.output", "data/prices/claude.yaml"),
        ({"input": {"price": 1, "currency": "RMB"}, "output": 1}, "api.input", "RMB"),
    ],
)
def test_an_api_price_that_is_missing_or_for_something_else_is_an_error(resolve, make_pool, api, key, text):
    with pytest.raises(CostError) as error:
        resolve(rent(), make_pool(), api=api)
    [problem] = error.value.problems
    assert problem.path == key
    assert text in problem.text
