"""What a fleet asks of a budget, as far as it is known without a simulation."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sim.cost import CostError, PoolFacts, Problem
from sim.cost.hardware import group_hardware
from sim.cost.purchase.buying import Buy
from sim.scenario.resolving.resolve import FleetPlan
from sim.scenario.schema import Fleet
from sim.scenario.sections.size import Budget
from sim.units import HOURS_PER_MONTH

FLOATS = 1e-9
"""Relative rounding error of sums of floats."""
MOST_DIGITS = 12
"""Of a figure in a refusal."""


@dataclass(frozen=True, slots=True)
class Needs:
    """Money and power of one fleet."""

    capex_usd: float
    kw: float | None
    """The most that the machines bought may draw at the wall, by their nameplates; None where one is not known."""
    least_operating_usd_per_h: float
    """Everything paid month by month that no load changes, and electricity without any work."""
    capital_usd_per_h: float
    """What recovers the rest over the life: capital, and costs at the end of it."""

    @classmethod
    def of(cls, plan: FleetPlan, fleet: Fleet) -> "Needs":
        """Those of *fleet* at the mean prices of the year. Raises CostError for a fleet without a `cost` section."""
        if plan.costs is None:
            raise CostError(Problem("cost", f"{fleet.name} has no cost section"))
        costs, least_kw = plan.costs.averaged(), least_kw_by_pool(plan)
        least = [(one.paid.monthly, one.least_usd_per_h(least_kw.get(one.pool, 0.0))) for one in costs.charges]
        operating, capital = (sum(usd for monthly, usd in least if monthly is wanted) for wanted in (True, False))
        return cls(costs.capex_usd, _nameplate_kw(plan, fleet), operating, capital)


def least_kw_by_pool(plan: FleetPlan) -> dict[str, float]:
    """Power at the wall without any work; replicas on a schedule are off at times."""
    return {
        pool.name: pool.replicas * pool.power.least_w / 1e3
        for pool in plan.pools
        if pool.power is not None and not pool.switched
    }


def _nameplate_kw(plan: FleetPlan, fleet: Fleet) -> float | None:
    """Pools under the same terms fill servers together, as on their bill."""
    bought: list[tuple[Buy, list[PoolFacts]]] = []
    for facts, cost in zip(plan.machines.pools, fleet.costs, strict=True):
        if isinstance(cost, Buy):
            members = next((members for known, members in bought if known == cost), None)
            if members is None:
                bought.append((cost, [facts]))
            else:
                members.append(facts)
    peaks = [hardware.peak_w for cost, members in bought for hardware in group_hardware(members, cost.share)]
    known = [peak_w for peak_w in peaks if peak_w is not None]
    return sum(known) / 1e3 if len(known) == len(peaks) else None


def over(budget: Budget | None, needs: Needs, usd_per_h: float | None = None, rounding_usd_per_h: float = 0.0) -> str:
    """Which limits of *budget* a fleet breaks; empty if none.

    *usd_per_h* is what it costs, where that is known, and *rounding_usd_per_h* how far a bill rounded to nano-dollars
    may be from it.
    """
    return "; ".join(_over(budget, needs, usd_per_h, rounding_usd_per_h)) if budget is not None else ""


def _over(budget: Budget, needs: Needs, usd_per_h: float | None, rounding_usd_per_h: float) -> Iterator[str]:
    if budget.capex_usd is not None and _exceeds(needs.capex_usd, budget.capex_usd):
        asked, allowed = _apart(needs.capex_usd, budget.capex_usd, "{:,.{}f}", 0)
        yield f"capital of ${asked} exceeds ${allowed}"
    operating = operating_usd_per_month(needs, usd_per_h)
    rounding = rounding_usd_per_h * HOURS_PER_MONTH
    if budget.usd_per_month is not None and _exceeds(operating, budget.usd_per_month, rounding):
        asked, allowed = _apart(operating, budget.usd_per_month, "{:,.{}f}", 0)
        least = "at least " if usd_per_h is None else ""
        yield f"operating cost of {least}${asked} a month exceeds ${allowed}"
    if budget.kw is not None and needs.kw is None:
        yield "its power is not known"
    elif budget.kw is not None and needs.kw is not None and _exceeds(needs.kw, budget.kw):
        asked, allowed = _apart(needs.kw, budget.kw, "{:.{}g}", 3)
        yield f"power of {asked} kW exceeds {allowed} kW"


def _apart(value: float, limit: float, form: str, digits: int) -> tuple[str, str]:
    """The value with *digits* digits, or as many as tell it from the limit; and the limit as the scenario has it."""
    enough = (n for n in range(digits, MOST_DIGITS) if form.format(value, n) != form.format(limit, n))
    return form.format(value, next(enough, MOST_DIGITS)), f"{limit:,.{MOST_DIGITS}g}"


def operating_usd_per_month(needs: Needs, usd_per_h: float | None) -> float:
    """What is paid month by month of *usd_per_h*; at the least, where nothing was simulated."""
    per_h = needs.least_operating_usd_per_h if usd_per_h is None else usd_per_h - needs.capital_usd_per_h
    return per_h * HOURS_PER_MONTH


def ceilings(budget: Budget | None, kinds: Sequence[Sequence[Needs]]) -> list[tuple[list[list[float]], float]]:
    """For each limit of *budget* what 1, 2, ... replicas of each of *kinds* ask of it, and the limit."""
    if budget is None:
        return []
    amounts: list[tuple[float | None, Callable[[Needs], float]]] = [
        (budget.capex_usd, lambda needs: needs.capex_usd),
        (budget.usd_per_month, lambda needs: operating_usd_per_month(needs, None)),
        (budget.kw, lambda needs: needs.kw or 0.0),
    ]
    return [([[of(one) for one in kind] for kind in kinds], limit) for limit, of in amounts if limit is not None]


def _exceeds(value: float, limit: float, rounding: float = 0.0) -> bool:
    return value > limit * (1 + FLOATS) + FLOATS + rounding
