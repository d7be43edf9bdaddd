"""Budget against actual: variances of a plan's payments, split by price and quantity."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sim.cost.actuals import Actual
from sim.study.plan import FleetPlanOutlook

METERED = ("energy", "cooling", "demand", "egress", "api")
"""Lines that follow the tokens served."""
TOKENS_PER_UNIT = 1e6


class Planned(NamedTuple):
    """Payment of a line in a month of the plan."""

    usd: float
    quantity: float
    unit: str


@dataclass(frozen=True, slots=True)
class Variance:
    """Actual payment of a line in a month beside the planned one; costs are positive.

    Notes
    -----
    Price variance (p_a - p_b) q_a, quantity variance (q_a - q_b) p_b, with price = amount / quantity; their sum is the
    actual amount less the planned one.

    References
    ----------
    Horngren, Datar, Rajan, Cost Accounting, chapter on flexible budgets and direct-cost variances.

    """

    actual: Actual
    planned: Planned

    @property
    def variance_usd(self) -> float:
        """Actual less planned amount [USD]."""
        return self.actual.amount_usd - self.planned.usd

    @property
    def quantity_usd(self) -> float | None:
        """Part of the variance from another quantity [USD]; None where either quantity is unknown or 0."""
        if not self.actual.quantity or not self.planned.quantity:
            return None
        return (self.actual.quantity - self.planned.quantity) * self.planned.usd / self.planned.quantity

    @property
    def price_usd(self) -> float | None:
        """Part of the variance from another price [USD]; None as for the quantity."""
        quantity = self.quantity_usd
        return None if quantity is None else self.variance_usd - quantity


def variances(found: Sequence[FleetPlanOutlook], dates: Sequence[str], actuals: Sequence[Actual]) -> Iterator[Variance]:
    """Yield the variance of each of *actuals* against the plans *found*, whose months are *dates*."""
    plans = {one.fleet: one for one in found if one.rows}
    for actual in actuals:
        if actual.fleet in plans:
            yield Variance(actual, _planned(plans[actual.fleet], dates.index(actual.date), actual.line))


def _planned(one: FleetPlanOutlook, month: int, line: str) -> Planned:
    """Return the payment of *line* in *month* of a plan."""
    row = one.rows[month]
    if line == "rental":
        return Planned(row.rental_usd, row.rented, "rented unit-months")
    if line in ("resale", "decommissioning"):
        usd = -row.resale_usd if line == "resale" else row.decommissioning_usd
        return Planned(usd, 0.0, "")
    if line in row.capex_usd:
        delivered = sum(batch.units for batch in one.stock.batches if batch.delivered == month) if one.stock else 0
        return Planned(row.capex_usd[line], delivered, "units delivered")
    if line in METERED:
        return Planned(row.opex_usd.get(line, 0.0), row.output_tokens / TOKENS_PER_UNIT, "million output tokens")
    return Planned(row.opex_usd.get(line, 0.0), row.in_service, "unit-months in service")
