"""Verdicts of claims and of their parts, on made-up figures."""

from typing import Any

import pytest

from sim.claims.figures import ClaimFigure, combined
from sim.claims.verdict import judge, verdict
from sim.scenario.claim import ClaimPart

FIGURES = {
    "two": ClaimFigure(2.0),
    "three": ClaimFigure(3.0),
    "nearly_two": ClaimFigure(1.9),
    "noisy": ClaimFigure(2.0, 0.5, (1.7, 2.0, 2.3)),
}


def part(figure: str | dict[str, str] = "two", **said: Any) -> ClaimPart:
    where = {"figure": figure} if isinstance(figure, str) else {"cases": figure}
    return ClaimPart.model_validate({"says": "it is so", "holds": {"at_least": 2}, **where, **said})


@pytest.mark.parametrize(
    ("figure", "rule", "status"),
    [
        ("two", {"at_least": 2}, "holds"),
        ("nearly_two", {"at_least": 2}, "fails"),
        ("two", {"at_most": 2}, "holds"),
        ("three", {"at_most": 2}, "fails"),
        ("two", {"between": [2, 3]}, "holds"),
        ("nearly_two", {"between": [2, 3]}, "fails"),
        ("nearly_two", {"within": 0.06}, "holds"),
        ("nearly_two", {"within": 0.04}, "fails"),
        ("noisy", {"at_least": 1.4}, "holds"),
        ("noisy", {"at_least": 1.9}, "depends"),
        ("noisy", {"at_least": 2.6}, "fails"),
        ({"hot": "two", "cold": "three"}, {"at_least": 2}, "holds"),
        ({"hot": "two", "cold": "three"}, {"at_least": 3}, "depends"),
        ({"hot": "two", "cold": "three"}, {"at_least": 4}, "fails"),
    ],
)
def test_a_part_holds_where_its_figures_keep_to_the_rule(figure: Any, rule: dict[str, Any], status: str) -> None:
    assert judge(part(figure, holds=rule, claimed=2), FIGURES).status == status


def test_an_interval_counts_as_a_whole_though_its_middle_is_within_the_band() -> None:
    assert judge(part("noisy", holds={"between": [1.9, 2.1]}), FIGURES).status == "depends"


HOLDS, FAILS = part("two"), part("nearly_two")
DEPENDS = part({"hot": "nearly_two", "cold": "two"})
MISCALCULATED = part("nearly_two", own_arithmetic=True)


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ([HOLDS, HOLDS], "holds"),
        ([FAILS, FAILS], "fails"),
        ([HOLDS, FAILS], "holds in part"),
        ([HOLDS, FAILS, DEPENDS], "holds in part"),
        ([DEPENDS], "depends"),
        ([HOLDS, DEPENDS], "depends"),
        ([FAILS, DEPENDS], "depends"),
        ([HOLDS, MISCALCULATED], "arithmetic error"),
        ([part("two", own_arithmetic=True), FAILS], "holds in part"),
    ],
)
def test_the_parts_together(parts: list[ClaimPart], told: str) -> None:
    assert verdict([judge(one, FIGURES) for one in parts]) == told


def test_paired_samples_go_through_a_formula_together() -> None:
    """Both samples grow from replication to replication while their ratio is constant, so no noise is left."""
    ratio = combined(
        lambda a, b: a / b, [ClaimFigure(4.0, 1.0, (2.0, 4.0, 6.0)), ClaimFigure(2.0, 0.5, (1.0, 2.0, 3.0))]
    )
    assert (ratio.value, ratio.half_width, ratio.samples) == (2.0, 0.0, (2.0, 2.0, 2.0))


def test_noise_without_samples_adds_up_as_independent_noise_does() -> None:
    found = combined(lambda a, b: a + 2 * b, [ClaimFigure(1.0, 0.3), ClaimFigure(1.0, 0.2)])
    assert found.half_width == pytest.approx(0.5)  # (0.3 ** 2 + 0.4 ** 2) ** 0.5
    assert combined(lambda a: a, [ClaimFigure(1.0)]).half_width is None


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"holds": {"at_least": 1, "at_most": 2}}, "exactly one of"),
        ({"holds": {"between": [2, 1]}}, "lower end comes first"),
        ({"holds": {"within": 0.1}}, "fraction of `claimed`"),
        ({"figure": "two", "cases": {"hot": "two"}}, "figure or cases"),
    ],
)
def test_a_part_that_cannot_be_judged_is_refused(said: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ClaimPart.model_validate({"says": "it is so", "figure": "two", "holds": {"at_least": 2}, **said})
