"""A scenario as text from the page: read, checked and described, with no file outside of the workspace touched."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sim.catalogue.catalog import Catalog
from sim.scenario.job.load import load_job
from sim.scenario.reading.errors import InputError, ScenarioErrors
from sim.scenario.reading.load import load
from sim.serve.refused import Refused
from sim.serve.workspace import Workspace
from sim.yamlio import Document, YamlError, parse, read, read_text

FILE_KEYS = frozenset({"base", "path", "calibration", "model", "job_table"})
"""Keys of a scenario whose value may name a file."""
MOST_BASES = 10


def document_of(text: str, path: Path, workspace: Workspace, sets: Sequence[str]) -> Document:
    """*text* as the file *path* would have it. Raises ScenarioErrors, also where it or *sets* name a file elsewhere."""
    try:
        document = read_text(text, str(path), patient=True)
    except YamlError as error:
        raise ScenarioErrors([InputError(error.path, error.line, "", error.message)]) from None
    if not isinstance(document.data, dict):
        raise ScenarioErrors([InputError(str(path), 0, "", "a scenario is a mapping: name: ..., fleets: ...")])
    wrong = list(_files_elsewhere(document, workspace))
    for item in sets:
        key, _, value = item.partition("=")
        if any(_leaves(one, path.parent, workspace) for one in _named(key.rpartition(".")[2], _parsed(value))):
            wrong.append(InputError(f"--set {key}", 0, "", OUTSIDE))
    if wrong:
        raise ScenarioErrors(wrong)
    return document


OUTSIDE = "names a file outside of the workspace, or behind a link, and those are not read"


def scenario_of(document: Document, sets: Sequence[str], catalog: Catalog) -> Any:
    """The checked scenario of any kind. Raises ScenarioErrors with every mistake at its line."""
    read_as = load_job if {"job", "jobs"} & document.data.keys() else load
    return read_as(document, sets, catalog=catalog)


def _files_elsewhere(document: Document, workspace: Workspace) -> Iterator[InputError]:
    """Files that the document, or a base of it, names and that are no business of this server."""
    for _ in range(MOST_BASES):
        folder = Path(document.path).parent
        for place, value in _texts(document.data, ()):
            key = str(place[-1]) if isinstance(place[-1], str) else str(place[-2])
            if key.rpartition(".")[2] in FILE_KEYS and _leaves(value, folder, workspace):
                yield InputError(document.path, document.line(place), ".".join(map(str, place)), OUTSIDE)
        base = document.data.get("base")
        if not isinstance(base, str) or _leaves(base, folder, workspace):
            return
        try:
            document = read(folder / base, patient=True)
        except YamlError:
            return  # the check of the scenario says it better
        if not isinstance(document.data, dict):
            return
    yield InputError(document.path, 0, "base", f"more than {MOST_BASES} bases rest on one another")


def _texts(data: Any, place: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for step, value in items:
        if isinstance(value, str):
            yield (*place, step), value
        else:
            yield from _texts(value, (*place, step))


def _named(key: str, value: Any) -> Iterator[str]:
    """The files that *value* names, set at a place that ends in *key*."""
    if isinstance(value, str) and key in FILE_KEYS:
        yield value
    for place, text in _texts(value, (key,)):
        if any(step in FILE_KEYS for step in place[-2:]):
            yield text


def _leaves(value: str, folder: Path, workspace: Workspace) -> bool:
    """Whether the file *value*, seen from *folder*, lies outside of the workspace, is hidden in it or behind a link."""
    found = Path(os.path.normpath(folder / value))
    if found == workspace.root or not os.path.lexists(found):
        return not found.is_relative_to(workspace.root)
    try:
        workspace.path(workspace.name_of(found))
    except Refused:
        return True
    return False


def _parsed(text: str) -> Any:
    try:
        return parse(text)
    except YamlError:
        return None
