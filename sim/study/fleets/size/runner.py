"""Cases of many fleets: from disk, or simulated a few at a time while a search goes on."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sim.catalogue.catalog import Catalog
from sim.scenario.schema import Fleet, Scenario
from sim.scenario.sweep import Case, is_deterministic
from sim.study.cases.execute import Job, Workplace, do_missing
from sim.study.cases.points import POINTS, jobs_of
from sim.study.cases.store import StoredCase, discard_unfinished

Overrides = Mapping[str, Any]
"""Dotted path -> value in place of the scenario's."""


class Runner:
    """Cases of one fleet each, from disk or simulated."""

    def __init__(
        self,
        scenario: Scenario,
        catalog: Catalog,
        out: Path,
        workplace: Workplace,
        progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        """*progress* is called with the number of simulated cases."""
        self._scenario, self._catalog, self._out, self._workplace = scenario, catalog, out, workplace
        self._progress = progress
        self.simulated = 0

    def run(
        self, wanted: Sequence[tuple[Fleet, int]], axes: Mapping[str, Any] | None = None, point: Overrides | None = None
    ) -> list[list[StoredCase]]:
        """The first replications of each fleet, at the scenario's load or at the *point* of these *axes*; of one
        without randomness a single one.
        """
        groups = [self._jobs(fleet, count, dict(axes or {}), dict(point or {})) for fleet, count in wanted]
        try:
            for _ in do_missing(self._workplace, [job for jobs in groups for job in jobs]):
                self.simulated += 1
                self._progress(self.simulated)
        finally:
            discard_unfinished(self._out / POINTS)
        return [[job.stored() for job in jobs] for jobs in groups]

    def _jobs(self, fleet: Fleet, count: int, axes: dict[str, Any], point: dict[str, Any]) -> list[Job]:
        scenario = self._scenario.model_copy(update={"fleets": (fleet,)})
        count = 1 if is_deterministic(scenario, fleet) else count
        cases = [Case(fleet.name, axes, point, replication) for replication in range(count)]
        return jobs_of(scenario, cases, self._catalog, self._out)
