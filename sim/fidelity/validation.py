"""From a table of measurements to the folder of their predictions, as `gpufleet validate` makes it.

The header of the table says which kind it is; a new kind is a row in KINDS.
"""

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim.answers.folder import begin_question, replaced_together
from sim.benchdata import read_benchmarks
from sim.benchdata.mlperf import REQUIRED, read_mlperf
from sim.benchdata.training import KIND_COLUMNS, read_training
from sim.catalogue.catalog import Catalog
from sim.fidelity.page import PairError, service_pairs, serving_pairs, training_pairs, write_page
from sim.fidelity.scores import Told, validate
from sim.fidelity.services import predict_all, service_tables, write_services
from sim.fidelity.tables import terminal_tables, write_validation
from sim.fidelity.training import training_tables, validate_training, write_training
from sim.report.progress import CaseProgress
from sim.report.terminal_table import FittedTable


@dataclass(frozen=True, slots=True)
class TableKind:
    """What is done with one kind of table of measurements. Rows and outcomes are the kind's own."""

    columns: frozenset[str]
    """A header that has all of these belongs to this kind."""
    read: Callable[[Path], Sequence[Any]]
    """Path -> rows. Raises BenchdataError with everything that is wrong."""
    predict: Callable[[Sequence[Any], Catalog, int, Told], Sequence[Any]]
    """(rows, catalogue, workers, progress) -> outcomes, in the order of the rows."""
    write: Callable[[Path, Sequence[Any]], None]
    """(folder, outcomes): validation.csv, summaries, a picture."""
    show: Callable[[Sequence[Any]], list[FittedTable | str]]
    """Outcomes -> what the terminal prints."""
    pairs: Callable[[Sequence[Any]], list[PairError]]
    """Outcomes -> the error of each pair of GPU and model, for the page."""


SERVING = TableKind(
    columns=frozenset(),
    read=read_benchmarks,
    predict=validate,
    write=write_validation,
    show=terminal_tables,
    pairs=serving_pairs,
)
"""Operating points of serving engines; any table that no other kind knows."""
SERVICES = TableKind(
    columns=frozenset(REQUIRED),
    read=read_mlperf,
    predict=predict_all,
    write=write_services,
    show=service_tables,
    pairs=service_pairs,
)
"""MLPerf results of services that answer in one pass."""
TRAINING = TableKind(
    columns=frozenset(KIND_COLUMNS),
    read=read_training,
    predict=validate_training,
    write=write_training,
    show=training_tables,
    pairs=training_pairs,
)
"""Runs and published cells of training and fine-tuning."""
KINDS: tuple[TableKind, ...] = (SERVICES, TRAINING, SERVING)
"""The first kind whose columns are all in the header counts."""


def table_kind(path: Path) -> TableKind:
    """The kind of the table at *path*; a folder, a result of a benchmark client or an unreadable file is SERVING's."""
    header = _header(path) if path.is_file() and path.suffix != ".json" else frozenset[str]()
    return next(kind for kind in KINDS if kind.columns <= header)


def _header(path: Path) -> frozenset[str]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return frozenset(name.strip() for name in next(csv.reader(file), []))
    except (OSError, UnicodeDecodeError, csv.Error):
        return frozenset()  # the kind's own reader says what is wrong


def run_validation(
    kind: TableKind,
    rows: Sequence[Any],
    catalog: Catalog,
    out: Path,
    workers: int,
    table: str,
    quiet: bool,
    command: Sequence[str],
    force: bool = False,
) -> Sequence[Any]:
    """Predicts *rows* of a table of *kind*; tables and a picture go to the folder *out*, over an earlier answer."""
    question = {"command": "validate", "values": {"table": "/".join(Path(table).absolute().parts[-2:])}}
    told = begin_question(out, question, command, force, validation=table)
    with CaseProgress(quiet) as progress:
        outcomes = kind.predict(rows, catalog, workers, progress)
    with replaced_together(out, told | {"rows": len(rows)}, points=()) as folder:
        kind.write(folder, outcomes)
        write_page(folder, Path(table).name, kind.show(outcomes), kind.pairs(outcomes))
    return outcomes
