"""A whole table of training runs predicted."""

from collections.abc import Callable, Sequence

from sim.benchdata.training import TrainingRow
from sim.catalogue.catalog import Catalog
from sim.study.fidelity.validate.training.predict import Figured, predict_training
from sim.study.fidelity.validate.training.score import PredictedTraining

PROGRESS_EVERY = 200


def validate_training(
    rows: Sequence[TrainingRow], catalog: Catalog, workers: int, progress: Callable[[int, int, int], None]
) -> list[PredictedTraining]:
    """Every row with its prediction, in the order of the table. A row takes a millisecond: *workers* are not needed."""
    figured = Figured.of(catalog)
    done = []
    for row in rows:
        done.append(PredictedTraining(row, predict_training(row, figured)))
        if len(done) % PROGRESS_EVERY == 0 or len(done) == len(rows):
            progress(len(done), len(rows), 0)
    return done
