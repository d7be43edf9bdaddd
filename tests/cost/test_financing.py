"""Loans and income tax: textbook schedules, and laws over random terms."""

from collections.abc import Sequence
from itertools import accumulate
from math import fsum

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from sim.cost.financing import (
    LINES,
    Financing,
    Holding,
    Lease,
    Loan,
    cost_of_capital,
    earned_usd,
    equivalent_annual_usd,
    financed,
    internal_rate,
    modified_rate,
    net_present_usd,
    payback,
)
from sim.cost.income_tax import IncomeTax, TaxDepreciation
from sim.cost.time_value import FiscalYears


def costs_after_tax(
    operating_usd: Sequence[float],
    holdings: Sequence[Holding],
    loan: Loan | None,
    tax: IncomeTax | None,
    lease: Lease | None = None,
    passed: int = 0,
) -> list[float]:
    """The cost of each month [USD]."""
    months = financed(operating_usd, holdings, loan, tax, lease, years=FiscalYears(passed))
    return [one.cost_usd for one in months]


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

LEASES = st.builds(
    lambda term, at_end, **terms: Lease(term_months=term, at_end=at_end, **terms),
    term=st.integers(1, 60),
    rate=st.floats(0, 0.5),
    residual=st.floats(0, 1),
    deposit=st.floats(0, 0.2),
    in_advance=st.booleans(),
    at_end=st.sampled_from(["return", "buy", "extend"]),
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


def test_a_loan_is_drawn_as_the_payments_of_the_price_fall_due() -> None:
    # 30 % at the order, two months before the delivery, and 70 % net 60; no loan for VAT
    terms = ((1, 300.0), (3, -1000.0), (5, 700.0))
    holding = Holding(3, 24, 1000.0, 0.0, moved_usd=(*terms, (3, 130.0), (5, -130.0)), terms_usd=terms)
    loan = Loan(share=0.6, rate=0.12, term_months=2, repayment="bullet")
    months = [one.lines_usd for one in financed([0.0] * 24, [holding], loan, None)]
    assert [one["loan_drawn"] for one in months[:8]] == pytest.approx([0, -180, 0, 0, 0, -420, 0, 0])
    assert [one["interest"] for one in months[:8]] == pytest.approx([0, 0, 1.8, 1.8, 0, 0, 4.2, 4.2])
    assert [one["principal"] for one in months[:8]] == pytest.approx([0, 0, 0, 180, 0, 0, 0, 420])
    assert [one["purchase"] + one["working_capital"] for one in months[:6]] == pytest.approx([0, 300, 0, 130, 0, 570])


def test_grace_months_pay_interest_alone_and_linear_loans_equal_principal() -> None:
    loan = Loan(share=1, rate=0.12, term_months=5, grace_months=2, repayment="linear")
    assert [one.principal_usd for one in loan.installments(300.0)] == pytest.approx([0, 0, 100, 100, 100])


@pytest.mark.slow
@given(loan=LOANS, principal=st.floats(1, 1e9))
def test_principal_payments_sum_to_the_debt(loan: Loan, principal: float) -> None:
    paid = list(loan.installments(principal))
    assert len(paid) == loan.term_months
    assert fsum(one.principal_usd for one in paid) == pytest.approx(principal)
    assert paid[-1].balance_usd == pytest.approx(0, abs=1e-6 * principal)
    balances = [principal - repaid for repaid in accumulate(one.principal_usd for one in paid)]
    assert [one.balance_usd for one in paid] == pytest.approx(balances, abs=1e-6 * principal)


@pytest.mark.slow
@given(loan=LOANS, price=st.floats(1, 1e6), months=st.integers(1, 150), later=st.floats(0, 1))
def test_a_loan_at_its_own_rate_has_no_value(loan: Loan, price: float, months: int, later: float) -> None:
    own = (1 + loan.rate / 12) ** 12 - 1
    terms = ((0, -later * price), (min(2, months), later * price))
    running, holding = [1.0] * months, [Holding(0, months, price, 0.3 * price, moved_usd=terms, terms_usd=terms)]
    with_loan, without = (costs_after_tax(running, holding, one, None) for one in (loan, None))
    assert net_present_usd(with_loan, own) == pytest.approx(net_present_usd(without, own), abs=1e-6 * price)


@pytest.mark.slow
@given(lease=LEASES, price=st.floats(1, 1e6))
def test_a_lease_bought_at_its_residual_is_worth_the_price_at_its_rate(lease: Lease, price: float) -> None:
    lease = lease.model_copy(update={"at_end": "buy", "deposit": 0.0})
    months, own = lease.term_months, (1 + (lease.rate or 0) / 12) ** 12 - 1
    holding = [Holding(0, months, price, 0.0, price, 0.0)]
    leased = net_present_usd(costs_after_tax([0.0] * months, holding, None, None, lease), own)
    assert leased == pytest.approx(price)


@pytest.mark.slow
@given(lease=LEASES, rate=st.floats(0, 1), lives=st.integers(1, 90), price=st.floats(1, 1e6), resold=st.floats(0, 1))
def test_tax_takes_its_rate_of_a_lease(lease: Lease, rate: float, lives: int, price: float, resold: float) -> None:
    # deposits come back, so undiscounted all that is paid is deducted
    holding = [Holding(0, lives, 1.1 * price, resold * price - 5.0, price, resold * price)]
    before = fsum(costs_after_tax([1.0] * lives, holding, None, None, lease))
    after = fsum(costs_after_tax([1.0] * lives, holding, None, IncomeTax(rate=rate), lease))
    assert after == pytest.approx((1 - rate) * before, abs=1e-5 * price + 1e-5)


def test_the_ends_of_a_lease_by_hand() -> None:
    # hardware of 1,000 and 100 of deployment; 30 a month over two months of three, deposit 50; sold for 400
    holding, terms = [Holding(0, 3, 1100.0, 400.0, 1000.0, 400.0)], {"term_months": 2, "payment": 0.03, "deposit": 0.05}
    ends = {
        "extend": [150, 30, 30, 30 - 50],
        "return": [150, 30, 30 - 50 + 150, 30 - 50],  # the second lease is deployed again
        "buy": [150, 30, 30 - 50 + 200, -400],
    }
    for at_end, costs in ends.items():
        lease = Lease(**terms, at_end=at_end, buyout=0.2 if at_end == "buy" else None)
        assert costs_after_tax([0.0] * 3, holding, None, None, lease) == pytest.approx(costs)
    early = Lease(**terms, in_advance=True)
    assert [one.lines_usd["lease"] for one in financed([0.0] * 3, holding, None, None, early)] == [30, 30, 30, 0]


@pytest.mark.slow
@given(loan=LOANS, months=st.integers(1, 60))
def test_the_lines_of_a_month_sum_to_its_cost(loan: Loan, months: int) -> None:
    for one in financed([7.0] * months, [Holding(0, months, 900.0, 100.0)], loan, IncomeTax(rate=0.3)):
        assert tuple(one.lines_usd) == LINES
        assert fsum(one.lines_usd.values()) == pytest.approx(one.cost_usd)


def test_returns_and_annual_costs_are_those_of_textbooks() -> None:
    # three years at 10 %: 1,000 / 2.48685 = 402.11
    assert equivalent_annual_usd(1000, 0.1, 36) == pytest.approx(402.11, abs=0.005)
    assert equivalent_annual_usd(1000, 0.0, 24) == 500
    flows = [-1000.0, *([0.0] * 11 + [300.0]) * 5]
    # 100 of the last 300 in the 48th month; 1,000 - 300 * 3.16987 = 49.04 of 300 / 1.1^5 = 186.28 in the 60th
    assert payback(flows) == pytest.approx(47 + 1 / 3)
    assert payback(flows, 0.1) == pytest.approx(59 + 49.04 / 186.28, abs=1e-3)
    assert payback([-1.0, 0.5]) is None
    assert payback([1.0, 1.0]) == 0
    # 300 a year at 10 % are 1,831.53 after five years
    assert modified_rate(flows, 0.1) == pytest.approx((1831.53 / 1000) ** 0.2 - 1, abs=1e-6)
    assert modified_rate([1.0, 2.0], 0.1) is None
    # 60 % of debt at an effective 12.6825 % less 25 % of tax, 40 % at 10 %
    loan = Loan(share=0.6, rate=0.12, term_months=12)
    assert cost_of_capital(loan, IncomeTax(rate=0.25), 0.1) == pytest.approx(0.6 * 0.126825 * 0.75 + 0.04)


@pytest.mark.slow
@given(
    terms=DEPRECIATIONS,
    loan=st.none() | LOANS,
    rate=st.floats(0, 1),
    months=st.integers(1, 150),
    price=st.floats(1, 1e6),
    resold=st.floats(0, 1),
    running=st.floats(0, 1e4),
    passed=st.integers(0, 11),
)
def test_tax_takes_its_rate_of_all_money(
    terms: TaxDepreciation,
    loan: Loan | None,
    rate: float,
    months: int,
    price: float,
    resold: float,
    running: float,
    passed: int,
) -> None:
    # undiscounted, every payment but principal is deducted sooner or later: the cost falls by the rate
    holding = [Holding(0, months, price, resold * price)]
    before = fsum(costs_after_tax([running] * months, holding, loan, None))
    tax = IncomeTax(rate=rate, depreciation=terms)
    after = fsum(costs_after_tax([running] * months, holding, loan, tax, passed=passed))
    assert after == pytest.approx((1 - rate) * before, abs=1e-6 * (price + running * months))


@settings(max_examples=20)
@given(
    sold=st.lists(st.floats(0, 1e4), min_size=1, max_size=40),
    price=st.floats(1, 1e5),
    tax=st.floats(0, 0.9),
    rate=st.floats(0, 0.3),
)
def test_earnings_are_revenue_after_tax_less_costs(sold: list[float], price: float, tax: float, rate: float) -> None:
    months = len(sold)
    costs = costs_after_tax([1.0] * months, [Holding(0, months, price, 0.0)], None, IncomeTax(rate=tax))
    flows = earned_usd(costs, sold, tax)
    assert flows[0] == -price
    assert fsum(flows) == pytest.approx((1 - tax) * fsum(sold) - fsum(costs), abs=1e-6 * (price + fsum(sold)))
    untaxed = net_present_usd([0.0, *sold], rate) - net_present_usd(costs, rate)
    assert net_present_usd(earned_usd(costs, sold, 0.0), rate) == pytest.approx(untaxed, abs=1e-6 * price)
    if (found := internal_rate(flows)) is not None and found > 0:
        low, high = 0.0, found + 1
        for _ in range(60):
            middle = (low + high) / 2
            worth = fsum(usd / (1 + middle) ** (month / 12) for month, usd in enumerate(flows))
            low, high = (middle, high) if worth > 0 else (low, middle)
        assert found == pytest.approx(low, rel=1e-6, abs=1e-9)


def test_a_purchase_after_tax_by_hand() -> None:
    # 1,200 for two years, straight line over two, sold for 200; 10 a month; 50 % tax, nothing discounted:
    # year 1 deducts 120 + 600, year 2 the same and the sale adds 200 of profit
    tax = IncomeTax(rate=0.5, depreciation=TaxDepreciation(years=2))
    costs = costs_after_tax([10.0] * 24, [Holding(0, 24, 1200.0, 200.0)], None, tax)
    assert costs[0] == 1200
    assert (costs[1], costs[12], costs[24]) == pytest.approx((10, 10 - 360, 10 - 200 - 360 + 100))
    # from January on, with years from April: 3 and 15 months deduct 1/8 and 1/2 of the price; the sale the rest
    costs = costs_after_tax([10.0] * 24, [Holding(0, 24, 1200.0, 200.0)], None, tax, passed=9)
    paid = (10 - 15 - 75, 10 - 60 - 300, 10 - 200 - 45 - 225 + 100)
    assert (costs[3], costs[15], costs[24]) == pytest.approx(paid)
    assert costs[12] == 10


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
    # a bullet loan is repaid at the end: -40 % a month fits as well, but is no return
    bullet = [-100.0, *[60.0] * 11, -80.0]
    found = internal_rate(bullet)
    assert found is not None
    assert found > 0
    assert net_present_usd(bullet, found) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    ("flows", "per_month"),
    [
        ([-100.0, 240.0, -224.0, 96.0], 0.2),  # 100 (1.2 x - 1) (1 - 1.2 x + 0.8 x^2), without a further real root
        ([0.0, 0.0, -100.0, 240.0, -224.0, 96.0], 0.2),  # a plan's first purchase comes later
        ([-100.0, 210.0, -188.0, 72.0], -0.1),
        ([-100.0, 230.0, -132.0], None),  # 10 % and 20 %
        ([-1.0, 2.5, -1.5], None),  # 0 and 50 %
    ],
)
def test_the_internal_rate_is_the_only_one_that_fits(flows: list[float], per_month: float | None) -> None:
    found = internal_rate(flows)
    assert found == (None if per_month is None else pytest.approx((1 + per_month) ** 12 - 1))


@pytest.mark.parametrize(
    ("kind", "terms", "what"),
    [
        (Loan, {"share": 1.2, "rate": 0.1, "term_months": 12}, "share\n  Input should be less than or equal to 1"),
        (Loan, {"share": 0, "rate": 0.1, "term_months": 12}, "share\n  Input should be greater than 0"),
        (Loan, {"share": 1, "rate": 7, "term_months": 12}, "rate\n  Input should be less than or equal to 1"),
        (Loan, {"share": 1, "rate": 0.1, "term_months": 6, "grace_months": 6}, "must be below term_months"),
        (Lease, {"term_months": 12}, "either payment or rate"),
        (Lease, {"term_months": 12, "payment": 3}, "payment\n  Input should be less than or equal to 1"),
        (Lease, {"term_months": 12, "payment": 0.03, "residual": 0.1}, "residual makes the payment from rate"),
        (Lease, {"term_months": 12, "rate": 0.1, "buyout": 0.1}, "buyout is paid with at_end: buy only"),
        (Financing, {}, "needs loan or lease"),
    ],
)
def test_impossible_terms_are_refused(kind: type, terms: dict[str, object], what: str) -> None:
    with pytest.raises(ValidationError, match=what.replace("(", r"\(")):
        kind(**terms)
