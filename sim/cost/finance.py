"""What a purchase costs per hour of its life: its price as equal payments at the end of every month.

C price, R resale value at the end, n life in months, r discount rate per year, i = (1 + r)^(1/12) - 1 per month.

    straight line   (C - R) / n
    annuity         (C - R / (1 + i)^n) * i / (1 - (1 + i)^-n)

The second is the "capital recovery with salvage value" of engineering economics: the equal payment whose present
value is the price less the present value of the resale. The first is the second without interest. The method says
how the books spread a purchase; net present values are taken at `discount_rate`, whatever the method. The resale
value falls with the hardware's age, fastest at first. docs/money.md has the convention that all commands share.
"""

from abc import abstractmethod
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from sim.catalogue.market import SYNONYMS, USD, CurrencyCode, iso_code
from sim.cost.time_value import MONTHS_PER_YEAR, annuity_factor, discount_factor
from sim.spec import Fraction, Positive, Spec
from sim.units import HOURS_PER_MONTH

Age = Annotated[float, Field(gt=0)]
"""Years; as the key of a mapping it may come back from JSON as text."""


class Resale(Spec):
    """Resale value by age, either as a rate of loss or as a table."""

    loss_per_year: Fraction | None = None
    """Share of the remaining value that every year takes (declining balance)."""
    by_age: Annotated[dict[Age, Fraction], Field(min_length=1)] | None = None
    """Age in years -> share of the price; between two ages, and from 1 when new, along straight lines."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.loss_per_year is None) == (self.by_age is None):
            raise ValueError("either loss_per_year or by_age is needed")
        return self

    @property
    def last_age(self) -> float:
        """Oldest age that has a value [years]."""
        return max(self.by_age) if self.by_age else float("inf")

    def fraction(self, age_years: float) -> float:
        """Share of the price that is left at *age_years*, at most `last_age`.

        Declining balance is (1 - loss)^age, the book value of accounting textbooks.

        >>> round(6000 * Resale(loss_per_year=0.4).fraction(3))
        1296
        """
        if self.by_age is None:
            return float((1 - (self.loss_per_year or 0.0)) ** age_years)
        known = sorted({0.0: 1.0, **self.by_age}.items())
        for (before, high), (after, low) in pairwise(known):
            if age_years <= after:
                return high + (low - high) * (age_years - before) / (after - before)
        raise ValueError(f"no resale value is known beyond {known[-1][0]:g} years")


RunningLine = Literal[
    "energy",
    "cooling",
    "demand",
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
"""Lines of the bill that are paid month by month, as costs.csv names them, and the API."""
Growth = Annotated[float, Field(gt=-1, le=1)]


class _Purchase(Spec):
    """What both methods need to know of a purchase."""

    life_years: Annotated[Positive, Field(le=100)]
    """Years until the hardware is sold or scrapped."""
    residual_fraction: Fraction = 0.0
    """Resale value at the end of its life, as a share of the price; null leaves it out, over a base and without one."""
    resale: Resale | None = None
    """Resale value by age, in place of residual_fraction: the life then decides what the hardware still fetches."""
    fx: dict[CurrencyCode, Positive] = Field(default_factory=dict)
    """US dollars per unit of another currency in which a price is stated, for example {RMB: 0.138}."""
    currency: CurrencyCode = USD
    """Currency in which reports show money, beside US dollars in tables; `fx` has its rate."""
    inflation: dict[RunningLine, Growth] = Field(default_factory=dict)
    """Line of the bill -> how much dearer it gets per year, a fraction: {energy: 0.03, staff: 0.02}. It counts where
    years are looked at (breakeven, plan); `run` shows the prices of the first month."""

    @model_validator(mode="before")
    @classmethod
    def _without_residual(cls, data: Any) -> Any:
        """Read `residual_fraction: null`, which a file states beside `resale`, alike with a base and without one."""
        if isinstance(data, dict) and data.get("residual_fraction", 0) is None:
            return {name: value for name, value in data.items() if name != "residual_fraction"}
        return data

    @model_validator(mode="after")
    def _dollars_are_one(self) -> Self:
        if self.fx.get(USD, 1.0) != 1.0:
            raise ValueError("fx is in US dollars: remove USD from it")
        named: dict[str, str] = {}
        for code in self.fx:
            if (other := named.setdefault(iso_code(code), code)) != code:
                raise ValueError(f"fx has one currency twice, as {other} and {code}: give one of them")
        return self

    @model_validator(mode="after")
    def _one_resale_value(self) -> Self:
        if self.resale is None:
            return self
        if "residual_fraction" in self.model_fields_set:
            raise ValueError("residual_fraction and resale both give the resale value: state one")
        if self.life_years > self.resale.last_age:
            text = f"life_years is {self.life_years:g}, resale.by_age ends at {self.resale.last_age:g}"
            raise ValueError(f"{text}: add the value at {self.life_years:g}")
        return self

    @property
    def rates(self) -> dict[str, float]:
        """US dollars per unit of each currency of `fx`, under all names of it: RMB and CNY."""
        found = {iso_code(code): usd for code, usd in self.fx.items()}
        return {**found, **{code: found[iso] for code, iso in SYNONYMS.items() if iso in found}}

    @property
    @abstractmethod
    def rate_per_year(self) -> float:
        """Discount rate of net present values, per year."""

    @property
    @abstractmethod
    def spread_rate_per_year(self) -> float:
        """Interest at which the books spread a purchase over its life, per year."""

    @abstractmethod
    def levelised(self, rate_per_year: float) -> "StraightLine | Annuity":
        """Return these terms with purchases spread as the equal payments that are worth the same at *rate_per_year*."""

    @property
    def life_months(self) -> float:
        """The life in months."""
        return self.life_years * MONTHS_PER_YEAR

    @property
    def whole_life_months(self) -> int:
        """The life in whole months, one at least: how long hardware stays in a plan by months."""
        return max(1, round(self.life_months))

    @property
    def resale_fraction(self) -> float:
        """Resale value at the end of the life, as a share of the price."""
        return self.residual_fraction if self.resale is None else self.resale.fraction(self.life_years)

    def value_fraction(self, age_years: float) -> float:
        """Share of its price that hardware of *age_years* fetches; after its life that at its end.

        The resale by age where it is stated; else a straight line from the price when new to `residual_fraction` at the
        end of the life, the book value of straight-line depreciation.
        """
        if self.resale is not None:
            return self.resale.fraction(min(age_years, self.life_years))
        return 1 - (1 - self.residual_fraction) * min(1.0, age_years / self.life_years)

    def usd_per_h(self, price_usd: float) -> float:
        """Cost of owning something bought for *price_usd* and sold at the end of its life [USD/h]."""
        return self.sunk_usd_per_h(price_usd) - self.end_usd_per_h(price_usd * self.resale_fraction)

    def sunk_usd_per_h(self, paid_usd: float) -> float:
        """Cost of *paid_usd* at the start, of which nothing comes back [USD/h]."""
        return paid_usd / annuity_factor(self.spread_rate_per_year, self.life_months) / HOURS_PER_MONTH

    def end_usd_per_h(self, paid_usd: float) -> float:
        """Cost of *paid_usd* that falls due at the end of the life [USD/h]: the sinking fund that gathers it."""
        return self.sunk_usd_per_h(paid_usd * discount_factor(self.spread_rate_per_year, self.life_months))

    def growth_of(self, line: str) -> float:
        """Return the growth of the price of *line* per year, a fraction."""
        return next((growth for name, growth in self.inflation.items() if name == line), 0.0)


class StraightLine(_Purchase):
    """The loss of value in equal parts over the life, without interest on the capital that is still bound."""

    method: Literal["straight_line"]
    discount_rate: Fraction = 0.0
    """Discount rate of net present values per year, as a fraction: `breakeven`, `plan` and `size` compare by it. The
    books of `run` leave it out. Left out: 0, which these answers say."""

    @property
    def rate_per_year(self) -> float:
        """Discount rate of net present values, per year."""
        return self.discount_rate

    @property
    def spread_rate_per_year(self) -> float:
        """Interest in the books: none."""
        return 0.0

    @property
    def states_rate(self) -> bool:
        """Whether the scenario states the discount rate."""
        return "discount_rate" in self.model_fields_set

    def levelised(self, rate_per_year: float) -> "StraightLine | Annuity":
        """Return these terms with the method `annuity` at *rate_per_year*; without interest they are the same."""
        if rate_per_year == 0:
            return self
        kept = {name: getattr(self, name) for name in self.model_fields_set - {"method", "discount_rate"}}
        return Annuity(method="annuity", discount_rate=rate_per_year, **kept)


class Annuity(_Purchase):
    """Equal payments that also earn the discount rate on the capital that is still bound."""

    method: Literal["annuity"]
    discount_rate: Fraction
    """Cost of capital per year, as a fraction: interest in the books, and the discount rate of net present values."""

    @property
    def rate_per_year(self) -> float:
        """Discount rate of net present values, per year."""
        return self.discount_rate

    @property
    def spread_rate_per_year(self) -> float:
        """Interest in the books: the discount rate."""
        return self.discount_rate

    @property
    def states_rate(self) -> bool:
        """Whether the scenario states the discount rate: this method needs it."""
        return True

    def levelised(self, rate_per_year: float) -> "Annuity":
        """Return these terms at *rate_per_year*."""
        same = rate_per_year == self.discount_rate
        return self if same else self.model_copy(update={"discount_rate": rate_per_year})


Finance = Annotated[StraightLine | Annuity, Field(discriminator="method")]
