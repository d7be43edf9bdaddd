"""Registration of metrics: functions of a measured run, and the columns of summary.csv that show their values.

The modules `requests`, `machines` and `bill` register their metrics here. The order of summary.csv, the tables of a
report, the paired differences, the documentation and the stored figures of a case follow from the registrations.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from sim.case.result import CaseResult
from sim.cost.cost_plan import CostPlan
from sim.cost.ledger import Ledger
from sim.fleet.request_columns import column, options_of, texts
from sim.records import Interval, RequestOptions
from sim.study.metrics.averages import Average, Mean
from sim.study.metrics.overload import Growth
from sim.study.metrics.window_requests import PrefixHits, WindowRequests, prefix_hits

T = TypeVar("T")
PERCENTILES = (50, 95, 99)
"""Percentiles of every latency and of the cost of a request."""
MEAN = Mean()
GROUPS = {
    **dict.fromkeys(("state", "traffic", "goodput", "service level", "bottleneck", "latency", "queue", "use"), True),
    **dict.fromkeys(("memory", "preemption", "size", "scaling", "power", "site power", "cost"), True),
    **dict.fromkeys(("warm-up", "endings", "availability", "waste", "request cost", "prefixes", "transfers"), False),
    **dict.fromkeys(("unit", "cost per unit", "currency", "revenue", "api", "carbon", "scopes", "marks"), False),
}
"""Groups of columns in the order of summary.csv; True: in every table, False: only where a column has a value."""
SHOWN_GROUPS = (
    *("service level", "latency", "availability", "scaling", "transfers", "goodput", "traffic", "memory", "use"),
    *("site power", "cost", "revenue", "api", "carbon"),
)
"""Groups in the order of a report's tables and of paired.csv; the others follow in the order of GROUPS."""


EARLIER_NAMES = {"thin_percentiles": "low_sample_percentiles", "horizon_dependent": "nonstationary_columns"}
"""Earlier name of a column -> its name, for runs that an earlier version has stored."""


class Format(NamedTuple):
    """Display format of a column: unit shown, factor from the column's unit to the unit shown, and number style."""

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
"""Unit of a column (numerator, for a rate) -> display format, unless the registration gives another one."""


def format_of(unit: str) -> Format:
    """Return the display format of values in *unit*.

    Raises
    ------
    ValueError
        Where FORMATS has no such unit.

    """
    found = FORMATS.get(unit.partition("/")[0])
    if found is None:
        raise ValueError(f"unit {unit!r} has no format: give format=Format(...), or add the unit to FORMATS")
    return found


@dataclass(frozen=True, slots=True)
class MetricColumn:
    """Column of summary.csv, with its headings in other outputs."""

    name: str
    unit: str
    """Base unit; empty for text and counts, `share` for a fraction of one."""
    meaning: str
    group: str
    average: Average = MEAN
    """Method that averages the column over the replications of a point."""
    head: str = ""
    """Heading in the tables of report.html; empty: not shown there."""
    brief: str = ""
    """Heading in the terminal, with the unit shown there; empty: not shown."""
    sheet: str = ""
    """Heading in workbooks in languages other than English, with its unit; USD stands for the reporting currency."""
    paired: bool = False
    """True if paired.csv has the differences of the column between fleets."""
    format: Format = field(default=Format(), kw_only=True)

    @property
    def needs_cost(self) -> bool:
        """True if the column is empty without a price."""
        return "money" in self._parts

    @property
    def depends_on_prices(self) -> bool:
        """True if `gpufleet price` can change the column."""
        return any(PARTS[name].billed for name in self._parts)

    @property
    def _parts(self) -> set[str]:
        return {FIGURES[name].part for name in self.average.parts(self.name) if name in FIGURES}


class MeasuredRun:
    """Simulated case within its measured window: the argument of every metric.

    `gpufleet price` computes metrics that depend on prices again, from a stored case that has meters and a bill but no
    requests: such a run is *billed*, and reading its cohort raises ValueError.
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
    def cohort(self) -> WindowRequests:
        """Requests that arrived in the window. Raises ValueError for a run that was priced anew."""
        if self._billed:
            raise ValueError(
                "a metric that prices move rests on meters and bill alone: a case priced anew has no requests"
            )
        open_end = self.plan.horizon_s is None
        return WindowRequests.of(self.log.requests, self.options, self.result.window_s, open_end)

    @cached_property
    def options(self) -> Collection[RequestOptions]:
        """Options of the requests that are not the default ones; see `options_of`."""
        return options_of(self.log.requests)

    @cached_property
    def replicas(self) -> NDArray[np.int32]:
        """Current or last replica of each request; -1 without one."""
        return column(self.log.requests, "replica", np.int32)

    @cached_property
    def within_limits(self) -> NDArray[np.bool_]:
        """Mask of the requests that finished within all limits; each service has its own limits."""
        if not self.plan.services:
            return self.cohort.good(self.plan.slo)
        names = np.array(texts(self.log.requests, "service"))
        good = np.zeros(len(names), bool)
        for one in self.plan.services:
            good |= self.cohort.good(one.slo) & (names == one.name)
        return good

    @property
    def ledger(self) -> Ledger:
        """Bill of the run; fails without one."""
        assert self.result.ledger is not None
        return self.result.ledger

    @property
    def costs(self) -> CostPlan:
        """Charges of the run; fails without a cost plan."""
        assert self.plan.costs is not None
        return self.plan.costs

    def count(self, which: NDArray[np.bool_]) -> int:
        """Return the number of requests that arrived in the window and for which the mask *which* is true."""
        return int((self.cohort.measured & which).sum())

    @cached_property
    def requests(self) -> int:
        """Number of requests that arrived in the window."""
        return int(self.cohort.measured.sum())

    @cached_property
    def good(self) -> int:
        """Number of requests of the window within all limits."""
        return self.count(self.within_limits)

    @cached_property
    def growth(self) -> Growth:
        """Growth of the queue over the window."""
        return self.cohort.queue_growth()

    @cached_property
    def prefixes(self) -> PrefixHits | None:
        """Shares of prompt tokens found in prefix caches; None where no prompts have anything in common."""
        end_s = inf if self.cohort.open_end else self.cohort.end_s
        block_tokens = min(pool.batching.block_size for pool in self.plan.pools)
        shared = any(one.block_hashes for one in self.options)
        return prefix_hits(self.log.requests, self.cohort.start_s, end_s, block_tokens) if shared else None

    @cached_property
    def inside(self) -> list[Interval]:
        """Meter intervals within the window."""
        return [one for one in self.log.intervals if one.is_within(self.start_s, self.end_s)]

    @cached_property
    def powered(self) -> bool:
        """True if the power of every GPU is known."""
        return all(pool.power is not None for pool in self.plan.pools)

    def once(self, function: "Callable[[MeasuredRun], T]") -> T:
        """Return the value of *function* for this run, computed at the first call and shared by all metrics."""
        if function not in self._known:
            self._known[function] = function(self)
        found: T = self._known[function]
        return found

    def total(self, meter: str) -> Any:
        """Return the sum of the meter *meter* over all replicas."""
        return sum(getattr(one, meter) for one in self.meters)


Function = Callable[[MeasuredRun], Any]
"""Metric or figure as a function of a run."""


@dataclass(frozen=True, slots=True)
class FigureGroup:
    """Figures of a case that are stored together, and missing together."""

    available: Callable[[MeasuredRun], bool] = lambda run: True
    """True if a run has these figures."""
    billed: bool = False
    """True if site, prices and terms change these figures."""
    missing: Mapping[str, Any] = field(default_factory=dict)
    """Figures that are stored instead where a run lacks this group."""


PARTS = {
    **dict.fromkeys(("traffic", "latencies", "level", "machines", "samples"), FigureGroup()),
    "site": FigureGroup(billed=True),
    "money": FigureGroup(
        lambda run: run.result.ledger is not None and run.plan.costs is not None,
        billed=True,
        missing={"capex_usd": None, "cost_usd": None, "component_usd_per_h": {}},
    ),
    "carbon": FigureGroup(lambda run: run.plan.carbon is not None, billed=True),
    "endings": FigureGroup(lambda run: run.plan.may_retry),
    "prefixes": FigureGroup(lambda run: run.prefixes is not None),
    "transfers": FigureGroup(lambda run: run.plan.kv_transfer is not None),
}
"""Parts of a case's figures, in the order in which they are stored."""


class SummaryMetric(NamedTuple):
    """Registered function, with the part of the stored figures that its value belongs to."""

    function: Function
    part: str
    optional: bool
    """True if a value of None is left out of the stored figures."""


REGISTERED: dict[str, MetricColumn] = {}
"""Name -> column of summary.csv, in the order of registration."""
FIGURES: dict[str, SummaryMetric] = {}
"""Name -> stored figure of a case, with or without a column."""


def figure(name: str, part: str, *, optional: bool = False) -> Callable[[Function], Function]:
    """Register the decorated function as the figure *name*, which is stored for every case and has no column.

    Parameters
    ----------
    name
        Name of the stored figure.
    part
        Part of PARTS that the figure belongs to.
    optional
        Whether a value of None is left out of the stored figures.

    Raises
    ------
    ValueError
        Where the figure is registered already.

    """

    def register(function: Function) -> Function:
        if name in FIGURES:
            raise ValueError(f"figure {name!r} is registered twice")
        FIGURES[name] = SummaryMetric(function, part, optional)
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
    sheet: str = "",
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
        Base unit; empty for text and counts, `share` for a fraction of one. FORMATS gives its usual format.
    description
        Meaning, for the documentation: no full stop.
    group
        Group of GROUPS; the column is added at the end of the group.
    part
        Part of PARTS that the figure belongs to; it decides which runs have the figure and whether prices change it.
    average
        Method that averages the figure over the replications of a point: Mean, MeanShare, Ratio, ...
    heading, brief
        Headings in the tables of report.html and in the terminal; empty: not shown there.
    sheet
        Heading in workbooks in languages other than English, with its unit in brackets; USD stands for the reporting
        currency. Default: *heading*, or the words of the name.
    paired
        Whether paired.csv has differences between fleets.
    format
        Format of the values, where it differs from the usual format of the unit.
    optional
        Whether a value of None is left out of the stored figures.

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
    sheet = sheet or heading or column.replace("_", " ").replace("gpu", "GPU")
    REGISTERED[column] = MetricColumn(
        column, unit, description, group, average, heading, brief, sheet, paired, format=shown
    )
    return figure(column, part, optional=optional)
