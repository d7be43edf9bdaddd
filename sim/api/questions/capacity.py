"""`sim.capacity`: the highest load at which each fleet meets its service level."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from sim.api.prepared import Given, Prepared, Values, fraction
from sim.api.result import Result
from sim.deliver.capacity import deliver_capacity
from sim.report.fleets.capacity.answer import capacity_document, capacity_rows, capacity_table
from sim.report.fleets.capacity.picture import picture
from sim.report.words.money import showing
from sim.report.words.text import question_of
from sim.scenario.reading.load import load
from sim.scenario.sections.slo import Slo
from sim.study.fleets.capacity import RELATIVE
from sim.study.fleets.capacity.axis import LoadAxis
from sim.study.fleets.capacity.goal import precision_of
from sim.study.fleets.capacity.search import Capacity, why_no_capacity


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
        draw = partial(_drawn, found, rows, axis, scenario.slo, question_of(scenario), headline)
        able = [one for one in found if not one.reason]
        super().__init__(prepared, document | {"notes": notes}, [table], ["capacity"] if able else [], draw)
        self._refuse_unable({one.fleet: one.reason for one in found})

    @property
    def search(self) -> pd.DataFrame:
        """Every load that was tried, by fleet and replication, with what was attained there."""
        return self._frame("search.csv")


def _drawn(
    found: Sequence[Capacity], rows: Any, axis: LoadAxis, slo: Slo, question: str, headline: str, _name: str
) -> Any:
    return picture(found, rows, axis, slo, question, headline)


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
