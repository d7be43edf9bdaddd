"""Commitments, spot capacity, and the API as the alternative.

What is agreed once, such as a commitment, is not multiplied by the number of units.
"""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from sim.catalogue.catalog import load_catalog
from sim.cost.cash_flow import flows_of
from sim.cost.charge import amount_usd
from sim.cost.hardware import PoolFacts
from sim.cost.ledger import Ledger, RequestUse, request_costs
from sim.cost.metering import MeteredWindow, combined_window
from sim.cost.prices import CostError
from sim.cost.rental import Commitment, Rent
from sim.scenario.resolving.resolve import resolve_fleet
from sim.scenario.resolving.terms import FleetTerms
from sim.scenario.schema import Scenario
from sim.study.breakeven_costs import months, opex_usd

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
    assert usd_per_h(half) == {"rental_reserved": pytest.approx(6.0), "unused commitment": pytest.approx(6.0)}
    more = resolve(rent(2.0, commitment=terms), make_pool(gpus=4, replicas=3))
    assert usd_per_h(more) == {"rental_reserved": pytest.approx(12.0), "rental": pytest.approx(8.0)}
    assert any("months: 12" in note for note in more.notes)


@pytest.mark.slow
@given(st.integers(1, 64), st.integers(1, 64), st.floats(0, 1))
def test_a_commitment_never_costs_less_than_its_own_hours(resolve, make_pool, used, committed, discount):
    terms = {"gpus": committed, "months": 1, "discount": discount}
    total = sum(usd_per_h(resolve(rent(1.0, commitment=terms), make_pool(gpus=1, replicas=used))).values())
    assert total == pytest.approx(committed * (1 - discount) + max(0, used - committed))


@pytest.mark.parametrize(("upfront", "share"), [("none", 0.0), ("partial", 0.5), ("all", 1.0)])
def test_the_three_options_of_a_commitment_pay_the_same_sum(resolve, make_pool, upfront, share):
    # eight cards at 2 $/h less 25 % for a year: 12 * 730 h * 12 $/h
    terms = {"gpus": 8, "months": 12, "discount": 0.25, "upfront": upfront}
    plan = resolve(rent(2.0, commitment=terms), make_pool(gpus=8))
    found = flows_of(plan, MeteredWindow(1.0))
    path = months(found, plan.finance, 0.0, 24)
    total = 12 * 730 * 12
    assert path[0].cash_usd == pytest.approx(share * total)
    paid = [path[month].cash_usd - path[month - 1].cash_usd for month in (1, 11, 12, 13)]
    monthly = (1 - share) * total / 12
    assert paid == pytest.approx([monthly, monthly, monthly + share * total, monthly])
    assert path[24].cash_usd == pytest.approx(2 * total)
    assert usd_per_h(plan).get("prepayment", 0.0) == pytest.approx(0, abs=1e-9)


def test_a_ramp_commits_more_from_month_to_month(resolve, make_pool):
    # twelve cards: eight are committed for half a year and sixteen then, at 80 % of the price from month 10
    terms = {"gpus": 8, "months": 12, "discount": 0.25, "ramp": {"gpus": {7: 16}, "price": {10: 0.8}}}
    plan = resolve(rent(2.0, commitment=terms), make_pool(gpus=4, replicas=3))
    agreed, later = 1.5, 1.5 * 0.8
    reserved = (6 * 8 + 3 * 12) * agreed + 3 * 12 * later
    by_hand = {
        "rental_reserved": reserved / 12,
        "unused commitment": (3 * agreed + 3 * later) * 4 / 12,
        "rental": 6 * 4 * 2.0 / 12,
    }
    assert usd_per_h(plan) == pytest.approx(by_hand)
    found = flows_of(plan, MeteredWindow(1.0))
    costs = [opex_usd(found, plan.finance, month) / 730 for month in (1, 6, 7, 10, 12, 13)]
    assert costs == pytest.approx([12 + 8, 12 + 8, 24, 19.2, 19.2, 12 + 8])


def test_a_ramp_is_read_back_from_json():
    # points of a sweep and the candidates of breakeven are validated again from JSON, whose keys are text
    terms = Commitment.model_validate({"gpus": 8, "months": 12, "discount": 0.2, "ramp": {"gpus": {7: 16}}})
    assert Commitment.model_validate(terms.model_dump(mode="json", exclude_unset=True)) == terms


@pytest.mark.slow
@given(st.integers(1, 16), st.floats(1, 20_000))
def test_take_or_pay_is_the_minimum_or_the_use(resolve, make_pool, used, hours):
    plan = resolve(rent(1.5, take_or_pay={"gpu_hours_per_month": hours}), make_pool(gpus=1, replicas=used))
    assert 730 * sum(usd_per_h(plan).values()) == pytest.approx(1.5 * max(hours, 730 * used))


@pytest.mark.parametrize("hours", [100.0, 800.0])
def test_take_or_pay_counts_the_hours_that_run(resolve, make_pool, make_interval, hours):
    pool = replace(make_pool(gpus=2, replicas=1), scheduled=True)
    plan = resolve(rent(1.5, take_or_pay={"gpu_hours_per_month": hours}), pool)
    # two cards run for a quarter of the window: 0.5 GPU-hours an hour
    on, off = make_interval(0, 3600, gpus=2), make_interval(3600, 14400, gpus=2)
    off.state = "off"
    window = MeteredWindow.of([on, off], 0, 14400)
    paid = sum(amount_usd(charge, window) for charge in plan.charges)
    assert paid == pytest.approx(1.5 * max(2.0, 4 * hours / 730))


@pytest.mark.parametrize(
    ("terms", "what"),
    [
        ({"commitment": {"gpus": 1, "months": 12, "discount": 0, "upfront_share": 0.4}}, "upfront_share is for"),
        ({"commitment": {"gpus": 1, "months": 1.5, "discount": 0, "upfront": "all"}}, "need whole months"),
        ({"commitment": {"gpus": 1, "months": 12, "discount": 0, "ramp": {"gpus": {13: 2}}}}, "within months 2 to 12"),
        ({"commitment": {"gpus": 1, "months": 12, "discount": 0, "ramp": {}}}, "ramp is empty"),
        ({"take_or_pay": {"gpu_hours_per_month": 1}, "spot": SPOT}, "remove spot"),
    ],
)
def test_contracts_that_cannot_be_are_refused(terms, what):
    with pytest.raises(ValidationError, match=what):
        Rent.model_validate(rent(**terms))


def test_committed_instances_are_whole(resolve, make_pool):
    cost = {
        "acquisition": "rent",
        "quotes": {"card": {"price": 240, "unit": "instance_day", "includes_gpus": 8}},
        "commitment": {"gpus": 12, "months": 1, "discount": 0.5},
    }
    parts = usd_per_h(resolve(cost, make_pool(gpus=8)))
    assert parts == {"rental_reserved": pytest.approx(5.0), "unused commitment": pytest.approx(5.0)}


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


def test_no_request_pays_for_an_unused_commitment(resolve, make_pool, make_interval):
    # 8 GPUs reserved at 1 $/h each, 2 of them in use and busy for 55 % of the hour: 6 $ are unused, 0.90 $ idle
    plan = resolve(rent(1.0, commitment={"gpus": 8, "months": 1, "discount": 0}), make_pool(gpus=2))
    ledger = Ledger.of([make_interval(0, 3600, gpus=2, busy=0.55, prefill=0.2)], plan, 0, 3600)
    assert ledger.by_component() == {"rental_reserved": 2_000_000_000, "unused commitment": 6_000_000_000}
    assert ledger.by_phase(["unused commitment"]) == {"unused commitment": 6_000_000_000}
    assert ledger.by_phase() == {
        **{"prefill": 220_000_000, "decode": 880_000_000, "recompute": 0, "idle": 900_000_000},
        **{"unused commitment": 6_000_000_000},
    }
    costs = request_costs(ledger.rows, [RequestUse("p", 100.0, 300.0, 0.0), RequestUse("p", 50.0, 20.0, 0.0)])
    assert sum(costs) == 1_100_000_000


@pytest.mark.parametrize(
    ("terms", "components", "phases"),
    [
        ({}, {"rental": 10.0}, {"idle": 1.25, "decode": 1.25, "unused": 7.5}),
        ({"share": True}, {"rental": 2.5}, {"idle": 1.25, "decode": 1.25}),
        (
            {"commitment": {"gpus": 8, "months": 1, "discount": 0.5}},
            {"rental_reserved": 1.25, "unused commitment": 3.75},
            {"idle": 0.625, "decode": 0.625, "unused commitment": 3.75},
        ),
    ],
)
def test_gpus_of_an_instance_that_no_replica_uses_have_a_phase(
    resolve, make_pool, make_interval, terms, components, phases
):
    # an instance of 8 GPUs at 10 $/h, 2 of which serve for half of the hour
    quotes = {"card": {"price": 10, "unit": "instance_hour", "includes_gpus": 8}}
    plan = resolve({"acquisition": "rent", "quotes": quotes, **terms}, make_pool(gpus=2))
    ledger = Ledger.of([make_interval(0, 3600, gpus=2, busy=0.5)], plan, 0, 3600)
    assert ledger.by_component() == {name: round(1e9 * usd) for name, usd in components.items()}
    booked = {name: amount for name, amount in ledger.by_phase().items() if amount}
    assert booked == {name: round(1e9 * usd) for name, usd in phases.items()}


@pytest.mark.slow
@given(
    used=st.integers(1, 12),
    committed=st.integers(0, 24),
    busy=st.floats(0, 1),
    by_instance=st.booleans(),
)
def test_rows_of_unused_hardware_sum_to_the_bill(resolve, make_pool, make_interval, used, committed, busy, by_instance):
    quote = {"price": 7.3, "unit": "instance_hour", "includes_gpus": 8} if by_instance else 0.913
    terms = {"commitment": {"gpus": committed, "months": 1, "discount": 0.3}} if committed else {}
    plan = resolve(rent(quote, **terms), make_pool(gpus=used))
    ledger = Ledger.of([make_interval(0, 3600, gpus=used, busy=busy)], plan, 0, 3600)
    assert ledger.total_nano_usd == sum(ledger.by_component().values()) == sum(ledger.by_phase().values())
    assert ledger.total_nano_usd == pytest.approx(1e9 * sum(usd_per_h(plan).values()), abs=len(plan.charges))
    worked = sum(ledger.by_phase().get(phase, 0) for phase in ("prefill", "decode", "recompute"))
    rented = -(-used // 8) * 8 if by_instance else used
    each_usd = quote["price"] / 8 if by_instance else quote
    price = [0.7 * each_usd if place < committed else each_usd for place in range(rented)]
    if not by_instance:
        assert worked == pytest.approx(1e9 * busy * sum(price), abs=10)
    assert worked <= 1e9 * busy * sum(sorted(price)[-used:]) + 10


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


def test_time_that_a_landlord_rounds_up_is_idle(resolve, make_pool, make_interval):
    # a replica of 4 GPUs at 1 $/h works for ten minutes and is switched off; the landlord bills the hour
    pool = replace(make_pool(), scheduled=True)
    plan = resolve(rent(1.0, billing={"granularity_s": 3600}), pool)
    off = replace(make_interval(600, 1800), state="off")
    ledger = Ledger.of([make_interval(0, 600, busy=1.0), off], plan, 0, 1800)
    found = {phase: amount for phase, amount in ledger.by_phase().items() if amount}
    assert found == {"decode": 666_666_667, "idle": 3_333_333_333}
    on = Ledger.of([make_interval(0, 600, busy=1.0)], plan, 0, 600)
    assert on.by_phase() == {"prefill": 0, "decode": 666_666_667, "recompute": 0, "idle": 0}


def switched_ledger(resolve, make_interval, levels, pools=1, **terms):
    """Bill of replicas of 2 GPUs at 1 $/h, *levels* of which run in each of the hours."""
    most = max(levels)
    names = [f"p{number}" for number in range(pools)]
    facts = [
        PoolFacts(name, "card", 2, most - most // pools * (pools - 1) if index == 0 else most // pools, scheduled=True)
        for index, name in enumerate(names)
    ]
    plan = resolve(rent(1.0, **terms), *facts)
    intervals = []
    for hour, level in enumerate(levels):
        for replica in range(most):
            one = make_interval(3600 * hour, 3600 * (hour + 1), gpus=2, busy=0.5 if replica < level else 0.0)
            pool = names[0] if replica < facts[0].replicas else names[1]
            state = "serving" if replica < level else "off"
            intervals.append(replace(one, pool=pool, replica=replica, state=state))
    return Ledger.of(intervals, plan, 0, 3600 * len(levels))


def test_a_commitment_covers_the_base_of_switched_replicas(resolve, make_interval):
    # 2, 6 and 8 GPUs run for an hour each; 6 are reserved at half the price
    ledger = switched_ledger(resolve, make_interval, [1, 3, 4], commitment={"gpus": 6, "months": 12, "discount": 0.5})
    assert ledger.by_component() == {
        "rental_reserved": 7_000_000_000,
        "unused commitment": 2_000_000_000,
        "rental": 2_000_000_000,
    }
    hourly = {}
    for row in ledger.rows:
        key = row.component, row.start_s / 3600
        hourly[key] = hourly.get(key, 0) + row.amount_nano_usd
    assert {key: usd / 1e9 for key, usd in hourly.items() if usd} == pytest.approx(
        {
            ("rental_reserved", 0): 1.0,
            ("rental_reserved", 1): 3.0,
            ("rental_reserved", 2): 3.0,
            ("unused commitment", 0): 2.0,
            ("rental", 2): 2.0,
        }
    )


def test_a_commitment_is_unused_as_a_whole_while_nothing_runs(resolve, make_interval):
    ledger = switched_ledger(resolve, make_interval, [0, 2], commitment={"gpus": 4, "months": 12, "discount": 0.5})
    assert ledger.by_component() == {"rental_reserved": 2_000_000_000, "unused commitment": 2_000_000_000}


def test_spot_capacity_tops_up_the_base_of_switched_replicas(resolve, make_interval):
    terms = {"commitment": {"gpus": 4, "months": 12, "discount": 0.5}, "spot": {"availability": 0.5, "discount": 0.6}}
    parts = switched_ledger(resolve, make_interval, [1, 3], **terms).by_component()
    assert {name: usd / 1e9 for name, usd in parts.items()} == pytest.approx(
        {"rental_reserved": 3.0, "unused commitment": 1.0, "rental_spot": 0.8, "spot_interruptions": 0.8}
    )


@pytest.mark.slow
@given(
    levels=st.lists(st.integers(1, 5), min_size=1, max_size=6),
    committed=st.integers(1, 12),
    discount=st.floats(0, 1),
    pools=st.integers(1, 2),
)
def test_a_commitment_is_paid_in_full_and_the_rest_by_the_hour(
    resolve, make_interval, levels, committed, discount, pools
):
    pools = min(pools, max(levels))
    terms = {"commitment": {"gpus": committed, "months": 12, "discount": discount}}
    ledger = switched_ledger(resolve, make_interval, levels, pools, **terms)
    parts = ledger.by_component()
    whole = committed * (1 - discount) * len(levels)
    beyond = sum(max(0, 2 * level - committed) for level in levels)
    assert (parts["rental_reserved"] + parts.get("unused commitment", 0)) / 1e9 == pytest.approx(whole, abs=1e-8)
    assert parts.get("rental", 0) / 1e9 == pytest.approx(beyond, abs=1e-8)
    assert ledger.total_nano_usd == sum(parts.values()) == sum(ledger.by_phase().values())
    assert ledger.by_phase().get("unused commitment", 0) == parts.get("unused commitment", 0)


@pytest.mark.slow
@given(levels=st.lists(st.integers(1, 5), min_size=1, max_size=6), granularity_s=st.sampled_from([1, 5000, 86400]))
def test_a_base_that_always_runs_at_no_discount_changes_no_bill(resolve, make_interval, levels, granularity_s):
    billing = {"billing": {"granularity_s": granularity_s}}
    base = {"commitment": {"gpus": 2 * min(levels), "months": 12, "discount": 0}}
    with_base = switched_ledger(resolve, make_interval, levels, **billing, **base)
    without = switched_ledger(resolve, make_interval, levels, **billing)
    assert with_base.total_nano_usd == pytest.approx(without.total_nano_usd, abs=4)
    assert with_base.by_component().get("unused commitment", 0) == 0


def test_a_started_billing_step_within_the_commitment_costs_nothing_more(resolve, make_interval):
    # replicas stop after an hour and after two; the landlord bills five-hour steps beyond 4 reserved GPUs
    terms = {"commitment": {"gpus": 4, "months": 1, "discount": 0}, "billing": {"granularity_s": 5 * 3600}}
    parts = switched_ledger(resolve, make_interval, [3, 2, 1], **terms).by_component()
    # the third replica ran for one hour and pays for five; the second stops within the commitment
    assert parts["rental"] == pytest.approx(10e9)
    assert parts["unused commitment"] == 2_000_000_000


@pytest.mark.parametrize(
    ("terms", "least", "usd"),
    [
        ({}, 0, 0.0),
        ({}, 2, 2 * 2 * 1.0),
        ({"commitment": {"gpus": 6, "months": 1, "discount": 0.5}}, 0, 3.0),
    ],
)
def test_the_least_rent_of_switched_replicas(resolve, terms, least, usd):
    # two pools of replicas of 2 GPUs at 1 $/h, in each of which half of *least* replicas always run
    pools = [PoolFacts(name, "card", 2, 4, scheduled=True, least_replicas=least // 2) for name in "ab"]
    charges = resolve(rent(1.0, **terms), *pools).charges
    assert sum(charge.least_usd_per_h(0.0) for charge in charges) == pytest.approx(usd)


def test_a_pair_of_windows_is_billed_as_each_of_them(resolve, make_interval):
    # hour 0: 2 GPUs of 4 reserved; hour 5: 6 GPUs, of which one replica stops after half an hour
    pool = PoolFacts("p", "card", 2, 3, scheduled=True)
    plan = resolve(rent(1.0, commitment={"gpus": 4, "months": 1, "discount": 0.5}), pool)
    first = [make_interval(0, 3600, gpus=2, replica=n) for n in range(3)]
    first = [one if one.replica == 0 else replace(one, state="off") for one in first]
    later = [make_interval(18_000, 21_600, gpus=2, replica=n) for n in range(2)]
    later += [make_interval(18_000, 19_800, gpus=2, replica=2)]
    later += [replace(make_interval(19_800, 21_600, gpus=2, replica=2), state="off")]
    windows = [MeteredWindow.of(first, 0, 3600), MeteredWindow.of(later, 18_000, 21_600)]
    both = combined_window([combined_window(windows[:1]), windows[1]])
    assert both.hours == 2
    assert both.parts == tuple(windows)
    assert [stop.at_s for stop in both.stops["p"]] == [19_800]
    paid = {}
    for charge in plan.charges:
        paid[charge.component] = paid.get(charge.component, 0.0) + amount_usd(charge, both)
    reserved = {"rental_reserved": 0.5 * (2 + 4), "unused commitment": 0.5 * 2}
    assert paid == pytest.approx({**reserved, "rental": 2 * 0.5})


CATALOG = load_catalog()
BASIS: dict[str, Any] = {
    "name": "reserved",
    "model": "llama3.1-8b",
    "workload": {
        "arrivals": {"process": "poisson", "rate_rps": 2},
        "lengths": {
            "prompt": {"distribution": "fixed", "value": 9},
            "output": {"distribution": "fixed", "value": 9},
        },
    },
    "horizon_s": 60,
    "slo": {"ttft_s": 1},
}
COMMITTED = {
    "acquisition": "rent",
    "quotes": {"rtx-4090": 1.0},
    "commitment": {"gpus": 4, "months": 12, "discount": 0.5},
}


def committed_usd_per_h(cost: dict[str, Any], units: int, **site: Any) -> dict[str, float]:
    pool = {"gpu": "rtx-4090", "server": "workstation-2x4090", "replicas": 2}
    scenario = Scenario.model_validate(BASIS | {"fleets": [{"name": "a", "pools": [pool], "cost": cost}]} | site)
    fleet = scenario.fleets[0]
    machines = resolve_fleet(scenario, fleet, CATALOG).machines
    costs = FleetTerms.of(scenario, fleet).costs(machines, CATALOG, units)
    assert costs is not None
    return {one.component: one.least_usd_per_h(0.0) for one in costs.charges}


@pytest.mark.parametrize(
    ("units", "bill"),
    [
        (1, {"rental_reserved": 1.0, "unused commitment": 1.0}),
        (2, {"rental_reserved": 2.0}),
        (3, {"rental_reserved": 2.0, "rental": 2.0}),
        (5, {"rental_reserved": 2.0, "rental": 6.0}),
    ],
)
def test_four_reserved_cards_are_four_whatever_the_units(units: int, bill: dict[str, float]) -> None:
    # units of 2 cards at 1 $/h; 4 cards are reserved at half of it
    assert committed_usd_per_h(COMMITTED, units) == pytest.approx(bill)


def test_units_share_racks_but_not_servers() -> None:
    hosting = {"per": "rack", "usd_per_month": 730, "power_limit_kw": 50, "servers_per_rack": 4, "count": "whole"}
    site = {
        "site": {"electricity_usd_per_kwh": 0, "pue": 1, "hosting": hosting},
        "finance": {"method": "straight_line", "life_years": 1},
    }
    one, three, five = (committed_usd_per_h({"acquisition": "buy"}, units, **site) for units in (1, 3, 5))
    assert (one["hosting"], three["hosting"], five["hosting"]) == pytest.approx((1, 1, 2))
    assert three["server_capital"] == pytest.approx(3 * one["server_capital"])
    assert five["gpu_capital"] == pytest.approx(5 * one["gpu_capital"])
