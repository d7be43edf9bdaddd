"""Markets that a site buys from: dated price offers per item, and electricity grids with their carbon intensity.

data/prices/<item>.yaml holds the offers for one item, data/grids/<country>.yaml the grid of one country.
"""

from difflib import get_close_matches
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, model_validator

from sim.catalogue.value import Value
from sim.message import Message
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


_CODES = """
    AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BOV BRL BSD BTN BWP BYN BZD CAD CDF CHE
    CHF CHW CLF CLP CNY COP COU CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GNF GTQ
    GYD HKD HNL HTG HUF IDR ILS INR IQD IRR ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD KYD KZT LAK LBP LKR LRD LSL
    LYD MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MXV MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR
    PLN PYG QAR RON RSD RUB RWF SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TND TOP TRY
    TTD TWD TZS UAH UGX USD USN UYI UYU UYW UZS VED VES VND VUV WST XAF XCD XCG XDR XOF XPF XSU XUA YER ZAR ZMW ZWG
"""
ISO_4217 = frozenset(_CODES.split())
"""Currency codes of ISO 4217, list one (SIX Group, 2026-01), without metals and test codes."""
SYNONYMS = {"RMB": "CNY", "CNH": "CNY", "NTD": "TWD", "NIS": "ILS", "STG": "GBP"}
"""Common unofficial currency code -> code of ISO 4217."""


def iso_code(code: str) -> str:
    """Return the code of ISO 4217 for a currency.

    >>> iso_code("RMB"), iso_code("EUR")
    ('CNY', 'EUR')
    """
    return SYNONYMS.get(code, code)


def _known_code(value: Any) -> Any:
    if isinstance(value, str) and iso_code(value) in ISO_4217:
        return value
    code = str(value).strip().upper()
    near = get_close_matches(code, sorted(ISO_4217), n=len(ISO_4217), cutoff=0.5)
    near.sort(key=lambda one: one[:2] != code[:2])  # the first two letters are those of the country
    meant = Message("; did you mean {near}?", near[0]) if near else ""
    raise ValueError(
        Message(
            "a currency's code of ISO 4217 is needed, three capital letters such as EUR, not {value!r}{meant}",
            value,
            meant,
        )
    )


CurrencyCode = Annotated[str, BeforeValidator(_known_code)]


USD = "USD"


class Offer(Spec):
    """Price asked by a seller at one date, in its own currency."""

    what: Literal["purchase", "rental", "electricity", "colocation", "api", "discount", "surcharge"]
    price: Value
    """Price in `currency` per `unit`; a quoted span is stored as its midpoint with `range`."""
    currency: CurrencyCode = "USD"
    unit: Unit
    terms: str = ""
    """Terms of the offer: new, used, on demand, spot, reserved 1 year, ..."""
    provider: str = ""
    region: str = ""
    includes_gpus: int | None = None
    """Number of GPUs included in the price of a server (0: bare chassis)."""

    @model_validator(mode="after")
    def _price_is_dated(self) -> Self:
        if self.price.as_of is None:
            raise ValueError("a price needs as_of, the date of the quote")
        return self


class PriceList(Spec):
    """Price offers for one item.

    A scenario names an offer as `<item>/<offer>`; a purchase without a named offer uses `default_purchase`.
    """

    id: str
    item: str
    """Id of a GPU, a server or a model, or a free name (electricity-us-commercial)."""
    default_purchase: str | None = None
    offers: dict[str, Offer]

    @model_validator(mode="after")
    def _default_exists(self) -> Self:
        if self.default_purchase is not None and self.default_purchase not in self.offers:
            raise ValueError(
                Message("default_purchase {default_purchase!r} is not among the offers", self.default_purchase)
            )
        return self


class Grid(Spec):
    """Electricity grid of one country, with its carbon intensity."""

    id: str
    """ISO 3166 code of the country, lower case."""
    name: str
    aliases: tuple[str, ...] = ()
    g_per_kwh: Value
    """Annual mean carbon intensity [g CO2e/kWh]."""
