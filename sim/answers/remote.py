"""Results folders on shared storage, such as s3://bucket/folder, and their copies on this machine.

A command works in the copy, below outputs/, so that an interrupted command continues there, and uploads it at its end.
Readers find the earlier answer, an unfinished one or the new one, and never a mixture:

    1. upload the finished cases, which no reader looks for yet
    2. replace manifest.json by one with the status "unfinished"
    3. upload the other files, and delete those that the answer no longer has
    4. upload manifest.json
"""

import hashlib
import json
import re
import secrets
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, NoReturn

from sim.answers.folder import (
    OTHER_FILES,
    FolderBusy,
    FolderRefused,
    FolderUnreachable,
    Manifest,
    address_of,
    is_finished,
    manifest_of,
    owned,
    replaced_files,
    why_not,
)
from sim.message import Message, os_reason, placed
from sim.study.execution.durable import MANIFEST, POINTS
from sim.validation import did_you_mean

OUTPUTS = Path("outputs")
"""Folder of the copies, below the current folder."""
PROBE = ".gpufleet-check"
"""File that shows, before anything is simulated, whether the folder can be written; it is deleted at once."""
EXTRA = "pip install 'gpufleet[cloud]'"
"""Command that installs what S3 needs."""
S3 = ("s3", "s3a")
"""Kinds of addresses of S3."""
CONNECT_S, TRIES = 10, 3
"""Limits on a connection to S3: time to connect [s], and attempts of a request."""
TICK_S = 0.02
"""Longest time by which a file's time of change lies before the clock [s]: systems set it once in a tick."""
LONGEST_SHOWN = 200
"""Longest reason of a store that a message repeats [characters]."""


class RemoteFolder:
    """Results folder at an address of shared storage, with its copy `folder` on this machine.

    Parameters
    ----------
    address
        Address such as s3://bucket/folder.

    Raises
    ------
    FolderRefused
        Where the address names no folder of a known kind of storage, or the package for it is missing.
    FolderUnreachable
        Where the store refuses its settings.

    """

    def __init__(self, address: str) -> None:
        self.address = address.rstrip("/")
        kind, _, path = self.address.partition("://")
        if "@" in path.partition("/")[0]:
            secretless = f"{kind}://{path.rpartition('@')[2]}"
            self._refuse(Message("{address}: an address holds no user or key; set them as the store asks", secretless))
        if "::" in path or not path or (kind != "memory" and "/" not in path):
            self._refuse(Message("{address}: a folder is needed, such as s3://bucket/folder", self.address))
        try:
            import fsspec
        except ModuleNotFoundError:
            self._refuse(Message("{address} needs fsspec and s3fs: {command}", self.address, EXTRA))
        known = fsspec.available_protocols()
        if kind not in known:
            near = did_you_mean(kind, known)
            self._refuse(Message("{address}: no storage is called {kind}{near}", self.address, kind, near))
        limits = {"config_kwargs": {"connect_timeout": CONNECT_S, "retries": {"max_attempts": TRIES}}}
        try:
            self._store: Any = fsspec.filesystem(kind, **(limits if kind in S3 else {}))
        except ImportError as error:
            what = EXTRA if kind in S3 else str(error)
            self._refuse(Message("{address}: a package for it is missing: {remedy}", self.address, what))
        except Exception as error:
            raise self._unreachable(error) from None
        self._root: str = self._store._strip_protocol(self.address)
        safe = re.sub(r"[^A-Za-z0-9._+-]+", "-", self.address).strip("-.")[-60:]
        self.folder = OUTPUTS / f"{safe}-{hashlib.sha256(self.address.encode()).hexdigest()[:6]}"
        self._found: bytes | None = None
        """Manifest at the address when its answer was downloaded."""
        self._downloaded_s = 0.0
        """Time of the download, in seconds since 1970; files of the copy that are newer are uploaded."""

    @staticmethod
    def _refuse(text: str) -> NoReturn:
        raise FolderRefused(text)

    def fetched(self) -> Path:
        """Return the copy on this machine, after a download of the finished run at the address.

        Raises
        ------
        FolderRefused
            Where there is no finished run.
        FolderUnreachable
            Where the store cannot be read.

        """
        with self._reached():
            found = self._manifest()
        if found is None or _entries(found).get("status") != "finished":
            self._refuse(Message("{folder}: is not a finished run: create one with gpufleet run", self.address))
        if refusal := why_not(self.folder):
            self._refuse(placed(self.folder, refusal))
        with owned(self.folder):
            self._download(found)
        return self.folder

    @contextmanager
    def copied(self) -> Iterator[None]:
        """Download the earlier answer into the folder, which the caller owns, and upload the new one at the end.

        Raises
        ------
        FolderRefused
            Where the address holds other files.
        FolderBusy
            Where another command has replaced the answer meanwhile.
        FolderUnreachable
            Where the store cannot be read or written.

        """
        with self._reached():
            found = self._manifest()
            if found is None:
                self._refuse_other_files()
            self._store.pipe_file(f"{self._root}/{PROBE}", b"gpufleet\n")
            with suppress(Exception):  # a store may allow to write and not to delete
                self._store.rm_file(f"{self._root}/{PROBE}")
        self._download(found)
        yield
        with self._reached(Message("; results are in {folder}; the same command uploads them", self.folder)):
            self._upload()

    def _manifest(self) -> bytes | None:
        """Return the content of manifest.json at the address; None without."""
        self._store.invalidate_cache()
        try:
            return bytes(self._store.cat_file(f"{self._root}/{MANIFEST}"))
        except FileNotFoundError:
            return None

    def _refuse_other_files(self) -> None:
        try:
            names = {str(one).rstrip("/").rpartition("/")[2] for one in self._store.ls(self._root, detail=False)}
        except FileNotFoundError:
            return
        if names - {POINTS, PROBE, self._root.rpartition("/")[2]}:
            self._refuse(placed(self.address, OTHER_FILES))

    def _sizes(self) -> dict[str, int]:
        """Return name -> size [bytes] of the files at the address that belong to an answer."""
        listed = self._store.find(self._root, detail=True)
        found = {name.removeprefix(self._root).strip("/"): int(one["size"]) for name, one in listed.items()}
        return {name: size for name, size in found.items() if _is_ours(name)}

    def _download(self, found: bytes | None) -> None:
        """Download cases that the folder lacks, and the files of the answer with the manifest *found* unless it has it.

        The folder's own cases stay: their names are digests of their inputs. Of an unfinished answer only the manifest
        is downloaded.
        """
        self._found, self._downloaded_s = found, time.time() - TICK_S
        if found is None:
            return
        remote, here = _entries(found), manifest_of(self.folder) or {}
        if remote.get("program") != "gpufleet":
            self._refuse(placed(self.address, OTHER_FILES))
        with self._reached():
            sizes = self._sizes()
            missing = [name for name in sizes if "/" in name and not (self.folder / name).parent.exists()]
            with _removed(self.folder / f".gpufleet-{secrets.token_hex(8)}") as aside:
                self._get(missing, aside)
                for folder in sorted({(aside / name).parent for name in missing}):
                    place = self.folder / folder.relative_to(aside)
                    place.parent.mkdir(parents=True, exist_ok=True)
                    folder.replace(place)
            whole = remote.get("status") == "finished"
            if here.get("started_at") != remote.get("started_at") or (whole and not is_finished(self.folder)):
                names = [name for name in sizes if "/" not in name] if whole else [MANIFEST]
                with replaced_files(self.folder) as answer:
                    self._get(names, answer)
        self._downloaded_s = time.time() - TICK_S

    def _get(self, names: Sequence[str], folder: Path) -> None:
        if names:
            self._store.get([f"{self._root}/{name}" for name in names], [str(folder / name) for name in names])

    def _put(self, names: Sequence[str]) -> None:
        if names:
            self._store.put([str(self.folder / name) for name in names], [f"{self._root}/{name}" for name in names])

    def _upload(self) -> None:
        """Upload the folder, as the module describes."""
        if self._manifest() != self._found:
            raise FolderBusy(
                Message(
                    "{address}: another gpufleet has written there meanwhile; results are in {folder}; the same "
                    "command starts from both",
                    self.address,
                    self.folder,
                )
            )
        sizes = self._sizes()
        here = {str(path.relative_to(self.folder)): path.stat() for path in self.folder.rglob("*") if path.is_file()}
        here = {name: status for name, status in here.items() if _is_ours(name)}
        new = {
            name
            for name, status in here.items()
            if sizes.get(name) != status.st_size or status.st_mtime >= self._downloaded_s
        }
        self._put(sorted(name for name in new if "/" in name))
        content = (self.folder / MANIFEST).read_bytes()
        unfinished = json.dumps(_entries(content) | {"status": "unfinished"}, indent=2) + "\n"
        self._store.pipe_file(f"{self._root}/{MANIFEST}", unfinished.encode())
        self._put(sorted(name for name in new if "/" not in name and name != MANIFEST))
        for name in sorted(sizes.keys() - here.keys() - {MANIFEST}):
            self._store.rm_file(f"{self._root}/{name}")
        self._store.pipe_file(f"{self._root}/{MANIFEST}", content)

    @contextmanager
    def _reached(self, kept: str = "") -> Iterator[None]:
        """Report errors of the store, which may be of any class, on one line that ends in *kept*."""
        try:
            yield
        except (FolderRefused, FolderBusy, FolderUnreachable):
            raise
        except Exception as error:
            raise self._unreachable(error, kept) from None

    def _unreachable(self, error: Exception, kept: str = "") -> Exception:
        if isinstance(error, FileNotFoundError):
            return FolderRefused(
                Message("{address}: there is no such bucket; create it, or name another{kept}", self.address, kept)
            )
        text = os_reason(error) if isinstance(error, OSError) and error.errno else str(error)
        reason = text.split("\n")[0][:LONGEST_SHOWN] or type(error).__name__
        return FolderUnreachable(Message("{address}: {reason}{kept}", self.address, reason, kept))


def located(out: Path | str) -> tuple[Path, RemoteFolder | None]:
    """Return the folder of this machine that a command writes to for *out*, and the remote folder of an address.

    Raises
    ------
    FolderRefused, FolderUnreachable
        See `RemoteFolder`.

    """
    address = address_of(out)
    if not address:
        return Path(out), None
    if address.startswith("file://"):
        return Path("/" + address.removeprefix("file://")), None
    remote = RemoteFolder(address)
    return remote.folder, remote


def copied(remote: RemoteFolder | None) -> Any:
    """Return the context of a command whose results are copied to *remote*; without one it does nothing."""
    return nullcontext() if remote is None else remote.copied()


def fetched(run: Path | str) -> Path:
    """Return the folder of the finished *run* on this machine, downloaded from its address if it has one.

    Raises
    ------
    FolderRefused
        Where the address has no finished run.
    FolderUnreachable
        Where its store cannot be read.

    """
    folder, remote = located(run)
    return folder if remote is None else remote.fetched()


def _entries(manifest: bytes) -> Manifest:
    """Return the entries of a manifest.json; empty if it is damaged."""
    try:
        entries = json.loads(manifest)
    except ValueError:
        return {}
    return entries if isinstance(entries, dict) else {}


def _is_ours(name: str) -> bool:
    """Return whether *name* is a visible file of a results folder, and does not lead out of it."""
    return "\\" not in name and all(part and not part.startswith(".") for part in name.split("/"))


@contextmanager
def _removed(folder: Path) -> Iterator[Path]:
    """Yield the new *folder*, which is removed when the context ends."""
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
