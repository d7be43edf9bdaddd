"""Files and folders that are written atomically, with checksums that reveal later damage.

A killed process leaves no partial file under its final name. A file is flushed to the disk before it is renamed. A
folder is renamed first and flushed while the next one is computed: where a power cut has left a part of it, its
checksums reveal that.
"""

import hashlib
import json
import logging
import os
import secrets
import shutil
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sim.infile import opened
from sim.message import Message

MANIFEST = "manifest.json"
"""File of a results folder with the origin of the answer: command, versions and inputs."""
POINTS = "points"
"""Folder of a results folder with the finished cases."""
SUMS_FILE = "SHA256SUMS"
"""Name of the checksum file, in the format of sha256sum: `sha256sum -c SHA256SUMS` checks a folder, too."""


LOG = logging.getLogger("gpufleet")


class DamagedFile(Exception):
    """Error of a stored file that has changed since it was written; the message lacks the path."""


def warn_of(path: Path, error: DamagedFile) -> None:
    """Warn on stderr, also with --quiet, that the results at *path* were changed on the disk."""
    LOG.warning("%s is damaged: it %s. It is not used; where it is needed it is simulated again.", path, error)


def flush(path: Path) -> None:
    """Wait until the file or folder *path* is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def flush_folder(folder: Path) -> None:
    """Wait until *folder* and the files in it are on the disk."""
    for path in folder.iterdir():
        if path.is_file():
            flush(path)
    flush(folder)


def temporary_path(path: Path) -> Path:
    """Return a new hidden name in the folder of *path*, for a file or folder that will be renamed to *path*.

    Files and folders made under that name have the modes of the user's umask, which those of `tempfile` do not.
    """
    return path.with_name(f".{path.name}-{secrets.token_hex(8)}")


def write_atomically(path: Path, text: str) -> None:
    """Write *text* to the file *path* atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_path(path)
    try:
        with temporary.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    flush(path.parent)


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """Yield a new folder, renamed to *folder* with checksums when the context ends, or deleted on an error."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    building = temporary_path(folder)
    building.mkdir()
    try:
        yield building
        (building / SUMS_FILE).write_text(_sums(building), encoding="utf-8")
        _rename_over(building, folder)
        _flush_meanwhile(folder)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise


def _flush_meanwhile(folder: Path) -> None:
    """Flush the files of *folder* in a thread, which the exit of the process waits for.

    Raises
    ------
    OSError
        Where the flush of an earlier folder has failed.

    """
    while _FLUSHES and (_FLUSHES[0].done() or len(_FLUSHES) >= MOST_FLUSHES):
        _FLUSHES.popleft().result()
    _FLUSHES.append(_FLUSHER.submit(_flush_where_it_is, folder))


def _flush_where_it_is(folder: Path) -> None:
    with suppress(FileNotFoundError):  # a folder may have been replaced meanwhile
        flush_folder(folder)
        flush(folder.parent)


_FLUSHER = ThreadPoolExecutor(1, "flush")
_FLUSHES: deque[Future[None]] = deque()
MOST_FLUSHES = 64
"""Largest number of finished folders that wait for their flush."""


def _rename_over(building: Path, folder: Path) -> None:
    """Rename *building* to *folder*, replacing a damaged folder or that of a process that outlived its command."""
    while True:
        try:
            building.replace(folder)
            return
        except OSError:
            if not os.path.lexists(folder):
                raise
        before = temporary_path(folder)
        before.mkdir()
        folder.replace(before / folder.name)
        shutil.rmtree(before)


def check_folder(folder: Path, name: str) -> bytes:
    """Check the files of *folder* against the checksums that `atomic_folder` wrote; return the content of *name*.

    Raises
    ------
    DamagedFile
        Where they differ.

    """
    try:
        with opened(folder / SUMS_FILE, "r", hidden=True, encoding="utf-8", errors="replace") as file:
            stored_text = file.read()
    except OSError:
        raise DamagedFile(f"has no {SUMS_FILE}") from None
    content = b""
    if (path := folder / name).is_file():  # one that cannot be opened is not damaged
        with opened(path, hidden=True) as file:
            content = file.read()
    if stored_text != _sums(folder, {name: hashlib.sha256(content).hexdigest()}):
        raise DamagedFile(Message("does not agree with its {file}", SUMS_FILE))
    return content


def _sums(folder: Path, known: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return the checksums of the files of *folder*; *known* are digests by name."""
    names = sorted(path.name for path in folder.iterdir() if path.name != SUMS_FILE)
    return "".join(f"{known.get(name) or file_digest(folder / name)}  {name}\n" for name in names)


def file_digest(path: Path) -> str:
    """Return the SHA-256 of the file's content; empty where *path* is no file."""
    if not path.is_file():
        return ""
    with opened(path, hidden=True) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]


def write_sealed(path: Path, value: Any) -> None:
    """Write *value* as JSON with its checksum to *path*, atomically."""
    write_atomically(path, json.dumps({"value": value, "sha256": _seal(value)}))


def read_sealed(path: Path) -> Any:
    """Return the value that `write_sealed` wrote to *path*.

    Raises
    ------
    DamagedFile
        Where the file cannot be read or does not agree with its checksum.

    """
    try:
        with opened(path, "r", hidden=True, encoding="utf-8") as file:
            stored_text = json.load(file)
        value, seal = stored_text["value"], stored_text["sha256"]
    except (OSError, ValueError, LookupError, TypeError):
        raise DamagedFile("cannot be read") from None
    if seal != _seal(value):
        raise DamagedFile("does not agree with its checksum")
    return value


def _seal(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()
