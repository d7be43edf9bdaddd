"""Differences between two lists of prices, and prices that are old."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from sim.answers.price_lists.row import PriceRow


@dataclass(frozen=True, slots=True)
class PriceChange:
    """Price of one GPU, region and terms in two lists."""

    before: PriceRow | None
    after: PriceRow | None

    @property
    def row(self) -> PriceRow:
        """Newest of the two prices."""
        found = self.after or self.before
        assert found is not None
        return found

    @property
    def change(self) -> float | None:
        """Change as a fraction of the earlier price; None if one of them is missing or in another currency."""
        if self.before is None or self.after is None or self.before.currency != self.after.currency:
            return None
        return self.after.price / self.before.price - 1


def changes_of(before: Sequence[PriceRow], after: Sequence[PriceRow]) -> list[PriceChange]:
    """Return the prices that are new, gone or different, the largest relative change first.

    Of several prices of an offer in a list, the newest counts.
    """
    old, new = newest(before), newest(after)
    found = [PriceChange(old.get(key), new.get(key)) for key in sorted({**old, **new})]
    differ = [one for one in found if one.before is None or one.after is None or one.before.price != one.after.price]
    return sorted(differ, key=lambda one: -abs(one.change) if one.change is not None else 1.0)


def newest(rows: Sequence[PriceRow]) -> dict[tuple[str, str, str, str], PriceRow]:
    """Return the newest price by provider, GPU, region and terms."""
    return {row.key: row for row in sorted(rows, key=lambda one: one.as_of)}


def old_prices(rows: Sequence[PriceRow], today: date, days: int) -> list[PriceRow]:
    """Return the newest prices that are more than *days* days old at *today*, the oldest first."""
    found = [row for row in newest(rows).values() if (today - row.as_of).days > days]
    return sorted(found, key=lambda row: (row.as_of, row.key))
