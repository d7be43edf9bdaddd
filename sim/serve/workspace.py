"""Workspace folder: the files that the server reads and writes. Links in it are not followed."""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim.answers.folder import is_finished, manifest_of
from sim.answers.questions import QUESTIONS
from sim.catalogue.data_folder import data_root
from sim.message import Message, os_reason
from sim.scenario.reading.shipped import shipped_folder
from sim.serve.refusals import RefusedRequest
from sim.study.execution.durable import MANIFEST

DEEPEST = 4
"""Depth of folders below the workspace that are searched."""
MOST_ENTRIES = 20_000
"""Largest number of files and folders that are searched for the lists."""
SCENARIOS = (".yaml", ".yml")
NOT_SEARCHED = frozenset({"points", "node_modules", "__pycache__"})
LONGEST_PATH = 400


def program_folders() -> tuple[Path, ...]:
    """Return the folders of the program's own data, which are read besides the workspace."""
    return data_root(), shipped_folder()


@dataclass(frozen=True, slots=True)
class WorkspaceFiles:
    """Files of the workspace that can be opened."""

    scenarios: list[str]
    runs: list[dict[str, Any]]
    complete: bool
    """True if the whole folder was searched; False where it holds too many entries."""


class Workspace:
    """Folder with scenarios and answers."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve(strict=True)

    def path(self, name: str) -> Path:
        """Return the path of *name*, a file or folder of the workspace, separated by slashes; it need not exist.

        Raises RefusedRequest for a name that leaves the workspace, is hidden, or leads through a link.
        """
        steps = name.split("/")
        if not name or len(name) > LONGEST_PATH or any(_is_odd(step) for step in steps):
            raise RefusedRequest(
                400,
                Message("{name!r} is not a path inside the workspace: folders and names, separated by /", name[:60]),
            )
        found = self.root
        for step in steps:
            found /= step
            try:
                mode = os.lstat(found).st_mode
            except FileNotFoundError:
                continue
            except OSError as error:
                raise RefusedRequest(400, f"{name[:60]}: {os_reason(error)}") from None
            if stat.S_ISLNK(mode):
                raise RefusedRequest(
                    403, Message("{name}: is a link, or lies behind one, and links are not followed", name)
                )
        return found

    def folder(self, name: str) -> Path:
        """Return the folder *name*, which has no links inside. Raises RefusedRequest where there is none."""
        found = self.path(name)
        if not found.is_dir():
            raise RefusedRequest(404, Message("{name}: the folder no longer exists; reload the page", name))
        for link in _links(found):
            raise RefusedRequest(
                403, Message("{name}: holds a link ({link}), and links are not followed", name, link.name)
            )
        return found

    def file(self, name: str) -> Path:
        """Return the file *name*. Raises RefusedRequest where there is none."""
        found = self.path(name)
        if not found.is_file():
            raise RefusedRequest(404, Message("{name}: the file no longer exists; reload the page", name))
        return found

    def name_of(self, path: Path) -> str:
        """Return the name of *path* in the workspace. Raises RefusedRequest where it lies elsewhere."""
        try:
            return path.absolute().relative_to(self.root).as_posix()
        except ValueError:
            raise RefusedRequest(
                403, Message("{name} lies outside the workspace {root}", path.name, self.root)
            ) from None

    def listed(self) -> WorkspaceFiles:
        """Return scenario files by name, and answers, the newest first."""
        scenarios: list[str] = []
        runs: list[dict[str, Any]] = []
        left = MOST_ENTRIES
        waiting = [(self.root, 0)]
        while waiting and left > 0:
            folder, depth = waiting.pop(0)
            entries = _entries(folder, left)
            left -= len(entries)
            if folder != self.root and any(one.name == MANIFEST for one in entries):
                runs += self._answer(folder)
                continue
            scenarios += [self.name_of(Path(one)) for one in entries if _is_scenario(one)]
            if depth < DEEPEST:
                waiting += [(Path(one), depth + 1) for one in entries if _is_searched(one)]
        runs.sort(key=lambda one: one["started_at"], reverse=True)
        return WorkspaceFiles(sorted(scenarios), runs, left > 0)

    def _answer(self, folder: Path) -> Iterator[dict[str, Any]]:
        manifest = manifest_of(folder)
        if manifest is None:
            return
        command = str((manifest.get("question") or {}).get("command", ""))
        yield {
            "path": self.name_of(folder),
            "scenario": str(manifest.get("scenario", folder.name)),
            "command": command,
            "started_at": str(manifest.get("started_at", "")),
            "wall_s": manifest.get("wall_s"),
            "finished": is_finished(folder),
            "page": command in QUESTIONS and (folder / f"{command}.html").is_file(),
        }


def _is_odd(step: str) -> bool:
    """Return whether a part of a path is empty, hidden, upwards, or has unusual characters."""
    odd = not step or step.startswith(".") or "\\" in step
    return odd or any(ord(one) < 32 or "\ud800" <= one <= "\udfff" for one in step)


def _entries(folder: Path, most: int) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return sorted((one for one, _ in zip(found, range(most), strict=False)), key=lambda one: one.name)
    except OSError:
        return []


def _is_scenario(entry: os.DirEntry[str]) -> bool:
    return not _is_odd(entry.name) and entry.name.endswith(SCENARIOS) and entry.is_file(follow_symlinks=False)


def _is_searched(entry: os.DirEntry[str]) -> bool:
    odd = _is_odd(entry.name) or entry.name in NOT_SEARCHED
    return not odd and entry.is_dir(follow_symlinks=False)


def _links(folder: Path) -> Iterator[Path]:
    for here, folders, files in os.walk(folder):
        yield from (path for name in (*folders, *files) if (path := Path(here, name)).is_symlink())
