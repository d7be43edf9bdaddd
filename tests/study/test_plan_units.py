"""Units over the months, whatever demand does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.study.plan_units import Purchasing, Renting, Supply, supply, units_needed

NEEDED = st.lists(st.integers(0, 40), min_size=1, max_size=72)
PURCHASING = st.builds(Purchasing, lead_time_months=st.integers(0, 9), life_months=st.integers(1, 60))


def conserved(stock: Supply) -> None:
    bought = 0
    for month in range(stock.months + 1):
        bought += stock.ordered(month)
        assert bought == stock.on_order(month) + stock.owned(month) + stock.retired(month)
    assert bought == stock.retired(stock.months)


@pytest.mark.slow
@given(needed=NEEDED, purchasing=PURCHASING)
def test_buying_covers_every_month_after_the_lead_time(needed: list[int], purchasing: Purchasing) -> None:
    stock = supply(needed, purchasing, None)
    conserved(stock)
    for month, need in enumerate(needed):
        if month >= purchasing.lead_time_months:
            assert stock.owned(month) >= need
        else:
            assert stock.in_service(month) == 0


@pytest.mark.slow
@given(needed=NEEDED, purchasing=PURCHASING)
def test_no_unit_is_bought_before_it_is_needed(needed: list[int], purchasing: Purchasing) -> None:
    stock = supply(needed, purchasing, None)
    for batch in stock.batches:
        assert stock.owned(batch.delivered) == needed[batch.delivered]
        assert batch.delivered == batch.ordered + purchasing.lead_time_months
        assert batch.retires - batch.delivered == min(purchasing.life_months, stock.months - batch.delivered)


@pytest.mark.slow
@given(needed=NEEDED, purchasing=PURCHASING, term=st.integers(1, 24))
def test_bridging_rental_covers_every_month(needed: list[int], purchasing: Purchasing, term: int) -> None:
    stock = supply(needed, purchasing, Renting(term))
    conserved(stock)
    assert all(stock.in_service(month) >= need for month, need in enumerate(needed))
    assert all(contract.signed < purchasing.lead_time_months for contract in stock.contracts)


@given(needed=NEEDED, term=st.integers(1, 24))
def test_rents_last_for_their_term(needed: list[int], term: int) -> None:
    stock = supply(needed, None, Renting(term))
    assert all(stock.rented(month) >= need for month, need in enumerate(needed))
    assert all(contract.ends - contract.signed == term for contract in stock.contracts)
    paid = sum(stock.rented(month) for month in range(len(needed)))
    assert paid + stock.owed_unit_months == term * sum(contract.units for contract in stock.contracts)
    if term == 1:
        assert [stock.rented(month) for month in range(len(needed))] == needed


def test_units_that_retire_are_replaced_in_the_same_month() -> None:
    stock = supply([2] * 10, Purchasing(lead_time_months=2, life_months=4), None)
    assert [(batch.ordered, batch.delivered, batch.retires) for batch in stock.batches] == [(0, 2, 6), (4, 6, 10)]
    assert [stock.owned(month) for month in range(11)] == [0, 0, 2, 2, 2, 2, 2, 2, 2, 2, 0]


def test_whole_units_and_the_reserve() -> None:
    assert [units_needed(peak, 0.1, 2) for peak in (0.0, 0.1, 0.3, 0.31)] == [2, 3, 5, 6]
