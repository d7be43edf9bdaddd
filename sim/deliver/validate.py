"""From a table of measurements to the folder of their predictions."""

from collections.abc import Sequence
from pathlib import Path

from sim.benchdata.row import BenchRow
from sim.catalogue.catalog import Catalog
from sim.deliver.folder import begin_question, written_together
from sim.report.page.progress import Progress
from sim.report.validate.answer import write_validation
from sim.study.validate.score import PredictedRow
from sim.study.validate.table import validate


def run_validation(
    rows: Sequence[BenchRow],
    catalog: Catalog,
    out: Path,
    workers: int,
    table: str,
    quiet: bool,
    command: Sequence[str],
    force: bool = False,
) -> list[PredictedRow]:
    """Predicts all *rows* and leaves tables and a picture in the folder *out*, in the place of an earlier answer."""
    question = {"command": "validate", "values": {"table": "/".join(Path(table).absolute().parts[-2:])}}
    told = begin_question(out, question, command, force, validation=table)
    with Progress(quiet) as progress:
        outcomes = validate(rows, catalog, workers, progress)
    with written_together(out, told | {"rows": len(rows)}, points=()) as folder:
        write_validation(folder, outcomes)
    return outcomes
