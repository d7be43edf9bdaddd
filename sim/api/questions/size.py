"""`sim.size`: the cheapest fleet that meets the service level."""

from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from sim.api.prepared import Given, Prepared, Values
from sim.api.result import Result, drawn_of
from sim.deliver.size import deliver_size
from sim.report.fleets.size.answer import MOST_ROWS, size_document
from sim.report.fleets.size.picture import key, panels
from sim.report.fleets.size.tables import ranking
from sim.report.page.page import text_table
from sim.report.words.money import showing
from sim.report.words.text import question_of
from sim.scenario.reading.load import load_for_size
from sim.study.fleets.size.prospects import why_no_size
from sim.study.fleets.size.tried import Sizing
from sim.yamlio import read


class SizeResult(Result):
    """The cheapest fleet. `table` has one row per candidate, `pareto` those that none beats in cost and latency."""

    _main = "size.csv"

    def __init__(self, prepared: Prepared, found: Sizing) -> None:
        scenario = prepared.scenario
        with showing(scenario):
            document = size_document(found, scenario, str(prepared.out))
            drawn, marks = panels(found, scenario), key(found)
            table = text_table(ranking(found, scenario, MOST_ROWS))
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
