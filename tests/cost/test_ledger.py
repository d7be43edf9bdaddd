"""The ledger: exact sums, phases, the parts of requests, and what splits among them."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.cost.ledger import OPTIONAL_PHASES, Ledger, RequestUse, request_costs, split
from sim.cost.metering import PHASES

BUY = {"acquisition": "buy"}
SITE = {
    "electricity_usd_per_kwh": 0.12,
    "pue": 1.5,
    "hosting": {"per": "kw_month", "usd": 250, "kw": "nameplate", "electricity": "metered"},
}
ANNUITY = {"method": "annuity", "discount_rate": 0.08, "life_years": 4, "residual_fraction": 0.2}
ARTICLE_SITE = {
    "electricity_usd_per_kwh": 0.10,
    "pue": 1.0,
    "hosting": {
        "per": "rack",
        "usd_per_month": 1500,
        "power_limit_kw": 20,
        "servers_per_rack": 2,
        "count": "fraction",
        "electricity": "metered",
    },
}

shares = st.floats(0, 1)


@st.composite
def readings(draw):
    """Two pools of up to three replicas between common meter edges: (start, end, pool, replica, usage)."""
    start_s = draw(st.floats(0, 1e5))
    steps = draw(st.lists(st.floats(1, 1e4), min_size=1, max_size=6))
    edges = [start_s + sum(steps[:index]) for index in range(len(steps) + 1)]
    usage = st.fixed_dictionaries({"busy": shares, "prefill": shares, "wall_w": st.floats(0, 1e4)})
    return edges, [
        (edge, after, pool, replica, draw(usage) | {"recompute": draw(st.floats(0, 0.2))})
        for pool, replicas in (("a", draw(st.integers(1, 3))), ("b", draw(st.integers(1, 3))))
        for replica in range(replicas)
        for edge, after in pairwise(edges)
    ]


@pytest.mark.slow
@given(readings())
def test_rows_sum_exactly_and_tile_the_window(resolve, make_pool, make_interval, drawn):
    edges, usage = drawn
    intervals = [make_interval(*at, pool=pool, replica=replica, **use) for *at, pool, replica, use in usage]
    plan = resolve(BUY, make_pool("a"), make_pool("b", gpus=3), site=SITE, finance=ANNUITY)
    ledger = Ledger.of(intervals, plan, edges[0], edges[-1])
    assert ledger.total_nano_usd == sum(row.amount_nano_usd for row in ledger.rows)
    assert ledger.total_nano_usd == sum(ledger.by_component().values()) == sum(ledger.by_phase().values())
    for charge in plan.charges:
        rows = [row for row in ledger.rows if (row.pool, row.component) == (charge.pool, charge.component)]
        spans = sorted({(row.start_s, row.end_s) for row in rows})
        assert spans == list(pairwise(edges))
        assert len(rows) == len(spans) * (len(PHASES) - len(OPTIONAL_PHASES))  # no optional phases here
        if charge.component != "energy":
            hours = (edges[-1] - edges[0]) / 3600
            assert sum(row.quantity for row in rows) == pytest.approx(charge.units_per_h * hours)
    for row in ledger.rows:
        assert row.amount_nano_usd >= 0
        assert row.amount_nano_usd == pytest.approx(row.quantity * row.unit_price_usd * 1e9, abs=2, rel=1e-9)


@pytest.mark.slow
@given(readings())
def test_repricing_with_the_same_prices_changes_nothing(resolve, make_pool, make_interval, drawn):
    edges, usage = drawn
    intervals = [make_interval(*at, pool=pool, replica=replica, **use) for *at, pool, replica, use in usage]
    first, again = (
        Ledger.of(intervals, resolve(BUY, make_pool("a"), make_pool("b"), site=SITE), edges[0], edges[-1])
        for _ in range(2)
    )
    assert first == again
    dearer = resolve(BUY | {"quotes": {"card": 3800}}, make_pool("a"), make_pool("b"), site=SITE)
    other = Ledger.of(intervals, dearer, edges[0], edges[-1]).by_component()
    assert other["gpu_capital"] == pytest.approx(2 * first.by_component()["gpu_capital"], abs=1)
    assert other["energy"] == first.by_component()["energy"]


def test_bill_of_the_article_matches_to_the_cent(resolve, make_pool, make_interval):
    # 8 H100 with InfiniBand: 300,000 $ over 3 years, 10 kW at 0.10 $/kWh, two servers in a rack of 1500 $ a month
    pool = make_pool(server="full", slots=8, gpus=8, nameplate_w=10_000)
    plan = resolve(BUY, pool, site=ARTICLE_SITE)
    month_s = 730 * 3600.0
    days = [
        make_interval(day * month_s / 10, (day + 1) * month_s / 10, gpus=8, busy=0.6, wall_w=10_000)
        for day in range(10)
    ]
    ledger = Ledger.of(days, plan, 0.0, month_s)
    per_h = {name: round(usd, 2) for name, usd in ledger.component_usd_per_h().items()}
    assert per_h == {"server_capital": 11.42, "energy": 1.00, "hosting": 1.03}
    assert round(ledger.usd_per_h, 2) == 13.44
    assert ledger.capex_usd == 300_000


def test_energy_is_kwh_times_pue_times_tariff(resolve, make_pool, make_interval):
    plan = resolve(BUY, make_pool(), site=SITE)
    ledger = Ledger.of([make_interval(0.0, 7200.0, busy=0.5, wall_w=1000.0)], plan, 0.0, 7200.0)
    assert ledger.by_component()["energy"] == round(2 * 1.0 * 1.5 * 0.12 * 1e9)
    energy = [row for row in ledger.rows if row.component == "energy"]
    assert {row.unit for row in energy} == {"kWh"}
    assert sum(row.quantity for row in energy) == pytest.approx(3.0)


def test_capital_follows_time_and_energy_follows_power(resolve, make_pool, make_interval):
    # busy half of the hour: 30 min at (1000 - 0.5 * 100) / 0.5 = 1900 W, 30 min idle at 100 W; a fifth of it prefill
    plan = resolve(BUY, make_pool(), site=SITE)
    reading = make_interval(0.0, 3600.0, busy=0.5, prefill=0.2, recompute=0.1, wall_w=1000.0)
    ledger = Ledger.of([reading], plan, 0.0, 3600.0)

    def parts(component):
        rows = {row.phase: row.quantity for row in ledger.rows if row.component == component}
        return [rows.get(phase, 0.0) / sum(rows.values()) for phase in PHASES]

    assert parts("gpu_capital") == pytest.approx([0.1, 0.35, 0.05, 0.5, *[0] * len(OPTIONAL_PHASES)])
    assert parts("energy") == pytest.approx([0.19, 0.665, 0.095, 0.05, *[0] * len(OPTIONAL_PHASES)])


def test_an_idle_fleet_books_everything_to_idle(resolve, make_pool, make_interval):
    plan = resolve(BUY, make_pool(), site=SITE)
    ledger = Ledger.of([make_interval(0.0, 60.0)], plan, 0.0, 60.0)
    assert ledger.by_phase() == {"prefill": 0, "decode": 0, "recompute": 0, "idle": ledger.total_nano_usd}
    assert ledger.total_nano_usd > 0


def test_only_the_window_is_charged(resolve, make_pool, make_interval):
    plan = resolve(BUY, make_pool(), site=SITE)
    inside = [make_interval(100.0, 400.0, busy=0.3), make_interval(400.0, 500.0, busy=0.9)]
    around = [make_interval(0.0, 100.0, busy=1.0), *inside, make_interval(500.0, 800.0, busy=1.0)]
    assert Ledger.of(around, plan, 100.0, 500.0) == Ledger.of(inside, plan, 100.0, 500.0)


def test_rent_is_paid_for_all_hours_busy_or_not(resolve, make_pool, make_interval):
    plan = resolve({"acquisition": "rent", "price": "card/cloud"}, make_pool(), site=None, finance=None)
    for busy in (0.0, 0.7):
        ledger = Ledger.of([make_interval(0.0, 1800.0, busy=busy)], plan, 0.0, 1800.0)
        assert ledger.by_component() == {"rental": round(0.5 * 4 * 0.4 * 1e9)}
        assert ledger.usd_per_h == pytest.approx(1.6)


def test_rows_keep_the_currency_of_their_price(resolve, make_pool, make_interval):
    finance = {"method": "straight_line", "life_years": 3, "fx": {"RMB": 0.14}}
    quotes = {"card": {"price": 15_000, "currency": "RMB"}}
    plan = resolve(BUY | {"quotes": quotes}, make_pool(), finance=finance)
    ledger = Ledger.of([make_interval(0.0, 3600.0, busy=1.0)], plan, 0.0, 3600.0)
    row = next(row for row in ledger.rows if row.component == "gpu_capital" and row.phase == "decode")
    assert (row.currency, row.fx_rate) == ("RMB", 0.14)
    assert row.amount_in_currency == pytest.approx(4 * 15_000 / (3 * 8760))
    assert row.source == "scenario: cost.quotes.card"


def test_a_pool_without_readings_is_an_error_and_not_free(resolve, make_pool, make_interval):
    plan = resolve(BUY, make_pool("a"), make_pool("b"), site=SITE)
    reading = make_interval(0.0, 60.0, pool="a")
    with pytest.raises(ValueError, match="pool 'b' has no meter reading"):
        Ledger.of([reading], plan, 0.0, 60.0)
    both = [reading, replace(reading, pool="b")]
    assert Ledger.of(both, plan, 0.0, 60.0).total_nano_usd > 0


seconds = st.floats(0, 1e3)
uses = st.lists(st.builds(RequestUse, st.sampled_from(["a", "b"]), seconds, seconds, seconds), max_size=20)


@pytest.mark.slow
@given(uses, st.floats(0, 1), st.floats(0, 1))
def test_requests_and_idleness_sum_to_the_total(resolve, make_pool, make_interval, drawn, busy, prefill):
    intervals = [make_interval(0.0, 600.0, pool=pool, busy=busy, prefill=prefill) for pool in "ab"]
    ledger = Ledger.of(intervals, resolve(BUY, make_pool("a"), make_pool("b")), 0.0, 600.0)
    costs = request_costs(ledger.rows, drawn)
    assert len(costs) == len(drawn)
    assert min(costs, default=0) >= 0
    caused = sum(
        row.amount_nano_usd
        for row in ledger.rows
        if row.phase != "idle" and any(use.pool == row.pool and getattr(use, row.phase) for use in drawn)
    )
    assert sum(costs) == caused
    assert ledger.total_nano_usd - sum(costs) >= ledger.by_phase()["idle"]


def test_a_bill_split_by_hand(resolve, make_pool, make_interval):
    # 4 cards at 0.4 $/h, one hour: 1.60 $. Busy for half, a fifth of that with prompts: 0.16 prefill, 0.64 decode.
    plan = resolve({"acquisition": "rent", "price": "card/cloud"}, make_pool(), site=None, finance=None)
    ledger = Ledger.of([make_interval(0.0, 3600.0, busy=0.5, prefill=0.2)], plan, 0.0, 3600.0)
    took = [RequestUse("p", 270.0, 360.0, 0.0), RequestUse("p", 90.0, 1080.0, 0.0), RequestUse("p", 0.0, 0.0, 0.0)]
    assert [cost / 1e9 for cost in request_costs(ledger.rows, took)] == pytest.approx([0.12 + 0.16, 0.04 + 0.48, 0])


weights = st.lists(st.floats(0, 1e12), min_size=1, max_size=30).filter(lambda values: max(values) > 1e-9)


@pytest.mark.slow
@given(st.integers(0, 10**18), weights)
def test_no_nano_dollar_is_lost_and_each_part_is_within_one_of_its_share(amount, weights):
    parts = split(amount, weights)
    assert sum(parts) == amount
    total = sum(weights)
    for part, weight in zip(parts, weights, strict=True):
        assert part == pytest.approx(amount * (weight / total), abs=1.01, rel=1e-12)


@pytest.mark.slow
@given(st.integers(0, 10**15), st.integers(1, 40))
def test_equal_weights_differ_by_at_most_one(amount, count):
    parts = split(amount, [0.1] * count)
    assert max(parts) - min(parts) <= 1
    assert parts == sorted(parts, reverse=True)


def test_largest_remainder_gets_the_rest():
    # Hamilton's method by hand: shares 5.33, 3.33, 1.33 of 10 round down to 5, 3, 1; one is left for the first.
    assert split(10, [16, 10, 4]) == [6, 3, 1]


def test_nothing_splits_into_nothing_and_something_needs_a_weight():
    assert split(0, [0.0, 0.0]) == [0, 0]
    assert split(0, []) == []
    with pytest.raises(ValueError, match="all weights are zero"):
        split(1, [0.0])
    with pytest.raises(ValueError, match="zero or more"):
        split(1, [1.0, -1.0])
