"""Shapley values: what each player adds to a game, fairly shared."""

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import combinations
from math import factorial

Value = Callable[[frozenset[str]], float]


def coalitions(players: Sequence[str]) -> Iterator[frozenset[str]]:
    """All 2^n subsets of *players*, small ones first."""
    for size in range(len(players) + 1):
        yield from (frozenset(chosen) for chosen in combinations(players, size))


def shapley(players: Sequence[str], value: Value) -> dict[str, Fraction]:
    """Each player's mean contribution over all orders in which the players may join.

    phi_i = sum over S without i of |S|! (n - |S| - 1)! / n! * (v(S + i) - v(S))

    *value* is asked for every coalition and must be finite. Worked out in fractions, so that the values sum to
    v(all) - v(none) exactly. Source: L. S. Shapley, "A Value for n-Person Games", Contributions to the Theory of Games
    II, Princeton University Press, 1953.
    """
    count = len(players)
    worth = {chosen: Fraction(value(chosen)) for chosen in coalitions(players)}
    found = dict.fromkeys(players, Fraction(0))
    for chosen, before in worth.items():
        for player in players:
            if player not in chosen:
                orders = factorial(len(chosen)) * factorial(count - len(chosen) - 1)
                found[player] += Fraction(orders, factorial(count)) * (worth[chosen | {player}] - before)
    return found
