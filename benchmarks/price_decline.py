"""Backtest of price declines on the dated quotes in data/prices, on which the default in docs/rent-or-buy.md rests.

    PYTHONPATH=. python benchmarks/price_decline.py

A pair is the first and the last quote of one item in one currency, at least a quarter apart: new hardware, or the rent
at one provider on the same terms. The error is that of the later price as predicted from the earlier one: without a
decline (the default of a price path), and with the median decline of all other pairs.
"""

from datetime import date
from math import exp, log
from statistics import mean, median
from typing import NamedTuple

from sim.catalogue.catalog import Catalog, load_catalog

LEAST_YEARS = 0.25
DAYS_PER_YEAR = 365.25
NAMES = {"purchase": "new hardware", "rental": "rent"}


class PricePair(NamedTuple):
    """Two quotes of one item."""

    item: str
    years: float
    ratio: float
    """Later price over the earlier one."""

    @property
    def decline(self) -> float:
        """Decline per year, as a fraction."""
        return 1 - exp(log(self.ratio) / self.years)

    def error(self, decline: float) -> float:
        """Return the predicted later price over the quoted one, minus 1."""
        return float((1 - decline) ** self.years / self.ratio - 1)


def pairs(catalog: Catalog, what: str) -> list[PricePair]:
    """Return the pairs of quotes of one kind of offer (*what*: purchase or rental)."""
    quotes: dict[tuple[str, ...], list[tuple[date, float]]] = {}
    for prices in map(catalog.price_list, catalog.ids("prices")):
        for offer in prices.offers.values():
            new = offer.what == "rental" or offer.terms.startswith("new")
            if offer.what == what and new and offer.price.as_of is not None:
                key = (prices.item, offer.currency, offer.provider, offer.terms if what == "rental" else "")
                quotes.setdefault(key, []).append((offer.price.as_of, offer.price.value))
    found = []
    for (item, *_), listed in sorted(quotes.items()):
        (first, before), (last, after) = min(listed), max(listed)
        years = (last - first).days / DAYS_PER_YEAR
        if years >= LEAST_YEARS:
            found.append(PricePair(item, years, after / before))
    return found


def row(name: str, found: list[PricePair]) -> str:
    """Return the row of the table for the pairs *found*."""
    declines = [one.decline for one in found]
    left_out = [median(declines[:i] + declines[i + 1 :]) for i in range(len(found))]
    errors = [
        mean(abs(one.error(0.0)) for one in found),
        mean(abs(one.error(decline)) for one, decline in zip(found, left_out, strict=True)),
    ]
    spread = f"{min(declines):.0%} to {max(declines):.0%}".replace("%", " %")
    cells = (name, str(len(found)), f"{median(declines):.0%}", spread, *(f"{error:.0%}" for error in errors))
    return "| " + " | ".join(cell.replace("%", " %").replace("  %", " %") for cell in cells) + " |"


HEAD = (
    "| Price | Pairs | Decline a year (median) | Range | Error without decline | Error with the median of the others |"
)


def table(catalog: Catalog) -> list[str]:
    """Return the lines of the table."""
    rows = [row(name, pairs(catalog, what)) for what, name in NAMES.items()]
    return [HEAD, "| --- | --- | --- | --- | --- | --- |", *rows]


if __name__ == "__main__":
    print("\n".join(table(load_catalog())))
