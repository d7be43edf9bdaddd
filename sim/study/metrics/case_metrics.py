"""Figures of one replication of a case, under the names of summary.csv.

`measure` computes all registered metrics of a simulation; `with_bill` replaces those that depend on prices.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from sim.case.result import CaseResult, results_by_service
from sim.scenario.slo import LATENCIES
from sim.study.metrics import bill, machines, requests  # noqa: F401 (they register metrics)
from sim.study.metrics.metric import EARLIER_NAMES, FIGURES, PARTS, MeasuredRun

LATENCY_NAMES = tuple(f"{name}_" for name in (*LATENCIES, "queue_s"))
SERVICES = "services"
STORED = [name for part in PARTS for name, one in FIGURES.items() if one.part == part]
"""Figures in the order in which they are stored."""
MACHINE_TOTALS = frozenset({"gpus", "servers", "gpu_hours_per_day"})
"""Figures of machines that terms of the bill change, too."""


@dataclass(frozen=True, slots=True)
class CaseMetrics:
    """All figures of a case, in base units; `metrics["ttft_s_p95"]` reads a figure by its name."""

    figures: Mapping[str, Any]
    """Figures of FIGURES that the case has; `latencies` is a mapping from column to seconds."""
    services: Mapping[str, "CaseMetrics"] = field(default_factory=dict)
    """Service -> its figures, where a fleet serves several."""

    def __getitem__(self, name: str) -> Any:
        """Return the figure *name*; None where this case has none.

        Raises
        ------
        KeyError
            Where no case can have a figure of this name.

        """
        if name in FIGURES:
            return self.figures.get(name)
        if name.startswith(LATENCY_NAMES):
            return (self.figures.get("latencies") or {}).get(name)
        raise KeyError(name)

    @property
    def usd_of_a_mean_year(self) -> float | None:
        """Cost of the window at the mean prices of the year [USD], by which fleets are chosen; None without a cost."""
        usd: float | None = self["cost_usd"] if self["calendar_usd"] is None else self["calendar_usd"]
        return usd

    def as_data(self) -> dict[str, Any]:
        """Return the figures by name, in the form in which they are stored."""
        found: dict[str, Any] = {}
        for name in STORED:
            if name in self.figures:
                found |= self.figures[name] if name == "latencies" else {name: self.figures[name]}
        return found | (
            {SERVICES: {name: one.as_data() for name, one in self.services.items()}} if self.services else {}
        )

    @classmethod
    def of_data(cls, data: Mapping[str, Any]) -> "CaseMetrics":
        """Return the figures that `as_data` gave; missing figures (a case stored by an older version) are None."""
        data = {EARLIER_NAMES.get(name, name): value for name, value in data.items()}
        latencies = {name: value for name, value in data.items() if name not in FIGURES and name != SERVICES}
        services = {name: cls.of_data(one) for name, one in (data.get(SERVICES) or {}).items()}
        return cls({name: data[name] for name in STORED if name in data} | {"latencies": latencies}, services)

    def with_figures(self, **changed: Any) -> "CaseMetrics":
        """Return a copy of these figures with those *changed* replaced."""
        return replace(self, figures={**self.figures, **changed})

    def with_bill_of(self, other: "CaseMetrics") -> "CaseMetrics":
        """Return these figures with every figure that prices change taken from *other*."""
        sides = ((self, False), (other, True))
        return replace(
            self,
            figures={
                name: value for one, billed in sides for name, value in one.figures.items() if is_billed(name) is billed
            },
        )


@cache
def is_billed(name: str) -> bool:
    """Return whether site, prices and terms change the figure *name*."""
    return PARTS[FIGURES[name].part].billed


def measure(case: CaseResult | MeasuredRun) -> CaseMetrics:
    """Return all figures of *case*; a measured run keeps the arrays that its table of requests uses again."""
    run = case if isinstance(case, MeasuredRun) else MeasuredRun(case)
    parts = results_by_service(run.result)
    return CaseMetrics(_figures(run, STORED), {name: measure(own) for name, own in parts.items()})


def _figures(run: MeasuredRun, names: Iterable[str]) -> dict[str, Any]:
    """Return the figures *names* of *run*, without those of parts that it lacks."""
    runs = {False: run, True: MeasuredRun(run.result, billed=True)}
    found: dict[str, Any] = {}
    for name in names:
        (function, part, optional), run = FIGURES[name], runs[is_billed(name)]
        if not PARTS[part].available(run):
            found |= {name: PARTS[part].missing[name]} if name in PARTS[part].missing else {}
        elif (value := function(run)) is not None or not optional:
            found[name] = value
    return found


def with_bill(metrics: CaseMetrics, billed: CaseResult) -> CaseMetrics:
    """Return *metrics*, and those of each service, with the site, money and greenhouse gas figures of *billed*."""
    parts = results_by_service(billed) if metrics.services else {}
    services = {name: _with_bill(own, parts[name]) for name, own in metrics.services.items()}
    return replace(_with_bill(metrics, billed), services=services)


def _with_bill(metrics: CaseMetrics, billed: CaseResult) -> CaseMetrics:
    moved = [name for name in STORED if is_billed(name) or name in MACHINE_TOTALS]
    new = CaseMetrics(_figures(MeasuredRun(billed), moved))
    return metrics.with_bill_of(new).with_figures(**{name: new[name] for name in MACHINE_TOTALS})
