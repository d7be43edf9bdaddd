"""The questions beside `sim.run`: capacity, size, sensitivity, breakeven and plan, a function and a result each.

What a question computes and shows is read off its record in `sim/answers/questions.py`.
"""

from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from sim.answers.answer import deliver
from sim.answers.questions import QUESTIONS, Answered, Question
from sim.api.prepared import Given, Prepared, Values, fraction
from sim.api.result import Result
from sim.report.words.money import showing
from sim.report.words.text import question_of
from sim.study.capacity_tolerance import RELATIVE
from sim.yamlio import read

__all__ = [
    "BreakevenResult",
    "CapacityResult",
    "PlanResult",
    "SensitivityResult",
    "SizeResult",
    "breakeven",
    "capacity",
    "plan",
    "sensitivity",
    "size",
]


class QuestionResult(Result):
    """The answer to one of `QUESTIONS`."""

    _asks: Question

    def __init__(self, prepared: Prepared, answer: Answered) -> None:
        scenario, asks = prepared.scenario, self._asks
        self._main = f"{asks.main}.csv"
        with showing(scenario):
            document = asks.document(answer, str(prepared.out))
            tables, notes = asks.tables(answer), [*asks.caveats(answer), *prepared.remarks]
            kinds, draw = asks.charts(answer, question_of(scenario), document["verdict"]["headline"])
        super().__init__(prepared, document | {"notes": notes}, tables, kinds, draw)
        if reasons := asks.unable(answer.found):
            self._refuse_unable(reasons)


R = TypeVar("R", bound=QuestionResult)


def _answer(
    result: type[R],
    scenario: Given,
    values: Values | None,
    replications: int | None,
    out: str | Path | None,
    seed: int | None,
    workers: int | None,
    force: bool,
    quiet: bool,
    relative: float = RELATIVE,
) -> R:
    """Answer the question of *result*; the arguments are those of its function."""
    asks = result._asks
    prepared = Prepared(scenario, values, seed=seed, replications=replications, out=out, read=asks.read)
    prepared.refuse(*asks.why_not(prepared.scenario))
    width = fraction(relative)
    prepared.ignored = tuple(filter(None, [asks.ignored(prepared.scenario, width)]))
    more = {"relative": width, "report": out is not None}
    return result(prepared, prepared.delivered(asks.name, partial(deliver, asks), workers, quiet, force, **more))


class CapacityResult(QuestionResult):
    """How much load each fleet takes. `table` has one row per fleet, `search` what was tried."""

    _asks = QUESTIONS["capacity"]

    @property
    def search(self) -> pd.DataFrame:
        """Every load that was tried, by fleet and replication, with what was attained there."""
        return self._frame("search.csv")


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
    return _answer(CapacityResult, scenario, set, replications, out, seed, workers, force, quiet, relative)


class SizeResult(QuestionResult):
    """The cheapest fleet. `table` has one row per candidate, `pareto` those that none beats in cost and latency."""

    _asks = QUESTIONS["size"]

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
    return _answer(SizeResult, scenario, set, replications, out, seed, workers, force, quiet)


class SensitivityResult(QuestionResult):
    """What each input changes. `table` has one row per input and result, `gap` the parts of the difference."""

    _asks = QUESTIONS["sensitivity"]

    @property
    def gap(self) -> pd.DataFrame:
        """The difference between two fleets by group of causes; without rows where there are no two to compare."""
        return self._frame("gap.csv")


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
    return _answer(SensitivityResult, scenario, set, replications, out, seed, workers, force, quiet)


class BreakevenResult(QuestionResult):
    """Which way to pay is the cheapest. `table` has one row per candidate; `utilisation`, `months` and `tipping` show
    from what load, from which month on, and up to which prices.
    """

    _asks = QUESTIONS["breakeven"]

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
    return _answer(BreakevenResult, scenario, set, replications, out, seed, workers, force, quiet)


class PlanResult(QuestionResult):
    """What to buy when. `table` has one row per fleet, `months` the orders, units and cash of every month."""

    _asks = QUESTIONS["plan"]

    @property
    def months(self) -> pd.DataFrame:
        """One row per fleet and month: load, units on order and in service, purchases, bills, cash."""
        return self._frame("plan.csv")


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
    return _answer(PlanResult, scenario, set, replications, out, seed, workers, force, quiet, relative)
