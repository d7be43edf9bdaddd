"""Folder that tools may use: scenarios from names, files and text, checks of paths, limits on size and time."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from mcp.server.mcpserver.exceptions import ToolError

from sim.message import Message
from sim.scenario.reading.errors import ScenarioErrors
from sim.scenario.reading.layers import read_layers
from sim.scenario.reading.shipped import scenario_file, shipped_names
from sim.yamlio import YamlError, read, read_text

MOST_TEXT = 100_000
"""Largest scenario given as text [characters]."""
MOST_SETS = 100
FOLDER = "outputs"
"""Folder of answers within the root."""


class Refused(ToolError):
    """Error that a tool returns; the message says what to change."""


@dataclass(frozen=True, slots=True)
class ToolWorkspace:
    """Root folder of a server, with its limits."""

    root: Path
    most_simulations: int = 500
    """Most simulations of a call: fleets x points x replications."""
    limit_s: float = 600.0
    """Longest time of a call [s]."""

    def scenario(self, given: str) -> Path:
        """Return the file of a scenario: the name of a shipped one, a path within the root, or YAML text.

        Raises Refused.
        """
        if "\n" in given or given.lstrip().startswith("{"):
            return self._written(given)
        if given in shipped_names():
            return scenario_file(Path(given))
        path = self.inside(given)
        if not path.is_file():
            near = ", ".join(shipped_names()[:8])
            raise Refused(
                Message("{given}: no file within the root and no example; examples: {near}, ...", given, near)
            )
        self._check_text(path)
        return path

    def folder(self, given: str) -> Path:
        """Return the folder of a finished run within the root. Raises Refused."""
        path = self.inside(given)
        if not path.is_dir():
            raise Refused(Message("{given}: no folder within the root; tools return it as run", given))
        return path

    def inside(self, given: str) -> Path:
        """Return the path *given* relative to the root. Raises Refused if it leads outside."""
        try:
            path = (self.root / given).resolve()
            path.is_file()
        except (OSError, ValueError):
            raise Refused(Message("{given}: is no path of a file", given[:80])) from None
        if not path.is_relative_to(self.root):
            raise Refused(Message("{given}: lies outside the root of this server", given))
        return path

    def answer_folder(self, command: str, *parts: Any) -> Path:
        """Return the folder for the answer to a call; equal calls share it."""
        text = json.dumps([command, *parts], sort_keys=True, default=str)
        return self.root / FOLDER / f"mcp-{command}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"

    def settings(self, values: Mapping[str, Any] | None) -> list[str]:
        """Return `--set` options for *values*. Raises Refused for too many values, and for paths that lead outside."""
        given = dict(values or {})
        if len(given) > MOST_SETS:
            raise Refused(Message("at most {most} values can be set", MOST_SETS))
        self._check_values(given, self.root)
        return [f"--set={path}={json.dumps(value)}" for path, value in given.items()]

    def check_size(self, file: Path, values: Mapping[str, Any] | None, replications: int | None) -> None:
        """Raise Refused for a scenario with more simulations than the limit, its base and *values* included."""
        given = dict(values or {})
        count = _points(given)
        if count <= self.most_simulations:  # a list of that length is not read any further
            with suppress(ScenarioErrors):  # the command itself reports mistakes
                data = read_layers(file, [(path, json.dumps(value)) for path, value in given.items()]).data
                fleets, runs = data.get("fleets"), replications or data.get("replications", 1)
                count = _points(data) * max(1, len(fleets) if isinstance(fleets, list) else 1)
                count *= runs if isinstance(runs, int) else 1
        if count > self.most_simulations:
            raise Refused(
                Message(
                    "{count:,} simulations; this server allows {most:,}: fewer sweep points or replications",
                    count,
                    self.most_simulations,
                )
            )

    def _written(self, text: str) -> Path:
        """Write a scenario given as text below the root, and return its file."""
        if len(text) > MOST_TEXT:
            raise Refused(Message("the scenario has {count:,} characters; at most {most:,}", len(text), MOST_TEXT))
        path = self.root / FOLDER / f"mcp-scenario-{hashlib.sha256(text.encode()).hexdigest()[:12]}.yaml"
        try:
            self._check_values(read_text(text, "scenario").data, self.root)
        except YamlError as error:
            raise Refused(str(error)) from None
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def _check_text(self, path: Path, seen: frozenset[Path] = frozenset()) -> None:
        """Refuse a scenario file, or a file that it names, with paths that lead outside the root."""
        self._check_values(_data(path), path.parent, seen | {path})

    def _check_values(self, data: Any, folder: Path, seen: frozenset[Path] = frozenset()) -> None:
        for text in _texts(data):
            if text.startswith(("/", "~", "\\")) or ".." in Path(text).parts or (len(text) > 1 and text[1] == ":"):
                raise Refused(Message("{text}: paths within the root only, relative to the scenario", text[:80]))
            path = (folder / text).resolve() if len(text) < 250 and "\n" not in text else folder
            if path == folder or not path.exists():
                continue
            if not path.is_relative_to(self.root):
                raise Refused(Message("{text}: lies outside the root of this server", text[:80]))
            if path.suffix in (".yaml", ".yml") and path not in seen:
                self._check_text(path, seen)


def _points(data: Mapping[str, Any]) -> int:
    """Return the number of points of the sweep in *data*; 1 without a sweep."""
    sweep = data.get("sweep")
    if isinstance(sweep, dict):
        return prod(len(one) if isinstance(one, list) else 1 for one in sweep.values())
    return len(sweep) if isinstance(sweep, list) else 1


def _data(path: Path) -> dict[str, Any]:
    try:
        data = read(path).data
    except YamlError as error:
        raise Refused(str(error)) from None
    return data if isinstance(data, dict) else {}


def _texts(data: Any) -> Iterator[str]:
    """Yield every text in *data*."""
    if isinstance(data, str):
        yield data
    elif isinstance(data, dict):
        for value in data.values():
            yield from _texts(value)
    elif isinstance(data, list):
        for value in data:
            yield from _texts(value)
