"""Financing of purchases: cost per hour of life, resale value and inflation.

The method determines how the books spread a purchase; net present values are taken at `discount_rate` with either
method. docs/money.md has the convention that all commands share.
"""

from abc import abstractmethod
from collections.abc import Iterable
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from sim.catalogue.market import SYNONYMS, USD, CurrencyCode, iso_code
from sim.cost.books import BookTerms, LeaseStandard
from sim.cost.financing import Lease, Loan, refuse_both
from sim.cost.income_tax import IncomeTax
from sim.cost.resale import Resale
from sim.cost.time_value import (
    FROM_DELIVERY,
    MONTHS_PER_YEAR,
    FiscalYears,
    annuity_factor,
    discount_factor,
    present_value,
)
from sim.message import Message
from sim.spec import Count, Fraction, Positive, Spec, Tagged
from sim.units import HOURS_PER_MONTH

OperatingCostLine = Literal[
    "energy",
    "cooling",
    "demand",
    "power_contract",
    "carbon_price",
    "hosting",
    "staff",
    "software",
    "egress",
    "maintenance",
    "failures",
    "rental",
    "rental_reserved",
    "unused commitment",
    "rental_spot",
    "spot_interruptions",
    "api",
]
"""Components of the bill that are paid month by month, as named in costs.csv, and the API."""
Growth = Annotated[float, Field(gt=-1, le=1)]


class _PurchaseTerms(Spec):
    """Purchase terms of both methods.

    Notes
    -----
    With price C, resale value R at the end, life n in months, discount rate r per year and i = (1 + r)^(1/12) - 1 per
    month, the equal payment at the end of every month is

        straight line   (C - R) / n
        annuity         (C - R / (1 + i)^n) * i / (1 - (1 + i)^-n)

    The annuity is the "capital recovery with salvage value" of engineering economics: the equal payment whose present
    value is the price less the present value of the resale. The straight line is the annuity without interest.

    """

    life_years: Annotated[Positive, Field(le=100)]
    """Years until the hardware is sold or scrapped."""
    residual_fraction: Fraction = 0.0
    """Resale value at the end of the life, as a fraction of the price; null counts as not stated."""
    resale: Resale | None = None
    """Resale value by age, in place of residual_fraction; evaluated at the end of the life."""
    fx: dict[CurrencyCode, Positive] = Field(default_factory=dict)
    """US dollars per unit of each other currency in which a price is stated, for example {RMB: 0.138}."""
    currency: CurrencyCode = USD
    """Currency in which reports show amounts, in addition to US dollars in tables; `fx` has its rate."""
    inflation: dict[OperatingCostLine, Growth] = Field(default_factory=dict)
    """Component of the bill -> price increase per year, as a fraction: {energy: 0.03, staff: 0.02}. Used where several
    years are compared (breakeven, plan); `run` shows the prices of the first month."""
    general_inflation: Growth | None = None
    """Loss of purchasing power per year, as a fraction: `breakeven` and `plan` add rates of return and levelised costs
    in today's money (real) to the nominal ones. Raises no price; see `inflation`."""

    loan: Loan | None = None
    """Loan on purchases; `breakeven` and `plan` add cash and cost after it, `run` states costs before financing."""
    lease: Lease | None = None
    """Lease of the hardware in place of its purchase; `breakeven` and `plan` add cash and cost after it."""
    tax: IncomeTax | None = None
    """Income tax of the buyer; `breakeven` and `plan` add cash and cost after it, `run` states costs before tax."""

    fiscal_year_start_month: Annotated[Count, Field(le=12)] | None = None
    """First calendar month of the company's fiscal year (4: April), for tax, books and cash by fiscal year. Default:
    years from the delivery or the plan's start. Needs `plan.starts` or `price_paths.starts`."""
    books: LeaseStandard | None = None
    """Books of `breakeven` and `plan` (books.csv), with leases by this standard: ifrs_16, asc_842_finance or
    asc_842_operating."""

    @model_validator(mode="before")
    @classmethod
    def _without_residual(cls, data: Any) -> Any:
        """Remove a null `residual_fraction`, which a file may state next to `resale`, with or without a base file."""
        if isinstance(data, dict) and data.get("residual_fraction", 0) is None:
            return {name: value for name, value in data.items() if name != "residual_fraction"}
        return data

    @field_validator("inflation", mode="before")
    @classmethod
    def _by_line(cls, value: Any) -> Any:
        if isinstance(value, int | float):
            raise ValueError(
                "the price increase of each line is needed, such as {energy: 0.03}; a single rate is general_inflation"
            )
        return value

    @model_validator(mode="after")
    def _dollars_are_one(self) -> Self:
        if self.fx.get(USD, 1.0) != 1.0:
            raise ValueError("fx is in US dollars: remove USD from it")
        named: dict[str, str] = {}
        for code in self.fx:
            if (other := named.setdefault(iso_code(code), code)) != code:
                raise ValueError(
                    Message("fx has one currency twice, as {first} and {second}: give one of them", other, code)
                )
        return self

    @field_validator("lease")
    @classmethod
    def _instead_of_a_loan(cls, lease: Lease | None, info: ValidationInfo) -> Lease | None:
        # here, not after all fields: reported beside errors of other fields; a loan with an error is missing from data
        refuse_both("loan" not in info.data or info.data["loan"] is not None, lease is not None)
        return lease

    @model_validator(mode="after")
    def _lease_fits(self) -> Self:
        if self.lease is not None and (text := self.misfit(self.lease)):
            raise ValueError(text)
        return self

    @property
    def book_terms(self) -> BookTerms | None:
        """Terms of the books; None without books."""
        if self.books is None:
            return None
        return BookTerms(self.books, self.whole_life_months, self.resale_fraction, self.rate_per_year)

    def fiscal_years(self, starts: str | None) -> FiscalYears:
        """Return the fiscal years from the calendar month *starts* (2027-01) on; None: without a date."""
        if self.fiscal_year_start_month is None or starts is None:
            return FROM_DELIVERY
        return FiscalYears((int(starts[-2:]) - self.fiscal_year_start_month) % MONTHS_PER_YEAR, starts)

    def misfit(self, lease: Lease) -> Message | None:
        """Return why the terms of *lease* do not fit the life of the hardware or the books; None if they do."""
        if self.books == "asc_842_operating" and lease.at_end == "buy":
            return Message("a lease that ends with a purchase is a finance lease: set books: asc_842_finance")
        if lease.at_end == "return" and self.whole_life_months % lease.term_months:
            return Message(
                "returned leases of {months} months do not fill life_years ({life:g}): choose a whole part of it, or "
                "at_end: extend or buy",
                lease.term_months,
                self.life_years,
            )
        if lease.term_months <= self.whole_life_months:
            return None
        return Message(
            "the lease of {months} months outlasts life_years ({life:g}): shorten term_months, or raise life_years",
            lease.term_months,
            self.life_years,
        )

    @property
    def is_financed(self) -> bool:
        """True if a loan, a lease, a tax or books are stated."""
        return bool(self.loan or self.lease or self.tax or self.books)

    @model_validator(mode="after")
    def _one_resale_value(self) -> Self:
        if self.resale is None:
            return self
        if "residual_fraction" in self.model_fields_set:
            raise ValueError("residual_fraction and resale both give the resale value: state one")
        if self.life_years > self.resale.last_age:
            text = Message(
                "life_years is {life_years:g}, resale.by_age ends at {last_age:g}",
                self.life_years,
                self.resale.last_age,
            )
            raise ValueError(Message("{text}: add the value at {life_years:g}", text, self.life_years))
        return self

    @property
    def rates(self) -> dict[str, float]:
        """Exchange rates by currency of `fx`, under all of its codes such as RMB and CNY [USD per unit]."""
        found = {iso_code(code): usd for code, usd in self.fx.items()}
        return {**found, **{code: found[iso] for code, iso in SYNONYMS.items() if iso in found}}

    @property
    @abstractmethod
    def rate_per_year(self) -> float:
        """Discount rate of net present values, per year."""

    @property
    @abstractmethod
    def spread_rate_per_year(self) -> float:
        """Interest rate at which the books spread a purchase over its life, per year."""

    @abstractmethod
    def levelised(self, rate_per_year: float) -> "StraightLine | Annuity":
        """Return these terms with the books' method replaced by the annuity at *rate_per_year*."""

    @property
    def life_months(self) -> float:
        """Life of the hardware [months]."""
        return self.life_years * MONTHS_PER_YEAR

    @property
    def whole_life_months(self) -> int:
        """Life of the hardware in whole months, at least 1, as used by monthly plans."""
        return max(1, round(self.life_months))

    @property
    def resale_fraction(self) -> float:
        """Resale value at the end of the life, as a fraction of the price."""
        return self.residual_fraction if self.resale is None else self.resale.fraction(self.life_years)

    def value_fraction(self, age_years: float) -> float:
        """Return the resale value of hardware of *age_years*, as a fraction of its price.

        The value follows `resale` if stated, else a straight line from the price when new to `residual_fraction` at the
        end of the life (the book value of straight-line depreciation). After the end of the life it stays constant.
        """
        if self.resale is not None:
            return self.resale.fraction(min(age_years, self.life_years))
        used = min(1.0, age_years / self.life_years)
        return 1 - used + self.residual_fraction * used  # exact at both ends

    def usd_per_h(self, price_usd: float) -> float:
        """Return the cost of hardware bought for *price_usd* and resold at the end of its life [USD/h].

        The equation is in the notes on the class.
        """
        return self.sunk_usd_per_h(price_usd) - self.end_usd_per_h(price_usd * self.resale_fraction)

    def sunk_usd_per_h(self, paid_usd: float) -> float:
        """Return the cost of a payment of *paid_usd* at the start, without resale [USD/h]."""
        return paid_usd / annuity_factor(self.spread_rate_per_year, self.life_months) / HOURS_PER_MONTH

    def end_usd_per_h(self, paid_usd: float) -> float:
        """Return the cost of a payment of *paid_usd* at the end of the life, as sinking fund [USD/h]."""
        return self.sunk_usd_per_h(paid_usd * discount_factor(self.spread_rate_per_year, self.life_months))

    def moved_usd_per_h(self, moved_usd: Iterable[tuple[int, float]]) -> float:
        """Return the cost of payments (month from delivery, amount [USD]) that sum to 0 [USD/h].

        Payments before the delivery count at the delivery, those after the life at its end.
        """
        within = ((min(max(0, month), self.whole_life_months), usd) for month, usd in moved_usd)
        return self.sunk_usd_per_h(present_value(self.spread_rate_per_year, within))

    @property
    def book_fractions(self) -> list[float]:
        """Book value at the start of each month of the life, as a fraction of the price.

        The straight line from the price to the resale value at the end of the life.
        """
        lost = (1 - self.resale_fraction) / self.whole_life_months
        return [1 - lost * month for month in range(self.whole_life_months)]

    def growth_of(self, line: str) -> float:
        """Return the price increase of *line* per year, as a fraction."""
        return next((growth for name, growth in self.inflation.items() if name == line), 0.0)


class StraightLine(_PurchaseTerms):
    """Straight-line depreciation: equal parts of the loss of value, without interest on capital."""

    method: Literal["straight_line"]
    discount_rate: Fraction = 0.0
    """Discount rate of net present values per year, as a fraction, used by `breakeven`, `plan` and `size`; the books of
    `run` exclude it. Default: 0, as these answers state."""

    @property
    def rate_per_year(self) -> float:
        """Discount rate of net present values, per year."""
        return self.discount_rate

    @property
    def spread_rate_per_year(self) -> float:
        """Interest rate in the books; always 0."""
        return 0.0

    @property
    def states_rate(self) -> bool:
        """True if the scenario states the discount rate."""
        return "discount_rate" in self.model_fields_set

    def levelised(self, rate_per_year: float) -> "StraightLine | Annuity":
        """Return these terms with the method `annuity` at *rate_per_year*; unchanged at 0."""
        if rate_per_year == 0:
            return self
        kept = {name: getattr(self, name) for name in self.model_fields_set - {"method", "discount_rate"}}
        return Annuity(method="annuity", discount_rate=rate_per_year, **kept)


class Annuity(_PurchaseTerms):
    """Annuity: equal payments that include interest on the capital at the discount rate."""

    method: Literal["annuity"]
    discount_rate: Fraction
    """Cost of capital per year, as a fraction: interest rate in the books, and discount rate of net present values."""

    @property
    def rate_per_year(self) -> float:
        """Discount rate of net present values, per year."""
        return self.discount_rate

    @property
    def spread_rate_per_year(self) -> float:
        """Interest rate in the books, equal to the discount rate."""
        return self.discount_rate

    @property
    def states_rate(self) -> bool:
        """True: this method requires a discount rate."""
        return True

    def levelised(self, rate_per_year: float) -> "Annuity":
        """Return these terms at *rate_per_year*."""
        same = rate_per_year == self.discount_rate
        return self if same else self.model_copy(update={"discount_rate": rate_per_year})


Finance = Annotated[StraightLine | Annuity, Tagged("method")]
