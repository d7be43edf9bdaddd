"""Assumptions of a plan by month: demand, calendar and lengths, counted on a wall calendar."""

from typing import Any

import pytest
from pydantic import ValidationError

from sim.cost.multi_year import Demand, MultiYear


def plan(**more: Any) -> MultiYear:
    return MultiYear.model_validate({"years": 2, "starts": "2027-11"} | more)


@pytest.mark.parametrize(
    ("demand", "usual", "by_month"),
    [
        ({}, 3.0, {0: 3, 12: 3, 23: 3}),
        ({"growth_per_year": 0.5}, 3.0, {0: 3, 6: 3 * 1.5**0.5, 12: 4.5}),
        ({"now": 2, "growth_per_year": -0.5}, 3.0, {0: 2, 12: 1, 18: 2 * 0.5**1.5}),
        ({"now": 2}, 3.0, {0: 2, 23: 2}),
    ],
)
def test_demand_grows_from_month_to_month(demand: dict[str, Any], usual: float, by_month: dict[int, float]) -> None:
    found = Demand.model_validate(demand).by_month(24, usual)
    assert len(found) == 24
    assert {month: found[month] for month in by_month} == pytest.approx(by_month)


def test_listed_demand_is_taken_as_listed() -> None:
    assert Demand(monthly=(1.0, 0.0, 4.0)).by_month(3, 9.0) == (1, 0, 4)
    assert Demand(quarterly=(1.0, 4.0)).by_month(6, 9.0) == (1, 1, 1, 4, 4, 4)


@pytest.mark.parametrize(
    ("demand", "named"),
    [
        ({"monthly": [1], "quarterly": [1]}, "monthly and quarterly both"),
        ({"monthly": [1], "now": 2}, "now and monthly both"),
        ({"quarterly": [1], "growth_per_year": 0}, "growth_per_year and quarterly both"),
    ],
)
def test_demand_is_stated_in_one_way(demand: dict[str, Any], named: str) -> None:
    with pytest.raises(ValidationError, match=named):
        Demand.model_validate(demand)


@pytest.mark.parametrize(("years", "months"), [(2, 24), (0.5, 6), (1 / 12, 1), (2.25, 27), (1 / 3, 4)])
def test_a_plan_has_whole_months(years: float, months: int) -> None:
    assert plan(years=years).months == months


@pytest.mark.parametrize("years", [0.04, 1 / 13, 1.05, 1e-8])
def test_a_part_of_a_month_is_refused(years: float) -> None:
    with pytest.raises(ValidationError, match="whole months are needed"):
        plan(years=years)


@pytest.mark.parametrize(("name", "count", "needed"), [("monthly", 23, 24), ("monthly", 25, 24), ("quarterly", 7, 8)])
def test_listed_demand_is_as_long_as_the_plan(name: str, count: int, needed: int) -> None:
    assert plan(demand={name: [1] * needed}).months == 24
    with pytest.raises(ValidationError, match=f"demand.{name} has {count} values; 2 years need {needed}"):
        plan(demand={name: [1] * count})


def test_the_calendar_turns_after_december() -> None:
    assert {month: plan().calendar(month) for month in (0, 1, 2, 13, 14, 23)} == {
        **{0: (2027, 11), 1: (2027, 12), 2: (2028, 1)},
        **{13: (2028, 12), 14: (2029, 1), 23: (2029, 10)},
    }
    assert plan(starts="2027-01").calendar(11) == (2027, 12)


@pytest.mark.parametrize(("bought", "age"), [("2027-11", 0), ("2027-01", 10), ("2026-12", 11), ("2025-12", 23)])
def test_age_is_counted_in_months(bought: str, age: int) -> None:
    assert plan().age_months(bought) == age


@pytest.mark.parametrize(
    ("text", "month"),
    [("2027-01", "2027-01"), ("2027-1", "2027-01"), ("2027-12", "2027-12"), ("2027-13", None), ("2027-0", None)]
    + [(text, None) for text in ("27-01", "2027", "202701", "2027-Jan", "2027-", "20x7-01", 2027.01)],
)
def test_a_month_is_four_digits_and_one_of_twelve(text: object, month: str | None) -> None:
    if month is not None:
        assert plan(starts=text).starts == month
        return
    with pytest.raises(ValidationError, match="a month is needed, for example 2027-01"):
        plan(starts=text)
