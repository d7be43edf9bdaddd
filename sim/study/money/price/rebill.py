"""Finished cases under other prices and terms, many times over and in memory: what decisions and futures are made of.

A case's meters are added up once, by pool and, where electricity is priced by the hour, by hour. A bill is then a
plan's prices times these sums: a millisecond, against seconds for a simulation and tenths of one for a full ledger.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from sim.catalogue.catalog import Catalog
from sim.cost import Clock, CostPlan
from sim.cost.bill.window import Window
from sim.cost.finance.flows import Flows, flows_of, mean_flows, with_peak
from sim.records import Interval
from sim.scenario.resolving.case import Resolver
from sim.scenario.resolving.resolved import CasePlan
from sim.scenario.resolving.terms import FleetTerms, Machines
from sim.scenario.schema import Fleet, Scenario
from sim.scenario.sweep import Case, at_point
from sim.scenario.year import YEAR, Calendar, Hours, around, parts_of_year, peak_to_mean
from sim.study.cases.store import StoredCase
from sim.study.metrics.idle import idle_window

KEYS = ("service", "pool", "server", "replica", "state")
SUMMED = tuple(f.name for f in fields(Interval) if f.name not in (*KEYS, "start_s", "end_s", "peak_w", "unused"))


@dataclass(frozen=True, slots=True)
class Bill:
    """What one fleet cost and made in the window of one case."""

    fleet: str
    axes: dict[str, Any]
    replication: int
    window_h: float
    flows: Flows
    prompt_tokens: int
    """Computed ones; these and the others of all copies together."""
    cached_tokens: int
    output_tokens: int
    rejected: int
    """Requests that no replica took."""
    costs: CostPlan
    """The prices that it was made with."""

    @property
    def usd_per_h(self) -> float:
        """Everything, per hour of the window."""
        return self.flows.usd_per_h

    @property
    def usd_per_million_output_tokens(self) -> float:
        """Infinite where nothing was answered."""
        tokens = self.output_tokens / self.window_h
        return 1e6 * self.usd_per_h / tokens if tokens else float("inf")

    @property
    def api_usd_per_h(self) -> float | None:
        """What the same tokens cost at the API that the scenario compares with; None without one."""
        if self.costs.api is None:
            return None
        usd = self.costs.api.usd(self.prompt_tokens, self.cached_tokens, self.output_tokens)
        return usd / self.window_h


class Rebilling:
    """Stored cases of one scenario, ready to be billed again and again."""

    def __init__(
        self,
        scenario: Scenario,
        catalog: Catalog,
        stored: Sequence[tuple[Case, StoredCase]],
        terms: Callable[[Scenario], Scenario] = lambda scenario: scenario,
    ) -> None:
        """Keep of *stored* the cases that could run; bills are made with what *terms* makes of the scenario.

        Raises ValueError where the fleet of a case has no `cost`.
        """
        self.scenario, self.catalog, self._terms = scenario, catalog, terms
        resolver = Resolver(scenario, catalog)
        self._cases = [_Metered.of(case, one, resolver) for case, one in stored if one.status == "ok"]

    @classmethod
    def idle(
        cls,
        scenario: Scenario,
        catalog: Catalog,
        case: Case,
        terms: Callable[[Scenario], Scenario] = lambda scenario: scenario,
    ) -> "Rebilling":
        """Simulate the fleet of *case* without load. Raises ValueError where it has no `cost`."""
        found = cls(scenario, catalog, (), terms)
        found._cases = [_Metered.idle(case, Resolver(scenario, catalog))]
        return found

    def bills(
        self, overrides: Mapping[str, Any] | None = None, copies: int = 1, hours: Calendar | None = None
    ) -> list[Bill]:
        """One bill per stored case, with the values at the dotted paths *overrides* in place of the scenario's.

        Of *copies* of the fleet, each as the one simulated; at the prices of the simulated hours, or at the mean ones
        of the year's *hours*. Only prices and terms may change: whoever sets a physical value gets the bill of the old
        quantities. Raises CostError where a price is missing, pydantic.ValidationError where a value is not allowed.
        """
        priced: dict[str, CostPlan] = {}
        found = []
        for case in self._cases:
            key = repr((case.case.fleet, case.case.overrides))
            if key not in priced:
                priced[key] = self._costs(case, overrides or {}, copies, hours)
            found.append(case.bill(priced[key], copies))
        return found

    def costs(self, overrides: Mapping[str, Any], copies: int, hours: Calendar) -> CostPlan:
        """The charges of the first case under such terms, which hold for all of one fleet. Raises as `bills` does."""
        return self._costs(self._cases[0], overrides, copies, hours)

    def at(self, costs: CostPlan, copies: int) -> list[Bill]:
        """One bill per stored case under *costs*."""
        return [case.bill(costs, copies) for case in self._cases]

    def _costs(self, case: "_Metered", overrides: Mapping[str, Any], copies: int, hours: Calendar | None) -> CostPlan:
        # the sweep's values stand above the others
        at = self._terms(at_point(self.scenario, {**overrides, **case.case.overrides}))
        costs = case.costs(at, self.catalog, copies)
        return costs if hours is None else costs.averaged(by_hour=hours.by_hour)


def usd_per_h_of_year(hours: Sequence[Hours], mean_load: float, billing: Mapping[float, Rebilling]) -> float:
    """Return the mean cost of a fleet over *hours* of a year with the load *mean_load* [USD/h], from its bills by load,
    that of the idle fleet at a load of 0. A charge for a month's peak is that of the busiest hours.
    """
    known = sorted(billing)
    parts = parts_of_year(hours, known, mean_load)
    year = _mean_bill(billing, parts)
    if not any(charge.by_peak for charge in year[1].charges):
        return year[0].usd_per_h
    busiest = {(at, YEAR): weight for at, weight in around(known, peak_to_mean(hours) * mean_load)}
    return with_peak(year[0], _mean_bill(billing, busiest)[0], year[1]).usd_per_h


def _mean_bill(
    billing: Mapping[float, Rebilling], parts: Mapping[tuple[float, Calendar], float]
) -> tuple[Flows, CostPlan]:
    """Mean of the bills at the loads and hours *parts*, with their weights; and the prices of one of them."""
    flows: list[tuple[Flows, float]] = []
    prices: dict[Calendar, CostPlan] = {}
    for (at, calendar), weight in parts.items():
        if calendar not in prices:
            prices[calendar] = billing[at].costs({}, 1, calendar)
        found = billing[at].at(prices[calendar], 1)
        flows += [(bill.flows, weight / len(found)) for bill in found]
    return mean_flows(flows), next(iter(prices.values()))


@dataclass(frozen=True, slots=True)
class _Metered:
    """One case's meters, added up as far as its bill allows."""

    case: Case
    machines: Machines
    window: Window
    rejected: int

    @classmethod
    def of(cls, case: Case, stored: StoredCase, resolver: Resolver) -> "_Metered":
        plan = resolver.plan(case)
        if plan.costs is None:
            raise ValueError(f"fleet {case.fleet} has no cost")
        machines = resolver.fleet(case).machines
        return cls(case, machines, metered(stored, plan), stored.metrics.traffic.rejected)

    @classmethod
    def idle(cls, case: Case, resolver: Resolver) -> "_Metered":
        plan = resolver.plan(case)
        if plan.costs is None:
            raise ValueError(f"fleet {case.fleet} has no cost")
        return cls(case, resolver.fleet(case).machines, idle_window(plan), 0)

    def costs(self, at: Scenario, catalog: Catalog, copies: int) -> CostPlan:
        """Charges under the scenario *at* this case's point of the sweep."""
        costs = FleetTerms.of(at, _fleet(at, self.case)).costs(self.machines, catalog, copies)
        assert costs is not None  # `of` has seen to it, and no override takes it away
        return costs

    def bill(self, costs: CostPlan, copies: int) -> Bill:
        """Of *copies*, which *costs* are for."""
        inside = [row for rows in self.window.intervals.values() for row in rows]
        return Bill(
            fleet=self.case.fleet,
            axes=self.case.axes,
            replication=self.case.replication,
            window_h=self.window.hours,
            flows=flows_of(costs, self.window, copies),
            prompt_tokens=copies * sum(interval.prompt_tokens for interval in inside),
            cached_tokens=copies * sum(interval.cached_tokens for interval in inside),
            output_tokens=copies * sum(interval.output_tokens for interval in inside),
            rejected=copies * self.rejected,
            costs=costs,
        )


def _fleet(scenario: Scenario, case: Case) -> Fleet:
    return next(fleet for fleet in scenario.fleets if fleet.name == case.fleet)


def metered(stored: StoredCase, plan: CasePlan) -> Window:
    """The measured window of a finished case of *plan*, its intervals added up as far as a bill allows."""
    rows = [Interval(**row) for row in stored.usage().to_pylist()]
    whole = Window.of(rows, *window_s(replace(plan, warmup_s=stored.metrics.traffic.warmup_s), rows))
    # a demand charge asks the parts, whose intervals are not added up
    return replace(
        whole,
        parts=(whole,),
        intervals={pool: added_up(inside, plan.clock) for pool, inside in whole.intervals.items()},
    )


def window_s(plan: CasePlan, intervals: Iterable[Interval]) -> tuple[float, float]:
    """[start, end) of what is measured [s]; a run without a horizon ends with its last interval."""
    return plan.window_s(max((interval.end_s for interval in intervals), default=0.0))


def added_up(intervals: Iterable[Interval], clock: Clock | None) -> list[Interval]:
    """*intervals* added up by replica and state, and by hour of the *clock*."""
    sums: dict[tuple[Any, ...], Interval] = {}
    for interval in intervals:
        hour = None if clock is None else clock.hour_at(interval.middle_s)
        key = (*(getattr(interval, name) for name in KEYS), hour)
        known = sums.get(key)
        if known is None:
            sums[key] = Interval(**{f.name: getattr(interval, f.name) for f in fields(Interval)})
            continue
        known.start_s, known.end_s = min(known.start_s, interval.start_s), max(known.end_s, interval.end_s)
        known.peak_w = max(known.peak_w, interval.peak_w)
        for name in SUMMED:
            setattr(known, name, getattr(known, name) + getattr(interval, name))
    return list(sums.values())
