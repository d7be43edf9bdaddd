"""Shapley values against games worked by hand, and the axioms that define them."""

from fractions import Fraction
from math import fsum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.study.cost_gap import coalitions, shapley

PLAYERS = ("a", "b", "c")
GAMES = st.fixed_dictionaries({chosen: st.floats(-1e6, 1e6) for chosen in coalitions(PLAYERS)})


def test_glove_game() -> None:
    # a has a left glove, b and c a right one each; a pair is worth 1: 2/3, 1/6, 1/6 (the textbook's example)
    found = shapley(PLAYERS, lambda chosen: float("a" in chosen and len(chosen) > 1))
    assert found == {"a": Fraction(2, 3), "b": Fraction(1, 6), "c": Fraction(1, 6)}


def test_two_players() -> None:
    # v(a) = 1, v(b) = 2, v(ab) = 6: a = (1 + (6 - 2)) / 2, b = (2 + (6 - 1)) / 2
    worth = {frozenset(): 0.0, frozenset("a"): 1.0, frozenset("b"): 2.0, frozenset("ab"): 6.0}
    assert shapley(("a", "b"), worth.__getitem__) == {"a": Fraction(5, 2), "b": Fraction(7, 2)}


@pytest.mark.slow
@given(game=GAMES)
def test_values_sum_to_the_gap(game) -> None:
    found = shapley(PLAYERS, game.__getitem__)
    gap = Fraction(game[frozenset(PLAYERS)]) - Fraction(game[frozenset()])
    assert sum(found.values()) == gap
    assert fsum(map(float, found.values())) == pytest.approx(float(gap), abs=1e-9)


@pytest.mark.slow
@given(game=GAMES)
def test_who_adds_nothing_gets_nothing(game) -> None:
    found = shapley(PLAYERS, lambda chosen: game[chosen - {"c"}])
    assert found["c"] == 0


@pytest.mark.slow
@given(game=GAMES)
def test_equal_players_have_equal_shapley_values(game) -> None:
    swap = {"a": "b", "b": "a", "c": "c"}

    def worth(chosen: frozenset[str]) -> float:
        return game[chosen] + game[frozenset(swap[one] for one in chosen)]

    found = shapley(PLAYERS, worth)
    assert found["a"] == found["b"]
