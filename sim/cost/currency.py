"""A price in the scenario's terms: US dollars, or an amount in another currency with the rate that `finance.fx` has."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from math import isfinite
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field, PrivateAttr, SerializerFunctionWrapHandler, model_serializer

from sim.catalogue.market import CurrencyCode
from sim.cost.charge import Stated, UnitPrice
from sim.spec import NonNegative, Spec, within_reach

USD = "USD"


class StatedPrice(Spec):
    """An amount in a currency; a bare number in its place is US dollars."""

    price: NonNegative
    currency: CurrencyCode = USD
    """Other than USD: `finance.fx` has its rate."""
    _fx_rate: float | None = PrivateAttr(default=None)

    @model_serializer(mode="wrap")
    def _as_stated(self, dump: SerializerFunctionWrapHandler) -> Any:
        return self.price if self.model_fields_set == {"price"} else dump(self)

    def at(self, fx_rate: float) -> "StatedPrice":
        """A copy converted at *fx_rate* [USD per unit of its currency]."""
        rated = self.model_copy()
        rated._fx_rate = fx_rate
        return rated

    @property
    def fx_rate(self) -> float:
        """USD per unit of the currency. Raises ValueError where it is not stated."""
        if self.currency == USD:
            return 1.0
        if self._fx_rate is None:
            raise ValueError(f"{self.price:g} {self.currency} has no rate yet: see rated()")
        return self._fx_rate

    @property
    def usd(self) -> float:
        """The price in US dollars. Raises ValueError where the rate is not stated."""
        return self.price * self.fx_rate

    def stated(self, path: str, per: str = "") -> Stated:
        """The figure as the scenario has it at *path*, *per* unit of something."""
        return Stated(path, self.price, f"{self.currency}/{per}" if per else self.currency)

    def unit_price(self, unit: str, path: str, per: str = "", *others: Stated) -> UnitPrice:
        """The price of one *unit*, which the scenario states at *path*, with *others* of its figures behind it."""
        figures = (self.stated(path, per or unit), *others)
        return UnitPrice(self.usd, unit, f"scenario: {path}", self.currency, self.fx_rate, stated=figures)


def _price(value: Any) -> Any:
    if isinstance(value, dict | StatedPrice):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"a number of US dollars or {{price: ..., currency: ...}} is needed, not {value!r}")
    if not isfinite(value):
        raise ValueError(f"must be a finite number, not {value:g}")
    if value < 0:
        raise ValueError(f"must be 0 or more, not {value:g}")
    return {"price": within_reach(value)}


Price = Annotated[StatedPrice, BeforeValidator(_price, json_schema_input_type=NonNegative | StatedPrice)]


def _one_by_one(value: Any) -> Any:
    """`{price: [...], currency: EUR}` is a list of prices in that currency."""
    if isinstance(value, dict) and isinstance(value.get("price"), list | tuple):
        return [value | {"price": price} for price in value["price"]]
    return value


class PricesPerHour(Spec):
    """Prices in one currency."""

    price: Annotated[tuple[NonNegative, ...], Field(min_length=24, max_length=24)]
    currency: CurrencyCode = USD


HourlyPrices = Annotated[
    tuple[Price, ...],
    Field(min_length=24, max_length=24),
    BeforeValidator(_one_by_one, json_schema_input_type=tuple[NonNegative | StatedPrice, ...] | PricesPerHour),
]
"""24 prices, from midnight on."""

Section = TypeVar("Section")


def rated(section: Section, fx: Mapping[str, float]) -> Section:
    """*section* of a scenario with the rates of *fx* at all its prices; those without a rate stay as they are."""
    changed: Any = section
    if isinstance(section, StatedPrice):
        known = section.currency != USD and section.currency in fx
        changed = section.at(fx[section.currency]) if known else section
    elif isinstance(section, Spec):
        old = {name: value for name, value in section if isinstance(value, Spec | tuple)}
        new = {name: rated(value, fx) for name, value in old.items()}
        updated = {name: value for name, value in new.items() if value is not old[name]}
        changed = section.model_copy(update=updated) if updated else section
    elif isinstance(section, tuple) and any(isinstance(item, Spec) for item in section):
        items = tuple(rated(item, fx) for item in section)
        changed = items if any(new is not old for new, old in zip(items, section, strict=True)) else section
    return changed  # type: ignore[no-any-return]


def foreign(section: Any, path: str) -> Iterator[tuple[str, str]]:
    """(path, currency) of every price in *section* that is not in US dollars; a list of prices counts as one."""
    if isinstance(section, Spec):
        currency = getattr(section, "currency", USD)
        if isinstance(getattr(section, "price", None), float) and currency != USD:
            yield path, currency
            return
        for name, value in section:
            if isinstance(value, Spec | dict | tuple):
                yield from foreign(value, f"{path}.{name}")
    elif isinstance(section, dict):
        for name, value in section.items():
            yield from foreign(value, f"{path}.{name}")
    elif isinstance(section, tuple):
        prices = all(isinstance(item, StatedPrice) for item in section)
        found = [one for i, item in enumerate(section) for one in foreign(item, path if prices else f"{path}.{i}")]
        yield from dict.fromkeys(found)


def no_rate(currency: str, fx: Mapping[str, float]) -> str:
    """What the message says of a price in *currency*, which *fx* does not have: what is wrong, and what to add."""
    near = get_close_matches(currency, [USD, *fx], n=1, cutoff=0.6)
    meant = f"; did you mean {near[0]}?" if near else ""
    return (
        f"is in {currency}, whose rate is missing: add finance.fx: {{{currency}: <US dollars per {currency}>}}{meant}"
    )
