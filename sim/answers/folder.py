"""Results folder: the question that it answers, its lock, and the atomic replacement of its files.

The answer to one question never replaces that to another. More replications, a narrower `precision`, further sweep
points and further fleets extend a question: earlier results stay part of the answer. The content of files, the
catalogue and the program are not part of a question: when these change, the same question has a new answer.

Replacement of the files of an answer:

    1. write all files to .answer-<random>/, with the names to keep in .keep
    2. rename the folder to .answer/: from here on the answer is complete
    3. move its files to the results folder, the manifest last, and remove .answer/

A command that is killed before step 2 leaves the earlier answer; after step 2 the next command completes step 3.
"""

import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sim.answers.questions import QUESTIONS
from sim.build import program_version
from sim.catalogue.catalog import Catalog
from sim.infile import opened
from sim.message import Message, os_reason, placed
from sim.scenario.schema import SECTIONS, Scenario
from sim.scenario.sweep import as_data, points
from sim.study.execution.digest import placeless
from sim.study.execution.durable import MANIFEST, POINTS, flush, flush_folder, write_atomically
from sim.study.execution.forked import finish_beside, stop_beside
from sim.study.execution.store import discard_unfinished

EFFORT = frozenset(name for name, section in SECTIONS.items() if section.effort)
BY_THEMSELVES = EFFORT | {"question", "base", "replications", "sweep", "fleets"}

CATALOG = "catalog"
"""Key of the manifest for the folders of the user's own catalogue entries."""
StoredQuestion = dict[str, Any]
"""Question as stored in the manifest: `command`, and all values that must agree; scenario values by their digests."""


def question_of(command: str, scenario: Scenario, **options: Any) -> StoredQuestion:
    """Return the question of *command* about *scenario* with *options*."""
    data = placeless(as_data(scenario))
    left_out = BY_THEMSELVES.union(name for name, one in SECTIONS.items() if one.command not in ("", command))
    sweeping = command not in QUESTIONS  # these commands simulate the scenario's own workload, without its sweep
    return {
        "command": command,
        "options": options,
        "values": {key: digest(value) for key, value in data.items() if key not in left_out},
        "fleets": {fleet["name"]: digest(fleet) for fleet in data.get("fleets", ())},
        "sweep": data.get("sweep") if sweeping else None,
        "replications": scenario.replications,
        "precision": data.get("precision") if sweeping else None,
    }


def digest(value: Any) -> str:
    """Return a short digest of a part of a scenario."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


def differences(before: Mapping[str, Any] | None, now: StoredQuestion) -> list[str]:
    """Return the keys in which *now* differs from *before* other than by extending it; empty if there are none."""
    if before is None:
        return ["written by an earlier version, which did not note its question"]
    if before.get("command") != now["command"]:
        return [Message("an answer of gpufleet {command}", before.get("command"))]
    return list(_differences(before, now))


def _differences(before: Mapping[str, Any], now: StoredQuestion) -> Iterator[str]:
    for part in ("options", "values"):
        was, is_now = before.get(part, {}), now.get(part, {})
        yield from (key for key in {**was, **is_now} if was.get(key) != is_now.get(key))
    for name, was in before.get("fleets", {}).items():
        if now.get("fleets", {}).get(name) != was:
            yield f"fleets.{name}"
    every = [json.dumps(point, sort_keys=True) for point in points(now.get("sweep"))]
    if any(json.dumps(point, sort_keys=True) not in every for point in points(before.get("sweep"))):
        yield "sweep"
    if now.get("replications", 0) < before.get("replications", 0):
        yield "replications"
    if not _as_exact(before.get("precision"), now.get("precision")):
        yield "precision"


def _as_exact(before: Mapping[str, Any] | None, now: Mapping[str, Any] | None) -> bool:
    """Return whether *now* keeps all replications of *before*."""
    if before is None or before == now:
        return True
    if now is None:
        return False
    others = [{key: value for key, value in one.items() if key != "relative"} for one in (before, now)]
    return others[0] == others[1] and bool(now["relative"] <= before["relative"])


LOCK = ".lock"
ANSWER = ".answer"
"""Folder of a complete answer that is replacing the earlier one."""
KEEP = ".keep"
"""File within an answer with the names of its files, and of the points that are kept (null: all)."""
Manifest = dict[str, Any]


class FolderRefused(ValueError):
    """Error for a folder that must not receive the results; the message gives the reason and the remedy."""


class FolderBusy(RuntimeError):
    """Error for a folder that another process writes to."""


class FolderUnreachable(RuntimeError):
    """Error for a folder on shared storage that cannot be read or written; the message gives reason and remedy."""


def address_of(out: Path | str) -> str:
    """Return the address of shared storage that *out* states, also as a `Path`, which has one slash; else empty."""
    found = re.fullmatch(r"([A-Za-z][A-Za-z0-9+.-]+):(?:/+(.*))?", str(out))
    return f"{found[1].lower()}://{found[2] or ''}" if found else ""


OTHER_FILES = "holds files that are not a gpufleet run (no manifest.json of ours); name another folder"
"""Reason why results cannot be written to a folder of other files."""


def why_not(out: Path) -> str:
    """Return why results cannot be written to *out*; empty if it is writable, and new, empty or of an earlier run."""
    if address_of(out):
        return "is an address; a folder on this machine is needed here"
    if out.is_dir():
        names = {child.name for child in out.iterdir() if not _is_scaffold(child)}
        if names and names != {POINTS} and manifest_of(out) is None:
            return OTHER_FILES
    elif out.exists() or out.is_symlink():
        return "is not a folder"
    above = out.absolute()
    while not above.exists() and above != above.parent:
        above = above.parent
    try:
        Path(tempfile.mkdtemp(prefix=".gpufleet-", dir=above)).rmdir()
    except OSError as error:
        return Message("cannot be written: {reason}", os_reason(error))
    return ""


def _is_scaffold(path: Path) -> bool:
    """Return whether *path* is a temporary file of a command, left when it was killed."""
    return path.name == LOCK or path.name.startswith((f"{ANSWER}-", f".{MANIFEST}-", ".gpufleet-"))


def manifest_of(out: Path) -> Manifest | None:
    """Return the manifest of the results in *out*; None if it holds no results of gpufleet."""
    for folder in (out, out / ANSWER):
        try:
            with opened(folder / MANIFEST, "r", hidden=True, encoding="utf-8") as file:
                entries = json.load(file)
        except (OSError, ValueError):
            continue
        if isinstance(entries, dict) and entries.get("program") == "gpufleet":
            return entries
    return None


def is_finished(out: Path) -> bool:
    """Return whether *out* holds a complete answer."""
    entries = manifest_of(out)
    return entries is not None and entries.get("status") == "finished" and not (out / ANSWER).exists()


@contextmanager
def owned(out: Path) -> Iterator[None]:
    """Make this process the only one that writes to *out*, until the context or the process ends.

    The unfinished work of a killed process is first completed or removed.

    Raises
    ------
    FolderBusy
        Where another process writes to *out*.

    """
    handle = _locked(out)
    try:
        _complete_replacement(out)
        for left in out.iterdir():
            if left.name != LOCK and _is_scaffold(left):
                shutil.rmtree(left) if left.is_dir() else left.unlink()
        discard_unfinished(out / POINTS)
        yield
    finally:
        (out / LOCK).unlink(missing_ok=True)
        with suppress(OSError):
            out.rmdir()  # fails if results were written
        os.close(handle)


def _locked(out: Path) -> int:
    """Return the open lock file; the system unlocks it when this process ends for any reason."""
    path = out / LOCK
    while True:
        out.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(handle, 32, 0).decode(errors="replace").strip()
            os.close(handle)
            text = Message(
                "another gpufleet (process {owner}) writes there; wait for it, or name another folder",
                owner or "unknown",
            )
            raise FolderBusy(placed(f"--out {out}", text)) from None
        if path.exists() and os.path.samestat(os.fstat(handle), path.stat()):
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
            return handle
        os.close(handle)  # the previous owner has removed this file since it was opened


def begin(
    out: Path, scenario: Scenario, command: Sequence[str], kind: str, force: bool = False, **options: Any
) -> Manifest:
    """Prepare *out* for the question of the command *kind* about *scenario*; return the first entries of its manifest.

    Raises
    ------
    FolderRefused
        Where *out* holds the answer to another question, unless by *force*.

    """
    question = question_of(kind, scenario, **options)
    return begin_question(out, question, command, force, scenario=scenario.name, seed=scenario.seed)


def own_catalogue(catalog: Catalog) -> Manifest:
    """Return the manifest's entry on the folders of the user's own catalogue entries; empty without any."""
    return {CATALOG: [str(folder) for folder in catalog.own]} if catalog.own else {}


def catalogue_of(run: Path, stated: Sequence[Path] = ()) -> list[Path]:
    """Return the folders of the user's own entries that *run* was made with, unless others are *stated*."""
    known = (manifest_of(run) or {}).get(CATALOG)
    return [*stated] or [Path(str(one)) for one in (known if isinstance(known, list) else ())]


def begin_question(out: Path, question: StoredQuestion, command: Sequence[str], force: bool, **more: Any) -> Manifest:
    """Prepare *out* for *question*, as `begin`; the manifest also has the entries *more*.

    Raises
    ------
    FolderRefused
        Where *out* holds the answer to another question, unless by *force*.

    """
    out.mkdir(parents=True, exist_ok=True)
    known = manifest_of(out)
    differ = differences(known.get("question"), question) if known is not None else []
    if differ and not force:
        text = Message("holds results of another question ({parts})", ", ".join(differ))
        raise FolderRefused(
            Message("--out {out}: {text}; --force replaces them, --out with another folder keeps both", out, text)
        )
    began: Manifest = {
        "program": "gpufleet",
        "version": program_version(),
        **more,
        "command": list(command),
        "started_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "question": question,
    }
    if known is None or known.get("status") == "unfinished":
        write_manifest(out, began | {"status": "unfinished"})
    return began


@contextmanager
def replaced_together(out: Path, entries: Manifest, points: Iterable[str] | None = None) -> Iterator[Path]:
    """Yield a folder for the files of an answer, which replace an earlier answer's in *out* when the context ends.

    A process that is killed leaves the earlier answer, or a complete new one that the next command in *out* moves into
    place.

    Parameters
    ----------
    out
        Results folder.
    entries
        First entries of the manifest; the wall time since its `started_at` is added.
    points
        Names of the simulated points that are kept; None: all.

    """
    with replaced_files(out, points) as aside:
        try:
            yield aside
            finish_beside()
        except BaseException:
            stop_beside()  # before the folder is removed
            raise
        write_manifest(aside, entries | finished(entries))


@contextmanager
def replaced_files(out: Path, points: Iterable[str] | None = None) -> Iterator[Path]:
    """Yield a folder for all files of an answer and its manifest; they take their place as in `replaced_together`."""
    aside = out / f"{ANSWER}-{secrets.token_hex(8)}"
    aside.mkdir()
    try:
        yield aside
        names = sorted(path.name for path in aside.iterdir())
        kept = {"files": names, "points": None if points is None else sorted(points)}
        (aside / KEEP).write_text(json.dumps(kept), encoding="utf-8")
        flush_folder(aside)
        aside.replace(out / ANSWER)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    _complete_replacement(out)


def _complete_replacement(out: Path) -> None:
    """Move a complete answer into place; safe to repeat after being killed at any moment.

    The manifest is removed first and moved last, so that a mixture never appears as a finished answer.
    """
    answer = out / ANSWER
    if not answer.is_dir():
        return
    flush(out)
    if (answer / KEEP).is_file():
        keep = json.loads((answer / KEEP).read_text(encoding="utf-8"))
        if (answer / MANIFEST).exists():
            (out / MANIFEST).unlink(missing_ok=True)
        for path in out.iterdir():
            if path.is_file() and path.name not in (*keep["files"], LOCK):
                path.unlink()
        if keep["points"] is not None:
            _keep_points(out / POINTS, set(keep["points"]))
        for name in (*(name for name in keep["files"] if name != MANIFEST), MANIFEST):
            if (answer / name).exists():
                (answer / name).replace(out / name)
        flush(out)
    shutil.rmtree(answer)


def _keep_points(points: Path, names: set[str]) -> None:
    for path in points.iterdir() if points.is_dir() else ():
        if path.name not in names:
            shutil.rmtree(path, ignore_errors=True)


def finished(entries: Manifest) -> Manifest:
    """Return the last entries of a manifest that begins with *entries*."""
    wall_s = time.time() - datetime.fromisoformat(entries["started_at"]).timestamp()
    return {"wall_s": round(wall_s, 3), "status": "finished"}


def write_manifest(folder: Path, entries: Manifest) -> None:
    """Write manifest.json, the origin of the files beside it."""
    write_atomically(folder / MANIFEST, json.dumps(entries, indent=2) + "\n")
