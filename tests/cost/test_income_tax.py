"""Depreciation for income tax and the use of losses: published tables, and laws over random terms."""

from math import fsum

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from sim.cost.financing import Holding, financed
from sim.cost.income_tax import IncomeTax, TaxDepreciation, published_rules

DECLINING = st.builds(
    TaxDepreciation,
    method=st.just("declining_balance"),
    years=st.integers(1, 30),
    factor=st.floats(1, 10),
    switch=st.booleans(),
    half_year=st.booleans(),
    bonus=st.floats(0, 1),
)
DEPRECIATIONS = st.one_of(
    st.builds(TaxDepreciation, years=st.integers(1, 20), bonus=st.floats(0, 1), half_year=st.booleans()),
    st.builds(lambda bonus: TaxDepreciation(method="macrs_5", bonus=bonus), st.floats(0, 1)),
    st.builds(lambda name: TaxDepreciation(rule=name), st.sampled_from(sorted(published_rules()))),
    DECLINING,
)


@pytest.mark.parametrize(
    ("terms", "percent"),
    [
        # IRS Publication 946, Table A-1 (half-year convention): 3-, 5- and 7-year property
        ({"method": "declining_balance", "years": 3, "half_year": True}, [33.33, 44.45, 14.81, 7.41]),
        ({"method": "declining_balance", "years": 5, "half_year": True}, [20, 32, 19.2, 11.52, 11.52, 5.76]),
        (
            {"method": "declining_balance", "years": 7, "half_year": True},
            [14.29, 24.49, 17.49, 12.49, 8.93, 8.92, 8.93, 4.46],
        ),
        # 15-year property: 150 % declining balance
        (
            {"method": "declining_balance", "factor": 1.5, "years": 15, "half_year": True},
            [5, 9.5, 8.55, 7.7, 6.93, 6.23, *[5.9, 5.9, 5.91] * 3, 2.95],
        ),
        # Table A-8, straight line with the half-year convention
        ({"rule": "us-ads-5"}, [10, 20, 20, 20, 20, 10]),
        ({"method": "macrs_5", "bonus": 0.6}, [68, 12.8, 7.68, 4.608, 4.608, 2.304]),
        # without the convention: 40 % of what is left, then equal parts
        ({"method": "declining_balance", "years": 5}, [40, 24, 14.4, 10.8, 10.8]),
        ({"method": "declining_balance", "years": 5, "switch": False}, [40, 24, 14.4, 8.64, 12.96]),
        ({"method": "declining_balance", "years": 4, "rate": 0.25, "switch": False}, [25, 18.75, 14.0625, 42.1875]),
        # coefficient 1.75 over five years is 35 %
        ({"rule": "fr-declining-5"}, [35, 22.75, 14.7875, 13.73125, 13.73125]),
        ({"table": [0.5, 0.3, 0.2]}, [50, 30, 20]),
        ({"rule": "cn-electronics", "bonus": 0.1}, [40, 30, 30]),
    ],
)
def test_schedules_are_those_of_the_tables(terms: dict[str, object], percent: list[float]) -> None:
    found = TaxDepreciation.model_validate(terms).fractions
    assert [100 * each for each in found] == pytest.approx(percent, abs=0.0101)


@pytest.mark.slow
@given(DEPRECIATIONS, st.integers(0, 11))
def test_depreciation_sums_to_the_price(terms: TaxDepreciation, months: int) -> None:
    assert fsum(terms.by_fiscal_year(months)) == pytest.approx(1)
    assert min(terms.by_fiscal_year(months)) >= 0
    assert terms.by_fiscal_year(0) == terms.fractions


def test_a_purchase_within_a_fiscal_year_is_deducted_by_fiscal_year() -> None:
    # delivered after 18 months, sold after 42: six months of year 2, year 3, and all that is left in year 4
    holding = [Holding(18, 42, 1000.0, 200.0)]
    found = {}
    for name, terms in {"by month": {"years": 4}, "half": {"years": 4, "half_year": True, "bonus": 0.2}}.items():
        months = financed([0.0] * 60, holding, None, IncomeTax(rate=1.0, depreciation=TaxDepreciation(**terms)))
        found[name] = {one.month: usd for one in months if (usd := -one.lines_usd["income_tax"])}
    assert found["by month"] == pytest.approx({24: 125, 36: 250, 48: 425})
    assert found["half"] == pytest.approx({24: 200 + 100, 36: 200, 48: 300})


def test_the_example_of_the_irs_is_deducted_by_tax_year() -> None:
    # Publication 946, chapter 4, example 1: a basis of $1,000, placed in service in February; half-year convention
    tax = IncomeTax(rate=1.0, depreciation=TaxDepreciation(method="macrs_5"))
    months = financed([0.0] * 84, [Holding(1, 84, 1000.0, 0.0)], None, tax)
    assert [round(-months[12 * year].lines_usd["income_tax"]) for year in range(1, 8)] == [
        200,
        320,
        192,
        115,
        115,
        58,
        0,
    ]


CARRIED = st.builds(
    lambda **terms: IncomeTax(losses="carried_forward", **terms),
    rate=st.floats(0, 1),
    profit_usd_per_year=st.floats(0, 100),
    loss_use_limit=st.floats(0.01, 1),
    loss_years=st.none() | st.integers(1, 5),
)


@pytest.mark.slow
@given(tax=CARRIED, deducted=st.lists(st.floats(-50, 300), min_size=1, max_size=8))
def test_carried_losses_save_no_more_than_losses_used_at_once(tax: IncomeTax, deducted: list[float]) -> None:
    reliefs = tax.reliefs(deducted, [12] * len(deducted))
    so_far = [tax.rate * fsum(deducted[: year + 1]) for year in range(len(deducted))]
    assert all(fsum(reliefs[: year + 1]) <= at_once + 1e-9 for year, at_once in enumerate(so_far))
    assert all(relief <= tax.rate * (tax.profit_usd_per_year or 0) + 1e-9 for relief in reliefs)


@pytest.mark.slow
@given(rate=st.floats(0, 1), terms=DEPRECIATIONS, months=st.integers(1, 60))
def test_with_enough_profit_carrying_losses_changes_nothing(rate: float, terms: TaxDepreciation, months: int) -> None:
    holding = [Holding(0, months, 1000.0, 200.0)]
    ways = [
        financed([7.0] * months, holding, None, IncomeTax(rate=rate, depreciation=terms, **more))
        for more in ({}, {"losses": "carried_forward", "profit_usd_per_year": 1e6})
    ]
    once, carried = ([one.cost_usd for one in months] for months in ways)
    assert carried == pytest.approx(once, abs=1e-6)


def test_losses_are_carried_by_hand() -> None:
    # 900 of deductions against 300 of profit: 600 are carried, half of each profit at a time
    tax = {"rate": 0.2, "losses": "carried_forward", "profit_usd_per_year": 300.0, "loss_use_limit": 0.5}
    assert IncomeTax(**tax).reliefs([900.0, *[0.0] * 5], [12] * 6) == pytest.approx([60, 30, 30, 30, 30, 0])
    # after two years the rest is lost
    assert IncomeTax(**tax, loss_years=2).reliefs([900.0, *[0.0] * 5], [12] * 6) == pytest.approx([60, 30, 30, 0, 0, 0])
    # a last year of six months has half the profit
    assert IncomeTax(**tax).reliefs([400.0, 0.0], [12, 6]) == pytest.approx([60, 15])


@pytest.mark.parametrize(
    ("kind", "terms", "what"),
    [
        (TaxDepreciation, {"table": [0.5, 0.4]}, "table sums to 0.9: its fractions must sum to 1"),
        (TaxDepreciation, {"table": [50, 50]}, "less than or equal to 1"),
        (TaxDepreciation, {"table": [1.0], "years": 3}, "table states the whole depreciation: remove years"),
        (TaxDepreciation, {"rule": "cn-electronic"}, "did you mean cn-electronics?"),
        (TaxDepreciation, {"method": "macrs_5", "years": 3}, "macrs_5 has five years, not 3"),
        (TaxDepreciation, {"method": "macrs_5", "half_year": True}, "remove half_year"),
        (TaxDepreciation, {"factor": 2}, "factor: only of method: declining_balance, not of straight_line"),
        (TaxDepreciation, {"method": "declining_balance", "factor": 2, "rate": 0.4}, "state one"),
        (IncomeTax, {"rate": 25}, "rate\n  Input should be less than or equal to 1"),
        (IncomeTax, {"rate": 0.2, "losses": "carried_forward"}, "need profit_usd_per_year"),
        (IncomeTax, {"rate": 0.2, "loss_years": 5}, "loss_years: only with losses: carried_forward"),
        (IncomeTax, {"rate": 0.2, "losses": "carry_forward", "profit_usd_per_year": 5}, "losses\n  Input should be"),
    ],
)
def test_impossible_terms_are_refused(kind: type, terms: dict[str, object], what: str) -> None:
    with pytest.raises(ValidationError, match=what.replace("(", r"\(").replace("?", r"\?")):
        kind(**terms)


def test_null_removes_terms_of_a_base() -> None:
    assert TaxDepreciation(method="straight_line", factor=None).years == 5
    assert IncomeTax(rate=0.2, profit_usd_per_year=None, loss_use_limit=1, loss_years=None).losses == "used_at_once"


def test_published_rules_are_dated() -> None:
    assert all(rule.as_of <= "2026-11-28" and rule.where for rule in published_rules().values())
