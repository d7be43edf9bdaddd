"""Loans and income tax: textbook schedules, and laws over random terms."""

from itertools import accumulate
from math import fsum

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from sim.cost.financing import (
    Holding,
    IncomeTax,
    Loan,
    TaxDepreciation,
    costs_after_tax,
    internal_rate,
    net_present_usd,
)

LOANS = st.builds(
    lambda term, grace, **terms: Loan(term_months=term, grace_months=min(grace, term - 1), **terms),
    term=st.integers(1, 120),
    grace=st.integers(0, 24),
    share=st.floats(0.01, 1),
    rate=st.floats(0, 0.5),
    repayment=st.sampled_from(["annuity", "linear", "bullet"]),
)
DEPRECIATIONS = st.one_of(
    st.builds(TaxDepreciation, years=st.integers(1, 20), bonus=st.floats(0, 1)),
    st.builds(lambda bonus: TaxDepreciation(method="macrs_5", bonus=bonus), st.floats(0, 1)),
)


def test_an_annuity_loan_is_that_of_the_textbook() -> None:
    # 10,000 at 12 % a year over 12 months: 888.49 a month; the first interest is 100
    paid = list(Loan(share=1, rate=0.12, term_months=12).installments(10_000.0))
    assert [round(one.interest_usd + one.principal_usd, 2) for one in paid] == [888.49] * 12
    assert paid[0].interest_usd == pytest.approx(100)


def test_a_bullet_loan_pays_interest_and_then_everything() -> None:
    paid = list(Loan(share=1, rate=0.12, term_months=3, repayment="bullet").installments(1000.0))
    assert [one.interest_usd for one in paid] == pytest.approx([10, 10, 10])
    assert [one.principal_usd for one in paid] == pytest.approx([0, 0, 1000])


def test_grace_months_pay_interest_alone_and_linear_loans_equal_principal() -> None:
    loan = Loan(share=1, rate=0.12, term_months=5, grace_months=2, repayment="linear")
    assert [one.principal_usd for one in loan.installments(300.0)] == pytest.approx([0, 0, 100, 100, 100])


@given(loan=LOANS, principal=st.floats(1, 1e9))
def test_principal_payments_sum_to_the_debt(loan: Loan, principal: float) -> None:
    paid = list(loan.installments(principal))
    assert len(paid) == loan.term_months
    assert fsum(one.principal_usd for one in paid) == pytest.approx(principal)
    assert paid[-1].balance_usd == pytest.approx(0, abs=1e-6 * principal)
    balances = [principal - repaid for repaid in accumulate(one.principal_usd for one in paid)]
    assert [one.balance_usd for one in paid] == pytest.approx(balances, abs=1e-6 * principal)


@given(loan=LOANS, price=st.floats(1, 1e6), months=st.integers(1, 150))
def test_a_loan_at_its_own_rate_has_no_value(loan: Loan, price: float, months: int) -> None:
    own = (1 + loan.rate / 12) ** 12 - 1
    running, holding = [1.0] * months, [Holding(0, months, price, 0.3 * price)]
    with_loan, without = (costs_after_tax(running, holding, one, None) for one in (loan, None))
    assert net_present_usd(with_loan, own) == pytest.approx(net_present_usd(without, own), abs=1e-6 * price)


def test_macrs_is_the_table_of_the_irs() -> None:
    # Publication 946, Table A-1: 5-year property, half-year convention
    assert TaxDepreciation(method="macrs_5").fractions == (0.2, 0.32, 0.192, 0.1152, 0.1152, 0.0576)
    assert TaxDepreciation(method="macrs_5", bonus=0.6).fractions[:2] == pytest.approx((0.6 + 0.08, 0.128))


@given(DEPRECIATIONS)
def test_depreciation_sums_to_the_price(terms: TaxDepreciation) -> None:
    assert fsum(terms.fractions) == pytest.approx(1)


@given(
    terms=DEPRECIATIONS,
    loan=st.none() | LOANS,
    rate=st.floats(0, 1),
    months=st.integers(1, 150),
    price=st.floats(1, 1e6),
    resold=st.floats(0, 1),
    running=st.floats(0, 1e4),
)
def test_tax_takes_its_rate_of_all_money(
    terms: TaxDepreciation, loan: Loan | None, rate: float, months: int, price: float, resold: float, running: float
) -> None:
    # undiscounted, every payment but principal is deducted sooner or later: the cost falls by the rate
    holding = [Holding(0, months, price, resold * price)]
    before = fsum(costs_after_tax([running] * months, holding, loan, None))
    after = fsum(costs_after_tax([running] * months, holding, loan, IncomeTax(rate=rate, depreciation=terms)))
    assert after == pytest.approx((1 - rate) * before, abs=1e-6 * (price + running * months))


def test_a_purchase_after_tax_by_hand() -> None:
    # 1,200 for two years, straight line over two, sold for 200; 10 a month; 50 % tax, nothing discounted:
    # year 1 deducts 120 + 600, year 2 the same and the sale adds 200 of profit
    tax = IncomeTax(rate=0.5, depreciation=TaxDepreciation(years=2))
    costs = costs_after_tax([10.0] * 24, [Holding(0, 24, 1200.0, 200.0)], None, tax)
    assert costs[0] == 1200
    assert (costs[1], costs[12], costs[24]) == pytest.approx((10, 10 - 360, 10 - 200 - 360 + 100))


def test_the_internal_rate_is_that_at_which_nothing_is_gained() -> None:
    flows = [-1000.0, *[40.0] * 36]
    rate = internal_rate(flows)
    assert rate is not None
    assert net_present_usd(flows, rate) == pytest.approx(0, abs=1e-6)
    taxed = [-1000.0, *([60.0] * 11 + [-40.0]) * 3]
    found = internal_rate(taxed)
    assert found is not None
    assert net_present_usd(taxed, found) == pytest.approx(0, abs=1e-6)
    assert internal_rate([1.0, 2.0]) is None
    assert internal_rate([-1.0, 2.0, -1.5]) is None


@pytest.mark.parametrize(
    ("kind", "terms", "what"),
    [
        (Loan, {"share": 1.2, "rate": 0.1, "term_months": 12}, "share\n  Input should be less than or equal to 1"),
        (Loan, {"share": 0, "rate": 0.1, "term_months": 12}, "share\n  Input should be greater than 0"),
        (Loan, {"share": 1, "rate": 7, "term_months": 12}, "rate\n  Input should be less than or equal to 1"),
        (Loan, {"share": 1, "rate": 0.1, "term_months": 6, "grace_months": 6}, "must be below term_months"),
        (IncomeTax, {"rate": 25}, "rate\n  Input should be less than or equal to 1"),
        (TaxDepreciation, {"method": "macrs_5", "years": 3}, "macrs_5 has five years, not 3"),
    ],
)
def test_impossible_terms_are_refused(kind: type, terms: dict[str, object], what: str) -> None:
    with pytest.raises(ValidationError, match=what.replace("(", r"\(")):
        kind(**terms)
