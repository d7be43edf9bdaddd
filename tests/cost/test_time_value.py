"""Time value of money against worked figures of textbooks and articles."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.cost.finance import Annuity, StraightLine
from sim.cost.time_value import (
    Horizon,
    annuity_factor,
    discount_factor,
    present_value,
    price_factor,
    price_in,
    real_rate,
)


def test_net_present_value_of_an_investment() -> None:
    # The Motley Fool, "Net Present Value": 15,000 now, 3,000 a year for ten years at 10 %
    flows = [(0, -15_000), *((12 * year, 3_000) for year in range(1, 11))]
    assert present_value(0.1, flows) == pytest.approx(3_433.70, abs=0.005)


def test_present_worth_of_a_geometric_gradient() -> None:
    # Newnan, Engineering Economic Analysis, chapter 4: 100 in the first year, 10 % more each year, five years at 8 %
    flows = [(12 * year, 100 * price_factor(-0.1, 12 * (year - 1))) for year in range(1, 6)]
    assert present_value(0.08, flows) == pytest.approx(480.42, abs=0.02)  # the book's factors have four digits


def test_maintenance_that_grows_for_six_years() -> None:
    # a reviewer for civil engineers: 1,500 at first, 10 % more each year, six years at 8 %
    flows = [(12 * year, 1_500 * price_factor(-0.1, 12 * (year - 1))) for year in range(1, 7)]
    assert int(present_value(0.08, flows)) == 8_728


def test_prices_that_halve_in_some_years() -> None:
    # Epoch AI (2022): FLOP/s per dollar doubles every 2.07 years, 0.146 orders of magnitude a year
    decline = 1 - 10**-0.1454
    assert price_factor(decline, 12 * 2.07) == pytest.approx(0.5, rel=1e-3)


def test_used_hardware_by_age() -> None:
    line = StraightLine(method="straight_line", life_years=4, residual_fraction=0.2)
    assert [line.value_fraction(age) for age in (0, 2, 4, 9)] == pytest.approx([1, 0.6, 0.2, 0.2])
    table = Annuity(method="annuity", discount_rate=0.1, life_years=3, resale={"by_age": {1: 0.6, 3: 0.3}})
    assert [table.value_fraction(age) for age in (0, 1, 2, 3, 3.04)] == pytest.approx([1, 0.6, 0.45, 0.3, 0.3])


@pytest.mark.slow
@given(rate=st.floats(0, 1), growth=st.floats(-0.5, 1), months=st.integers(0, 120))
def test_an_annuity_is_the_sum_of_its_payments(rate: float, growth: float, months: int) -> None:
    payments = [(month, price_factor(-growth, month - 1)) for month in range(1, months + 1)]
    assert annuity_factor(rate, months, growth) == pytest.approx(present_value(rate, payments), rel=1e-9)


@pytest.mark.slow
@given(rate=st.floats(0, 1), months=st.integers(0, 240), more=st.integers(1, 60))
def test_discounting_compounds(rate: float, months: int, more: int) -> None:
    both = discount_factor(rate, months) * discount_factor(rate, more)
    assert discount_factor(rate, months + more) == pytest.approx(both)
    assert discount_factor(rate, 12) == pytest.approx(1 / (1 + rate))


def test_a_year_of_a_dollar_an_hour_is_its_hours() -> None:
    assert Horizon(12, 0.0).net_present_usd(1.0) == 8760
    # 1 % a month for three years: P/A = 30.1075
    assert Horizon(36, 1.01**12 - 1).net_present_usd(2.0) == pytest.approx(2 * 730 * 30.1075, rel=1e-6)


def test_growth_at_the_rate_of_the_discount_leaves_equal_terms() -> None:
    assert annuity_factor(0.1, 24, 0.1) == pytest.approx(24 / 1.1 ** (1 / 12))


@pytest.mark.parametrize(
    ("agreed", "prices"),
    [
        (0, {1: 1, 7: 1.2**0.5, 13: 1.2, 25: 1.44}),
        (12, {1: 1, 12: 1, 13: 1.2, 24: 1.2, 25: 1.44}),
        (18, {18: 1, 19: 1.2**1.5, 36: 1.2**1.5, 37: 1.2**3}),
    ],
)
def test_an_agreed_price_is_renewed_at_the_end_of_its_term(agreed: float, prices: dict[int, float]) -> None:
    assert {month: price_in(month, 0.2, agreed) for month in prices} == pytest.approx(prices)


MONTHLY_1, MONTHLY_2 = 1.01**12 - 1, 1.02**12 - 1


@pytest.mark.parametrize(
    ("months", "rate", "growth", "agreed", "factor"),
    [
        (36, 0.1, 0.0, 0, 1.0),
        (24, 0.0, 0.5, 12, 1.25),
        (24, 0.0, 0.5, 24, 1.0),
        (36, 0.0, 0.5, 12, (1 + 1.5 + 2.25) / 3),
        (0.4, 0.0, 0.5, 12, 1.0),  # at least one month
        # two payments of 1 and 1.02 at 1 % a month: (1 / 1.01 + 1.02 / 1.0201) / (1 / 1.01 + 1 / 1.0201)
        (2, MONTHLY_1, MONTHLY_2, 0, 1.0099502),
        (2, MONTHLY_1, MONTHLY_2, 1, 1.0099502),
    ],
)
def test_level_factor_of_worked_examples(
    months: float, rate: float, growth: float, agreed: float, factor: float
) -> None:
    assert Horizon(months, rate).level_factor(growth, agreed) == pytest.approx(factor, rel=1e-7)


@pytest.mark.slow
@given(rate=st.floats(0, 0.5), inflation=st.floats(-0.2, 0.5), flows=st.lists(st.floats(-1e6, 1e6), max_size=40))
def test_cash_is_worth_the_same_in_money_of_the_day_and_of_today(
    rate: float, inflation: float, flows: list[float]
) -> None:
    real = real_rate(rate, inflation)
    assert (1 + real) * (1 + inflation) == pytest.approx(1 + rate)
    today = [usd / price_factor(-inflation, month) for month, usd in enumerate(flows)]
    nominal = present_value(rate, enumerate(flows))
    assert present_value(real, enumerate(today)) == pytest.approx(nominal, rel=1e-9, abs=1e-3)


@pytest.mark.slow
@given(rate=st.floats(0, 0.5), inflation=st.floats(-0.2, 0.5), months=st.integers(1, 120))
def test_a_payment_in_todays_money_follows_inflation(rate: float, inflation: float, months: int) -> None:
    horizon = Horizon(months, rate, inflation)
    real_usd = horizon.real_usd(100.0)
    assert real_usd is not None
    paid = [(month, real_usd * price_factor(-inflation, month)) for month in range(1, months + 1)]
    assert present_value(rate, paid) == pytest.approx(100 * annuity_factor(rate, months))
    assert Horizon(months, rate).real_usd(100.0) is None
