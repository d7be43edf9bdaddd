"""Resale value by age against accounting textbooks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from sim.cost import Finance
from sim.cost.finance import Resale

HOURS = 8760


@pytest.mark.parametrize(
    ("price", "loss", "values"),
    [
        # homeworksource.com/p/973773, declining balance at 40 % of 6,000: 3,600, 2,160, 1,296
        (6000, 0.4, [3600, 2160, 1296]),
        # scribd.com/document/522522813, declining balance table of 17,200 over five years
        (17_200, 0.4, [10_320, 6192, 3715.20, 2229.12, 1337.47]),
        (17_200, 0.3, [12_040, 8428, 5899.60, 4129.72, 2890.80]),
    ],
)
def test_declining_balance_is_the_book_value_of_the_textbooks(price, loss, values):
    resale = Resale(loss_per_year=loss)
    for age, value in enumerate(values, start=1):
        assert price * resale.fraction(age) == pytest.approx(value, abs=0.01)


def test_a_table_is_read_along_straight_lines_from_new():
    resale = Resale(by_age={1: 0.7, 3: 0.3})
    assert [resale.fraction(age) for age in (0, 0.5, 1, 2, 3)] == pytest.approx([1, 0.85, 0.7, 0.5, 0.3])


def test_ages_survive_the_way_through_json():
    resale = Resale(by_age={1: 0.7, 3.5: 0.3})
    assert Resale.model_validate(resale.model_dump(mode="json", exclude_unset=True)) == resale


@given(st.floats(0.5, 10), st.floats(0, 1), st.sampled_from(["straight_line", "annuity"]))
def test_resale_by_age_is_the_residual_at_the_end_of_the_life(years, loss, method):
    terms = {"method": method, "discount_rate": 0.08, "life_years": years}
    adapter = TypeAdapter(Finance)
    by_age = adapter.validate_python({**terms, "resale": {"loss_per_year": loss}})
    fixed = adapter.validate_python({**terms, "residual_fraction": (1 - loss) ** years})
    assert by_age.usd_per_h(1000.0) == pytest.approx(fixed.usd_per_h(1000.0), abs=1e-9)


@pytest.mark.parametrize(
    ("terms", "text"),
    [
        ({"resale": {"loss_per_year": 0.3}, "residual_fraction": 0.2}, "state one"),
        ({"resale": {"by_age": {1: 0.7, 3: 0.3}}}, "resale.by_age ends at 3"),
        ({"resale": {}}, "either loss_per_year or by_age"),
        ({"resale": {"loss_per_year": 0.3, "by_age": {1: 0.7}}}, "either loss_per_year or by_age"),
    ],
)
def test_contradictions_are_refused(terms, text):
    with pytest.raises(ValidationError, match=text):
        TypeAdapter(Finance).validate_python({"method": "straight_line", "life_years": 4, **terms})
