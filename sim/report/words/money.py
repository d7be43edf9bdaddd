"""How money is shown: every amount is computed in US dollars and shown in the scenario's currency, `finance.currency`.

All tables, sentences and pictures go through this module. A table has the column of the currency beside each column in
US dollars, under the same name with the currency's code in the place of `usd`: `cost_usd_per_h`, `cost_EUR_per_h`.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from math import isfinite
from typing import Any, NamedTuple, ParamSpec, TypeVar

from sim.cost.finance import StraightLine
from sim.language import _, keep, release
from sim.report.words.text import names_of, percent, plain, steady
from sim.report.words.units import count_in, noun_of, reset
from sim.scenario.resolving.terms import ReportingFleets, reporting_currency
from sim.scenario.schema import Scenario
from sim.study.discounting import finances_of, horizon_of


class Currency(NamedTuple):
    """What amounts are shown in."""

    code: str
    usd: float
    """US dollars per unit."""


DOLLARS = Currency("USD", 1.0)
SYMBOLS = {"USD": "$", "EUR": "€", "GBP": "£"}
"""Of currencies that share theirs with no other; the rest are shown by their code."""
NOT_AMOUNTS = {"usd_per_currency"}
_SHOWN: ContextVar[Currency] = ContextVar("currency", default=DOLLARS)
_USD = re.compile(r"(?<![a-z])usd(?![a-z])")
P = ParamSpec("P")
R = TypeVar("R")


def show_in(scenario: ReportingFleets) -> None:
    """From here on money is shown in the currency of *scenario*, work in its unit, and names as it has them."""
    _SHOWN.set(Currency(*reporting_currency(scenario)))
    count_in(noun_of(scenario))
    keep(names_of(scenario))


@contextmanager
def showing(scenario: ReportingFleets) -> Iterator[None]:
    """Within it, money is shown in the currency of *scenario*, work in its unit, and names as it has them."""
    token, unit = _SHOWN.set(Currency(*reporting_currency(scenario))), count_in(noun_of(scenario))
    kept = keep(names_of(scenario))
    try:
        yield
    finally:
        _SHOWN.reset(token)
        reset(unit)
        release(kept)


def in_its_currency(deliver: Callable[P, R]) -> Callable[P, R]:
    """*deliver* writes what it does in the currency of the scenario that it is given."""

    @wraps(deliver)
    def within(*args: P.args, **kwargs: P.kwargs) -> R:
        given = next(one for one in (*args, *kwargs.values()) if isinstance(one, ReportingFleets))
        with showing(given):
            return deliver(*args, **kwargs)

    return within


def code() -> str:
    """Of the currency that is shown: USD, EUR."""
    return _SHOWN.get().code


def shown(usd: float) -> float:
    """*usd* in the currency that is shown."""
    return usd / _SHOWN.get().usd


def in_code(text: str) -> str:
    """A heading written for US dollars (`USD a month`), with the code of the currency that is shown."""
    return text.replace("USD", code())


def cash(usd: float) -> str:
    """*usd* as text in the currency that is shown, with its symbol and three significant digits; from 100 on whole."""
    return converted_text(shown(usd))


def converted_text(value: float) -> str:
    """*value*, which is in the shown currency already, as `cash` shows it."""
    if not isfinite(value):
        return "inf"
    sign, size = "-" if value < 0 else "", abs(value)
    return f"{sign}{symbol()}{_digits(size)}"


def amount(value: float, unit: str) -> str:
    """*value* with its unit: money and shares as people write them.

    >>> amount(0.12, "USD/kWh"), amount(4, "years")
    ('$0.120 per kWh', '4 years')
    """
    if unit.startswith("USD"):
        return cash(value) + unit.removeprefix("USD").replace("/", _(" per "), 1)
    if unit in ("per year", "of the price", "of today's"):
        return f"{percent(value)} {_(unit)}"
    return f"{plain(value)} {_(unit)}".strip()


def bare(usd: float) -> str:
    """An amount without the currency's symbol, for a column whose heading has it."""
    return without_symbol(cash(usd))


def without_symbol(text: str) -> str:
    """*text* without the symbol of the shown currency."""
    return text.replace(symbol(), "")


def money_mark(value: float) -> str:
    """A round amount on an axis; *value* is in the currency that is shown."""
    return f"{symbol()}{plain(value)}"


def money_thousands(value: float) -> str:
    """A round amount on an axis that reaches far; *value* is in the currency that is shown."""
    return f"{symbol()}{value / 1000:,g}k" if value else f"{symbol()}0"


def symbol() -> str:
    """Of the currency that is shown."""
    return SYMBOLS.get(code(), f"{code()}\u00a0")


def _digits(size: float) -> str:
    if size >= 100:
        return f"{size:,.0f}"
    return f"{size:.2f}" if size >= 0.995 or size == 0 else steady(size)


def twin(name: str) -> str:
    """The name of the column in the shown currency beside *name*; empty where there is none, as for an input's path."""
    front, space, word = name.rpartition(" ")  # a fleet may stand before it
    if code() == DOLLARS.code or word in NOT_AMOUNTS or "." in word or not _USD.search(word):
        return ""
    return front + space + _USD.sub(code(), word)


def with_twins(names: Sequence[str]) -> list[str]:
    """Column *names*, each in US dollars followed by the same in the shown currency."""
    return [each for name in names for each in (name, twin(name)) if each]


def twinned(row: Mapping[str, Any]) -> dict[str, Any]:
    """*row* with its amounts in the shown currency, too; what is no number has no twin."""
    cells: dict[str, Any] = {}
    for name, value in row.items():
        cells[name] = value
        if isinstance(value, int | float | None) and (other := twin(str(name))):
            cells[other] = None if value is None else shown(value)
    return cells


def rate_notes(scenario: Scenario) -> list[str]:
    """Return what an answer in net present values says of its discount rate where `run` books without interest."""
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
            "keeps this answer); method: straight_line only says how run books a purchase."
        )
    ]
