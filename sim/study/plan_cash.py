"""The months of a plan in money: what is paid and received, and what it is worth now.

Hardware has the price of the month in which it is ordered and is paid when it comes, with its deployment; it is sold
and removed when its life ends. What is still in service at the end of the plan is sold then at its value at that age,
in a closing row after the last month. Those payments fall at the start of their month, operating cost and rent at its
end: docs/money.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum

from sim.cost import MultiYear
from sim.cost.cash_flow import discount_factor
from sim.cost.charge import Follows
from sim.study.plan_supply import Supply
from sim.study.plan_unit import Declines, Line, Loads, Quantities, Stand, UnitCosts, by_component, value_of
from sim.units import HOURS_PER_MONTH, SECONDS_PER_HOUR

SECONDS_PER_MONTH = HOURS_PER_MONTH * SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True)
class Terms:
    """Everything that turns units into money."""

    plan: MultiYear
    owned: UnitCosts
    """Of bought units; of all, where the fleet rents."""
    rented: UnitCosts
    """Of rented ones: the same, or the terms that bridge the time until bought ones come."""
    quantities: Quantities
    capacity: float
    """Load that one unit serves within the service level."""
    discount_rate: float
    declines: Declines
    tokens: tuple[float, float]
    """Mean prompt and output tokens of a request."""


@dataclass(frozen=True, slots=True)
class Row:
    """One month of one fleet; the closing row has no month of its own, only what is sold at the end."""

    month: int
    """From 0."""
    demand: float
    """Mean load; 0 in the closing row."""
    peak: float
    needed: int
    ordered: int
    on_order: int
    owned: int
    rented: int
    retired: int
    """Since the start."""
    capacity: float
    """Load that all units in service serve within the service level."""
    served: float
    """Mean load that is served: the demand, as far as the capacity goes."""
    shortfall: float
    """Load that is missing in the busiest hours."""
    requests: float
    capex_usd: Mapping[str, float] = field(default_factory=dict)
    """Component -> paid for new hardware when it comes."""
    resale_usd: float = 0.0
    decommissioning_usd: float = 0.0
    opex_usd: Mapping[str, float] = field(default_factory=dict)
    """Component -> running costs."""
    rental_usd: float = 0.0
    present_usd: float = 0.0
    """Value of the month's net cash at the start of the plan."""
    output_tokens: float = 0.0
    prompt_tokens: float = 0.0

    @property
    def in_service(self) -> int:
        """Units, bought and rented."""
        return self.owned + self.rented

    @property
    def meets_slo(self) -> bool:
        """Whether capacity covers the busiest hours."""
        return self.shortfall == 0

    @property
    def utilisation(self) -> float | None:
        """Mean load over capacity; None without any."""
        return self.served / self.capacity if self.capacity else None

    @property
    def capital_usd(self) -> float:
        """All that is paid for new hardware."""
        return fsum(self.capex_usd.values())

    @property
    def running_usd(self) -> float:
        """Running costs without rents."""
        return fsum(self.opex_usd.values())

    @property
    def at_once_usd(self) -> float:
        """Paid less received for hardware, at the start of the month."""
        return self.capital_usd + self.decommissioning_usd - self.resale_usd

    @property
    def net_usd(self) -> float:
        """Cash received less cash paid."""
        return -(self.at_once_usd + self.running_usd + self.rental_usd)


def cash_rows(demand: Sequence[float], stock: Supply, terms: Terms) -> list[Row]:
    """A row a month, and the closing one."""
    return [_row(month, demand, stock, terms) for month in range(stock.months + 1)]


def _row(month: int, demand: Sequence[float], stock: Supply, terms: Terms) -> Row:
    inside = month < stock.months
    mean = demand[month] if inside else 0.0
    peak = mean * terms.plan.peak_to_mean
    owned, rented = stock.owned(month), stock.rented(month) if inside else 0
    capacity = (owned + rented) * terms.capacity
    served = min(mean, capacity)
    short = peak - capacity
    load = served / (owned + rented) if owned + rented else 0.0
    busiest = min(peak, capacity) / (owned + rented) if owned + rented else 0.0
    requests = (owned + rented) * terms.quantities.served_rps(load) * SECONDS_PER_MONTH
    capex_usd, resale_usd, removal_usd = _capital(month, stock, terms)
    opex_usd, rental_usd = _running(month, stock, terms, Loads(load, busiest)) if inside else ({}, 0.0)
    start, end = (discount_factor(terms.discount_rate, at) for at in (month, month + 1))
    at_start = resale_usd - removal_usd - fsum(capex_usd.values())
    return Row(
        month=month,
        demand=mean,
        peak=peak,
        needed=stock.needed[month] if inside else 0,
        ordered=stock.ordered(month),
        on_order=stock.on_order(month),
        owned=owned,
        rented=rented,
        retired=stock.retired(month),
        capacity=capacity,
        served=served,
        shortfall=short if short > _ROUNDING * peak else 0.0,
        requests=requests,
        capex_usd=capex_usd,
        resale_usd=resale_usd,
        decommissioning_usd=removal_usd,
        opex_usd=opex_usd,
        rental_usd=rental_usd,
        present_usd=at_start * start - (fsum(opex_usd.values()) + rental_usd) * end,
        prompt_tokens=requests * terms.tokens[0],
        output_tokens=requests * terms.tokens[1],
    )


_ROUNDING = 1e-9


def _capital(month: int, stock: Supply, terms: Terms) -> tuple[dict[str, float], float, float]:
    """(capex by component, resale, removal) of a month [USD]."""
    unit, declines = terms.owned, terms.declines
    capex = dict.fromkeys(by_component(unit.delivery_usd), 0.0)
    resale_usd = removal_usd = 0.0
    for batch in stock.batches:
        if batch.delivered == month:
            for line, usd in unit.delivery_usd.items():
                capex[line.component] += batch.units * usd * declines.factor(line, batch.ordered, batch.ordered)
        if batch.retires == month:
            worth = value_of(declines.finance, declines, batch.ordered, batch.delivered, month)
            resale_usd += batch.units * unit.resold_usd * worth
            removal_usd += batch.units * unit.removal_usd
    return capex, resale_usd, removal_usd


def _running(month: int, stock: Supply, terms: Terms, loads: Loads) -> tuple[dict[str, float], float]:
    """(operating cost by component, rent) of a month [USD]."""
    standing = [Stand(batch.units, batch.ordered) for batch in stock.batches if batch.serves(month)]
    running = [Stand(contract.units, contract.signed) for contract in stock.contracts if contract.runs(month)]
    when = (loads, month, terms.plan.calendar(month)[1], terms.declines)
    lines: dict[Line, float] = dict.fromkeys(terms.owned.monthly_lines, 0.0)
    for unit, stands in ((terms.owned, standing), (terms.rented, running)):
        for line, usd_per_h in unit.monthly_usd_per_h(stands, *when).items():
            lines[line] = lines.get(line, 0.0) + HOURS_PER_MONTH * usd_per_h
    rental_usd = fsum(usd for line, usd in lines.items() if line.follows is Follows.RENT)
    opex = {line: usd for line, usd in lines.items() if line.follows is not Follows.RENT}
    return by_component(opex), rental_usd
