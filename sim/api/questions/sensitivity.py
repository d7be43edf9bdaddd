"""`sim.sensitivity`: which inputs change the result, and what the gap between two fleets is made of."""

from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from sim.api.prepared import Given, Prepared, Values
from sim.api.result import Result
from sim.deliver.sensitivity import deliver_sensitivity
from sim.report.fleets.sensitivity.answer import charts, sensitivity_document, tables
from sim.report.fleets.sensitivity.picture import picture
from sim.report.fleets.sensitivity.verdict import SensitivityAnswer as Found
from sim.report.page.page import text_table
from sim.report.words.money import showing
from sim.report.words.text import question_of
from sim.scenario.reading.load import load
from sim.study.fleets.sensitivity.one_at_a_time import why_no_sensitivity


class SensitivityResult(Result):
    """What each input changes. `table` has one row per input and result, `gap` the parts of the difference."""

    _main = "sensitivity.csv"

    def __init__(self, prepared: Prepared, found: Found) -> None:
        scenario = prepared.scenario
        with showing(scenario):
            document = sensitivity_document(scenario, found, str(prepared.out))
            drawn = charts(found)
            shown = [text_table(table) for table in tables(found)]
        notes = [*document["notes"], *prepared.remarks]
        draw = partial(_drawn, found, question_of(scenario), document["verdict"]["headline"])
        super().__init__(prepared, document | {"notes": notes}, shown, [kind for kind in drawn if drawn[kind]], draw)
        self._refuse_unable(dict.fromkeys(found.found.base, "") | dict(found.found.unable))

    @property
    def gap(self) -> pd.DataFrame:
        """The difference between two fleets by group of causes; without rows where there are no two to compare."""
        return self._frame("gap.csv")


def _drawn(found: Found, question: str, headline: str, name: str) -> Any:
    chosen = [chart for kind, several in charts(found).items() if name in ("", kind) for chart in several]
    return picture(chosen, question, [headline])


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
