"""Many claims checked, side by side on the local cores."""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

from joblib import Parallel, delayed

from sim.catalogue.catalog import Catalog, load_catalog
from sim.scenario.reading.errors import ScenarioErrors
from sim.study.claims.answer import Answer, answer, effort

Told = Callable[[int, int, int], None]


def check_claims(files: Mapping[str, Path], catalog: Catalog, workers: int, progress: Told) -> list[Answer]:
    """The answer to every claim in *files* (id -> path), in that order; the result does not depend on *workers*.

    *progress* is called with (done, all, 0). Raises ScenarioErrors with the mistakes of all files.
    """
    efforts, wrong = {}, []
    for name, path in files.items():
        try:
            efforts[name] = effort(path, catalog)
        except ScenarioErrors as error:
            wrong += error.errors
    if wrong:
        raise ScenarioErrors(wrong)
    longest_first = sorted(files, key=lambda name: -efforts[name])
    done: dict[str, Answer] = {}
    for one in _answers({name: files[name] for name in longest_first}, catalog, workers):
        done[one.id] = one
        progress(len(done), len(files), 0)
    return [done[name] for name in files]


def _answers(files: Mapping[str, Path], catalog: Catalog, workers: int) -> Iterator[Answer]:
    if workers == 1 or len(files) == 1:
        for name, path in files.items():
            yield answer(name, path, catalog)
        return
    parallel = Parallel(n_jobs=min(workers, len(files)), return_as="generator_unordered", batch_size=1)
    yield from parallel(delayed(_in_worker)(name, path, catalog.root) for name, path in files.items())


def _in_worker(name: str, path: Path, root: Path) -> Answer:
    return answer(name, path, _catalog(root))


@cache
def _catalog(root: Path) -> Catalog:
    """One catalogue per process: it remembers what it has read."""
    return load_catalog(root)
