"""Validation of a table of measurements, as `gpufleet validate` runs it.

The header of the table determines its kind. To add a kind, define a `TableKind` and add it to KINDS.
"""

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim.answers.folder import begin_question, replaced_together
from sim.benchdata import read_benchmarks
from sim.benchdata.mlperf import REQUIRED_COLUMNS, read_mlperf
from sim.benchdata.row import METRICS
from sim.benchdata.table import COLUMNS, unread_measurements
from sim.benchdata.training import KIND_COLUMNS, read_training
from sim.catalogue.catalog import Catalog
from sim.fidelity.page import PairError, service_pairs, serving_pairs, training_pairs, write_page
from sim.fidelity.scores import Progress, validate
from sim.fidelity.services import predict_all, service_tables, write_services
from sim.fidelity.tables import terminal_tables, write_validation
from sim.fidelity.training import training_tables, validate_training, write_training
from sim.message import Message
from sim.report.progress import CaseProgress
from sim.report.terminal_table import FittedTable


@dataclass(frozen=True, slots=True)
class TableKind:
    """Functions that read, predict and present one kind of table; rows and outcomes are specific to the kind."""

    columns: frozenset[str]
    """Columns that a header of this kind has."""
    read: Callable[[Path], Sequence[Any]]
    """Function path -> rows. Raises BenchdataError with all mistakes."""
    predict: Callable[[Sequence[Any], Catalog, int, Progress], Sequence[Any]]
    """Function (rows, catalogue, workers, progress) -> outcomes in the order of the rows."""
    write: Callable[[Path, Sequence[Any]], None]
    """Function (folder, outcomes) that writes validation.csv, summaries and a picture."""
    show: Callable[[Sequence[Any]], list[FittedTable | str]]
    """Function outcomes -> output for the terminal."""
    pairs: Callable[[Sequence[Any]], list[PairError]]
    """Function outcomes -> errors of each pair of GPU and model, for the page."""


SERVING = TableKind(
    columns=frozenset(),
    read=read_benchmarks,
    predict=validate,
    write=write_validation,
    show=terminal_tables,
    pairs=serving_pairs,
)
"""Operating points of serving engines, and all tables of no other kind."""
SERVICES = TableKind(
    columns=frozenset(REQUIRED_COLUMNS),
    read=read_mlperf,
    predict=predict_all,
    write=write_services,
    show=service_tables,
    pairs=service_pairs,
)
"""MLPerf results of one-pass services."""
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
"""Kinds in order of precedence: the first whose columns are all in the header applies."""


def table_kind(path: Path) -> TableKind:
    """Return the kind of the table at *path*.

    It is SERVING for folders, results of benchmark clients, and unreadable files.
    """
    header = _header(path)
    return next(kind for kind in KINDS if kind.columns <= header)


def remarks(kind: TableKind, path: Path) -> list[str]:
    """Return remarks on columns of the table at *path* that are not read, measured values first; empty without such."""
    header = _header(path) if kind is SERVING else frozenset()
    unread = unread_measurements(header)
    others = sorted(header - {*COLUMNS, *unread, ""})
    found: list[str] = []
    if unread:
        known = ", ".join(METRICS)
        found.append(Message("not compared: {columns}; measured values are {known}", ", ".join(unread), known))
    if others:
        found.append(Message("not read: {columns}", ", ".join(others)))
    return found


def _header(path: Path) -> frozenset[str]:
    if not path.is_file() or path.suffix == ".json":
        return frozenset()
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return frozenset(name.strip().lower() for name in next(csv.reader(file), []))
    except (OSError, UnicodeDecodeError, csv.Error):
        return frozenset()  # the reader of the kind reports the error


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
    """Predict the *rows* of a table of *kind*. Return the outcomes.

    Tables, a picture and a page are written to *out*; an earlier validation of the same table there is replaced.
    """
    question = {"command": "validate", "values": {"table": "/".join(Path(table).absolute().parts[-2:])}}
    record = begin_question(out, question, command, force, validation=table)
    with CaseProgress(quiet) as progress:
        outcomes = kind.predict(rows, catalog, workers, progress)
    with replaced_together(out, record | {"rows": len(rows)}, points=()) as folder:
        kind.write(folder, outcomes)
        write_page(folder, Path(table).name, kind.show(outcomes), kind.pairs(outcomes))
    return outcomes
