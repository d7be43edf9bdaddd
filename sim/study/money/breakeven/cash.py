"""The cash of a candidate month by month, its net present cost, and when a purchase has paid for itself.

docs/money.md has the convention: purchases are paid at delivery, all else at the end of every month.
"""

from dataclasses import dataclass
from math import inf

from sim.cost.finance.cash_flow import discount_factor
from sim.cost.finance.finance import Annuity, StraightLine
from sim.cost.finance.flows import Flows
from sim.cost.finance.horizon import price_in
from sim.study.money.breakeven.candidates import Cost
from sim.units import HOURS_PER_MONTH

Finance = Annuity | StraightLine | None
LONGEST_MONTHS = 1200


@dataclass(frozen=True, slots=True)
class Month:
    """Cash and net present cost of a candidate after a number of months."""

    months: int
    cash_usd: float
    """Paid so far, nothing sold but what was replaced."""
    net_present_usd: float
    """Present value of all that was paid, less that of what the hardware would bring now: its resale less its
    removal."""
    purchase_usd: float = 0.0
    """Paid at delivery, in month 0."""
    operating_usd: float = 0.0
    """Paid at the end of this month."""
    brings_usd: float = 0.0
    """What the hardware would bring at the end of this month."""
    renewal_usd: float = 0.0
    """Paid after it where the candidate goes on: new hardware less what the old one brings."""


def opex_usd(flows: Flows, finance: Finance, month: int) -> float:
    """Operating cost of *month*, counted from 1."""
    total = 0.0
    for name, usd_per_h in flows.monthly_usd_per_h.items():
        growth = finance.growth_of(name) if finance is not None else 0.0
        total += usd_per_h * HOURS_PER_MONTH * price_in(month, growth, flows.held_months.get(name, 0.0))
    return total


def months(flows: Flows, finance: Finance, discount_rate: float, count: int) -> list[Month]:
    """Cumulative cost of a candidate over *count* months; hardware is replaced at the end of its life."""
    life = max(1, round(finance.life_months)) if finance is not None else count
    cash, present = flows.capex_usd, flows.capex_usd
    brings = _brings(flows, finance, 0)
    found = [Month(0, cash, present - brings, purchase_usd=flows.capex_usd, brings_usd=brings)]
    for month in range(1, count + 1):
        discount = discount_factor(discount_rate, month)
        age = (month - 1) % life + 1
        paid = opex_usd(flows, finance, month)
        cash, present = cash + paid, present + paid * discount
        brings = _brings(flows, finance, age)
        renewed = flows.capex_usd - brings if age == life else 0.0
        found.append(
            Month(month, cash, present - brings * discount, 0.0, paid, brings, renewed if month < count else 0.0)
        )
        cash, present = cash + renewed, present + renewed * discount
    return found


def _brings(flows: Flows, finance: Finance, age_months: int) -> float:
    """What the machines bring when they go at that age."""
    value = finance.value_fraction(age_months / 12) if finance is not None else 0.0
    return flows.resold_usd * value - flows.removal_usd


def payback_months(bought: Cost, other: Cost) -> float:
    """Months until what a purchase saves against *other* has paid for it, nothing discounted; infinite if never within
    the life of the machines.

    Simple payback = price / saving per month (Short, Packey and Holt, "A Manual for the Economic Evaluation of Energy
    Efficiency and Renewable Energy Technologies", NREL/TP-462-5173, 1995), month by month where prices rise.
    """
    life = bought.finance.life_months if bought.finance is not None else inf
    left = bought.flows.capex_usd
    for month in range(1, LONGEST_MONTHS + 1):
        saved = opex_usd(other.flows, other.finance, month) - opex_usd(bought.flows, bought.finance, month)
        if 0 < left <= saved:
            paid = month - 1 + left / saved
            return paid if paid <= life else inf
        left -= saved
    return inf
