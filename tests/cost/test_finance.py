"""Depreciation, annuities, and resale values by age against accounting textbooks."""

import runpy
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from sim.cost.finance import Annuity, Finance, StraightLine
from sim.cost.resale import Resale, resale_curves
from sim.cost.time_value import annuity_factor

HOURS = 8760


def at_year_ends(usd_per_h: float, rate: float) -> float:
    """Future value of twelve monthly payments at the end of their year: the yearly payment of textbooks."""
    month = HOURS / 12 * usd_per_h
    return sum(month * (1 + rate) ** (left / 12) for left in range(12))


@pytest.mark.parametrize(
    ("rate", "years", "factor"),
    [
        # engineersedge.com, "Capital Recovery Factors", table 1.0
        (0.10, 10, 0.16275),
        (0.08, 4, 0.30192),
        (0.06, 6, 0.20336),
        (0.035, 18, 0.07582),
        # the doctest of pypsa.costs.annuity
        (0.0, 20, 0.05),
    ],
)
def test_capital_recovery_factor_is_the_tabulated_one(rate, years, factor):
    usd_per_h = 1 / annuity_factor(rate, 12 * years) / (HOURS / 12)
    assert at_year_ends(usd_per_h, rate) == pytest.approx(factor, abs=5e-6)


@pytest.mark.parametrize(
    ("price", "salvage", "years", "rate", "per_year", "tolerance"),
    [
        # ceboardexamgenerator.com, capital recovery, problem 69
        (100_000, 20_000, 15, 0.10, 12_517.90, 0.01),
        # sciemce.com/qa/qZBnCelr8xeP, first cost 50,000 (its tables have five digits)
        (50_000, 5_000, 5, 0.10, 12_371, 1),
    ],
)
def test_annuity_with_salvage_value_agrees_with_worked_examples(price, salvage, years, rate, per_year, tolerance):
    terms = Annuity(method="annuity", discount_rate=rate, life_years=years, residual_fraction=salvage / price)
    assert at_year_ends(terms.usd_per_h(price), rate) == pytest.approx(per_year, abs=tolerance)


def test_straight_line_loses_value_evenly():
    terms = StraightLine(method="straight_line", life_years=3)
    assert round(terms.usd_per_h(300_000), 2) == 11.42
    half = StraightLine(method="straight_line", life_years=3, residual_fraction=0.5)
    assert half.usd_per_h(300_000) == pytest.approx(terms.usd_per_h(300_000) / 2)


@pytest.mark.slow
@given(st.floats(0.5, 20), st.floats(0, 1), st.floats(1, 1e7))
def test_an_annuity_without_interest_is_straight_line(years, residual, price):
    straight = StraightLine(method="straight_line", life_years=years, residual_fraction=residual)
    annuity = Annuity(method="annuity", discount_rate=0, life_years=years, residual_fraction=residual)
    assert annuity.usd_per_h(price) == pytest.approx(straight.usd_per_h(price), rel=1e-12, abs=1e-12)


@given(st.floats(1e-4, 0.5), st.integers(1, 30), st.floats(0, 1))
def test_present_value_of_an_annuity_is_price_minus_resale(rate, years, residual):
    terms = Annuity(method="annuity", discount_rate=rate, life_years=years, residual_fraction=residual)
    month = terms.usd_per_h(1000.0) * HOURS / 12
    payments = sum(month / (1 + rate) ** (end / 12) for end in range(1, 12 * years + 1))
    assert payments + 1000 * residual / (1 + rate) ** years == pytest.approx(1000, rel=1e-9)


def test_terms_are_strict():
    finance = TypeAdapter(Finance)
    assert finance.validate_python({"method": "straight_line", "life_years": 3, "discount_rate": 0.08}).life_years == 3
    for wrong in (
        {"method": "annuity", "life_years": 3},
        {"method": "annuity", "life_years": 0, "discount_rate": 0.1},
        {"method": "straight_line", "life_years": 3, "residual_fraction": 1.2},
        {"method": "straight_line", "life_years": float("nan")},
        {"method": "straight_line", "life_years": 3, "fx": {"RMB": -1}},
    ):
        with pytest.raises(ValidationError):
            finance.validate_python(wrong)


def test_null_residual_value_next_to_a_resale_is_ignored():
    terms = {"method": "straight_line", "life_years": 3, "residual_fraction": None}
    assert StraightLine(**terms).residual_fraction == 0
    assert StraightLine(**terms, resale={"loss_per_year": 0.5}).resale_fraction == 0.125


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


@pytest.mark.parametrize("name", sorted(resale_curves()))
def test_a_curve_loses_the_fitted_fraction_every_year(name):
    loss = resale_curves()[name].loss_per_year
    assert loss.kind == "fitted"
    assert Resale(curve=name).fraction(4) == pytest.approx((1 - loss.value) ** 4)


def test_the_shipped_curves_are_those_of_the_shipped_quotes():
    root = Path(__file__).parents[2]
    fit = runpy.run_path(str(root / "benchmarks" / "fit" / "resale.py"))
    used = fit["quotes"](root / "data" / "resale.csv")
    assert (root / "data" / "resale.yaml").read_text().splitlines() == fit["entries"](used)
    assert "\n".join(fit["table"](used)) in (root / "benchmarks" / "money.md").read_text()
    exact = [fit["UsedQuote"](years, 0.8**years, "") for years in (1.0, 3.0)]
    assert fit["fitted_loss"](exact) == pytest.approx(0.2)
    assert fit["errors"]({"one": exact, "other": exact})["one"] == pytest.approx((0, 0))


def test_ages_survive_the_way_through_json():
    resale = Resale(by_age={1: 0.7, 3.5: 0.3})
    assert Resale.model_validate(resale.model_dump(mode="json", exclude_unset=True)) == resale


@pytest.mark.slow
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
        ({"resale": {}}, "state one of loss_per_year"),
        ({"resale": {"loss_per_year": 0.3, "by_age": {1: 0.7}}}, "state one of loss_per_year"),
        ({"resale": {"curve": "all", "loss_per_year": 0.3}}, "state one of loss_per_year"),
        ({"resale": {"curve": "rtx-3091"}}, "unknown resale curve 'rtx-3091'; did you mean rtx-3090"),
    ],
)
def test_contradictions_are_refused(terms, text):
    with pytest.raises(ValidationError, match=text):
        TypeAdapter(Finance).validate_python({"method": "straight_line", "life_years": 4, **terms})


def test_a_data_centre():
    # J. Hamilton, "Overall Data Center Costs", 2010. Inputs recalled: 45,978 servers of $1,450 over 36 months, 8 MW at
    # $9/W over 120 months of which 18 % is neither power nor cooling, 5 % a year, 80 % load, PUE 1.45, $0.07/kWh,
    # network $12.61 million over 48 months. Results read at datacenterknowledge.com, 2010-09-22: $3.5 million a month,
    # and the shares.
    def per_month(price, life_years):
        terms = Annuity(method="annuity", discount_rate=0.05, life_years=life_years)
        return HOURS / 12 * terms.usd_per_h(price)

    facility = per_month(8e6 * 9, 10)
    parts = {
        "servers": per_month(45_978 * 1_450, 3),
        "network": per_month(12.61e6, 4),
        "power and cooling": 0.82 * facility,
        "other": 0.18 * facility,
        "electricity": 8_000 * 0.8 * 1.45 * 0.07 * HOURS / 12,
    }
    total = sum(parts.values())
    assert total == pytest.approx(3.5e6, rel=0.01)
    shares = {name: round(100 * usd / total) for name, usd in parts.items()}
    assert shares == {"servers": 57, "network": 8, "power and cooling": 18, "other": 4, "electricity": 13}


FINANCE: TypeAdapter[Finance] = TypeAdapter(Finance)


def finance(method, **terms):
    return FINANCE.validate_python({"method": method, "life_years": 4, **terms})


@pytest.mark.parametrize(("years", "months"), [(0.02, 1), (2.5, 30), (3, 36)])
def test_a_plan_counts_the_life_in_whole_months(years, months):
    assert finance("straight_line", life_years=years).whole_life_months == months


def test_only_the_named_line_grows():
    terms = finance("straight_line", inflation={"energy": 0.03, "staff": -0.02})
    assert [terms.growth_of(line) for line in ("energy", "staff", "hosting")] == [0.03, -0.02, 0.0]


def test_a_rate_is_stated_or_the_default():
    assert not finance("straight_line").states_rate
    assert finance("straight_line", discount_rate=0.0).states_rate
    assert finance("annuity", discount_rate=0.0).states_rate


def test_levelised_terms_differ_in_the_method_and_the_rate_alone():
    more = {"residual_fraction": 0.25, "inflation": {"energy": 0.03}, "fx": {"EUR": 1.2}}
    straight, annuity = finance("straight_line", **more), finance("annuity", discount_rate=0.1, **more)
    assert straight.levelised(0.0) is straight
    assert straight.levelised(0.1) == finance("straight_line", discount_rate=0.3, **more).levelised(0.1) == annuity
    assert annuity.levelised(0.1) is annuity
    assert annuity.levelised(0.0).usd_per_h(8000.0) == pytest.approx(straight.usd_per_h(8000.0))
