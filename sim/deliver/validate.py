"""From a table of measurements to the folder of their predictions."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sim.catalogue.catalog import Catalog
from sim.deliver.shared.folder import begin_question, written_together
from sim.deliver.shared.tables import TableKind
from sim.report.fidelity.validate.page import write_page
from sim.report.terminal.progress import Progress


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
    with Progress(quiet) as progress:
        outcomes = kind.predict(rows, catalog, workers, progress)
    with written_together(out, told | {"rows": len(rows)}, points=()) as folder:
        kind.write(folder, outcomes)
        write_page(folder, Path(table).name, kind.show(outcomes), kind.pairs(outcomes))
    return outcomes
