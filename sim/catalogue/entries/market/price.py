"""What something costs: data/prices/<item>.yaml holds the dated offers for one item."""

from typing import Literal, Self

from pydantic import model_validator

from sim.catalogue.value import Value
from sim.spec import Spec

Unit = Literal[
    "each",
    "gpu_hour",
    "gpu_day",
    "gpu_year",
    "instance_hour",
    "instance_day",
    "instance_month",
    "month",
    "kwh",
    "kw_month",
    "rack_month",
    "million_input_tokens",
    "million_output_tokens",
    "percent",
]


class Offer(Spec):
    """One price, by one seller, at one date, in its own currency."""

    what: Literal["purchase", "rental", "electricity", "colocation", "api", "discount", "surcharge"]
    price: Value
    """In `currency` per `unit`. A quoted span is carried as its midpoint with `range`."""
    currency: str = "USD"
    unit: Unit
    terms: str = ""
    """new, used, on demand, spot, reserved 1 year, ..."""
    provider: str = ""
    region: str = ""
    includes_gpus: int | None = None
    """Purchase of a server: number of GPUs in the price (0: bare)."""

    @model_validator(mode="after")
    def _price_is_dated(self) -> Self:
        if self.price.as_of is None:
            raise ValueError("a price needs as_of, the date it was asked")
        return self


class PriceList(Spec):
    """The offers for one item.

    A scenario names an offer as `<item>/<offer>`; buying without a quote takes `default_purchase`.
    """

    id: str
    item: str
    """Id of a GPU, a server or a model, or a free name (electricity-us-commercial)."""
    default_purchase: str | None = None
    offers: dict[str, Offer]

    @model_validator(mode="after")
    def _default_exists(self) -> Self:
        if self.default_purchase is not None and self.default_purchase not in self.offers:
            raise ValueError(f"default_purchase {self.default_purchase!r} is not among the offers")
        return self
