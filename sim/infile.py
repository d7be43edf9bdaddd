"""Reading and writing of files that a user names. Pipes and devices are refused: reading them could block for ever.

`keep_beside_bytecode` writes files that the program keeps for its next start, `kept_beside_bytecode` reads them;
`KeptResults` keeps results of many texts in one such file.

A program that works for others (the workspace in the browser, and the runs that it starts) is confined to some folders:
every file is opened below one of them, step by step and through no link, whatever a check found before.
"""

import atexit
import errno
import json
import marshal
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from functools import cache
from importlib.util import MAGIC_NUMBER, source_hash
from pathlib import Path
from stat import S_ISDIR, S_ISLNK, S_ISREG
from typing import IO, Any

STAGE: ContextVar[str] = ContextVar("stage", default="starting")
"""Current stage of a command, for the progress line while it reads and checks."""
ROOTS = "GPUFLEET_ROOTS"
"""Environment variable: folders, as a JSON list, that this process and those that it starts are confined to."""
OUTSIDE = "names a file outside the workspace, or behind a link; such files are not read"
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
_FOLDER = os.O_DIRECTORY | os.O_CLOEXEC
_confined: ContextVar[tuple[Path, ...] | None] = ContextVar("confined", default=None)


class OutsideFolders(OSError):
    """Refusal of a confined program to read a file outside of its folders, or behind a link."""

    def __init__(self, path: Path | str) -> None:
        super().__init__(errno.EACCES, OUTSIDE, str(path))


@contextmanager
def confined(*roots: Path) -> Iterator[None]:
    """Read files below *roots* only, in this context and in threads and tasks that inherit it."""
    token = _confined.set(tuple(root.resolve() for root in roots))
    try:
        yield
    finally:
        _confined.reset(token)


def confined_also(root: Path) -> AbstractContextManager[None]:
    """Read files below *root*, too, where this context is confined."""
    known = allowed_folders()
    return nullcontext() if known is None else confined(*known, root)


def opened(path: Path | str, mode: str = "rb", hidden: bool = False, **how: Any) -> IO[Any]:
    """Open a regular file to read; *how* goes to `open`.

    Raises OSError, also for a pipe, a socket or a device, and OutsideFolders where a confined program may not read it.
    Hidden files below a root are read only if they are the program's own (*hidden*).
    """
    file = Path(path)

    def opener(_path: str, _flags: int) -> int:
        handle = _opened(file, hidden)
        kind = os.fstat(handle).st_mode
        if not S_ISREG(kind) and not S_ISDIR(kind):  # `open` itself refuses a folder
            os.close(handle)
            raise OSError(None, "it is not a regular file", str(path))
        return handle

    return open(file, mode, opener=opener, **how)


def status(path: Path | str) -> os.stat_result:
    """Return size and times of *path*, which may be a folder or a pipe. Raises OSError, OutsideFolders as `opened`."""
    handle = _opened(Path(path), False)
    try:
        return os.fstat(handle)
    finally:
        os.close(handle)


def state_of(path: Path | str) -> tuple[int, ...]:
    """Return metadata that changes whenever the content of the file *path* does, without reading it. Raises OSError."""
    found = status(path)
    # a process cannot set the last one, the time of change
    return (found.st_size, found.st_mtime_ns, found.st_ino, found.st_ctime_ns)


def why_outside(path: Path) -> str:
    """Return why a confined program does not read *path*, which need not exist; empty where it may."""
    try:
        os.close(_opened(path, False))
    except OutsideFolders as error:
        return str(error.strerror)
    except (OSError, ValueError):  # reading the file will raise the error
        pass
    return ""


def write_below(root: Path, file: Path, text: str) -> None:
    """Write *text* to *file* below *root*, through no link; the file appears complete or not at all.

    Raises OSError, and OutsideFolders where *file* lies elsewhere or behind a link.
    """
    folder, name = _folder(file, (root,), False, made=True)
    aside = f".{os.urandom(8).hex()}"
    try:
        handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=folder)
        with os.fdopen(handle, "w", encoding="utf-8") as written:
            written.write(text)
            written.flush()
            os.fsync(written.fileno())
        os.replace(aside, name, src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(aside, dir_fd=folder)
        raise
    finally:
        os.close(folder)


def kept_beside_bytecode(file: Path, maker: bytes = b"") -> bytes:
    """Return what `keep_beside_bytecode` wrote to *file*; empty if there is nothing, or not as this Python wrote it.

    Content that other code than *maker* has computed is not returned.

    Bytecode is run unchecked: damaged, it ends the process.
    """
    try:
        sealed = file.read_bytes()
    except OSError:
        return b""
    content = sealed[len(_seal(b"", maker)) :]
    return content if sealed.startswith(_seal(content, maker)) else b""


def _seal(content: bytes, maker: bytes) -> bytes:
    return MAGIC_NUMBER + source_hash(maker + content)


def keep_beside_bytecode(file: Path, content: bytes, maker: bytes = b"") -> None:
    """Replace *file*, which saves time at the next start, by *content* with a seal.

    *maker* stands for the version of the code that has computed *content*.

    Without bytecode (`PYTHONDONTWRITEBYTECODE`) or write access it stays as it is.
    """
    if sys.dont_write_bytecode:
        return
    aside = file.with_suffix(f".{os.getpid()}")
    try:
        aside.write_bytes(_seal(content, maker) + content)
        aside.replace(file)
    except OSError:
        with suppress(OSError):
            aside.unlink()


MOST_KEPT = 10_000
"""Largest number of kept results of a file; beyond it, only those that the latest start lacked are kept."""


class KeptResults:
    """Results that a text alone determines, kept between starts in one file beside the bytecode.

    At exit those that the file lacks are added. A file that is damaged, or from another *maker*, is replaced.
    """

    def __init__(self, file: Path, maker: bytes = b"") -> None:
        self._file, self._maker = file, maker
        """Version of the code that computes the results."""
        found = kept_beside_bytecode(file, maker)
        self._kept: dict[str, bytes] = marshal.loads(found) if found else {}
        self._added: dict[str, bytes] = {}
        atexit.register(self._write)

    def result(self, text: str, compute: Callable[[str], Any]) -> Any:
        """Return a new copy of what *compute* makes of *text*: code, or plain data."""
        found = self._kept.get(text) or self._added.get(text)
        if found:
            return marshal.loads(found)
        made = compute(text)
        self._added[text] = marshal.dumps(made)
        return made

    def _write(self) -> None:
        if self._added:
            both = self._kept | self._added
            kept = both if len(both) <= MOST_KEPT else self._added
            keep_beside_bytecode(self._file, marshal.dumps(kept), self._maker)


def allowed_folders() -> tuple[Path, ...] | None:
    """Return the folders that this context is confined to; None where it is not confined."""
    own, stated = _confined.get(), os.environ.get(ROOTS)
    return own if own is not None or not stated else _paths_of(stated)


@cache
def _paths_of(text: str) -> tuple[Path, ...]:
    return tuple(map(Path, json.loads(text)))


def _opened(file: Path, hidden: bool) -> int:
    """Open *file* without waiting on a pipe, and return its descriptor."""
    roots = allowed_folders()
    try:
        return os.open(file, _READ) if roots is None else _open_below(file, roots, hidden)
    except OSError as error:
        if error.errno == errno.ENXIO:  # *file* is a socket, or a device without a driver
            raise OSError(None, "it is not a regular file", str(file)) from None
        raise


def _open_below(file: Path, roots: tuple[Path, ...], hidden: bool) -> int:
    folder, name = _folder(file, roots, hidden)
    try:
        return _step(name, _READ | os.O_NOFOLLOW, folder, file)
    finally:
        os.close(folder)


def _folder(file: Path, roots: tuple[Path, ...], hidden: bool, made: bool = False) -> tuple[int, str]:
    """Return the descriptor of the folder of *file*, below one of *roots*, and its name; *made*: create folders."""
    whole = os.path.normpath(file.absolute())
    root = _root_of(whole, roots)
    if root is None:
        whole = os.path.realpath(whole)  # a link above the root may lead to it
        root = _root_of(whole, roots)
    steps = whole[len(root or "") :].strip("/").split("/") if whole != root else []
    if root is None or (not hidden and any(step.startswith(".") for step in steps)):
        raise OutsideFolders(file)
    here = os.open(root, _FOLDER)
    try:
        for step in steps[:-1]:
            if made:
                with suppress(FileExistsError):
                    os.mkdir(step, dir_fd=here)
            here, above = _step(step, _FOLDER | os.O_NOFOLLOW, here, file), here
            os.close(above)
    except BaseException:
        os.close(here)
        raise
    return here, steps[-1] if steps else "."


def _root_of(whole: str, roots: tuple[Path, ...]) -> str | None:
    """Return the longest of *roots* that the path *whole* is or lies below; None if there is none."""
    found = [root for root in map(str, roots) if whole == root or whole.startswith(f"{root.rstrip('/')}/")]
    return max(found, key=len, default=None)


def _step(name: str, flags: int, folder: int, file: Path) -> int:
    """Open *name* in *folder* and return its descriptor. Raises OutsideFolders where it is a link."""
    try:
        return os.open(name, flags, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK) and _is_link(name, folder):
            raise OutsideFolders(file) from None
        raise OSError(error.errno, error.strerror, str(file)) from None


def _is_link(name: str, folder: int) -> bool:
    try:
        return S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False


def json_objects(text: str) -> list[Any]:
    """Return the objects of a JSON document (a list has several), or of JSON Lines; none of a blank text.

    Raises JSONDecodeError, also for objects that are nested too deeply and for numbers with too many digits.
    """
    try:
        data = _decoded(text)
    except json.JSONDecodeError as error:
        return _by_line(text, error)
    return data if isinstance(data, list) else [data]


def _decoded(text: str) -> Any:
    """Return the content of the JSON document *text*. Raises JSONDecodeError."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise
    except (ValueError, RecursionError):
        raise json.JSONDecodeError("Unreadable", text, 0) from None


def _by_line(text: str, whole: json.JSONDecodeError) -> list[Any]:
    """Return the objects of JSON Lines. Raises JSONDecodeError, *whole* where already the first line is no object."""
    found: list[Any] = []
    begin = 0
    for line in text.split("\n"):  # other line ends, such as U+2028, may occur in JSON strings
        try:
            found += [_decoded(line)] if line.strip() else []
        except json.JSONDecodeError as error:
            raise (json.JSONDecodeError(error.msg, text, begin + error.pos) if found else whole) from None
        begin += len(line) + 1
    return found
