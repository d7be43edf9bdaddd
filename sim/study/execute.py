"""Runs cases on the local cores and yields each as it is stored."""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

from joblib import Parallel, delayed

from sim.catalog.catalog import Catalog, load_catalog
from sim.run import CaseResult, run_case
from sim.scenario.schema import Scenario
from sim.scenario.sweep import Case
from sim.study.metrics import measure
from sim.study.store import save_case

ALONE_S = 1.5
"""Work goes on in this process for so long before others are started: starting them takes about as long."""


Executor = Callable[[Scenario, Sequence[tuple[Case, Path]], Catalog], Iterator[Path]]
"""Runs cases somewhere and yields each one's folder once it is stored there."""


def simulate(scenario: Scenario, case: Case, folder: Path, catalog: Catalog) -> Path:
    """Runs and stores one case; its folder."""
    outcome = run_case(scenario, case, catalog)
    metrics = measure(outcome) if isinstance(outcome, CaseResult) else {}
    save_case(folder, case, outcome, metrics, scenario.requests != "none")
    return folder


def execute(scenario: Scenario, work: Sequence[tuple[Case, Path]], catalog: Catalog, workers: int) -> Iterator[Path]:
    """Folders of finished cases, in any order; *workers* processes once there is enough to do."""
    started = time.monotonic()
    left = list(work)
    while left and (workers == 1 or len(left) == 1 or time.monotonic() - started < ALONE_S):
        yield simulate(scenario, *left.pop(0), catalog)
    if left:
        parallel = Parallel(n_jobs=min(workers, len(left)), return_as="generator_unordered", batch_size=1)
        yield from parallel(delayed(_in_worker)(scenario, case, folder, catalog.root) for case, folder in left)


def _in_worker(scenario: Scenario, case: Case, folder: Path, root: Path) -> Path:
    return simulate(scenario, case, folder, catalog_of(root))


@cache
def catalog_of(root: Path) -> Catalog:
    """One catalogue per process: it remembers what it has read."""
    return load_catalog(root)
