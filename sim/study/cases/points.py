"""All cases of a scenario: what is on disk already is taken from there, the rest is simulated and stored."""

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from sim.catalogue.catalog import Catalog
from sim.scenario.resolving.case import Resolver
from sim.scenario.resolving.describe import describe
from sim.scenario.schema import Scenario
from sim.scenario.sweep import Case, cases
from sim.study.cases.execute import Job, Progress, Workplace, do_all
from sim.study.cases.inputs import digest
from sim.study.cases.store import StoredCase, discard_unfinished
from sim.study.metrics.precision import key_of, next_cases

MANIFEST = "manifest.json"
"""File of a results folder that says how its answer came to be."""
POINTS = "points"


def run_points(
    scenario: Scenario, catalog: Catalog, out: Path, workplace: Workplace, progress: Progress
) -> list[StoredCase]:
    """Every case of *scenario*, in order, each stored under `out/points/<digest>` as soon as it is finished.

    Interrupted, it leaves what was finished; called again, it goes on from there.
    """
    stored = _run(scenario, cases(scenario), catalog, out, workplace, progress)
    while further := next_cases(scenario, stored):
        before = len(stored)
        stored += _run(scenario, further, catalog, out, workplace, partial(_after, progress, before))
    order = {key: place for place, key in enumerate(dict.fromkeys(key_of(case)[:2] for case in stored))}
    return sorted(stored, key=lambda case: (order[key_of(case)[:2]], case.replication))


def _after(progress: Progress, before: int, done: int, total: int, found: int) -> None:
    """Tells of one more round of cases."""
    progress(before + done, before + total, found)


def _run(
    scenario: Scenario, wanted: Sequence[Case], catalog: Catalog, out: Path, workplace: Workplace, progress: Progress
) -> list[StoredCase]:
    """The *wanted* cases, from disk or simulated."""
    jobs = jobs_of(scenario, wanted, catalog, out)
    try:
        do_all(workplace, jobs, progress)
    finally:
        discard_unfinished(out / POINTS)
    return [job.stored() for job in jobs]


def jobs_of(scenario: Scenario, wanted: Iterable[Case], catalog: Catalog, out: Path) -> list[Job]:
    """The *wanted* cases of *scenario* as jobs that store them under `out/points`."""
    return [Job(scenario, case, out / POINTS / digest(scenario, case, catalog), catalog) for case in wanted]


def resolved_plans(scenario: Scenario, catalog: Catalog) -> list[dict[str, object]]:
    """What each fleet rests on, at every point where that differs from the point before."""
    plans: list[dict[str, object]] = []
    resolver = Resolver(scenario, catalog)
    for case in cases(scenario):
        if case.replication:
            continue
        plan = describe(resolver.plan(case), catalog)
        if not any(_same(plan, other) for other in plans):
            plans.append({"at": case.axes, **plan})
    return plans


def _same(plan: dict[str, object], other: dict[str, object]) -> bool:
    """Whether two points differ in nothing but their load."""
    return all(other[key] == value for key, value in plan.items() if key not in ("workload", "notes"))


def limits(scenario: Scenario) -> dict[str, float]:
    """The service level in seconds, and `attainment`."""
    return scenario.slo.model_dump(exclude_none=True)
