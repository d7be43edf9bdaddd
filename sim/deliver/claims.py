"""From files of claims to the folder of their verdicts."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from sim.catalogue.catalog import Catalog
from sim.deliver.shared.folder import begin_question, written_together
from sim.report.claims.write import write_claims
from sim.report.terminal.progress import Progress
from sim.study.claims.answer import Answer
from sim.study.claims.table import check_claims


def deliver_claims(
    files: Mapping[str, Path],
    catalog: Catalog,
    out: Path,
    workers: int,
    quiet: bool,
    command: Sequence[str],
    force: bool = False,
) -> list[Answer]:
    """Checks the claims in *files* (id -> path) and leaves claims.csv, parts.csv, claims.html and claims.md in *out*.

    Raises ScenarioErrors, FolderRefused.
    """
    question = {"command": "claims", "values": {"claims": " ".join(files)}}
    told = begin_question(out, question, command, force)
    with Progress(quiet, "checking", "claims") as progress:
        answers = check_claims(files, catalog, workers, progress)
    with written_together(out, told | {"claims": len(answers)}, points=()) as folder:
        write_claims(folder, answers)
    return answers
