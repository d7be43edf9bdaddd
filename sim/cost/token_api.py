"""Hosted API as the alternative to GPUs: cost of the same tokens at an API's prices."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from sim.cost.charge import UnitPrice
from sim.cost.prices import CostError, PriceBook, Problem, Quote
from sim.message import Message
from sim.spec import Fraction, Spec

NAME = "the API"
"""Name of the API in tables and charts, next to the names of fleets."""
TOKENS_PER_PRICE = 1e6


def _price(value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return {"price": value}
    if isinstance(value, str) and "/" not in value:
        raise ValueError(
            Message("US dollars per million tokens or <item>/<offer> of data/prices is needed, not {value!r}", value)
        )
    return value


ApiPrice = Annotated[str | Quote, BeforeValidator(_price, json_schema_input_type=str | float | Quote)]


@dataclass(frozen=True, slots=True)
class ApiTariff:
    """Prices of an API, in USD per million tokens."""

    input: UnitPrice
    output: UnitPrice
    cached_discount: float

    def usd(self, prompt_tokens: float, cached_tokens: float, output_tokens: float) -> float:
        """Return the cost of tokens at the API [USD]; *cached_tokens* are prompt tokens at the reduced price.

        Notes
        -----
        ((prompt + (1 - cached_discount) * cached) * input price + output * output price) / 10^6.

        Examples
        --------
        >>> dollar = UnitPrice(1.0, "million_input_tokens", "example")
        >>> ApiTariff(dollar, dollar, cached_discount=0.5).usd(1_000_000, 1_000_000, 0)
        1.5

        """
        read = prompt_tokens + (1 - self.cached_discount) * cached_tokens
        return (read * self.input.usd + output_tokens * self.output.usd) / TOKENS_PER_PRICE


class Api(Spec):
    """API to compare with: the cost there of the tokens that a fleet served."""

    input: ApiPrice
    """Price per million prompt tokens: `<item>/<offer>` of data/prices, US dollars, or {price: ..., currency: ...}."""
    output: ApiPrice
    """Price per million output tokens, in the same forms as `input`."""
    cached_discount: Fraction = 0.0
    """Discount on prompt tokens found in the prefix cache, as a fraction; only a simulated cache finds any."""

    def tariff(self, book: PriceBook) -> ApiTariff:
        """Return the prices in USD. Raises CostError listing prices that are missing or have the wrong unit."""
        problems: list[Problem] = []
        found = []
        for key, stated in (("input", self.input), ("output", self.output)):
            try:
                found.append(_price_of(stated, key, book))
            except CostError as error:
                problems += error.problems
        if problems:
            raise CostError(*problems)
        return ApiTariff(found[0], found[1], self.cached_discount)


def _price_of(stated: str | Quote, key: str, book: PriceBook) -> UnitPrice:
    unit: Literal["million_input_tokens", "million_output_tokens"]
    unit = "million_input_tokens" if key == "input" else "million_output_tokens"
    if isinstance(stated, Quote):
        price = book.stated(stated, unit, f"api.{key}")
    else:
        price = book.offered(stated, f"api.{key}").price
    if price.unit != unit:
        raise CostError(
            Problem(
                f"api.{key}", Message("{offer} is a price per {unit}; {needed} is needed", stated, price.unit, unit)
            )
        )
    return price
