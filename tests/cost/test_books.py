"""Books of purchases and leases: textbook schedules, and the laws of a balance sheet over random terms."""

from dataclasses import replace
from math import fsum

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.cost.books import BooksMonth, BookTerms, books, lease_schedule
from sim.cost.finance import Annuity
from sim.cost.financing import Holding, Lease, Loan, financed
from sim.cost.income_tax import IncomeTax

LIFE = 24
TERMS = st.builds(
    BookTerms,
    standard=st.sampled_from(["ifrs_16", "asc_842_finance"]),
    life_months=st.just(LIFE),
    residual_fraction=st.floats(0, 0.5),
    rate=st.floats(0, 0.3),
)
LOANS = st.builds(Loan, share=st.floats(0.1, 1), rate=st.floats(0, 0.3), term_months=st.integers(1, 40))
LEASES = st.builds(
    Lease,
    rate=st.floats(0, 0.3),
    residual=st.floats(0, 0.4),
    deposit=st.floats(0, 0.2),
    in_advance=st.booleans(),
    term_months=st.sampled_from([6, 12, 24]),
    at_end=st.sampled_from(["return", "buy", "extend"]),
)
# bought at 1,100 with 100 of deployment, sold at 300 less 20; the second one is cut short
VAT = ((0, 130.0), (2, -130.0))
HOLDINGS = [Holding(0, 24, 1100.0, 280.0, 1000.0, 300.0), Holding(24, 33, 1100.0, 480.0, 1000.0, 500.0)]


def booked(loan: Loan | None, lease: Lease | None, terms: BookTerms, holdings: list[Holding]) -> list[BooksMonth]:
    months = financed([10.0] * 33, holdings, loan, IncomeTax(rate=0.25), lease)
    return books(months, holdings, lease, terms)


def test_an_internal_price_of_emissions_is_neither_deducted_nor_booked() -> None:
    terms = BookTerms("ifrs_16", LIFE, 0.0, 0.08)
    months = financed([100.0] * 12, [], None, IncomeTax(rate=0.25), carbon_usd=[10.0] * 12)
    assert fsum(one.cost_usd for one in months) == pytest.approx(1200 * 0.75 + 120)
    last = books(months, [], None, terms)[-1]
    assert (last.balances_usd["paid_in"], last.equity_usd) == (pytest.approx(900), 0.0)


@pytest.mark.slow
@settings(max_examples=40)
@given(
    terms=TERMS,
    loan=st.none() | LOANS,
    lease=LEASES,
    leased=st.booleans(),
    operating=st.booleans(),
    moved=st.sampled_from([(), VAT, ((20, 300.0), (24, -1000.0), (26, 700.0))]),
)
def test_assets_are_liabilities_and_equity_in_every_month(
    terms: BookTerms, loan: Loan | None, lease: Lease, leased: bool, operating: bool, moved: tuple[tuple[int, float]]
) -> None:
    if leased and operating and lease.at_end != "buy":
        terms = terms._replace(standard="asc_842_operating")
    holdings = [HOLDINGS[0], replace(HOLDINGS[1], moved_usd=moved, terms_usd=moved)]
    for at in booked(None if leased else loan, lease if leased else None, terms, holdings):
        assert at.assets_usd == pytest.approx(at.liabilities_usd + at.equity_usd, abs=1e-6)


@settings(max_examples=40)
@given(terms=TERMS, lease=st.none() | LEASES)
def test_all_that_is_paid_is_expensed_in_the_end(terms: BookTerms, lease: Lease | None) -> None:
    holdings = HOLDINGS[:1]
    months = financed([10.0] * LIFE, holdings, None, None, lease)
    found = books(months, holdings, lease, terms)
    assert (found[-1].assets_usd, found[-1].liabilities_usd, found[-1].equity_usd) == (0.0, 0.0, 0.0)
    paid = fsum(one.cost_usd for one in months)
    assert fsum(usd for at in found for usd in at.expenses_usd.values()) == pytest.approx(paid)


def test_a_purchase_is_written_down_to_its_resale_value() -> None:
    terms = BookTerms("ifrs_16", LIFE, 0.3, 0.1)
    found = booked(None, None, terms, HOLDINGS)
    # 1,100 to 300 over 24 months; the sale brings 280 and the next machine stands at 1,100
    assert found[12].balances_usd["net"] == pytest.approx(1100 - 12 * 800 / 24)
    assert found[12].balances_usd["accumulated"] == pytest.approx(400)
    assert found[24].balances_usd["net"] == pytest.approx(1100)
    assert found[24].expenses_usd["disposal_loss"] == pytest.approx(20)
    # nine of 24 months later it stands at 800 and brings 480
    assert found[33].expenses_usd["disposal_loss"] == pytest.approx(800 - 480)
    assert found[33].balances_usd["net"] == pytest.approx(0)


def test_vat_is_a_receivable_and_net_60_is_payable() -> None:
    terms = BookTerms("ifrs_16", LIFE, 0.3, 0.1)
    vat, net = ([replace(HOLDINGS[0], moved_usd=moved)] for moved in (VAT, ((0, -1000.0), (2, 1000.0))))
    first, second = (booked(None, None, terms, holdings) for holdings in (vat, net))
    assert [at.balances_usd["receivable"] for at in first[:3]] == pytest.approx([130, 130, 0])
    assert [at.balances_usd["payable"] for at in second[:3]] == pytest.approx([1000, 1000, 0])
    assert second[0].balances_usd["paid_in"] == pytest.approx(100)


def test_a_lease_is_that_of_the_illustrative_example() -> None:
    # IFRS 16 example 13: 50,000 a year in advance for ten years at 5 %
    first, second = lease_schedule([50_000.0] * 10, 0.05, 10)[:2]
    assert (first.liability_usd, first.asset_usd) == (pytest.approx(355_391, abs=0.5), pytest.approx(405_391, abs=0.5))
    assert second.interest_usd == pytest.approx(0.05 * 355_391.08, abs=0.01)
    assert second.amortisation_usd == pytest.approx(40_539.1, abs=0.1)
    level = lease_schedule([50_000.0] * 10, 0.05, 10, level_cost=True)
    assert [at.interest_usd + at.amortisation_usd for at in level[1:]] == pytest.approx([50_000] * 10)
    for schedule in (lease_schedule([50_000.0] * 10, 0.05, 10), level):
        assert schedule[-1].liability_usd == pytest.approx(0, abs=1e-6)
        assert schedule[-1].asset_usd == pytest.approx(0, abs=1e-6)


def test_leases_that_do_not_fit_are_refused() -> None:
    basis = {"method": "annuity", "discount_rate": 0.1, "life_years": 4}
    loan, lease = {"share": 0.5, "rate": 0.1, "term_months": 12}, {"term_months": 36, "rate": 0.1}
    for terms, what in (
        ({"loan": loan, "lease": lease | {"at_end": "extend"}}, "loan and lease finance the same purchase: remove one"),
        ({"lease": lease}, "returned leases of 36 months do not fill life_years"),
        ({"lease": lease | {"term_months": 60, "at_end": "extend"}}, "the lease of 60 months outlasts life_years"),
        ({"lease": lease | {"at_end": "buy"}, "books": "asc_842_operating"}, "is a finance lease"),
    ):
        with pytest.raises(ValueError, match=what):
            Annuity.model_validate(basis | terms)
