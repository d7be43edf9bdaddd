"""Bills of finished cases under other prices and terms, computed in memory from their meters.

A case's meters are summed once, by pool and, where electricity is priced by the hour, by hour. A bill is then the
plan's prices times these sums: a millisecond, compared with seconds for a simulation and tenths of a second for a full
ledger.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, fields, replace
from typing import Any

from sim.case.run import idle_window
from sim.catalogue.catalog import Catalog
from sim.cost.cash_flow import CashFlows, flows_of, mean_flows, with_peak
from sim.cost.clock import SiteClock
from sim.cost.cost_plan import CostPlan
from sim.cost.metering import MeteredWindow
from sim.message import Message
from sim.records import Interval
from sim.scenario.resolving.case import fleet_of, resolve
from sim.scenario.resolving.resolved import CasePlan
from sim.scenario.resolving.terms import FleetTerms, Machines
from sim.scenario.schema import Fleet, Scenario
from sim.scenario.sweep import Case, at_point
from sim.scenario.year import YEAR, Calendar, Hours, around, parts_of_year, peak_to_mean
from sim.study.execution.store import StoredCase
from sim.study.metrics.service_level import UNANSWERED

KEYS = ("service", "pool", "server", "replica", "state")
SUMMED = tuple(f.name for f in fields(Interval) if f.name not in (*KEYS, "start_s", "end_s", "peak_w", "unused"))


@dataclass(frozen=True, slots=True)
class Bill:
    """Cost and tokens of one fleet in the window of one case."""

    fleet: str
    axes: dict[str, Any]
    replication: int
    window_h: float
    flows: CashFlows
    prompt_tokens: int
    """Number of computed prompt tokens; this and the other counts cover all copies together."""
    cached_tokens: int
    output_tokens: int
    requests: int
    unanswered: Mapping[str, int]
    """Number of requests that were rejected, timed out and lost, by column of summary.csv."""
    costs: CostPlan
    """Prices of the bill."""

    @property
    def usd_per_h(self) -> float:
        """Total cost per hour of the window [USD/h]."""
        return self.flows.usd_per_h

    @property
    def usd_per_million_output_tokens(self) -> float:
        """Cost per million output tokens [USD]; infinite without output tokens."""
        tokens = self.output_tokens / self.window_h
        return 1e6 * self.usd_per_h / tokens if tokens else float("inf")

    @property
    def api_usd_per_h(self) -> float | None:
        """Cost of the same tokens at the API that the scenario compares with [USD/h]; None without an API."""
        if self.costs.api is None:
            return None
        usd = self.costs.api.usd(self.prompt_tokens, self.cached_tokens, self.output_tokens)
        return usd / self.window_h


class Rebilling:
    """Stored cases of one scenario, prepared for bills under changing prices.

    Parameters
    ----------
    scenario, catalog
        Scenario of the cases, and its catalogue.
    stored
        Cases with their results; cases that could not run are ignored. None in place of a result stands for the fleet
        without load.
    terms
        Function that changes the scenario's terms before a bill.

    Raises
    ------
    ValueError
        Where a fleet has no `cost`.

    """

    def __init__(
        self,
        scenario: Scenario,
        catalog: Catalog,
        stored: Sequence[tuple[Case, StoredCase | None]],
        terms: Callable[[Scenario], Scenario] = lambda scenario: scenario,
    ) -> None:
        self.scenario, self.catalog, self._terms = scenario, catalog, terms
        able = [(case, one) for case, one in stored if one is None or one.status == "ok"]
        self._cases = [_Metered.of(case, one, scenario, catalog) for case, one in able]

    def under(self, scenario: Scenario) -> "Rebilling":
        """Return the same cases for bills under *scenario*, which differs in prices and terms alone."""
        found = copy(self)
        found.scenario = scenario
        return found

    def bills(
        self, overrides: Mapping[str, Any] | None = None, copies: int = 1, hours: Calendar | None = None
    ) -> list[Bill]:
        """Return one bill per stored case, with the values at the dotted paths *overrides* in place of the scenario's.

        Only prices and terms may change: a physical value changes no quantity.

        Parameters
        ----------
        overrides
            Dotted path -> value.
        copies
            Number of copies of the fleet, each loaded as the simulated one.
        hours
            Hours of the year whose mean prices hold; None: the prices of the simulated hours.

        Raises
        ------
        CostError
            Where a price is missing.
        pydantic.ValidationError
            Where a value is not allowed.

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
        """Return the charges of the first case under such terms, valid for all cases of a fleet; raises as `bills`."""
        return self._costs(self._cases[0], overrides, copies, hours)

    def at(self, costs: CostPlan, copies: int) -> list[Bill]:
        """Return one bill per stored case under *costs*."""
        return [case.bill(costs, copies) for case in self._cases]

    def _costs(self, case: "_Metered", overrides: Mapping[str, Any], copies: int, hours: Calendar | None) -> CostPlan:
        # values of the sweep take precedence over *overrides*
        at = self._terms(at_point(self.scenario, {**overrides, **case.case.overrides}))
        costs = case.costs(at, self.catalog, copies)
        return costs if hours is None else costs.averaged(by_hour=hours.by_hour)


Load = tuple[float, Calendar]
"""(simulated load, hours of the year whose mean prices hold)."""
Weighted = list[tuple[Bill, float]]
"""Bills with their weights in a mean."""


def flows_of_year(
    hours: Sequence[Hours],
    known: Sequence[float],
    load: float,
    billed: Callable[[Load], Sequence[Bill]],
    units: int = 1,
) -> tuple[CashFlows, Weighted]:
    """Return the mean flows over *hours* of a year with the mean *load* that *units* share, and the bills of its hours.

    A charge for a month's peak is that of the busiest hours.

    Parameters
    ----------
    hours
        Hours of the year by their load.
    known
        Simulated loads of one unit.
    load
        Mean load of the year.
    billed
        Function that returns the bills of all replications at a simulated load.
    units
        Number of units.

    """
    year = _weighted(parts_of_year(hours, known, load / units), billed)
    flows, costs = _mean_flows(year), year[0][0].costs
    if len(hours) == 1 or not costs.by_peak:
        return flows, year
    busiest = {(at, YEAR): weight for at, weight in around(known, peak_to_mean(hours) * load / units)}
    return with_peak(flows, _mean_flows(_weighted(busiest, billed)), costs), year


def _weighted(parts: Mapping[Load, float], billed: Callable[[Load], Sequence[Bill]]) -> Weighted:
    """Return the bills of all replications at *parts*, each with its share of their weight."""
    each = [(billed(part), weight) for part, weight in parts.items()]
    return [(bill, weight / len(bills)) for bills, weight in each for bill in bills]


def _mean_flows(bills: Weighted) -> CashFlows:
    return mean_flows([(bill.flows, weight) for bill, weight in bills])


def usd_per_h_of_year(hours: Sequence[Hours], mean_load: float, billing: Mapping[float, Rebilling]) -> float:
    """Return the mean cost of a fleet over *hours* of a year with the load *mean_load* [USD/h].

    *billing* has the bills by load, with those of the idle fleet at a load of 0.
    """
    prices: dict[Calendar, CostPlan] = {}

    def billed(part: Load) -> list[Bill]:
        at, calendar = part
        if calendar not in prices:
            prices[calendar] = billing[at].costs({}, 1, calendar)
        return billing[at].at(prices[calendar], 1)

    return flows_of_year(hours, sorted(billing), mean_load, billed)[0].usd_per_h


@dataclass(frozen=True, slots=True)
class _Metered:
    """Meters of one case, summed as far as its bill allows."""

    case: Case
    machines: Machines
    window: MeteredWindow
    requests: int
    unanswered: Mapping[str, int]

    @classmethod
    def of(cls, case: Case, stored: StoredCase | None, scenario: Scenario, catalog: Catalog) -> "_Metered":
        """Return the meters of *case*, simulated without load where nothing is *stored* of it."""
        plan, machines = resolve(scenario, case, catalog), fleet_of(scenario, case, catalog).machines
        if plan.costs is None:
            raise ValueError(Message("fleet {fleet} has no cost", case.fleet))
        if stored is None:
            return cls(case, machines, idle_window(plan), 0, {})
        ended = {name: stored.metrics[name] or 0 for name in UNANSWERED}
        return cls(case, machines, metered(stored, plan), stored.metrics["requests"] or 0, ended)

    def costs(self, at: Scenario, catalog: Catalog, copies: int) -> CostPlan:
        """Return the charges under the scenario *at* this case's point of the sweep."""
        costs = FleetTerms.of(at, _fleet(at, self.case)).costs(self.machines, catalog, copies)
        assert costs is not None  # `of` has checked that the fleet has costs, and overrides cannot remove them
        return costs

    def bill(self, costs: CostPlan, copies: int) -> Bill:
        """Return the bill of *copies* of the fleet under *costs*."""
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
            requests=copies * self.requests,
            unanswered={name: copies * count for name, count in self.unanswered.items()},
            costs=costs,
        )


def _fleet(scenario: Scenario, case: Case) -> Fleet:
    return next(fleet for fleet in scenario.fleets if fleet.name == case.fleet)


def metered(stored: StoredCase, plan: CasePlan) -> MeteredWindow:
    """Return the measured window of a finished case of *plan*, its intervals summed as far as a bill allows."""
    rows = [Interval(**row) for row in stored.usage().to_pylist()]
    whole = MeteredWindow.of(rows, *window_s(replace(plan, warmup_s=stored.metrics["warmup_s"]), rows))
    # the sums are used except by demand charges, which read the unsummed `parts`
    return replace(
        whole,
        parts=(whole,),
        intervals={pool: summed_intervals(inside, plan.clock) for pool, inside in whole.intervals.items()},
    )


def window_s(plan: CasePlan, intervals: Iterable[Interval]) -> tuple[float, float]:
    """Return start and end of the measured window [s]; a run without a horizon ends with its last interval."""
    return plan.window_s(max((interval.end_s for interval in intervals), default=0.0))


def summed_intervals(intervals: Iterable[Interval], clock: SiteClock | None) -> list[Interval]:
    """Return *intervals* summed by replica and state, and by hour of the *clock*."""
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
