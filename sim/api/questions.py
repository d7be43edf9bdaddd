"""Functions and results of the questions capacity, size, sensitivity, breakeven and plan.

The computation and presentation of a question come from its record in `sim/answers/questions.py`.
"""

from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from sim.answers.answer import write_answer
from sim.answers.questions import QUESTIONS, Answered, Question
from sim.api.prepared import Catalogs, Given, Prepared, Values, fraction
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
    """Answer to one of `QUESTIONS`."""

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
    catalog: Catalogs = (),
) -> R:
    """Answer the question of *result*; the arguments are those of its function."""
    asks = result._asks
    prepared = Prepared(
        scenario, values, seed=seed, replications=replications, out=out, read=asks.read, catalog=catalog
    )
    prepared.refuse(*asks.why_not(prepared.scenario))
    width = fraction(relative)
    prepared.ignored = tuple(filter(None, [asks.ignored(prepared.scenario, width)]))
    more = {"relative": width, "report": out is not None}
    return result(prepared, prepared.answered(asks.name, partial(write_answer, asks), workers, quiet, force, **more))


class CapacityResult(QuestionResult):
    """Capacities of fleets. `table` has one row per fleet, `search` the simulated loads."""

    _asks = QUESTIONS["capacity"]

    @property
    def search(self) -> pd.DataFrame:
        """Every simulated load, by fleet and replication, with its attainment."""
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
    catalog: Catalogs = (),
) -> CapacityResult:
    """Find the highest load at which each fleet meets its service level, as `gpufleet capacity` does.

    Parameters
    ----------
    scenario
        Path of a scenario file, name of a shipped scenario, dict with the keys of such a file, or Scenario.
    set
        Values that replace those of the scenario, by dotted path: {"workload.arrivals.rate_rps": 0.5}.
    replications
        Number of replications in place of the scenario's.
    out
        Folder for the files of the answer. None: nothing is kept.
    relative
        Width of the last bracket in the search for a capacity, as a fraction of the load.
    seed
        Seed in place of the scenario's.
    workers
        Number of processes. None: one per CPU core.
    force
        Whether to replace the answer to another question in *out*.
    quiet
        Whether to hide the progress.
    catalog
        Folder, or folders, with catalogue entries of your own; gpufleet.d beside the scenario is read anyway.

    Returns
    -------
    CapacityResult
        Capacity of each fleet.

    Raises
    ------
    ScenarioErrors
        With all mistakes of the scenario at once.
    Infeasible
        If no fleet can run.
    FolderRefused
        If *out* holds other files or the answer to another question.
    FolderBusy
        If another process writes to *out*.
    WorkerLost
        If memory runs out.

    Examples
    --------
    >>> import sim
    >>> short = {"horizon_s": 10, "warmup_s": 0, "precision": {"relative": 0.9, "max_replications": 5}}
    >>> found = sim.capacity("4x4090-vs-2xa100", short, 1, relative=0.5, workers=1, quiet=True)
    >>> list(found.table.fleet)
    ['4x RTX 4090', '2x A100 80GB']

    """
    return _answer(
        CapacityResult, scenario, set, replications, out, seed, workers, force, quiet, relative, catalog=catalog
    )


class SizeResult(QuestionResult):
    """Candidates by cost. `table` has one row per candidate, `pareto` the Pareto front in cost and latency."""

    _asks = QUESTIONS["size"]

    @property
    def pareto(self) -> pd.DataFrame:
        """Fleets that meet the service level and are on the Pareto front of cost and latencies."""
        return self._frame("pareto.csv")

    @property
    def winner(self) -> dict[str, Any] | None:
        """Scenario with the cheapest fleet alone, for `sim.run`; None where no fleet meets the service level."""
        return self._scenario("winner.yaml")

    @property
    def within_budget(self) -> dict[str, Any] | None:
        """Scenario with the best fleet within the budget, where no fleet within it meets the service level."""
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
    catalog: Catalogs = (),
) -> SizeResult:
    """Find the cheapest fleet that meets the service level at the scenario's load, as `gpufleet size` does.

    Parameters
    ----------
    scenario
        Path of a scenario file, name of a shipped scenario, dict with the keys of such a file, or Scenario.
    set
        Values that replace those of the scenario, by dotted path: {"workload.arrivals.rate_rps": 0.5}.
    replications
        Number of replications in place of the scenario's.
    out
        Folder for the files of the answer. None: nothing is kept.
    seed
        Seed in place of the scenario's.
    workers
        Number of processes. None: one per CPU core.
    force
        Whether to replace the answer to another question in *out*.
    quiet
        Whether to hide the progress.
    catalog
        Folder, or folders, with catalogue entries of your own; gpufleet.d beside the scenario is read anyway.

    Returns
    -------
    SizeResult
        Candidates, and the cheapest that meets the service level.

    Raises
    ------
    ScenarioErrors
        With all mistakes of the scenario at once.
    FolderRefused
        If *out* holds other files or the answer to another question.
    FolderBusy
        If another process writes to *out*.
    WorkerLost
        If memory runs out.

    Examples
    --------
    >>> import sim
    >>> choice = {"gpus": ["a100-80gb-pcie"], "tensor_parallel_sizes": [1], "max_replicas": 2,
    ...           "costs": {"rented": {"acquisition": "rent", "quotes": {"a100-80gb-pcie": 1.2}}}}
    >>> short = {"horizon_s": 20, "warmup_s": 0, "workload.arrivals.rate_rps": 0.5, "size": choice}
    >>> found = sim.size("4x4090-vs-2xa100", short, 1, workers=1, quiet=True)
    >>> found.winner["fleets"][0]["pools"][0]["gpu"]
    'a100-80gb-pcie'

    """
    return _answer(SizeResult, scenario, set, replications, out, seed, workers, force, quiet, catalog=catalog)


class SensitivityResult(QuestionResult):
    """Effects of inputs. `table` has one row per input and result, `gap` the parts of the cost gap."""

    _asks = QUESTIONS["sensitivity"]

    @property
    def gap(self) -> pd.DataFrame:
        """Parts of the cost gap between two fleets, by group of causes; empty without two fleets to compare."""
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
    catalog: Catalogs = (),
) -> SensitivityResult:
    """Find which inputs change the cost of each fleet and their difference, as `gpufleet sensitivity` does.

    Parameters
    ----------
    scenario
        Path of a scenario file, name of a shipped scenario, dict with the keys of such a file, or Scenario.
    set
        Values that replace those of the scenario, by dotted path: {"workload.arrivals.rate_rps": 0.5}.
    replications
        Number of replications in place of the scenario's.
    out
        Folder for the files of the answer. None: nothing is kept.
    seed
        Seed in place of the scenario's.
    workers
        Number of processes. None: one per CPU core.
    force
        Whether to replace the answer to another question in *out*.
    quiet
        Whether to hide the progress.
    catalog
        Folder, or folders, with catalogue entries of your own; gpufleet.d beside the scenario is read anyway.

    Returns
    -------
    SensitivityResult
        Effect of each input.

    Raises
    ------
    ScenarioErrors
        With all mistakes of the scenario at once.
    Infeasible
        If no fleet can run.
    FolderRefused
        If *out* holds other files or the answer to another question.
    FolderBusy
        If another process writes to *out*.
    WorkerLost
        If memory runs out.

    Examples
    --------
    >>> import sim
    >>> asked = {"sensitivity": {"metric": "ttft_s_p95", "inputs": {"workload.arrivals.rate_rps": [0.25, 1]}}}
    >>> short = {"horizon_s": 20, "warmup_s": 0, **asked}
    >>> found = sim.sensitivity("4x4090-vs-2xa100", short, 1, workers=1, quiet=True)
    >>> found.plots
    ('tornado',)

    """
    return _answer(SensitivityResult, scenario, set, replications, out, seed, workers, force, quiet, catalog=catalog)


class BreakevenResult(QuestionResult):
    """Costs of the ways to pay. `table` has one row per candidate.

    `utilisation`, `months` and `tipping` show the load, the month and the prices at which another candidate is cheaper.
    """

    _asks = QUESTIONS["breakeven"]

    @property
    def utilisation(self) -> pd.DataFrame:
        """Cost of tokens with one unit of each candidate at each utilisation [USD per million output tokens]."""
        return self._frame("breakeven.csv")

    @property
    def months(self) -> pd.DataFrame:
        """Cumulative payments and net present cost after each month, by candidate."""
        return self._frame("months.csv")

    @property
    def tipping(self) -> pd.DataFrame:
        """Value of each input at which another candidate becomes the cheapest."""
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
    catalog: Catalogs = (),
) -> BreakevenResult:
    """Compare renting, buying and an API over utilisation and over months, as `gpufleet breakeven` does.

    Parameters
    ----------
    scenario
        Path of a scenario file, name of a shipped scenario, dict with the keys of such a file, or Scenario.
    set
        Values that replace those of the scenario, by dotted path: {"workload.arrivals.rate_rps": 0.5}.
    replications
        Number of replications in place of the scenario's.
    out
        Folder for the files of the answer. None: nothing is kept.
    seed
        Seed in place of the scenario's.
    workers
        Number of processes. None: one per CPU core.
    force
        Whether to replace the answer to another question in *out*.
    quiet
        Whether to hide the progress.
    catalog
        Folder, or folders, with catalogue entries of your own; gpufleet.d beside the scenario is read anyway.

    Returns
    -------
    BreakevenResult
        Costs of each candidate.

    Raises
    ------
    ScenarioErrors
        With all mistakes of the scenario at once.
    Infeasible
        If no fleet can run.
    FolderRefused
        If *out* holds other files or the answer to another question.
    FolderBusy
        If another process writes to *out*.
    WorkerLost
        If memory runs out.

    Examples
    --------
    >>> import sim
    >>> short = {"horizon_s": 20, "warmup_s": 0}
    >>> found = sim.breakeven("4x4090-vs-2xa100", short, 1, workers=1, quiet=True)
    >>> found.table.usd_per_h.is_monotonic_increasing
    True

    """
    return _answer(BreakevenResult, scenario, set, replications, out, seed, workers, force, quiet, catalog=catalog)


class PlanResult(QuestionResult):
    """Purchases over time. `table` has one row per fleet, `months` the orders, units and cash of every month."""

    _asks = QUESTIONS["plan"]

    @property
    def months(self) -> pd.DataFrame:
        """Months of each fleet as rows: load, units on order and in service, purchases, bills, cash."""
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
    catalog: Catalogs = (),
) -> PlanResult:
    """Plan several years month by month: what to buy, replace or rent when, as `gpufleet plan` does.

    Parameters
    ----------
    scenario
        Path of a scenario file, name of a shipped scenario, dict with the keys of such a file, or Scenario.
    set
        Values that replace those of the scenario, by dotted path: {"workload.arrivals.rate_rps": 0.5}.
    replications
        Number of replications in place of the scenario's.
    out
        Folder for the files of the answer. None: nothing is kept.
    relative
        Width of the last bracket in the search for a capacity, as a fraction of the load.
    seed
        Seed in place of the scenario's.
    workers
        Number of processes. None: one per CPU core.
    force
        Whether to replace the answer to another question in *out*.
    quiet
        Whether to hide the progress.
    catalog
        Folder, or folders, with catalogue entries of your own; gpufleet.d beside the scenario is read anyway.

    Returns
    -------
    PlanResult
        Plan of each fleet.

    Raises
    ------
    ScenarioErrors
        With all mistakes of the scenario at once.
    Infeasible
        If no fleet can run.
    FolderRefused
        If *out* holds other files or the answer to another question.
    FolderBusy
        If another process writes to *out*.
    WorkerLost
        If memory runs out.

    Examples
    --------
    >>> import sim
    >>> years = {"plan": {"years": 2, "starts": "2027-01", "demand": {"growth_per_year": 0.5}}}
    >>> short = {"horizon_s": 20, "warmup_s": 0, **years}
    >>> found = sim.plan("4x4090-vs-2xa100", short, 1, relative=0.2, workers=1, quiet=True)
    >>> sorted(found.months.date)[0], found.table.shape[0]
    ('2027-01', 2)

    """
    return _answer(PlanResult, scenario, set, replications, out, seed, workers, force, quiet, relative, catalog=catalog)
