"""A whole table of measurements predicted, row by row, on the local cores."""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

from joblib import Parallel, delayed

from sim.benchdata.row import BenchRow
from sim.catalogue.catalog import Catalog, load_catalog
from sim.study.fidelity.validate.predict import Prediction, campaigns_of, predict
from sim.study.fidelity.validate.score import PredictedRow

ALONE_S = 1.5
"""Work goes on in this process for so long before others are started: starting them takes about as long."""
CHUNK = 24
"""Rows handed to a process at once."""

Told = Callable[[int, int, int], None]


def validate(rows: Sequence[BenchRow], catalog: Catalog, workers: int, progress: Told) -> list[PredictedRow]:
    """Every row with its prediction, in the order of the table; *progress* is called with (done, all, 0).

    The rows are independent: the result does not depend on *workers*.
    """
    campaigns = campaigns_of(catalog)
    rows = [campaigns.as_run(row) for row in rows]
    done: dict[str, Prediction] = {}
    for prediction in _predictions(rows, catalog, workers):
        done[prediction.id] = prediction
        progress(len(done), len(rows), 0)
    return [PredictedRow(row, done[row.id]) for row in rows]


def _predictions(rows: Sequence[BenchRow], catalog: Catalog, workers: int) -> Iterator[Prediction]:
    started = time.monotonic()
    place = 0
    while place < len(rows) and (workers == 1 or time.monotonic() - started < ALONE_S):
        yield predict(rows[place], catalog)
        place += 1
    left = rows[place:]
    if left:
        # neighbours in a table are alike: dealt out in turn, every chunk takes about as long
        chunks = [left[start :: -(-len(left) // CHUNK)] for start in range(-(-len(left) // CHUNK))]
        parallel = Parallel(n_jobs=min(workers, len(chunks)), return_as="generator_unordered", batch_size=1)
        for found in parallel(delayed(_in_worker)(chunk, catalog.root) for chunk in chunks):
            yield from found


def _in_worker(rows: Sequence[BenchRow], root: Path) -> list[Prediction]:
    return [predict(row, _catalog(root)) for row in rows]


@cache
def _catalog(root: Path) -> Catalog:
    """One catalogue per process: it remembers what it has read."""
    return load_catalog(root)
