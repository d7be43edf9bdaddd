"""Amounts of money as text: computed in US dollars, shown in the scenario's currency (`finance.currency`).

All tables, sentences and pictures go through this module. A table has the column of the currency beside each column in
US dollars, under the same name with the currency's code in the place of `usd`: `cost_usd_per_h`, `cost_EUR_per_h`.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from math import isfinite
from typing import Any, NamedTuple, ParamSpec, TypeVar

from sim.catalogue.market import iso_code
from sim.cost.finance import StraightLine
from sim.language import N_, _, keep, release
from sim.report.words.text import percent, plain, steady
from sim.report.words.units import count_in, noun_of, reset
from sim.scenario.resolving.terms import ReportingFleets, reporting_currency
from sim.scenario.schema import Scenario
from sim.scenario.sections.comparison import OWN_WAY
from sim.study.discounting import finances_of, horizon_of


class Currency(NamedTuple):
    """Currency of reported amounts."""

    code: str
    usd: float
    """Exchange rate [US dollars per unit of this currency]."""


DOLLARS = Currency("USD", 1.0)
SYMBOLS = {"USD": "$", "EUR": "€", "GBP": "£", "CNY": "¥"}
"""Symbols of currencies; all other currencies are shown by their code, also the yen, whose sign is that of CNY here."""
IN_HEADINGS = ("CNY",)
"""Currencies whose symbol is also used in headings, where others have their code."""
NOT_AMOUNTS = {"usd_per_currency"}
"""Words that contain `usd` in column names without being amounts."""
MOST_DIGITS = 8
"""Largest number of significant digits of amounts that would otherwise read the same."""
_SHOWN_CURRENCY: ContextVar[Currency] = ContextVar("currency", default=DOLLARS)
_USD = re.compile(r"(?<![a-z])usd(?![a-z])")
P = ParamSpec("P")
R = TypeVar("R")


def names_of(scenario: ReportingFleets) -> Iterator[str]:
    """Yield the names that must not be translated: fleets, and `breakeven`'s ways to pay for them."""
    ways = scenario.breakeven.also if isinstance(scenario, Scenario) and scenario.breakeven else {}
    for fleet in scenario.fleets:
        name = str(getattr(fleet, "name", ""))
        yield from (name, *(f"{name} {way}" for way in (*OWN_WAY.values(), *ways.get(name, ()))))


def show_in(scenario: ReportingFleets) -> None:
    """Show money in the currency of *scenario*, work in its unit and its names untranslated, until the next call."""
    _SHOWN_CURRENCY.set(Currency(*reporting_currency(scenario)))
    count_in(noun_of(scenario))
    keep(names_of(scenario))


@contextmanager
def showing_in(currency: Currency, names: Iterable[str]) -> Iterator[None]:
    """Show money in *currency*, and *names* untranslated, within the block."""
    token, kept = _SHOWN_CURRENCY.set(currency), keep(names)
    try:
        yield
    finally:
        _SHOWN_CURRENCY.reset(token)
        release(kept)


@contextmanager
def showing(scenario: ReportingFleets) -> Iterator[None]:
    """Show money in the currency of *scenario*, work in its unit and its names untranslated, within the block."""
    unit = count_in(noun_of(scenario))
    try:
        with showing_in(Currency(*reporting_currency(scenario)), names_of(scenario)):
            yield
    finally:
        reset(unit)


def in_its_currency(write: Callable[P, R]) -> Callable[P, R]:
    """Decorate *write* to show money in the currency of the scenario among its arguments."""

    @wraps(write)
    def within(*args: P.args, **kwargs: P.kwargs) -> R:
        given = next(one for one in (*args, *kwargs.values()) if isinstance(one, ReportingFleets))
        with showing(given):
            return write(*args, **kwargs)

    return within


def code() -> str:
    """Return the code of the shown currency: USD, EUR."""
    return _SHOWN_CURRENCY.get().code


def shown(usd: float) -> float:
    """Convert *usd* to the shown currency, without digits that only the division made (345,779.9999999999)."""
    rate = _SHOWN_CURRENCY.get().usd
    return usd if rate == 1.0 else float(f"{usd / rate:.12g}")


def heading_mark(of: str = "") -> str:
    """Return the mark of the currency *of* (default: the shown one) in headings: its code, or the symbol of CNY."""
    name = of or code()
    return SYMBOLS[iso_code(name)] if iso_code(name) in IN_HEADINGS else name


def in_code(text: str) -> str:
    """Replace `USD` in a heading (`USD a month`) by the mark of the shown currency."""
    return text.replace("USD", heading_mark())


def cash(usd: float) -> str:
    """Format *usd* in the shown currency: symbol and three significant digits, without decimals from 100 on."""
    return converted_text(shown(usd))


def converted_text(value: float) -> str:
    """Format *value*, an amount in the shown currency, as `cash` does."""
    if not isfinite(value):
        return "inf"
    sign, size = "-" if value < 0 else "", abs(value)
    return f"{sign}{symbol()}{_digits(size)}"


def amount(value: float, unit: str) -> str:
    """Format *value* with its unit, money and shares included.

    >>> amount(0.12, "USD/kWh"), amount(4, "years")
    ('$0.120 per kWh', '4 years')
    """
    if unit.startswith("USD"):
        rest = unit.removeprefix("USD")
        if rest in RATES:
            return _(RATES[rest], cash=cash(value))
        return cash(value) + rest.replace("/", _(" per "), 1)
    if unit == "per year":
        return _("{percent} per year", percent=percent(value))
    if unit in FRACTIONS:
        return _(FRACTIONS[unit], percent=percent(value))
    if (rest := unit[len("USD") :]) in RATES and rest.startswith(" "):
        return _(RATES[rest], cash=f"{plain(value)} {unit.removesuffix(rest)}")
    return f"{plain(value)} {_(unit)}".strip()


FRACTIONS = {"of the price": N_("{percent} of the price"), "of today's": N_("{percent} of today's")}
"""Units of fractions that a language words in its own order."""
RATES = {
    " per kW and month": N_("{cash} per kW and month"),
    " per month": N_("{cash} per month"),
    "/h": N_("{cash} per h"),
}
"""Units of prices that a language words in its own order."""


def bare(usd: float) -> str:
    """Format *usd* without the currency's symbol, for a column whose heading has it."""
    return without_symbol(cash(usd))


def without_symbol(text: str) -> str:
    """Remove the symbol of the shown currency from *text*."""
    return text.replace(symbol(), "")


def money_mark(value: float) -> str:
    """Format a tick of a money axis; *value* is in the shown currency."""
    return f"{symbol()}{plain(value)}"


def money_thousands(value: float) -> str:
    """Format a tick of a money axis in thousands; *value* is in the shown currency."""
    return f"{symbol()}{value / 1000:,g}k" if value else f"{symbol()}0"


def symbol() -> str:
    """Return the symbol of the shown currency, or its code where it has no symbol of its own."""
    return SYMBOLS.get(iso_code(code()), f"{code()}\u00a0")


def apart(*usd: float) -> list[str]:
    """Format unequal amounts as `cash` does, with more digits where they would read the same.

    >>> apart(0.75661, 0.75739), apart(1.5, 1.6)
    (['$0.7566', '$0.7574'], ['$1.50', '$1.60'])
    """
    texts, values = [cash(one) for one in usd], [shown(one) for one in usd]
    for digits in range(4, MOST_DIGITS + 1):
        if len(set(texts)) == len(set(values)):
            break
        texts = [f"{'-' if one < 0 else ''}{symbol()}{steady(abs(one), digits)}" for one in values]
    return texts


def _digits(size: float) -> str:
    if size >= 100:
        return f"{size:,.0f}"
    return f"{size:.2f}" if size >= 0.995 or size == 0 else steady(size)


def converted_column(name: str) -> str:
    """Return the name of the column in the shown currency that accompanies column *name*; empty if it has none.

    Columns in the shown currency accompany columns of US dollars only; the path of an input has no such column.
    """
    front, space, word = name.rpartition(" ")  # a fleet's name may precede the column
    if code() == DOLLARS.code or word in NOT_AMOUNTS or "." in word or not _USD.search(word):
        return ""
    return front + space + _USD.sub(code(), word)


def with_converted_columns(names: Sequence[str]) -> list[str]:
    """Return *names* with the column in the shown currency after each column in US dollars."""
    return [each for name in names for each in (name, converted_column(name)) if each]


def with_converted_amounts(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return *row* with its amounts also in the shown currency; values that are not numbers are not repeated."""
    cells: dict[str, Any] = {}
    for name, value in row.items():
        cells[name] = value
        if isinstance(value, int | float | None) and (other := converted_column(str(name))):
            cells[other] = None if value is None else shown(value)
    return cells


def rate_notes(scenario: Scenario) -> list[str]:
    """Return notes on the discount rate of an answer in net present values, where `run` books without interest."""
    rate, used = horizon_of(scenario).discount_rate, finances_of(scenario)
    if not any(isinstance(one, StraightLine) for one in used):
        return []
    if rate > 0:
        return [
            _(
                "Payments are discounted at {percent} a year (finance.discount_rate); run books purchases by straight "
                "line, without interest.",
                percent=percent(rate),
            )
        ]
    if (scenario.finance or max(used, key=lambda one: one.life_months)).states_rate:
        return []
    return [
        _(
            "Nothing is discounted: finance.discount_rate is missing. State the cost of capital per year there (0 "
            "keeps this answer); method: straight_line only sets how run books a purchase."
        )
    ]
