"""`sim.breakeven`: rent, buy, or pay an API."""

from functools import partial
from pathlib import Path

import pandas as pd

from sim.api.prepared import Given, Prepared, Values
from sim.api.result import Result, drawn_of
from sim.deliver.breakeven import deliver_breakeven
from sim.report.money.breakeven.answer import breakeven_document, left_out, owned_peaks, ranking
from sim.report.money.breakeven.picture import key, panels
from sim.report.page.page import text_table
from sim.report.words.exactness import capacity_notes
from sim.report.words.money import showing
from sim.report.words.text import question_of
from sim.scenario.reading.load import load
from sim.study.fleets.capacity.search import why_no_capacity
from sim.study.money.breakeven.decision import BreakevenAnswer as Found
from sim.study.money.breakeven.decision import why_no_breakeven


class BreakevenResult(Result):
    """Which way to pay is the cheapest. `table` has one row per candidate; `utilisation`, `months` and `tipping` show
    from what load, from which month on, and up to which prices.
    """

    _main = "ranking.csv"

    def __init__(self, prepared: Prepared, found: Found) -> None:
        scenario = prepared.scenario
        with showing(scenario):
            document = breakeven_document(scenario, found, str(prepared.out))
            drawn, marks = panels(found), key(found)
            table = text_table(ranking(found))
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
