import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.cost import Ledger, RequestUse, request_costs

BUY = {"acquisition": "buy"}
seconds = st.floats(0, 1e3)
uses = st.lists(st.builds(RequestUse, st.sampled_from(["a", "b"]), seconds, seconds, seconds), max_size=20)


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
