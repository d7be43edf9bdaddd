"""Cases of a scenario as jobs: stored results are read back, the other cases are simulated and stored.

`Workplace` is the interface of the executors: `cores.py` (this machine) and `cluster.py` (dask).
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Protocol

from sim.case.result import CaseResult
from sim.case.run import reprice, run_plan
from sim.catalogue.catalog import Catalog, load_catalog
from sim.fleet.run import RunThere, alone
from sim.message import Message
from sim.registry import Registration, enter, entered
from sim.scenario.resolving.case import resolve
from sim.scenario.resolving.describe import describe
from sim.scenario.resolving.resolved import CasePlan
from sim.scenario.schema import Scenario
from sim.scenario.sweep import Case, cases
from sim.study.execution.digest import digest, quantities, rests_on
from sim.study.execution.durable import POINTS, DamagedFile, warn_of
from sim.study.execution.precision import key_of, next_cases
from sim.study.execution.store import StoredCase, discard_unfinished, load_case, read_case, save_case, save_repriced
from sim.study.metrics.case_metrics import measure, with_bill
from sim.study.metrics.metric import MeasuredRun


@dataclass(frozen=True, slots=True)
class CaseJob:
    """Case to simulate, with the folder that its result is stored in."""

    scenario: Scenario
    case: Case
    folder: Path
    """Folder of the stored result."""
    catalog: Catalog
    repricings: tuple["CaseJob", ...] = ()
    """Other cases that probably differ from this one in prices alone: simulated once, priced one by one."""

    @property
    def members(self) -> "tuple[CaseJob, ...]":
        """Job itself, followed by the jobs in `repricings`."""
        return (self, *self.repricings)

    def run(self, foundations: Sequence[dict[str, str]] | None = None, lend: "Lend | None" = None) -> None:
        """Simulate the case and its repricings, and store the results.

        Parameters
        ----------
        foundations
            Digests of the inputs of each member, as `foundations` returns them where the command runs; computed if
            None.
        lend
            Function that lends other processes; None: there are none.

        """
        known = foundations or [job.foundations() for job in self.members]
        plan = resolve(self.scenario, self.case, self.catalog)
        outcome = run_plan(plan, alone if lend is None else partial(self._shared, lend))
        self._store(outcome, known[0])
        for job, case_foundations in zip(self.repricings, known[1:], strict=True):
            other = resolve(job.scenario, job.case, job.catalog)
            alike = reprice(other, plan, outcome) if isinstance(outcome, CaseResult) else None
            if alike is None:
                job._store(run_plan(other), case_foundations)
            else:
                stored = replace(self.stored(), fleet=job.case.fleet, axes=job.case.axes, rests_on=case_foundations)
                save_repriced(job.folder, stored, alike, with_bill(stored.metrics, alike))

    def _shared(self, lend: "Lend", plan: CasePlan, work: Callable[[RunThere], None]) -> AbstractContextManager[None]:
        """Let processes that are lent take part in *work* on *plan*, the plan of this case: see `sim.fleet.run.Share`.

        They resolve the case themselves: compiled step times cannot be sent.
        """
        there = partial(_on_plan, replace(self, repricings=()), plan.warmup_s, plan.warmup_steady)
        return lend(lambda run_there: work(lambda function, *arguments: run_there(there, function, *arguments)))

    def _store(self, outcome: CaseResult | CasePlan, foundations: dict[str, str]) -> None:
        run = MeasuredRun(outcome) if isinstance(outcome, CaseResult) else outcome
        metrics = measure(run) if isinstance(run, MeasuredRun) else None
        save_case(self.folder, self.case, run, metrics, self.scenario.requests != "none", foundations)

    def foundations(self) -> dict[str, str]:
        """Return the digests of the inputs of the simulated quantities, keyed by a description of the input."""
        return rests_on(self.scenario, self.case, self.catalog)

    def __reduce__(self) -> Any:
        # the other process reads the catalogue itself, once
        return _job, (entered(), self.scenario, self.case, self.folder, self.catalog.folders, self.repricings)

    def stored(self) -> StoredCase:
        """Return the finished case, which this command has written or `found`."""
        return read_case(self.folder)

    def found(self) -> StoredCase | None:
        """Return the case on disk after a check; None if missing or, after a warning, if damaged or another case."""
        stored = load_case(self.folder)
        if stored is None or self._is_stored_case_of(stored):
            return stored
        warn_of(
            self.folder,
            DamagedFile(
                Message(
                    "holds {fleet} at {axes}, replication {replication}", stored.fleet, stored.axes, stored.replication
                )
            ),
        )
        return None

    def _is_stored_case_of(self, stored: StoredCase) -> bool:
        key = (self.case.fleet, json.loads(json.dumps(self.case.axes)), self.case.replication)
        return key == (stored.fleet, stored.axes, stored.replication)


def _job(
    policies: list[Registration],
    scenario: Scenario,
    case: Case,
    folder: Path,
    folders: tuple[Path, ...],
    repricings: tuple[CaseJob, ...],
) -> CaseJob:
    enter(policies)
    return CaseJob(scenario, case, folder, catalog_of(folders), repricings)


def _on_plan(job: CaseJob, warmup_s: float, steady: bool, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return `function(plan, *arguments)` for the plan of *job* with a warm-up that is known."""
    if _PLANS.get(job.folder) is None:
        _PLANS.clear()  # of an earlier case
        _PLANS[job.folder] = resolve(job.scenario, job.case, job.catalog)
    return function(replace(_PLANS[job.folder], warmup_s=warmup_s, warmup_steady=steady), *arguments)


_PLANS: dict[Path, CasePlan] = {}
"""Plan of the case that this process takes part in, by the folder of its result."""


@cache
def catalog_of(folders: tuple[Path, ...]) -> Catalog:
    """Return the catalogue of *folders*, the shipped one first; a process has one, which caches its entries."""
    shipped = load_catalog()
    return shipped if folders == shipped.folders else load_catalog(folders[0], folders[1:])


@dataclass(frozen=True, slots=True)
class Call:
    """Function bound to a scenario and its catalogue, which can be sent to another process."""

    function: Callable[..., Any]
    scenario: Scenario
    catalog: Catalog

    def __call__(self, *item: Any) -> Any:
        """Return the value of the function for *item*."""
        return self.function(self.scenario, self.catalog, *item)

    def __reduce__(self) -> Any:
        return _call, (entered(), self.function, self.scenario, self.catalog.folders)


def _call(
    policies: list[Registration], function: Callable[..., Any], scenario: Scenario, folders: tuple[Path, ...]
) -> Call:
    enter(policies)
    return Call(function, scenario, catalog_of(folders))


Lend = Callable[[Callable[[RunThere], None]], AbstractContextManager[None]]
"""Function that lends processes to some work: within the context each calls the work once, if it is free."""


class WorkerLost(Exception):
    """Error of a task during which several processes were killed."""

    def __init__(self, task: Any, deaths: int) -> None:
        case = task.case if isinstance(task, CaseJob) else None
        what = (
            Message("{fleet} at {axes}, replication {replication}", case.fleet, case.axes, case.replication)
            if case
            else "a simulation"
        )
        super().__init__(
            Message(
                "{case}: {count} processes were killed while they simulated it, probably for lack of memory; finished "
                "points are kept: use fewer workers",
                what,
                deaths,
            )
        )


Progress = Callable[[int, int, int], None]
"""Callback with (finished cases, all cases, cases found on disk among the finished)."""


class Workplace(Protocol):
    """Executor of jobs, which finishes them in any order."""

    def submit(self, job: CaseJob) -> None:
        """Queue *job*."""

    def finished(self) -> CaseJob:
        """Wait until one of the submitted jobs is stored, and return it; each is returned once."""

    def map(self, call: "Call", items: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, Any]]:
        """Yield (position, value) of *call* for each of *items*, in any order."""


class NotStored(LookupError):
    """Error of a case whose result is not stored, where nothing may be simulated."""

    def __init__(self, case: Case) -> None:
        self.case = case
        super().__init__(missing_case(case))


def missing_case(case: Case) -> str:
    """Return the sentence that the result of *case* is missing."""
    return Message(
        "the run is not complete: {fleet} at {axes}, replication {replication}, is missing",
        case.fleet,
        case.axes,
        case.replication,
    )


class StoredOnly:
    """Workplace that simulates nothing: a case that is not stored raises NotStored."""

    def submit(self, job: CaseJob) -> None:
        """Raise NotStored: a job is submitted only if its result is not stored."""
        raise NotStored(job.case)

    def finished(self) -> CaseJob:
        """Fail: no job is ever submitted."""
        raise AssertionError  # every submission is refused

    def map(self, call: Call, items: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, Any]]:
        """Yield (position, value) of *call* for each of *items*, in this process."""
        return ((place, call(*item)) for place, item in enumerate(items))


def discard_partial(workplace: Workplace, out: Path) -> None:
    """Remove the partial results that stopped workers of *workplace* left; nothing where it simulates nothing."""
    if not isinstance(workplace, StoredOnly):
        discard_unfinished(out / POINTS)


def simulated(workplace: Workplace, jobs: Iterable[CaseJob]) -> Iterator[CaseJob]:
    """Simulate the *jobs*, those that differ in prices alone together, and yield each once finished, in any order."""
    groups = group_by_quantities(jobs)
    for group in groups:
        workplace.submit(group)
    for _ in groups:
        yield from workplace.finished().members


def group_by_quantities(jobs: Iterable[CaseJob]) -> list[CaseJob]:
    """Return the *jobs* grouped: each with the jobs that probably differ from it in prices alone."""
    groups: dict[str, list[CaseJob]] = {}
    for job in jobs:
        groups.setdefault(quantities(job.scenario, job.case), []).append(job)
    return [replace(first, repricings=tuple(others)) for first, *others in groups.values()]


def missing(jobs: Iterable[CaseJob]) -> list[CaseJob]:
    """Return the *jobs* that are not on disk yet, without duplicates."""
    each = {job.folder: job for job in jobs}
    return [job for job in each.values() if job.found() is None]


def do_missing(workplace: Workplace, jobs: Iterable[CaseJob]) -> Iterator[CaseJob]:
    """Simulate the `missing` ones of *jobs* and yield each when it is finished."""
    yield from simulated(workplace, missing(jobs))


def do_all(workplace: Workplace, jobs: Sequence[CaseJob], progress: Progress = lambda *_: None) -> None:
    """Simulate the `missing` ones of *jobs*; *progress* is called with the counts of all jobs."""
    left, total = missing(jobs), len({job.folder for job in jobs})
    found = total - len(left)
    progress(found, total, found)
    for done, _ in enumerate(simulated(workplace, left), start=found + 1):
        progress(done, total, found)


def run_points(
    scenario: Scenario, catalog: Catalog, out: Path, workplace: Workplace, progress: Progress
) -> list[StoredCase]:
    """Return every case of *scenario* in order, each stored under `out/points/<digest>` as soon as it is finished.

    An interrupted call leaves the finished cases on disk, and the next call continues from there.
    """
    stored = _run(scenario, cases(scenario), catalog, out, workplace, progress)
    while further := next_cases(scenario, stored):
        before = len(stored)
        stored += _run(scenario, further, catalog, out, workplace, partial(_report_round, progress, before))
    order = {key: place for place, key in enumerate(dict.fromkeys(key_of(case)[:2] for case in stored))}
    return sorted(stored, key=lambda case: (order[key_of(case)[:2]], case.replication))


def _report_round(progress: Progress, before: int, done: int, total: int, found: int) -> None:
    """Report progress of a further round of cases, after *before* cases of the rounds until now."""
    progress(before + done, before + total, found)


def _run(
    scenario: Scenario, wanted: Sequence[Case], catalog: Catalog, out: Path, workplace: Workplace, progress: Progress
) -> list[StoredCase]:
    """Return the *wanted* cases, read from disk or simulated."""
    jobs = jobs_of(scenario, wanted, catalog, out)
    try:
        do_all(workplace, jobs, progress)
    finally:
        discard_unfinished(out / POINTS)
    return [job.stored() for job in jobs]


def jobs_of(scenario: Scenario, wanted: Iterable[Case], catalog: Catalog, out: Path) -> list[CaseJob]:
    """Return the *wanted* cases of *scenario* as jobs that store them under `out/points`."""
    return [CaseJob(scenario, case, out / POINTS / digest(scenario, case, catalog), catalog) for case in wanted]


def resolved_plans(scenario: Scenario, catalog: Catalog) -> list[dict[str, object]]:
    """Return the resolved inputs of each fleet, at every point where they differ from those of the other points."""
    plans: list[dict[str, object]] = []
    for case in cases(scenario):
        if case.replication:
            continue
        plan = describe(resolve(scenario, case, catalog), catalog)
        if not any(_differs_in_load_only(plan, other) for other in plans):
            plans.append({"at": case.axes, **plan})
    return plans


def _differs_in_load_only(plan: dict[str, object], other: dict[str, object]) -> bool:
    """Return whether two points differ in nothing but their load."""
    return all(other[key] == value for key, value in plan.items() if key not in ("workload", "notes"))


def limits(scenario: Scenario) -> dict[str, float]:
    """Return the limits of the service level [s], and `attainment` [1]."""
    return scenario.slo.model_dump(exclude_none=True)
