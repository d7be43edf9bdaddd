"""Finished cases under other prices and terms, many times over and in memory: what decisions and futures are made of.

A case's meters are added up once, by pool and, where electricity is priced by the hour, by hour. A bill is then a
plan's prices times these sums: a millisecond, against seconds for a simulation and tenths of one for a full ledger.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from sim.catalog.catalog import Catalog
from sim.cost import Clock, CostPlan, Ledger
from sim.cost.charge import Paid
from sim.cost.rental import RENTAL
from sim.records import Interval
from sim.scenario.plan import CasePlan
from sim.scenario.resolve import resolve
from sim.scenario.schema import Scenario
from sim.scenario.sweep import Case, at_point
from sim.study.store import StoredCase
from sim.units import HOURS_PER_MONTH

KEYS = ("service", "pool", "server", "replica", "state")
SUMMED = tuple(f.name for f in fields(Interval) if f.name not in (*KEYS, "start_s", "end_s", "peak_w"))


@dataclass(frozen=True, slots=True)
class Bill:
    """What one fleet cost and made in the window of one case."""

    fleet: str
    axes: dict[str, Any]
    replication: int
    window_h: float
    capex_usd: float
    """Purchase money up front; 0 when renting."""
    component_usd_per_h: dict[str, float]
    capital_components: frozenset[str]
    """Components that recover purchase money."""
    prompt_tokens: int
    """Computed ones."""
    cached_tokens: int
    output_tokens: int
    costs: CostPlan
    """The prices that it was made with."""

    @property
    def usd_per_h(self) -> float:
        """Everything, per hour of the window."""
        return sum(self.component_usd_per_h.values())

    @property
    def capital_usd_per_h(self) -> float:
        """The part that recovers purchase money."""
        return sum(usd for name, usd in self.component_usd_per_h.items() if name in self.capital_components)

    @property
    def hardware_usd_per_h(self) -> float:
        """What recovers purchase money, and rent."""
        rent = sum(usd for name, usd in self.component_usd_per_h.items() if name in RENTAL)
        return self.capital_usd_per_h + rent

    @property
    def running_usd_per_month(self) -> float:
        """What is paid month by month: all but the purchase."""
        return (self.usd_per_h - self.capital_usd_per_h) * HOURS_PER_MONTH

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

    def __init__(self, scenario: Scenario, catalog: Catalog, stored: Sequence[tuple[Case, StoredCase]]) -> None:
        """Of *stored* those that could run. Raises ValueError where one's fleet has no `cost`."""
        self.scenario, self.catalog = scenario, catalog
        self._cases = [_Metered.of(case, one, scenario, catalog) for case, one in stored if one.status == "ok"]

    def bills(self, overrides: Mapping[str, Any] | None = None) -> list[Bill]:
        """One bill per stored case, with the values at the dotted paths *overrides* in place of the scenario's.

        Only prices and terms may change: whoever sets a physical value gets the bill of the old quantities. Raises
        CostError where a price is missing, pydantic.ValidationError where a value is not allowed.
        """
        scenario = at_point(self.scenario, dict(overrides)) if overrides else self.scenario
        return [case.bill(scenario, self.catalog) for case in self._cases]


@dataclass(frozen=True, slots=True)
class _Metered:
    """One case's meters, added up as far as its bill allows."""

    case: Case
    intervals: tuple[Interval, ...]
    start_s: float
    end_s: float

    @classmethod
    def of(cls, case: Case, stored: StoredCase, scenario: Scenario, catalog: Catalog) -> "_Metered":
        plan = resolve(scenario, case, catalog)
        if plan.costs is None:
            raise ValueError(f"fleet {case.fleet} has no cost")
        rows = [Interval(**row) for row in stored.usage().to_pylist()]
        start_s, end_s = window_s(replace(plan, warmup_s=stored.metrics["warmup_s"]), rows)
        inside = [row for row in rows if plan.scheduled or start_s <= (row.start_s + row.end_s) / 2 < end_s]
        return cls(case, tuple(condensed(inside, plan)), start_s, end_s)

    def bill(self, scenario: Scenario, catalog: Catalog) -> Bill:
        """Under *scenario*, whose sweep point is this case's own."""
        plan = resolve(scenario, self.case, catalog)
        assert plan.costs is not None  # `of` has seen to it, and no override takes it away
        inside = [one for one in self.intervals if self.start_s <= (one.start_s + one.end_s) / 2 < self.end_s]
        ledger = Ledger.of(self.intervals, plan.costs, self.start_s, self.end_s)
        return Bill(
            fleet=self.case.fleet,
            axes=self.case.axes,
            replication=self.case.replication,
            window_h=ledger.window_h,
            capex_usd=ledger.capex_usd,
            component_usd_per_h=ledger.component_usd_per_h(),
            capital_components=frozenset(one.component for one in plan.costs.charges if one.paid is Paid.AT_DELIVERY),
            prompt_tokens=sum(interval.prompt_tokens for interval in inside),
            cached_tokens=sum(interval.cached_tokens for interval in inside),
            output_tokens=sum(interval.output_tokens for interval in inside),
            costs=plan.costs,
        )


def window_s(plan: CasePlan, intervals: Iterable[Interval]) -> tuple[float, float]:
    """[start, end) of what is measured [s]; a run without a horizon ends with its last interval."""
    if plan.horizon_s is not None:
        return plan.warmup_s, plan.horizon_s
    return plan.warmup_s, max((interval.end_s for interval in intervals), default=0.0)


def condensed(intervals: Iterable[Interval], plan: CasePlan) -> list[Interval]:
    """*intervals* added up by replica and state, and by hour of the clock where the scenario has one.

    Meters are read at the full hours where it has, so that no interval lies in two of them.
    """
    if plan.scheduled or (plan.costs is not None and plan.costs.by_peak):
        return list(intervals)  # rent follows each start and stop, a demand charge each quarter of an hour
    return added_up(intervals, plan.clock)


def added_up(intervals: Iterable[Interval], clock: Clock | None) -> list[Interval]:
    """*intervals* added up by replica and state, and by hour of the *clock*."""
    sums: dict[tuple[Any, ...], Interval] = {}
    for interval in intervals:
        hour = None if clock is None else clock.hour_at((interval.start_s + interval.end_s) / 2)
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
