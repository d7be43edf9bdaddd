"""The questions beside `sim.run`: capacity, size, sensitivity, breakeven and plan, a function and a result each."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from sim.api.prepared import Given, Prepared, Values, fraction
from sim.api.result import Result, drawn_of
from sim.deliver.questions import deliver_breakeven, deliver_capacity, deliver_plan, deliver_sensitivity
from sim.deliver.size import deliver_size
from sim.report.breakeven import breakeven_document, left_out, owned_peaks
from sim.report.breakeven import key as breakeven_key
from sim.report.breakeven import panels as breakeven_panels
from sim.report.breakeven import ranking as breakeven_ranking
from sim.report.capacity import capacity_document, capacity_rows, capacity_table
from sim.report.capacity_charts import picture as capacity_picture
from sim.report.charts.fonts import settings
from sim.report.page.page import text_table
from sim.report.plan import plan_document
from sim.report.plan_charts import draw_plan
from sim.report.plan_tables import plan_table
from sim.report.sensitivity import SensitivityAnswer, charts, sensitivity_document, tables
from sim.report.sensitivity_charts import picture as sensitivity_picture
from sim.report.size import MOST_ROWS, size_document
from sim.report.size import key as size_key
from sim.report.size import panels as size_panels
from sim.report.size_candidates import ranking as size_ranking
from sim.report.words.money import showing
from sim.report.words.precision import capacity_notes
from sim.report.words.text import question_of
from sim.scenario.reading.load import load, load_for_size
from sim.scenario.slo import Slo
from sim.study.breakeven import BreakevenAnswer, why_no_breakeven
from sim.study.capacity import Capacity, precision_of, why_no_capacity
from sim.study.capacity_tolerance import RELATIVE
from sim.study.load_axis import LoadAxis
from sim.study.plan import Outlook, why_no_plan
from sim.study.sensitivity import why_no_sensitivity
from sim.study.size.bounds import why_no_size
from sim.study.size.candidates import Sizing
from sim.yamlio import read


class CapacityResult(Result):
    """How much load each fleet takes. `table` has one row per fleet, `search` what was tried."""

    _main = "capacity.csv"

    def __init__(self, prepared: Prepared, found: Sequence[Capacity], relative: float) -> None:
        scenario = prepared.scenario
        axis = LoadAxis.of(scenario)
        with showing(scenario):
            rows = capacity_rows(found, axis, scenario.slo)
            document = capacity_document(scenario, found, axis, relative, str(prepared.out))
            table = capacity_table(rows, axis, scenario.slo)
        notes = prepared.remarks
        headline = document["verdict"]["headline"]
        draw = partial(_capacity_drawn, found, rows, axis, scenario.slo, question_of(scenario), headline)
        able = [one for one in found if not one.reason]
        super().__init__(prepared, document | {"notes": notes}, [table], ["capacity"] if able else [], draw)
        self._refuse_unable({one.fleet: one.reason for one in found})

    @property
    def search(self) -> pd.DataFrame:
        """Every load that was tried, by fleet and replication, with what was attained there."""
        return self._frame("search.csv")


def _capacity_drawn(
    found: Sequence[Capacity], rows: Any, axis: LoadAxis, slo: Slo, question: str, headline: str, _name: str
) -> Any:
    return capacity_picture(found, rows, axis, slo, question, headline)


def capacity(
    scenario: Given,
    set: Values | None = None,
    replications: int | None = None,
    out: str | Path | None = None,
    *,
    relative: float = RELATIVE,
    seed: int | None = None,
    workers: int | None = None,
    force: bool = False,
    quiet: bool = False,
) -> CapacityResult:
    """Find the highest load at which each fleet meets its service level, as `gpufleet capacity` does.

    *scenario* is the path of a scenario file, the name of a shipped one, a dict with the same keys, or a Scenario.
    *set* replaces values by dotted path, *seed* and *replications* take the place of the scenario's. *workers* is the
    number of processes (None: one per CPU core). Nothing is written unless *out* names a folder, whose answer to
    another question *force* replaces; *quiet* hides the progress. Each capacity is found to within the fraction
    *relative*.

    Raises ScenarioErrors with all mistakes at once, Infeasible where no fleet can run, FolderRefused and FolderBusy
    for *out*, and WorkerLost where memory runs out.

    >>> import sim
    >>> short = {"horizon_s": 20, "warmup_s": 0, "precision": {"relative": 0.9, "max_replications": 5}}
    >>> found = sim.capacity("4x4090-vs-2xa100", short, 1, relative=0.2, workers=1, quiet=True)
    >>> list(found.table.fleet)
    ['4x RTX 4090', '2x A100 80GB']
    """
    prepared = Prepared(scenario, set, seed=seed, replications=replications, out=out, read=partial(load, swept=False))
    prepared.refuse(why_no_capacity(prepared.scenario))
    width = fraction(relative)
    prepared.ignores("capacity", precision=precision_of(prepared.scenario, width))
    more = {"relative": width, "report": out is not None}
    return CapacityResult(prepared, prepared.delivered(deliver_capacity, workers, quiet, force, **more), width)


class SizeResult(Result):
    """The cheapest fleet. `table` has one row per candidate, `pareto` those that none beats in cost and latency."""

    _main = "size.csv"

    def __init__(self, prepared: Prepared, found: Sizing) -> None:
        scenario = prepared.scenario
        with showing(scenario):
            document = size_document(found, scenario, str(prepared.out))
            drawn, marks = size_panels(found, scenario), size_key(found)
            table = text_table(size_ranking(found, scenario, MOST_ROWS))
        notes = prepared.remarks
        draw = partial(drawn_of, drawn, question_of(scenario), document["verdict"]["headline"], marks)
        super().__init__(prepared, document | {"notes": notes}, [table], [one.kind for one in drawn], draw)

    @property
    def pareto(self) -> pd.DataFrame:
        """Fleets that meet the service level and that no other beats in cost and all latencies at once."""
        return self._frame("pareto.csv")

    @property
    def winner(self) -> dict[str, Any] | None:
        """A scenario with the cheapest fleet alone, for `sim.run`; None where no fleet meets the service level."""
        return self._scenario("winner.yaml")

    @property
    def within_budget(self) -> dict[str, Any] | None:
        """A scenario with the best fleet that the budget allows, where no fleet within it meets the service level."""
        return self._scenario("within_budget.yaml")

    def _scenario(self, file: str) -> dict[str, Any] | None:
        path = self._answered() / file
        found: dict[str, Any] | None = read(path).data if path.exists() else None
        return found


def size(
    scenario: Given,
    set: Values | None = None,
    replications: int | None = None,
    out: str | Path | None = None,
    *,
    seed: int | None = None,
    workers: int | None = None,
    force: bool = False,
    quiet: bool = False,
) -> SizeResult:
    """Find the cheapest fleet that meets the service level at the scenario's load, as `gpufleet size` does.

    *scenario* is the path of a scenario file, the name of a shipped one, a dict with the same keys, or a Scenario.
    *set* replaces values by dotted path, *seed* and *replications* take the place of the scenario's. *workers* is the
    number of processes (None: one per CPU core). Nothing is written unless *out* names a folder, whose answer to
    another question *force* replaces; *quiet* hides the progress.

    Raises ScenarioErrors with all mistakes at once, FolderRefused and FolderBusy for *out*, and WorkerLost where
    memory runs out.

    >>> import sim
    >>> choice = {"gpus": ["a100-80gb-pcie"], "tensor_parallel_sizes": [1], "max_replicas": 2,
    ...           "costs": {"rented": {"acquisition": "rent", "quotes": {"a100-80gb-pcie": 1.2}}}}
    >>> short = {"horizon_s": 20, "warmup_s": 0, "workload.arrivals.rate_rps": 0.5, "size": choice}
    >>> found = sim.size("4x4090-vs-2xa100", short, 1, workers=1, quiet=True)
    >>> found.winner["fleets"][0]["pools"][0]["gpu"]
    'a100-80gb-pcie'
    """
    read = partial(load_for_size, swept=False)
    prepared = Prepared(scenario, set, seed=seed, replications=replications, out=out, read=read)
    prepared.refuse(why_no_size(prepared.scenario))
    prepared.ignores("size")
    found = prepared.delivered(deliver_size, workers, quiet, force, report=out is not None)
    return SizeResult(prepared, found)


class SensitivityResult(Result):
    """What each input changes. `table` has one row per input and result, `gap` the parts of the difference."""

    _main = "sensitivity.csv"

    def __init__(self, prepared: Prepared, found: SensitivityAnswer) -> None:
        scenario = prepared.scenario
        with showing(scenario):
            document = sensitivity_document(scenario, found, str(prepared.out))
            drawn = charts(found)
            shown = [text_table(table) for table in tables(found)]
        notes = [*document["notes"], *prepared.remarks]
        draw = partial(_sensitivity_drawn, found, question_of(scenario), document["verdict"]["headline"])
        super().__init__(prepared, document | {"notes": notes}, shown, [kind for kind in drawn if drawn[kind]], draw)
        self._refuse_unable(dict.fromkeys(found.found.base, "") | dict(found.found.unable))

    @property
    def gap(self) -> pd.DataFrame:
        """The difference between two fleets by group of causes; without rows where there are no two to compare."""
        return self._frame("gap.csv")


def _sensitivity_drawn(found: SensitivityAnswer, question: str, headline: str, name: str) -> Any:
    chosen = [chart for kind, several in charts(found).items() if name in ("", kind) for chart in several]
    return sensitivity_picture(chosen, question, [headline])


def sensitivity(
    scenario: Given,
    set: Values | None = None,
    replications: int | None = None,
    out: str | Path | None = None,
    *,
    seed: int | None = None,
    workers: int | None = None,
    force: bool = False,
    quiet: bool = False,
) -> SensitivityResult:
    """Find which inputs change the cost of each fleet and their difference, as `gpufleet sensitivity` does.

    *scenario* is the path of a scenario file, the name of a shipped one, a dict with the same keys, or a Scenario.
    *set* replaces values by dotted path, *seed* and *replications* take the place of the scenario's. *workers* is the
    number of processes (None: one per CPU core). Nothing is written unless *out* names a folder, whose answer to
    another question *force* replaces; *quiet* hides the progress.

    Raises ScenarioErrors with all mistakes at once, Infeasible where no fleet can run, FolderRefused and FolderBusy
    for *out*, and WorkerLost where memory runs out.

    >>> import sim
    >>> asked = {"sensitivity": {"metric": "ttft_s_p95", "inputs": {"workload.arrivals.rate_rps": [0.25, 1]}}}
    >>> short = {"horizon_s": 20, "warmup_s": 0, **asked}
    >>> found = sim.sensitivity("4x4090-vs-2xa100", short, 1, workers=1, quiet=True)
    >>> found.plots
    ('tornado',)
    """
    prepared = Prepared(scenario, set, seed=seed, replications=replications, out=out, read=partial(load, swept=False))
    prepared.refuse(*why_no_sensitivity(prepared.scenario))
    prepared.ignores("sensitivity")
    found = prepared.delivered(deliver_sensitivity, workers, quiet, force, report=out is not None)
    return SensitivityResult(prepared, found)


class BreakevenResult(Result):
    """Which way to pay is the cheapest. `table` has one row per candidate; `utilisation`, `months` and `tipping` show
    from what load, from which month on, and up to which prices.
    """

    _main = "ranking.csv"

    def __init__(self, prepared: Prepared, found: BreakevenAnswer) -> None:
        scenario = prepared.scenario
        with showing(scenario):
            document = breakeven_document(scenario, found, str(prepared.out))
            drawn, marks = breakeven_panels(found), breakeven_key(found)
            table = text_table(breakeven_ranking(found))
        notes = [*left_out(found), *owned_peaks(found, scenario)]
        notes += [*capacity_notes(found.capacities, scenario.precision), *prepared.remarks]
        draw = partial(drawn_of, drawn, question_of(scenario), document["verdict"]["headline"], marks)
        super().__init__(prepared, document | {"notes": notes}, [table], [one.kind for one in drawn], draw)
        self._refuse_unable({one.fleet: one.reason for one in found.capacities})

    @property
    def utilisation(self) -> pd.DataFrame:
        """What a million tokens cost with one unit of each candidate at each utilisation."""
        return self._frame("breakeven.csv")

    @property
    def months(self) -> pd.DataFrame:
        """Cash paid and net present cost after each month, by candidate."""
        return self._frame("months.csv")

    @property
    def tipping(self) -> pd.DataFrame:
        """The value of each input at which another candidate becomes the cheapest."""
        return self._frame("tipping.csv")


def breakeven(
    scenario: Given,
    set: Values | None = None,
    replications: int | None = None,
    out: str | Path | None = None,
    *,
    seed: int | None = None,
    workers: int | None = None,
    force: bool = False,
    quiet: bool = False,
) -> BreakevenResult:
    """Compare renting, buying and an API over utilisation and over months, as `gpufleet breakeven` does.

    *scenario* is the path of a scenario file, the name of a shipped one, a dict with the same keys, or a Scenario.
    *set* replaces values by dotted path, *seed* and *replications* take the place of the scenario's. *workers* is the
    number of processes (None: one per CPU core). Nothing is written unless *out* names a folder, whose answer to
    another question *force* replaces; *quiet* hides the progress.

    Raises ScenarioErrors with all mistakes at once, Infeasible where no fleet can run, FolderRefused and FolderBusy
    for *out*, and WorkerLost where memory runs out.

    >>> import sim
    >>> short = {"horizon_s": 20, "warmup_s": 0}
    >>> found = sim.breakeven("4x4090-vs-2xa100", short, 1, workers=1, quiet=True)
    >>> found.table.usd_per_h.is_monotonic_increasing
    True
    """
    prepared = Prepared(scenario, set, seed=seed, replications=replications, out=out, read=partial(load, swept=False))
    prepared.refuse(why_no_capacity(prepared.scenario))
    prepared.refuse(*why_no_breakeven(prepared.scenario))
    prepared.ignores("breakeven")
    found = prepared.delivered(deliver_breakeven, workers, quiet, force, report=out is not None)
    return BreakevenResult(prepared, found)


class PlanResult(Result):
    """What to buy when. `table` has one row per fleet, `months` the orders, units and cash of every month."""

    _main = "summary.csv"

    def __init__(self, prepared: Prepared, found: Sequence[Outlook]) -> None:
        scenario = prepared.scenario
        with showing(scenario):
            document = plan_document(scenario, found, str(prepared.out))
            table = plan_table(found)
        notes = prepared.remarks
        label, asked = LoadAxis.of(scenario).label, question_of(scenario)
        draw = partial(_plan_drawn, found, scenario.plan, label, asked, document["verdict"]["headline"])
        charts = ["plan"] if any(one.rows for one in found) else []
        super().__init__(prepared, document | {"notes": notes}, [table], charts, draw)
        self._refuse_unable({one.fleet: one.capacity.reason for one in found if not one.api})

    @property
    def months(self) -> pd.DataFrame:
        """One row per fleet and month: load, units on order and in service, purchases, bills, cash."""
        return self._frame("plan.csv")


def _plan_drawn(found: Sequence[Outlook], plan: Any, label: str, question: str, headline: str, _name: str) -> Any:
    with settings():
        return draw_plan(found, plan, label, question, headline)


def plan(
    scenario: Given,
    set: Values | None = None,
    replications: int | None = None,
    out: str | Path | None = None,
    *,
    relative: float = RELATIVE,
    seed: int | None = None,
    workers: int | None = None,
    force: bool = False,
    quiet: bool = False,
) -> PlanResult:
    """Plan several years month by month: what to buy, replace or rent when, as `gpufleet plan` does.

    *scenario* is the path of a scenario file, the name of a shipped one, a dict with the same keys, or a Scenario.
    *set* replaces values by dotted path, *seed* and *replications* take the place of the scenario's. *workers* is the
    number of processes (None: one per CPU core). Nothing is written unless *out* names a folder, whose answer to
    another question *force* replaces; *quiet* hides the progress. Each capacity is found to within the fraction
    *relative*.

    Raises ScenarioErrors with all mistakes at once, Infeasible where no fleet can run, FolderRefused and FolderBusy
    for *out*, and WorkerLost where memory runs out.

    >>> import sim
    >>> years = {"plan": {"years": 2, "starts": "2027-01", "demand": {"growth_per_year": 0.5}}}
    >>> short = {"horizon_s": 20, "warmup_s": 0, **years}
    >>> found = sim.plan("4x4090-vs-2xa100", short, 1, relative=0.2, workers=1, quiet=True)
    >>> sorted(found.months.date)[0], found.table.shape[0]
    ('2027-01', 2)
    """
    prepared = Prepared(scenario, set, seed=seed, replications=replications, out=out, read=partial(load, swept=False))
    prepared.refuse(why_no_plan(prepared.scenario))
    prepared.refuse(why_no_capacity(prepared.scenario))
    prepared.ignores("plan")
    more = {"relative": fraction(relative), "report": out is not None}
    return PlanResult(prepared, prepared.delivered(deliver_plan, workers, quiet, force, **more))
