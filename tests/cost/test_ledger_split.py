import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.cost.ledger import split

weights = st.lists(st.floats(0, 1e12), min_size=1, max_size=30).filter(lambda values: max(values) > 1e-9)


@given(st.integers(0, 10**18), weights)
def test_no_nano_dollar_is_lost_and_each_part_is_within_one_of_its_share(amount, weights):
    parts = split(amount, weights)
    assert sum(parts) == amount
    total = sum(weights)
    for part, weight in zip(parts, weights, strict=True):
        assert part == pytest.approx(amount * (weight / total), abs=1.01, rel=1e-12)


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
