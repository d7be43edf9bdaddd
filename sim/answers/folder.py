"""The folder of results: which question it answers, who may write to it, and files that appear together.

Nothing in a folder is replaced by the answer to another question. More replications, a narrower `precision`, further
sweep points and further fleets extend a question: what was found stays part of the answer. The content of files is
no part of it, nor are catalogue and program: when these change, the same question has a new answer.
"""

import fcntl
import hashlib
import json
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from sim.answers.questions import QUESTIONS
from sim.infile import opened
from sim.scenario.schema import SECTIONS, Scenario
from sim.scenario.sweep import as_data, points
from sim.study.execution.cases import MANIFEST, POINTS
from sim.study.execution.digest import placeless
from sim.study.execution.durable import flush, flush_folder, write_whole
from sim.study.execution.store import discard_unfinished

EFFORT = frozenset(name for name, section in SECTIONS.items() if section.effort)
BY_THEMSELVES = EFFORT | {"question", "base", "replications", "sweep", "fleets"}

StoredQuestion = dict[str, Any]
"""As it stands in the manifest: `command`, and what else has to agree; values of the scenario by their digests."""


def question_of(command: str, scenario: Scenario, **options: Any) -> StoredQuestion:
    """What *command* asks about *scenario* with such *options*."""
    data = placeless(as_data(scenario))
    left_out = BY_THEMSELVES.union(name for name, one in SECTIONS.items() if one.command not in ("", command))
    sweeping = command not in QUESTIONS  # they ask about the workload as it stands
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
    """Of a part of a scenario, short."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


def differences(before: Mapping[str, Any] | None, now: StoredQuestion) -> list[str]:
    """What keeps *now* from being the question *before*, or its extension; empty if nothing does."""
    if before is None:
        return ["written by an earlier version, which did not note its question"]
    if before.get("command") != now["command"]:
        return [f"an answer of gpufleet {before.get('command')}"]
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
    """Return whether no replication of *before* is left out."""
    if before is None or before == now:
        return True
    if now is None:
        return False
    others = [{key: value for key, value in one.items() if key != "relative"} for one in (before, now)]
    return others[0] == others[1] and bool(now["relative"] <= before["relative"])


LOCK = ".lock"
ANSWER = ".answer"
"""A finished answer that is taking the place of the one before."""
KEEP = ".keep"
"""In an answer: the names of its files, and of the points that stay (null: all)."""
Manifest = dict[str, Any]


class FolderRefused(ValueError):
    """Results may not go there; the message says why and what to do."""


class FolderBusy(RuntimeError):
    """Another process writes there."""


def why_not(out: Path) -> str:
    """Why results may not go to *out*; empty if it is new, empty or an earlier run's, and can be written."""
    if out.is_dir():
        names = {child.name for child in out.iterdir() if not _is_scaffold(child)}
        if names and names != {POINTS} and manifest_of(out) is None:
            return "holds files that are no gpufleet run (no manifest.json of ours); name another folder"
    elif out.exists() or out.is_symlink():
        return "is no folder"
    above = out.absolute()
    while not above.exists() and above != above.parent:
        above = above.parent
    try:
        Path(tempfile.mkdtemp(prefix=".gpufleet-", dir=above)).rmdir()
    except OSError as error:
        return f"cannot be written: {(error.strerror or str(error)).lower()}"
    return ""


def _is_scaffold(path: Path) -> bool:
    """Return whether a command that was killed has left *path*."""
    return path.name == LOCK or path.name.startswith((f"{ANSWER}-", f".{MANIFEST}-", ".gpufleet-"))


def manifest_of(out: Path) -> Manifest | None:
    """The manifest of the results in *out*; None if it holds none of ours."""
    for folder in (out, out / ANSWER):
        try:
            with opened(folder / MANIFEST, "r", hidden=True, encoding="utf-8") as file:
                told = json.load(file)
        except (OSError, ValueError):
            continue
        if isinstance(told, dict) and told.get("program") == "gpufleet":
            return told
    return None


def is_finished(out: Path) -> bool:
    """Return whether *out* holds an answer, and all of it."""
    told = manifest_of(out)
    return told is not None and told.get("status") == "finished" and not (out / ANSWER).exists()


@contextmanager
def owned(out: Path) -> Iterator[None]:
    """Makes this process the only one that writes to *out*, until the context ends or the process does.

    What an earlier process could not finish when it was killed is finished or cleared away first. Raises FolderBusy.
    """
    handle = _locked(out)
    try:
        _settle(out)
        for left in out.iterdir():
            if left.name != LOCK and _is_scaffold(left):
                shutil.rmtree(left) if left.is_dir() else left.unlink()
        discard_unfinished(out / POINTS)
        yield
    finally:
        (out / LOCK).unlink(missing_ok=True)
        with suppress(OSError):
            out.rmdir()  # nothing was written
        os.close(handle)


def _locked(out: Path) -> int:
    """The open lock file. The system unlocks it when this process ends, however it ends."""
    path = out / LOCK
    while True:
        out.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(handle, 32, 0).decode(errors="replace").strip()
            os.close(handle)
            text = f"another gpufleet (process {owner or 'unknown'}) writes there; wait for it, or name another folder"
            raise FolderBusy(f"--out {out}: {text}") from None
        if path.exists() and os.path.samestat(os.fstat(handle), path.stat()):
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
            return handle
        os.close(handle)  # its owner has finished, and removed it, since it was opened


def begin(
    out: Path, scenario: Scenario, command: Sequence[str], kind: str, force: bool = False, **options: Any
) -> Manifest:
    """Makes the folder *out* ours for what the command *kind* asks about *scenario*; the first entries of its manifest.

    Raises FolderRefused where *out* holds the answer to another question, unless by *force*.
    """
    question = question_of(kind, scenario, **options)
    return begin_question(out, question, command, force, scenario=scenario.name, seed=scenario.seed)


def begin_question(out: Path, question: StoredQuestion, command: Sequence[str], force: bool, **told: Any) -> Manifest:
    """`begin` for any question; the manifest has *told*, too.

    Raises FolderRefused where *out* holds the answer to another question, unless by *force*.
    """
    out.mkdir(parents=True, exist_ok=True)
    known = manifest_of(out)
    differ = differences(known.get("question"), question) if known is not None else []
    if differ and not force:
        text = f"holds results of another question ({', '.join(differ)})"
        raise FolderRefused(f"--out {out}: {text}; --force replaces them, --out with another folder keeps both")
    began: Manifest = {
        "program": "gpufleet",
        "version": program_version(),
        **told,
        "command": list(command),
        "started_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "question": question,
    }
    if known is None or known.get("status") == "unfinished":
        write_manifest(out, began | {"status": "unfinished"})
    return began


@contextmanager
def written_together(out: Path, told: Manifest, points: Iterable[str] | None = None) -> Iterator[Path]:
    """A folder for the files of an answer. They take the place of an earlier answer's in *out* once all are written.

    Of the simulated points those named *points* stay; all if it is None. The manifest gets *told* and, from its
    `started_at`, how long it took. A process that is killed leaves the earlier answer, or a complete new one that the
    next command in *out* puts in its place.
    """
    aside = out / f"{ANSWER}-{secrets.token_hex(8)}"
    aside.mkdir()
    try:
        yield aside
        write_manifest(aside, told | finished(told))
        names = sorted(path.name for path in aside.iterdir())
        kept = {"files": names, "points": None if points is None else sorted(points)}
        (aside / KEEP).write_text(json.dumps(kept), encoding="utf-8")
        flush_folder(aside)
        aside.replace(out / ANSWER)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    _settle(out)


def _settle(out: Path) -> None:
    """Puts a complete answer in the place of the one before. Killed at any moment, it can be called again.

    The manifest goes first and comes last, so that a mixture never passes for a finished answer.
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


def finished(told: Manifest) -> Manifest:
    """The last entries of a manifest that begins with *told*."""
    wall_s = time.time() - datetime.fromisoformat(told["started_at"]).timestamp()
    return {"wall_s": round(wall_s, 3), "status": "finished"}


def write_manifest(folder: Path, told: Manifest) -> None:
    """manifest.json: how the files beside it came to be."""
    write_whole(folder / MANIFEST, json.dumps(told, indent=2) + "\n")


def program_version() -> str:
    """Of the installed package."""
    try:
        return version("gpufleet")
    except PackageNotFoundError:
        return "source tree"
