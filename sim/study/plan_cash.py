"""The months of a plan in money: what is paid and received, and what it is worth now.

Hardware is priced and paid when it is ordered, deployed when it comes, sold and removed when its life ends. What is
still in service at the end of the plan is sold then at its value at that age, in a closing row after the last month.
Those payments fall at the start of their month, running costs and rents at its end, as in an ordinary annuity.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum

from sim.cost import MultiYear
from sim.cost.cash_flow import MONTHS_PER_YEAR, discount_factor, price_factor
from sim.study.plan_supply import Batch, Supply
from sim.study.plan_unit import TENANTS, Prices, Quantities
from sim.units import HOURS_PER_MONTH, SECONDS_PER_HOUR

SECONDS_PER_MONTH = HOURS_PER_MONTH * SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True)
class Terms:
    """Everything that turns units into money."""

    plan: MultiYear
    prices: Prices
    quantities: Quantities
    capacity: float
    """Load that one unit serves within the service level."""
    discount_rate: float
    value_at: Callable[[float], float]
    """Age in years -> share of the price that a unit fetches."""
    bridge_usd_per_h: float
    """Rent of a unit while bought ones are on the way."""
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
    """Component -> paid for new hardware."""
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
    requests = (owned + rented) * terms.quantities.served_rps(load) * SECONDS_PER_MONTH
    capex_usd, resale_usd, removal_usd = _capital(month, stock, terms)
    opex_usd = _running(month, stock, terms, load, requests) if inside else {}
    rental_usd = _rents(month, stock, terms) if inside else 0.0
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
    prices, plan = terms.prices, terms.plan
    capex = dict.fromkeys(prices.purchase_usd, 0.0) | ({"deployment": 0.0} if prices.deployment_usd else {})
    resale_usd = removal_usd = 0.0
    for batch in stock.batches:
        factor = _factor(batch, plan)
        if batch.ordered == month:
            for name, usd in prices.purchase_usd.items():
                capex[name] += batch.units * usd * factor
        if batch.delivered == month and prices.deployment_usd:
            capex["deployment"] += batch.units * prices.deployment_usd
        if batch.retires == month:
            age_years = (month - batch.delivered) / MONTHS_PER_YEAR
            resale_usd += batch.units * prices.resold_usd * factor * terms.value_at(age_years)
            removal_usd += batch.units * prices.decommissioning_usd
    return capex, resale_usd, removal_usd


def _factor(batch: Batch, plan: MultiYear) -> float:
    """Price when *batch* was ordered over the price of today."""
    return price_factor(plan.price_decline_per_year, batch.ordered)


def _running(month: int, stock: Supply, terms: Terms, load: float, requests: float) -> dict[str, float]:
    """Running costs of a month [USD]: a rented unit has staff, licences and egress, the rest is its landlord's."""
    prices, plan = terms.prices, terms.plan
    owned, rented = stock.owned(month), stock.rented(month)
    standing = [batch for batch in stock.batches if batch.serves(month)]
    dearer = {
        "maintenance": sum(batch.units * _factor(batch, plan) for batch in standing),
        "failures": owned * _failures(prices.failures_fixed, price_factor(plan.price_decline_per_year, month)),
    }
    found = {
        name: HOURS_PER_MONTH * usd * (owned + rented if name in TENANTS else dearer.get(name, owned))
        for name, usd in prices.hourly_usd.items()
    }
    kwh = owned * terms.quantities.power_kw(load) * HOURS_PER_MONTH
    calendar = plan.calendar(month)[1] - 1
    found |= {name: kwh * by_month[calendar] for name, by_month in prices.usd_per_kwh.items()}
    if prices.usd_per_output_token:
        found["egress"] = requests * terms.tokens[1] * prices.usd_per_output_token
    return found


def _failures(fixed: float, factor: float) -> float:
    return fixed + (1 - fixed) * factor


def _rents(month: int, stock: Supply, terms: Terms) -> float:
    """Rents of a month [USD], each contract at the price of the month in which it was signed."""
    usd_per_h = terms.prices.rental_usd_per_h or terms.bridge_usd_per_h
    running = [contract for contract in stock.contracts if contract.runs(month)]
    signed = (c.units * price_factor(terms.plan.rental_decline_per_year, c.signed) for c in running)
    return usd_per_h * HOURS_PER_MONTH * fsum(signed)
