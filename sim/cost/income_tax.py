"""Income tax of the buyer: deductions of purchases by fiscal year, and the use of losses.

Fiscal years are those of `FiscalYears`. Published rules of depreciation are in data/tax.yaml.
"""

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from itertools import pairwise
from math import fsum
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field, field_validator, model_validator

from sim import yamlio
from sim.catalogue.data_folder import UnknownId, data_root
from sim.cost.time_value import MONTHS_PER_YEAR
from sim.message import Message
from sim.spec import Count, Fraction, NonNegative, Spec

Share = Annotated[Fraction, Field(gt=0)]
MACRS_5 = (0.2, 0.32, 0.192, 0.1152, 0.1152, 0.0576)


class TaxDepreciation(Spec):
    """Depreciation of a purchase for income tax."""

    rule: str | None = None
    """Published rule in data/tax.yaml, in place of the keys below except bonus: us-macrs-5, cn-electronics, ..."""
    table: tuple[Fraction, ...] | None = None
    """Fraction of the price deducted in each fiscal year, in place of the keys below except bonus; they sum to 1."""
    method: Literal["straight_line", "declining_balance", "macrs_5"] = "straight_line"
    """straight_line: equal parts over `years`. declining_balance: a rate of the remaining value. macrs_5: the five-year
    table of the US, half-year convention."""
    years: Annotated[Count, Field(le=50)] = 5
    """Tax years of the method; macrs_5 always spreads over six."""
    factor: Annotated[float, Field(ge=1, le=10)] | None = None
    """Rate of declining_balance as a multiple of the straight line; default: 2 (double declining)."""
    rate: Share | None = None
    """Rate of declining_balance per year, as a fraction of the remaining value, in place of `factor`."""
    switch: bool = True
    """True if declining_balance changes to equal parts once they deduct as much; without, the last year deducts the
    rest."""
    half_year: bool = False
    """True if the first year counts half, and half a year follows at the end (half-year convention)."""
    bonus: Fraction = 0.0
    """Fraction of the price that is deducted in the first tax year; the rest follows the method."""

    @field_validator("rule")
    @classmethod
    def _is_known(cls, rule: str | None) -> str | None:
        if rule is not None and rule not in published_rules():
            near = tuple(get_close_matches(rule, published_rules(), n=3, cutoff=0.5))
            raise UnknownId("rule of depreciation", rule, near or tuple(published_rules()))
        return rule

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        # null removes a key of a base
        stated = {name for name in self.model_fields_set - {"bonus"} if getattr(self, name) is not None}
        for key in ("rule", "table"):
            if getattr(self, key) is not None and (others := sorted(stated - {key})):
                raise ValueError(
                    Message("{key} states the whole depreciation: remove {others}", key, ", ".join(others))
                )
        if self.table is not None and abs(fsum(self.table) - 1) > 1e-6:
            raise ValueError(Message("table sums to {sum:g}: its fractions must sum to 1", fsum(self.table)))
        if self.method == "macrs_5" and self.years != 5:
            raise ValueError(
                Message("macrs_5 has five years, not {years}: remove years, or take method: straight_line", self.years)
            )
        if self.method == "macrs_5" and self.half_year:
            raise ValueError("macrs_5 has the half-year convention already: remove half_year")
        if self.method != "declining_balance" and (others := sorted(stated & {"factor", "rate", "switch"})):
            raise ValueError(
                Message("{others}: only of method: declining_balance, not of {method}", ", ".join(others), self.method)
            )
        if self.factor is not None and self.rate is not None:
            raise ValueError("factor and rate both give the rate of declining_balance: state one")
        return self

    @property
    def fractions(self) -> tuple[float, ...]:
        """Fraction of the price deducted in each year from the delivery; their sum is 1.

        Notes
        -----
        Declining balance over n years deducts the larger of r and, with `switch`, 1 / (years left) of the remaining
        value; r = factor / n. With the half-year convention the first year deducts half of it.

        References
        ----------
        IRS Publication 946, chapter 4 (Figuring the Deduction Without Tables) and Table A-1, 5-year property: 20, 32,
        19.2, 11.52, 11.52 and 5.76 %.

        Examples
        --------
        >>> double = TaxDepreciation(method="declining_balance", half_year=True)
        >>> [round(100 * each, 2) for each in double.fractions]
        [20.0, 32.0, 19.2, 11.52, 11.52, 5.76]

        """
        return self.by_fiscal_year(0)

    def by_fiscal_year(self, months: int) -> tuple[float, ...]:
        """Return the fraction of the price deducted in each fiscal year, from that of the delivery on; their sum is 1.

        Parameters
        ----------
        months
            Months of the fiscal year that have passed at the delivery, 0 to 11.

        Notes
        -----
        With m months passed, fiscal year k deducts (1 - m/12) f_k + m/12 f_(k-1) of the fractions f of the years from
        delivery (pro rata temporis). A table and the half-year convention state fiscal years, in all of which m is 0;
        the bonus is deducted in the first.

        References
        ----------
        IRS Publication 946, chapter 4 (Which Convention Applies?); German Income Tax Act, section 7 (1) sentence 4.

        Examples
        --------
        >>> TaxDepreciation(years=2).by_fiscal_year(9)
        (0.125, 0.5, 0.375)
        >>> TaxDepreciation(years=2, half_year=True).by_fiscal_year(9)
        (0.25, 0.5, 0.25)

        """
        later = months / MONTHS_PER_YEAR
        if self.rule is not None:
            usual: Sequence[float] = published_rules()[self.rule].terms.by_fiscal_year(months)
        elif self.table is not None:
            usual = self.table
        elif self.method == "macrs_5":
            usual = MACRS_5
        else:
            usual = tuple(self._by_year())
            if later and not self.half_year:
                pairs = zip([*usual, 0.0], [0.0, *usual], strict=True)
                usual = [(1 - later) * now + later * before for now, before in pairs]
        rest = [(1 - self.bonus) * each for each in usual]
        return (self.bonus + rest[0], *rest[1:])

    def _by_year(self) -> Iterator[float]:
        """Yield the fraction of the price that each year deducts."""
        declines = self.method == "declining_balance"
        rate = (self.rate or min(1.0, (self.factor or 2.0) / self.years)) if declines else 0.0
        ends = {0.0, *(year - 0.5 * self.half_year for year in range(1, self.years + 1)), float(self.years)}
        left = 1.0
        for before, after in pairwise(sorted(ends)):
            part = after - before
            equal = part / (self.years - before)
            taken = 1.0 if after == self.years else max(rate * part, equal if self.switch or not declines else 0.0)
            yield taken * left
            left -= taken * left


class DepreciationRule(Spec):
    """Published rule of depreciation, an entry of data/tax.yaml."""

    title: str
    """Assets and country that it is for."""
    terms: TaxDepreciation
    source: str
    """Key in data/sources.yaml."""
    where: str
    """Place in the source."""
    as_of: str
    """Date since which the rule has been as stated."""


@cache
def published_rules() -> Mapping[str, DepreciationRule]:
    """Return the rules of data/tax.yaml by id."""
    document = yamlio.read(data_root() / "tax.yaml").data
    return {name: DepreciationRule.model_validate(entry) for name, entry in document["depreciation"].items()}


class IncomeTax(Spec):
    """Income tax of the buyer."""

    rate: Fraction
    """Tax rate on profits, as a fraction: 0.25 is 25 %."""
    depreciation: TaxDepreciation = Field(default_factory=TaxDepreciation)
    """Deduction of purchases."""
    losses: Literal["used_at_once", "carried_forward"] = "used_at_once"
    """used_at_once: the buyer has other profits from which all is deducted. carried_forward: deductions beyond
    `profit_usd_per_year` reduce the profits of later years, and are lost where no later year uses them."""
    profit_usd_per_year: NonNegative | None = None
    """Profit of a fiscal year before these costs, beside the `revenue` of tokens, with losses carried forward [USD]."""
    loss_use_limit: Share = 1.0
    """Largest fraction of a year's profit that losses of earlier years reduce."""
    loss_years: Count | None = None
    """Years for which a loss is carried forward; default: no end."""

    @model_validator(mode="after")
    def _losses_have_profits(self) -> Self:
        carried = self.losses == "carried_forward"
        if carried and self.profit_usd_per_year is None:
            raise ValueError("losses carried forward need profit_usd_per_year, the profit before these costs")
        # a base with carried losses is overridden by these values
        idle = {"profit_usd_per_year": None, "loss_use_limit": 1.0, "loss_years": None}
        if not carried and (others := [name for name, value in idle.items() if getattr(self, name) != value]):
            raise ValueError(Message("{others}: only with losses: carried_forward", ", ".join(others)))
        return self

    def reliefs(
        self, deducted_usd: Sequence[float], months: Sequence[int], revenue_usd: Sequence[float] = ()
    ) -> list[float]:
        """Return the tax saved by each fiscal year's deductions, with losses carried forward [USD].

        Parameters
        ----------
        deducted_usd
            Deductions of each fiscal year [USD]; negative where a sale's gain exceeds them.
        months
            Months of each fiscal year; the last one may be shorter.
        revenue_usd
            Revenue of each fiscal year, part of the profit before these costs [USD]; empty: none.

        Notes
        -----
        With the profit P before these costs and the deductions D: t (P - taxable), taxable = max(0, P - D) less losses
        of earlier years, the oldest first, of at most `loss_use_limit` of it.

        Examples
        --------
        >>> tax = IncomeTax(rate=0.25, losses="carried_forward", profit_usd_per_year=100.0, loss_use_limit=0.8)
        >>> tax.reliefs([300.0, 0.0, 0.0, 0.0], [12] * 4)  # 200 are carried: 80, 80 and 40 of them are used
        [25.0, 20.0, 20.0, 10.0]

        """
        assert self.profit_usd_per_year is not None
        carried: list[_Loss] = []
        found = []
        for year, (deducted, count) in enumerate(zip(deducted_usd, months, strict=True)):
            usual = self.profit_usd_per_year * count / MONTHS_PER_YEAR + (revenue_usd[year] if revenue_usd else 0.0)
            profit = usual - deducted
            carried = [one for one in carried if self.loss_years is None or year - one.year <= self.loss_years]
            usable = self.loss_use_limit * max(0.0, profit)
            left = []
            for one in carried:
                used = min(one.usd, usable)
                usable, profit = usable - used, profit - used
                left.append(_Loss(one.year, one.usd - used))
            carried = left if profit >= 0 else [*left, _Loss(year, -profit)]
            found.append(self.rate * (usual - max(0.0, profit)))
        return found


class _Loss(NamedTuple):
    year: int
    usd: float
