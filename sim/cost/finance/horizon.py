"""The span over which candidates are compared, and what payments over it are worth: docs/money.md."""

from dataclasses import dataclass
from math import fsum

from sim.cost.finance.cash_flow import annuity_factor, discount_factor, price_factor
from sim.units import HOURS_PER_MONTH


@dataclass(frozen=True, slots=True)
class Horizon:
    """One for all candidates of a comparison."""

    months: float
    discount_rate: float
    """Per year."""

    def net_present_usd(self, usd_per_h: float) -> float:
        """What equal monthly payments of *usd_per_h* over the horizon are worth now.

        A purchase and its running cost, levelised, are such payments; so the candidate that is the cheapest per hour
        has the lowest net present cost.
        """
        return usd_per_h * HOURS_PER_MONTH * annuity_factor(self.discount_rate, self.months)

    def level_factor(self, growth_per_year: float, held_months: float = 0.0) -> float:
        """The equal payment that is worth as much as one that grows, over that of the first month.

        *held_months* is how long a price stays as it was agreed; 0 where every month has its own.

        >>> round(Horizon(36, 0.0).level_factor(0.2, held_months=12), 4)  # 1, 1.2 and 1.44, a year each
        1.2133
        """
        if not growth_per_year:
            return 1.0
        flat = annuity_factor(self.discount_rate, self.months)
        if not held_months:
            return annuity_factor(self.discount_rate, self.months, growth_per_year) / flat
        whole = max(1, round(self.months))
        grown = fsum(
            price_in(month, growth_per_year, held_months) * discount_factor(self.discount_rate, month)
            for month in range(1, whole + 1)
        )
        return grown / annuity_factor(self.discount_rate, whole)


def price_in(month: int, growth_per_year: float, held_months: float = 0.0) -> float:
    """Price in *month*, counted from 1, over that of the first, where it is agreed anew every *held_months*."""
    agreed = (month - 1) // held_months * held_months if held_months else month - 1
    return price_factor(-growth_per_year, agreed)
