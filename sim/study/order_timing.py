"""Time of purchase under future prices: order now, order in a later month, or rent throughout.

All times serve the same load. Their net present costs are computed at expected prices and, where a path has a
volatility or an uncertain parameter, in every Monte Carlo draw; all times share the draws.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sim.cost.price_paths import ELECTRICITY, PRICES, PriceName, PriceOutlook
from sim.cost.time_value import discount_factor, price_in
from sim.rng import Numbers, correlated, special_function, stream
from sim.scenario.reading.distribution import MonteCarloDraws
from sim.scenario.schema import Scenario
from sim.scenario.sections.sensitivity import PRICE_PATHS
from sim.study.breakeven_costs import CandidateLedgers, Cost, moved_usd
from sim.study.monte_carlo import drawn_inputs, inputs_of
from sim.study.plan_units import Declines, value_of
from sim.units import HOURS_PER_MONTH

FIXED = frozenset({"deployment"})
"""Payments at delivery that do not follow the price of hardware."""
MOST_TIMES = 36
"""Largest number of months of order that are compared; over more months every second, third, ... is."""


@dataclass(frozen=True, slots=True)
class OrderTime:
    """First month in which hardware is ordered, with the net present cost of the whole horizon."""

    month: int | None
    """Month of the first order, from 0; None: nothing is ordered."""
    meanwhile: str
    """Supply until then: rent, api, or empty where none is needed."""
    expected_usd: float
    """Net present cost at expected prices [USD]."""
    drawn_usd: Numbers
    """Net present cost in each draw [USD]; the one at expected prices where nothing is drawn."""


@dataclass(frozen=True, slots=True)
class OrderTiming:
    """Times of order that are compared for one fleet, the first of them now."""

    times: tuple[OrderTime, ...]

    @property
    def draws(self) -> int:
        """Number of draws; 0 where nothing is drawn."""
        count = self.times[0].drawn_usd.size
        return 0 if count == 1 else count

    @property
    def _table(self) -> Numbers:
        return np.array([np.broadcast_to(one.drawn_usd, self.times[0].drawn_usd.shape) for one in self.times])

    @property
    def means_usd(self) -> Numbers:
        """Mean net present cost of each time over the draws [USD]."""
        return np.asarray(self._table.mean(axis=1))

    @property
    def best(self) -> int:
        """Position of the time with the least mean cost, the earliest of equal ones."""
        return int(np.argmin(self.means_usd))

    @property
    def cheapest_shares(self) -> Numbers:
        """Fraction of the draws in which each time costs least [1]; of equal ones the earliest counts."""
        wins = np.bincount(np.argmin(self._table, axis=0), minlength=len(self.times))
        return np.asarray(wins / self._table.shape[1])

    @property
    def shares_below_now(self) -> Numbers:
        """Fraction of the draws in which each time costs less than ordering now [1]."""
        return np.asarray((self._table < self._table[0]).mean(axis=1))

    @property
    def regrets_usd(self) -> Numbers:
        """Mean cost of each time over that of the draw's cheapest time [USD].

        That of the best time is the expected value of perfect information.
        """
        return np.asarray((self._table - self._table.min(axis=0)).mean(axis=1))

    @property
    def values_of_waiting_usd(self) -> Numbers:
        """Mean saving of each time over ordering now [USD]."""
        return np.asarray(self.means_usd[0] - self.means_usd)

    def quantiles_usd(self, *shares: float) -> Numbers:
        """Return the quantiles of each time's cost at the probabilities *shares* (times x shares) [USD]."""
        return np.asarray(np.quantile(self._table, shares, axis=1).T)


def order_months(months: int) -> list[int]:
    """Return the months of order that are compared, from 0 on, within *months*.

    >>> order_months(4), len(order_months(120))
    ([0, 1, 2, 3], 30)
    """
    return list(range(0, months, -(-months // MOST_TIMES)))


def expected_outlook(scenario: Scenario, starts: str) -> PriceOutlook | None:
    """Return the expected prices from the month *starts* on; None where the scenario has no price paths."""
    return None if scenario.price_paths is None else PriceOutlook(scenario.price_paths, starts)


def drawn_outlook(scenario: Scenario, starts: str, months: int) -> PriceOutlook | None:
    """Return the draws of the prices of *months* from *starts* on; None where no price is random."""
    paths, inputs = scenario.price_paths, inputs_of(scenario, of_paths=True)
    moving = [] if paths is None else [name for name, path in paths.stated.items() if path.volatility]
    if paths is None or not (moving or inputs):
        return None
    futures = scenario.futures or MonteCarloDraws()
    shocks = _shocks(scenario.seed, moving, months, futures) if moving else {}
    deviations = {name: np.ones((1, futures.draws)) for name in PRICES}
    deviations |= {name: paths.stated[name].deviations(shocks[name]) for name in moving}
    means = {name: _means(paths.stated[name], starts, months) for name in paths.stated}
    drawn = drawn_inputs(scenario, inputs) if inputs else {}
    for name in (one for one in paths.stated if any(place[1] == one for place in drawn)):
        own = {place[2:]: values for place, values in drawn.items() if place[1] == name}
        rows = [
            _means(_with_drawn_values(paths.stated[name], own, draw), starts, months) for draw in range(futures.draws)
        ]
        means[name] = np.array(rows).T
    return PriceOutlook(paths, starts, deviations, means)


def _means(path: Any, starts: str, months: int) -> Numbers:
    return np.array([path.mean(month, starts) for month in range(months + 1)])


def _with_drawn_values(path: Any, own: dict[Any, Numbers], draw: int) -> Any:
    """Return *path* with the values that are drawn: a decline, or values of a table by month."""
    changed: dict[str, Any] = {}
    for (key, *month), values in own.items():
        value = float(values[draw])
        changed[key] = {**changed.get(key, getattr(path, key)), month[0]: value} if month else value
    return path.model_copy(update=changed)


def _shocks(seed: int, moving: Sequence[PriceName], months: int, futures: MonteCarloDraws) -> dict[PriceName, Numbers]:
    """Return standard normal shocks of each price in *moving* (months x draws), with the stated rank correlations.

    A longer horizon, or further draws, leave the earlier ones unchanged, except by Iman-Conover.
    """
    ndtri = special_function("ndtri")
    ranks = futures.rank_matrix(moving, lambda path: path.removeprefix(f"{PRICE_PATHS}."))
    table = np.empty((len(moving), months, futures.draws))
    for month in range(months):
        u = np.array([stream(seed, month, f"{PRICE_PATHS} {name}").random(futures.draws) for name in moving])
        table[:, month] = ndtri(correlated(u.T, ranks, futures.dependence).T if len(moving) > 1 else u)
    return dict(zip(moving, table, strict=True))


NO_DATE = "2000-01"
"""First month of price paths without dates."""


def timings_of_candidates(
    scenario: Scenario, ledgers: CandidateLedgers, costs: Mapping[str, Cost]
) -> dict[str, OrderTiming]:
    """Return the times of order of every purchase among *costs* (candidate, or api -> cost at the load).

    Until delivery the cheapest rent of the same fleet serves, or the API where none is stated. Empty without
    `price_paths`.
    """
    paths = scenario.price_paths
    if paths is None:
        return {}
    starts = ledgers.horizon.starts or NO_DATE
    months = max(1, round(ledgers.horizon.months))
    expected, drawn = PriceOutlook(paths, starts), drawn_outlook(scenario, starts, months)
    fleets = {one.name: one.fleet for one in ledgers.candidates}
    found = {}
    for name, cost in costs.items():
        paid_monthly = [one for one in costs if not costs[one].flows.capex_usd]
        own = [costs[one] for one in paid_monthly if fleets.get(one) == fleets.get(name)]
        others = own or [costs[one] for one in paid_monthly if one not in fleets]
        if cost.flows.resold_usd and others:
            rented = min(others, key=lambda one: one.usd_per_h)
            rate = ledgers.horizon.discount_rate
            found[name] = timing_of_candidates(cost, rented, months, rate, expected, drawn)
    return found


def timing_of_candidates(
    bought: Cost, rented: Cost, months: int, discount_rate: float, expected: PriceOutlook, drawn: PriceOutlook | None
) -> OrderTiming:
    """Return the times of order of *bought* over *months*, with *rented*, or an API, until delivery.

    Hardware is replaced at the end of its life and sold at the end of the horizon at its value by age. Rents are those
    of the month, or of the month in which their term was agreed.
    """
    found = []
    for first in [*order_months(months), None]:
        bill = [_paid_usd(bought, rented, first, months, discount_rate, one) for one in (expected, drawn) if one]
        meanwhile = "" if first == 0 else "rent" if rented.flows.rent_usd_per_h else "api"
        found.append(OrderTime(first, meanwhile, float(bill[0]), np.atleast_1d(np.asarray(bill[-1], dtype=float))))
    return OrderTiming(tuple(found))


def _paid_usd(
    bought: Cost, rented: Cost, first: int | None, months: int, discount_rate: float, prices: PriceOutlook
) -> Any:
    """Return the net present cost of renting before the month *first* and owning from it on [USD]."""
    ordered = months if first is None else first
    usd: Any = 0.0
    for month in range(ordered):
        usd = usd + _month_usd(rented, month, 0, prices) * discount_factor(discount_rate, month + 1)
    for (term, month), open_usd in rented.flows.moved_usd.items():
        for signed in range(0, ordered, term or max(1, ordered)):
            paid = min(
                max(0, signed + month), signed + (term or ordered), ordered
            )  # open payments are settled at the end
            usd = usd + open_usd * prices.factor("rent", signed) * discount_factor(discount_rate, paid)
    life = bought.finance.whole_life_months if bought.finance is not None else months
    for start in range(ordered, months, life):
        end = min(months, start + life)
        price = prices.factor("hardware", start)
        for name, paid_usd in bought.flows.delivery_usd.items():
            usd = usd + paid_usd * (1.0 if name in FIXED else price) * discount_factor(discount_rate, start)
        for month, open_usd in moved_usd(bought.flows, max(1, end - start), start, end, contracts=False):
            usd = usd + open_usd * price * discount_factor(discount_rate, month)
        for month in range(start, end):
            usd = usd + _month_usd(bought, month, start, prices) * discount_factor(discount_rate, month + 1)
        worth = value_of(bought.finance, Declines(0.0, 0.0, bought.finance, prices), start, start, end)
        brings_usd = bought.flows.resold_usd * worth - bought.flows.removal_usd
        usd = usd - brings_usd * discount_factor(discount_rate, end)
    return usd


def _month_usd(cost: Cost, month: int, since: int, prices: PriceOutlook) -> Any:
    """Return the operating cost of *cost* in *month*, for hardware or a contract of the month *since* [USD].

    Maintenance follows the price paid for the hardware, failures that of new hardware.
    """
    flows, usd_per_h = cost.flows, 0.0
    for name, usd in flows.monthly_usd_per_h.items():
        agreed = flows.agreed_months.get(name, 0.0)
        growth = cost.finance.growth_of(name) if cost.finance is not None else 0.0
        book = flows.of_month(name, month - since + 1)
        if name in ELECTRICITY and prices.gives("electricity"):
            line: Any = usd * prices.factor("electricity", month)
        else:
            line = usd * price_in(month + 1, growth, agreed)
        signed = int(month // agreed * agreed) if agreed else month
        rent = flows.rent_monthly_usd_per_h.get(name, 0.0) * (prices.factor("rent", signed) - 1)
        bought = month if name == "failures" else since
        hardware = flows.hardware_monthly_usd_per_h.get(name, 0.0) * (prices.factor("hardware", bought) - 1)
        usd_per_h = usd_per_h + book * (line + (rent + hardware) * price_in(month + 1, growth, agreed))
    return usd_per_h * HOURS_PER_MONTH
