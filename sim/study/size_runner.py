"""Cases of many fleets: from disk, or simulated a few at a time while a search goes on."""

import time
from collections.abc import Sequence
from pathlib import Path

from joblib import Parallel, delayed

from sim.catalog.catalog import Catalog
from sim.scenario.schema import Fleet, Scenario
from sim.scenario.sweep import Case, is_deterministic
from sim.study.execute import ALONE_S, catalog_of, simulate
from sim.study.points import POINTS
from sim.study.store import StoredCase, digest, discard_unfinished, load_case


class Runner:
    """Cases of one fleet each, from disk or simulated on the local cores."""

    def __init__(self, scenario: Scenario, catalog: Catalog, out: Path, workers: int) -> None:
        self._scenario, self._catalog, self._points, self._workers = scenario, catalog, out / POINTS, workers
        self._alone_s = 0.0
        self.simulated = 0

    def run(self, wanted: Sequence[tuple[Fleet, int]]) -> list[list[StoredCase]]:
        """The first so many replications of each fleet; of one without chance a single one."""
        folders: list[list[Path]] = []
        work: list[tuple[Scenario, Case, Path]] = []
        for fleet, count in wanted:
            scenario = self._scenario.model_copy(update={"fleets": (fleet,)})
            count = 1 if is_deterministic(scenario, fleet) else count
            cases = [Case(fleet.name, {}, {}, replication) for replication in range(count)]
            folders.append([self._points / digest(scenario, case, self._catalog) for case in cases])
            work += [
                (scenario, case, folder)
                for case, folder in zip(cases, folders[-1], strict=True)
                if load_case(folder) is None
            ]
        try:
            self._simulate(work)
        finally:
            discard_unfinished(self._points)
        return [[_loaded(folder) for folder in group] for group in folders]

    def _simulate(self, work: list[tuple[Scenario, Case, Path]]) -> None:
        self.simulated += len(work)
        started = time.monotonic()
        left = list(work)
        while left and (self._workers == 1 or len(left) == 1 or self._alone_s + time.monotonic() - started < ALONE_S):
            scenario, case, folder = left.pop(0)
            simulate(scenario, case, folder, self._catalog)
        self._alone_s += time.monotonic() - started
        if left:
            parallel = Parallel(n_jobs=min(self._workers, len(left)), batch_size=1)
            parallel(delayed(_in_worker)(*one, self._catalog.root) for one in left)


def _in_worker(scenario: Scenario, case: Case, folder: Path, root: Path) -> None:
    simulate(scenario, case, folder, catalog_of(root))


def _loaded(folder: Path) -> StoredCase:
    stored = load_case(folder)
    assert stored is not None  # it has just been simulated or found
    return stored
