"""Registration of metrics: a function of a measured run, with the column of summary.csv that shows its value.

The modules of the subjects (`requests`, `machines`, `bill`) register their metrics here. The order of summary.csv, the
tables of a report, the paired differences, the documentation and the stored figures of a case are read off the
registrations.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from sim.case import CaseResult
from sim.cost.cost_plan import CostPlan
from sim.cost.ledger import Ledger
from sim.records import Interval
from sim.study.metrics.averages import Average, Mean
from sim.study.metrics.cohort import Cohort, PrefixHits, good_requests, prefixes_of
from sim.study.metrics.overload import Growth

T = TypeVar("T")
MEAN = Mean()
GROUPS = {
    **dict.fromkeys(("state", "traffic", "goodput", "service level", "bottleneck", "latency", "queue", "use"), True),
    **dict.fromkeys(("memory", "preemption", "size", "scaling", "power", "site power", "cost"), True),
    **dict.fromkeys(("warm-up", "endings", "availability", "waste", "request cost", "prefixes", "transfers"), False),
    **dict.fromkeys(("unit", "cost per unit", "currency", "api", "carbon", "marks"), False),
}
"""Groups of columns in the order of summary.csv; True: in every table, False: only where a column has a value."""
SHOWN_GROUPS = (
    *("service level", "latency", "availability", "scaling", "transfers", "goodput", "traffic", "memory", "use"),
    *("site power", "cost", "api", "carbon"),
)
"""Groups in the order of a report's tables and of paired.csv; the others follow in the order of GROUPS."""


class Format(NamedTuple):
    """How the values of a column are shown: factor from the column's unit, unit beside the heading, style."""

    unit: str = ""
    scale: float = 1.0
    style: Literal["plain", "steady", "count", "percent", "money"] = "plain"


FORMATS = {
    "": Format(),
    "h": Format(),
    "share": Format("", 100.0, "percent"),
    "s": Format("s", 1.0, "steady"),
    "1": Format("1/s", 1.0, "steady"),
    "tokens": Format("1/s", 1.0, "count"),
    "W": Format("kW", 1e-3, "steady"),
    "kWh": Format("kWh", 1.0, "steady"),
    "USD": Format("", 1.0, "money"),
    "kg": Format("kg", 1.0, "steady"),
}
"""Unit of a column (of a rate: what is counted) -> how it is shown, where the registration does not say."""


def format_of(unit: str) -> Format:
    """Return how values in *unit* are shown. Raises ValueError for a unit without a format."""
    found = FORMATS.get(unit.partition("/")[0])
    if found is None:
        raise ValueError(f"unit {unit!r} has no format: give format=Format(...), or add the unit to FORMATS")
    return found


@dataclass(frozen=True, slots=True)
class Column:
    """Column of summary.csv."""

    name: str
    unit: str
    """Empty for text and counts; `share` of one."""
    meaning: str
    group: str
    average: Average = MEAN
    """How the column comes from the replications of a point."""
    head: str = ""
    """Heading in the tables of report.html; empty: not shown there."""
    brief: str = ""
    """Heading in the terminal, with the unit shown there; empty: not shown."""
    paired: bool = False
    """Whether paired.csv has its differences between fleets."""
    format: Format = field(default=Format(), kw_only=True)

    @property
    def needs_cost(self) -> bool:
        """Whether the column is empty without a price."""
        return "money" in self._parts

    @property
    def moved_by_prices(self) -> bool:
        """Whether `gpufleet price` can change the column."""
        return any(PARTS[name].billed for name in self._parts)

    @property
    def _parts(self) -> set[str]:
        return {FIGURES[name].part for name in self.average.parts(self.name) if name in FIGURES}


class MeasuredRun:
    """A simulated case in its window: what metrics are computed from.

    Metrics that prices move are computed again where a stored case is priced anew, which has meters and a bill but no
    requests: to them the run is *billed*, without a cohort.
    """

    def __init__(self, result: CaseResult, *, billed: bool = False) -> None:
        self._billed = billed
        self.result, self.plan, self.log = result, result.plan, result.log
        self.meters = result.log.meters
        self.start_s, self.end_s = result.window_s
        # a window without length (all requests come at once and none can be served) has rates of zero
        self.window_s = self.end_s - self.start_s or inf
        self._known: dict[Callable[[MeasuredRun], Any], Any] = {}

    @cached_property
    def cohort(self) -> Cohort:
        """Requests that arrived in the window. Raises ValueError for metrics that prices move."""
        if self._billed:
            raise ValueError(
                "a metric that prices move rests on meters and bill alone: a case priced anew has no requests"
            )
        return Cohort.of(self.result)

    @cached_property
    def kept(self) -> NDArray[np.bool_]:
        """Whether each request finished within all limits."""
        return good_requests(self.result, self.cohort)

    @property
    def ledger(self) -> Ledger:
        """Bill of a run that has one."""
        assert self.result.ledger is not None
        return self.result.ledger

    @property
    def costs(self) -> CostPlan:
        """Charges of a run that has a bill."""
        assert self.plan.costs is not None
        return self.plan.costs

    def count(self, which: NDArray[np.bool_]) -> int:
        """Return the number of requests of the window among *which*."""
        return int((self.cohort.measured & which).sum())

    @cached_property
    def requests(self) -> int:
        """Number of requests that arrived in the window."""
        return int(self.cohort.measured.sum())

    @cached_property
    def good(self) -> int:
        """Number of requests of the window within all limits."""
        return self.count(self.kept)

    @cached_property
    def growth(self) -> Growth:
        """Growth of the queue over the window."""
        return self.cohort.queue_growth()

    @cached_property
    def prefixes(self) -> PrefixHits | None:
        """Shares of prompt tokens found in prefix caches; None where no prompts have anything in common."""
        return prefixes_of(self.result, self.cohort)

    @cached_property
    def inside(self) -> list[Interval]:
        """Meter intervals within the window."""
        return [one for one in self.log.intervals if one.is_within(self.start_s, self.end_s)]

    @cached_property
    def powered(self) -> bool:
        """Whether the power of every GPU is known."""
        return all(pool.power is not None for pool in self.plan.pools)

    def once(self, function: "Callable[[MeasuredRun], T]") -> T:
        """Return *function* of this run, computed for the first of the metrics that need it."""
        if function not in self._known:
            self._known[function] = function(self)
        found: T = self._known[function]
        return found

    def total(self, meter: str) -> Any:
        """Return the sum of a *meter* over all replicas."""
        return sum(getattr(one, meter) for one in self.meters)


@dataclass(frozen=True, slots=True)
class Part:
    """Figures of a case that are stored together, and missing together."""

    there: Callable[[MeasuredRun], bool] = lambda run: True
    """Whether a run has them."""
    billed: bool = False
    """Whether site, prices and terms move them."""
    missing: Mapping[str, Any] = field(default_factory=dict)
    """What is stored where a run has none of them."""


PARTS = {
    **dict.fromkeys(("traffic", "latencies", "level", "machines", "samples"), Part()),
    "site": Part(billed=True),
    "money": Part(
        lambda run: run.result.ledger is not None and run.plan.costs is not None,
        billed=True,
        missing={"capex_usd": None, "cost_usd": None, "component_usd_per_h": {}},
    ),
    "carbon": Part(lambda run: run.plan.carbon is not None, billed=True),
    "endings": Part(lambda run: run.plan.asks_again),
    "prefixes": Part(lambda run: run.prefixes is not None),
    "transfers": Part(lambda run: run.plan.kv_transfer is not None),
}
"""Parts of a case's figures, in the order in which they are stored."""


class Figure(NamedTuple):
    """A registered function and the part of the stored figures that its value belongs to."""

    function: Callable[[MeasuredRun], Any]
    part: str
    optional: bool
    """Whether nothing is stored where the value is None."""


Function = Callable[[MeasuredRun], Any]
REGISTERED: dict[str, Column] = {}
FIGURES: dict[str, Figure] = {}


def figure(name: str, part: str, *, optional: bool = False) -> Callable[[Function], Function]:
    """Register the decorated function as the figure *name* of every case: stored, without a column of its own."""

    def register(function: Function) -> Function:
        if name in FIGURES:
            raise ValueError(f"figure {name!r} is registered twice")
        FIGURES[name] = Figure(function, part, optional)
        return function

    return register


def metric(
    column: str,
    unit: str,
    description: str,
    group: str,
    part: str = "machines",
    *,
    average: Average = MEAN,
    heading: str = "",
    brief: str = "",
    paired: bool = False,
    format: Format | None = None,
    optional: bool = False,
) -> Callable[[Function], Function]:
    """Register a column of summary.csv, and the decorated function as the figure of a run that it averages.

    Parameters
    ----------
    column
        Name in summary.csv.
    unit
        Base unit; empty for text and counts, `share` for a fraction of one. Its format is that of FORMATS.
    description
        Meaning, for the documentation: no full stop.
    group
        Group of GROUPS, at whose end the column stands.
    part
        Part of PARTS that the figure belongs to: when a run has it, and whether prices move it.
    average
        How the column comes from the replications: Mean, Share, Ratio, ...
    heading, brief
        Headings in the tables of report.html and in the terminal; empty: not shown there.
    paired
        Whether paired.csv has differences between fleets.
    format
        How values are shown, where it is not as others in this unit.
    optional
        Whether nothing is stored where the function returns None.

    Raises
    ------
    ValueError
        Where the column is registered already, or where its group, part or unit is not known.

    """
    if column in REGISTERED or group not in GROUPS or part not in PARTS:
        raise ValueError(f"column {column!r} is registered already, or its group {group!r} or part {part!r} is unknown")
    try:
        shown = format or format_of(unit)
    except ValueError as error:
        raise ValueError(f"column {column!r}: {error}") from None
    REGISTERED[column] = Column(column, unit, description, group, average, heading, brief, paired, format=shown)
    return figure(column, part, optional=optional)
