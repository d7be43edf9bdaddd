"""`sim.plan`: several years month by month."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from sim.api.prepared import Given, Prepared, Values, fraction
from sim.api.result import Result
from sim.deliver.plan import deliver_plan
from sim.report.charts.fonts import settings
from sim.report.money.plan.answer import plan_document
from sim.report.money.plan.picture import draw_plan
from sim.report.money.plan.tables import plan_table
from sim.report.words.money import showing
from sim.report.words.text import question_of
from sim.scenario.reading.load import load
from sim.study.fleets.capacity import RELATIVE
from sim.study.fleets.capacity.axis import LoadAxis
from sim.study.fleets.capacity.search import why_no_capacity
from sim.study.money.plan.plans import Outlook, why_no_plan


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
        draw = partial(_drawn, found, scenario.plan, label, asked, document["verdict"]["headline"])
        charts = ["plan"] if any(one.rows for one in found) else []
        super().__init__(prepared, document | {"notes": notes}, [table], charts, draw)
        self._refuse_unable({one.fleet: one.capacity.reason for one in found if not one.api})

    @property
    def months(self) -> pd.DataFrame:
        """One row per fleet and month: load, units on order and in service, purchases, bills, cash."""
        return self._frame("plan.csv")


def _drawn(found: Sequence[Outlook], plan: Any, label: str, question: str, headline: str, _name: str) -> Any:
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
