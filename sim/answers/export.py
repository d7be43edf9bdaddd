"""Export of a finished answer to a file in the format of another program."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from sim.answers.deployments.answer import WINNER, deployment_text
from sim.answers.deployments.formats import FORMATS
from sim.answers.folder import address_of, catalogue_of, is_finished, manifest_of
from sim.answers.questions import QUESTIONS
from sim.catalogue.catalog import load_catalog
from sim.message import OR, Message, joined
from sim.report.export.board import COMMANDS, board_html
from sim.report.export.focus import write_focus
from sim.report.export.stored_answer import StoredAnswer, read_answer
from sim.report.export.workbook import write_workbook

ENDINGS = {"xlsx": ".xlsx", "focus": "-focus.csv", "board": "-board.html"} | {
    name: ending for name, (ending, _) in FORMATS.items()
}
"""Export format -> suffix of the file's name."""
DEPLOYED = tuple(FORMATS)
"""Formats of deployments."""
BILLED = ("run", "price")
"""Commands whose answers have a ledger."""


def default_file(folder: Path, form: str) -> Path:
    """Return the default path: beside the *folder*, so that the next run in it does not remove the file."""
    whole = folder.absolute()
    return (
        folder.parent / f"{whole.name}{ENDINGS[form]}" if folder.name else whole.with_name(whole.name + ENDINGS[form])
    )


def why_no_export(folder: Path, form: str, file: Path) -> str:
    """Return why the answer in *folder* cannot be written to *file* in the format *form*; empty if it can."""
    if not is_finished(folder):
        return Message(
            "{folder}: is not a finished run: gpufleet run creates a run, and continues an interrupted one", folder
        )
    command = ((manifest_of(folder) or {}).get("question") or {}).get("command")
    if command == "watch" and form in FORMATS and not (folder / WINNER).is_file():
        return Message("{folder}: orders no replicas: export the deployment of a run of its scenario", folder)
    if command not in BILLED and command not in QUESTIONS and not (command == "watch" and form in FORMATS):
        return Message(
            "{folder}: an answer of gpufleet {command} cannot be exported; its tables are CSV already", folder, command
        )
    if form == "board" and command not in COMMANDS:
        return Message(
            "{folder}: the page for the board is of an answer of {commands}, not of {command}",
            folder,
            joined(OR, COMMANDS),
            command,
        )
    if form == "focus":
        if command not in BILLED:
            return Message(
                "{folder}: FOCUS rows come from a bill, and gpufleet {command} writes none: export a run",
                folder,
                command,
            )
        if not any("cost_" in str(name) for name in read_answer(folder).summary):
            return Message("{folder}: the run has no bill: give its fleets a `cost` section", folder)
        if not all("charges" in plan for plan in read_answer(folder).plans):
            return Message(
                "{folder}: was written by an earlier version, without the dates of charges: run it again", folder
            )
    if address_of(file):
        return Message("--out {file}: is an address; a file on this machine is needed", address_of(file))
    if file.is_dir() or not file.absolute().parent.is_dir():
        return Message(
            "--out {file}: {problem}; name a file",
            file,
            "is a folder" if file.is_dir() else Message("{parent} does not exist", file.parent),
        )
    return ""


def exported(folder: Path, form: str, file: Path, fleet: str | None = None, catalogs: Sequence[Path] = ()) -> list[str]:
    """Write *file* atomically, and return sentences on the content that the format does not hold.

    Parameters
    ----------
    folder
        Folder of the answer.
    form
        Format, a key of ENDINGS.
    file
        File to write.
    fleet
        Fleet of a deployment; None for the one that the answer recommends.
    catalogs
        Folders with the user's own catalogue entries, in place of those of the answer.

    Raises
    ------
    NoDeployment
        The tool cannot run the fleet, or the answer recommends none.

    """
    with tempfile.TemporaryDirectory(prefix=".gpufleet-", dir=file.absolute().parent) as aside:
        made = Path(aside) / f"export{ENDINGS[form]}"
        if form in FORMATS:
            text, sentences = deployment_text(folder, form, fleet, load_catalog(own=catalogue_of(folder, catalogs)))
            made.write_text(text, encoding="utf-8")
        else:
            question = QUESTIONS.get(str(((manifest_of(folder) or {}).get("question") or {}).get("command")))
            tables = {} if question is None else {"main": question.main, "sheets": question.sheets}
            sentences = _write(form, made, read_answer(folder, **tables))
        made.replace(file)
    return sentences


def _write(form: str, path: Path, answer: StoredAnswer) -> list[str]:
    if form == "board":
        path.write_text(board_html(answer), encoding="utf-8")
        return []
    return write_workbook(path, answer) if form == "xlsx" else write_focus(path, answer)
