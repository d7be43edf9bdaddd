"""Prices in US dollars and other currencies: amounts stated in a scenario, quotes, and offers of price lists."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from difflib import get_close_matches
from math import isfinite
from typing import Annotated, Any, NamedTuple, TypeVar

from pydantic import BeforeValidator, Field, PrivateAttr, SerializerFunctionWrapHandler, model_serializer

from sim.catalogue.market import USD, CurrencyCode, Offer, PriceList, Unit
from sim.cost.charge import StatedFigure, UnitPrice
from sim.message import Message, joined, placed
from sim.spec import NonNegative, Spec, WholeNumber, within_reach


class StatedPrice(Spec):
    """Amount in a currency; a bare number is in US dollars."""

    price: NonNegative
    """Amount, in `currency`."""
    currency: CurrencyCode = USD
    """Currency of the price; if it is not USD, `finance.fx` must have its rate."""
    _fx_rate: float | None = PrivateAttr(default=None)

    @model_serializer(mode="wrap")
    def _as_stated(self, dump: SerializerFunctionWrapHandler) -> Any:
        return self.price if self.model_fields_set == {"price"} else dump(self)

    def at(self, fx_rate: float) -> "StatedPrice":
        """Return a copy converted at *fx_rate* [USD per unit of its currency]."""
        rated = self.model_copy()
        rated._fx_rate = fx_rate
        return rated

    @property
    def fx_rate(self) -> float:
        """Exchange rate [USD per unit of the currency]. Raises ValueError if unknown."""
        if self.currency == USD:
            return 1.0
        if self._fx_rate is None:
            raise ValueError(
                Message("{price:g} {currency} has no rate yet: see with_rates()", self.price, self.currency)
            )
        return self._fx_rate

    @property
    def usd(self) -> float:
        """Price in US dollars. Raises ValueError if the exchange rate is unknown."""
        return self.price * self.fx_rate

    def stated(self, path: str, per: str = "") -> StatedFigure:
        """Return the figure as stated in the scenario at *path*, per unit *per*."""
        return StatedFigure(path, self.price, f"{self.currency}/{per}" if per else self.currency)

    def unit_price(self, unit: str, path: str, per: str = "", *others: StatedFigure) -> UnitPrice:
        """Return the price per *unit*, stated in the scenario at *path* and derived from *others* of its figures."""
        figures = (self.stated(path, per or unit), *others)
        return UnitPrice(self.usd, unit, f"scenario: {path}", self.currency, self.fx_rate, stated=figures)


def _price(value: Any) -> Any:
    if isinstance(value, dict | StatedPrice):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(
            Message("a number of US dollars or {{price: ..., currency: ...}} is needed, not {value!r}", value)
        )
    if not isfinite(value):
        raise ValueError(Message("must be a finite number, not {value:g}", value))
    if value < 0:
        raise ValueError(Message("must be 0 or more, not {value:g}", value))
    return {"price": within_reach(value)}


Price = Annotated[StatedPrice, BeforeValidator(_price, json_schema_input_type=NonNegative | StatedPrice)]


def _one_by_one(value: Any) -> Any:
    """Return a list of prices for `{price: [...], currency: EUR}`; other lists unchanged."""
    if isinstance(value, dict) and isinstance(value.get("price"), list | tuple):
        return [value | {"price": price} for price in value["price"]]
    if isinstance(value, dict | int | float):
        raise ValueError(
            "24 prices are needed, one per hour from midnight on; a single price is site.electricity_usd_per_kwh"
        )
    return value


class PricesPerHour(Spec):
    """Prices by hour in one currency."""

    price: Annotated[tuple[NonNegative, ...], Field(min_length=24, max_length=24)]
    """24 prices in `currency`, from midnight on."""
    currency: CurrencyCode = USD
    """Currency of the prices; if it is not USD, `finance.fx` must have its rate."""


HourlyPrices = Annotated[
    tuple[Price, ...],
    Field(min_length=24, max_length=24),
    BeforeValidator(_one_by_one, json_schema_input_type=tuple[NonNegative | StatedPrice, ...] | PricesPerHour),
]
"""24 prices, from midnight on."""

Section = TypeVar("Section")


def with_rates(section: Section, fx: Mapping[str, float]) -> Section:
    """Return *section* of a scenario with the rates of *fx* set in all its prices that have one."""
    changed: Any = section
    if isinstance(section, StatedPrice):
        known = section.currency != USD and section.currency in fx
        changed = section.at(fx[section.currency]) if known else section
    elif isinstance(section, Spec):
        old = {name: value for name, value in section if isinstance(value, Spec | tuple)}
        new = {name: with_rates(value, fx) for name, value in old.items()}
        updated = {name: value for name, value in new.items() if value is not old[name]}
        changed = section.model_copy(update=updated) if updated else section
    elif isinstance(section, tuple) and any(isinstance(item, Spec) for item in section):
        items = tuple(with_rates(item, fx) for item in section)
        changed = items if any(new is not old for new, old in zip(items, section, strict=True)) else section
    return changed  # type: ignore[no-any-return]


def foreign_prices(section: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield (path, currency) of every price in *section* that is not in US dollars; a list of prices counts once."""
    if isinstance(section, Spec):
        currency = getattr(section, "currency", USD)
        if isinstance(getattr(section, "price", None), float) and currency != USD:
            yield path, currency
            return
        for name, value in section:
            if isinstance(value, Spec | dict | tuple):
                yield from foreign_prices(value, f"{path}.{name}")
    elif isinstance(section, dict):
        for name, value in section.items():
            yield from foreign_prices(value, f"{path}.{name}")
    elif isinstance(section, tuple):
        prices = all(isinstance(item, StatedPrice) for item in section)
        found = [
            one for i, item in enumerate(section) for one in foreign_prices(item, path if prices else f"{path}.{i}")
        ]
        yield from dict.fromkeys(found)


def missing_rate_text(currency: str, fx: Mapping[str, float]) -> str:
    """Return the message for a price in *currency* without a rate in *fx*: the problem, and what to add."""
    near = get_close_matches(currency, [USD, *fx], n=1, cutoff=0.6)
    meant = Message("; did you mean {near}?", near[0]) if near else ""
    return Message(
        "is in {currency}, whose rate is missing: add finance.fx: {{{currency}: <US dollars per {currency}>}}{meant}",
        currency,
        meant,
    )


class Problem(NamedTuple):
    """Missing or invalid price or term that prevents a bill."""

    path: str
    """Key within the fleet, for example `cost.quotes`."""
    text: str


class CostError(ValueError):
    """Prices or terms are insufficient; `problems` lists each of them."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__(joined("; ", [placed(problem.path, problem.text) for problem in problems]))
        self.problems = problems

    def __reduce__(self) -> Any:
        return type(self), self.problems


class RateMissing(CostError):
    """Price in a currency that `finance.fx` does not have."""


T = TypeVar("T")


def collect(problems: list[Problem], price: Callable[[], Sequence[T]]) -> Sequence[T]:
    """Return the result of *price*; if it raises CostError, add its problems to *problems* and return nothing."""
    try:
        return price()
    except CostError as error:
        problems += error.problems
        return ()


class Quote(Spec):
    """Price that the planner was quoted; a bare number is in US dollars."""

    price: NonNegative
    """Amount, in `currency` per `unit`."""
    currency: CurrencyCode = USD
    """Currency of the price; if it is not USD, `finance.fx` must have its rate."""
    unit: Unit | None = None
    """Unit of the price; default: each when buying, gpu_hour when renting."""
    includes_gpus: WholeNumber | None = None
    """Number of GPUs included in the price of a server or rented instance. Default: a quoted server is bare if its GPU
    is quoted too, else it includes as many GPUs as the catalogue's offer."""
    as_of: date | None = None
    """Date of the quote, kept in resolved.yaml; no result depends on it."""


def _dollars(value: Any) -> Any:
    if not isinstance(value, int | float | dict | Quote):
        raise ValueError(Message("US dollars or {{price: ..., currency: ...}} is needed, not {value!r}", value))
    return {"price": value} if isinstance(value, int | float) else value


QuotedPrice = Annotated[Quote, BeforeValidator(_dollars, json_schema_input_type=float | Quote)]
Quotes = dict[str, QuotedPrice]


class OfferedPrice(NamedTuple):
    """Price, and the number of GPUs included in one unit (None if not stated)."""

    price: UnitPrice
    gpus: int | None


@dataclass(frozen=True, slots=True)
class PriceBook:
    """Prices available to one fleet: quotes, exchange rates and the catalogue's price lists."""

    quotes: Mapping[str, Quote]
    fx: Mapping[str, float]
    """Exchange rates by currency [USD per unit]."""
    lists: Callable[[str], PriceList | None]
    """Function that returns the catalogue's price list of an item, or None."""
    offers: tuple[str, ...] = ()
    """Offers `item/offer` at which items are bought in place of their default purchase."""

    def purchase(self, item: str) -> OfferedPrice:
        """Return the purchase price of one *item*.

        Raises CostError with the file and the key where a missing price can be added.
        """
        priced = self._quoted_price(item, "each") if item in self.quotes else self._default_purchase(item)
        if priced.price.unit != "each":
            text = Message(
                "{offer} is a price per {unit}; buying needs a price for each",
                priced.price.offer or item,
                priced.price.unit,
            )
            key = "cost.quotes" if item in self.quotes else "cost.price"
            raise CostError(Problem(key, text))
        return priced

    def _default_purchase(self, item: str) -> OfferedPrice:
        named = next((offer for offer in self.offers if offer_item(offer) == item), None)
        if named is not None:
            return self.offered(named, "cost.price")
        offers = self.lists(item)
        if offers is None or offers.default_purchase is None:
            what = "an offer that default_purchase names"
            raise CostError(
                Problem(
                    "cost.quotes",
                    Message("no purchase price for {item!r}: {where_to_add}", item, _where_to_add(item, what)),
                )
            )
        default = offers.default_purchase
        return self._offered_price(f"{item}/{default}", offers.offers[default], f"cost.quotes.{item}")

    def server_purchase(self, server: str, gpu: str) -> tuple[UnitPrice, int]:
        """Return the purchase price of one *server*, and the GPUs included. Raises CostError if either is unknown."""
        price, included = self.purchase(server)
        if included is None and server in self.quotes:
            included = 0 if gpu in self.quotes else self._included_in_catalogue(server)
        if included is None:
            text = Message(
                "{offer} does not say how many GPUs it includes: add includes_gpus to data/prices/{server}.yaml",
                price.offer,
                server,
            )
            raise CostError(
                Problem(
                    "cost.quotes",
                    Message("{text}, or quote {server}: {{price: ..., includes_gpus: ...}}", text, server),
                )
            )
        return price, included

    def _included_in_catalogue(self, server: str) -> int:
        offers = self.lists(server)
        if offers is None or offers.default_purchase is None:
            return 0
        return offers.offers[offers.default_purchase].includes_gpus or 0

    def rental(self, gpu: str, offer: str | None) -> OfferedPrice:
        """Return the rental price of *gpu*: its quote, else the offer `item/offer` (*offer*). Raises CostError."""
        if gpu in self.quotes:
            return self._quoted_price(gpu, "gpu_hour")
        if offer is None:
            text = Message("no rental price for {gpu!r}: name an offer (price: <item>/<offer>)", gpu)
            raise CostError(
                Problem("cost.price", Message("{text}, or quote dollars per GPU-hour (cost.quotes.{gpu})", text, gpu))
            )
        return self.offered(offer, "cost.price")

    def offered(self, offer: str, key: str) -> OfferedPrice:
        """Return the price of the catalogue's *offer* (`item/offer`), named at *key*. Raises CostError."""
        item, _, name = offer.partition("/")
        offers = self.lists(item)
        if offers is None:
            text = Message(
                "no prices for {item!r}: {where_to_add}",
                item,
                _where_to_add(item, Message("the offer {name!r}", name), key),
            )
            raise CostError(Problem(key, text))
        if name not in offers.offers:
            text = Message(
                "data/prices/{item}.yaml has no offer {name!r}; {nearest}", item, name, _offer_hint(name, offers)
            )
            raise CostError(Problem(key, text))
        return self._offered_price(offer, offers.offers[name], key)

    def stated(self, quote: Quote, usual_unit: Unit, key: str) -> UnitPrice:
        """Return a price that the scenario states at *key*. Raises CostError if its currency has no rate."""
        unit = quote.unit or usual_unit
        price = self._in_usd(quote.price, quote.currency, unit, f"scenario: {key}", key)
        return replace(price, stated=(StatedFigure(key, quote.price, f"{quote.currency}/{unit}"),))

    def _quoted_price(self, item: str, usual_unit: Unit) -> OfferedPrice:
        quote = self.quotes[item]
        return OfferedPrice(self.stated(quote, usual_unit, f"cost.quotes.{item}"), quote.includes_gpus)

    def _offered_price(self, name: str, offer: Offer, key: str) -> OfferedPrice:
        what = Message("data/prices: {name}", name)
        price = self._in_usd(offer.price.value, offer.currency, offer.unit, offer.price.source, key, what)
        return OfferedPrice(replace(price, offer=name, value=offer.price), offer.includes_gpus)

    def _in_usd(self, amount: float, currency: str, unit: str, source: str, key: str, what: str = "") -> UnitPrice:
        fx_rate = 1.0 if currency == USD else self.fx.get(currency)
        if fx_rate is None:
            raise RateMissing(Problem(key, joined(" ", filter(None, [what, missing_rate_text(currency, self.fx)]))))
        return UnitPrice(amount * fx_rate, unit, source, currency, fx_rate)


def offer_item(offer: str) -> str:
    """Return the item of an offer named `item/offer`."""
    return offer.partition("/")[0].strip().lower()


def quote_source(item: str) -> str:
    """Return the source name of a quoted price in the ledger."""
    return f"scenario: cost.quotes.{item}"


def _where_to_add(item: str, what: str, key: str = "cost.quotes") -> str:
    otherwise = (
        Message("quote it (cost.quotes.{item})", item)
        if key.startswith("cost.")
        else Message("state the price itself ({key})", key)
    )
    return Message("add {price} to data/prices/{item}.yaml, or {otherwise}", what, item, otherwise)


def _offer_hint(name: str, offers: PriceList) -> str:
    near = get_close_matches(name, offers.offers, n=1)
    return Message("did you mean {near}?", near[0]) if near else f"it has {', '.join(sorted(offers.offers))}"
