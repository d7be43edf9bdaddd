"""Rewriting of scenario files in the keys of the newest schema; comments and layout stay."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim.message import Message
from sim.scenario.reading.errors import InputError, ScenarioErrors
from sim.scenario.reading.layers import (
    RENAMED,
    SCHEMA_VERSION,
    VERSION_KEY,
    as_input,
    both_names,
    old_keys,
    read_mapping,
    value_at,
    version_issues,
)
from sim.scenario.schema import Scenario
from sim.validation import Place, did_you_mean, dotted
from sim.yamlio import Document, dump_line, key_span

_IN_PATHS = [
    (re.compile(rf"(^|\.){re.escape(above)}\.{re.escape(old)}(?=\.|$)"), rf"\g<1>{above}.{new}")
    for (above, old), new in RENAMED.items()
    if above
]
"""Earlier names within dotted paths, and their replacements."""


@dataclass(frozen=True, slots=True)
class Migration:
    """Text of a scenario file in the newest keys."""

    text: str
    changes: tuple[InputError, ...]
    """Changes at the lines of the given file; empty for a file that is up to date."""


def migrate(path: Path) -> Migration:
    """Return the scenario file *path* in the newest keys. Raises ScenarioErrors; nothing is written."""
    document = read_mapping(path)
    data = document.data
    names = dict([*old_keys(data), *_old_paths(data, ())])
    errors = [*version_issues(document), *map(as_input, document.faults), *_foreign_keys(document)]
    errors += [both_names(document, place, new) for place, new in names.items() if new in value_at(data, place[:-1])]
    if errors:
        raise ScenarioErrors(errors)
    given = path.read_bytes().decode()
    text = given.removeprefix("\ufeff")  # spans do not count a byte order mark
    edits = {key_span(document, place): dump_line([new])[1:-1] for place, new in names.items()}
    changes = [
        InputError(document.path, document.line(place), dotted(place), Message("is {name} now", new))
        for place, new in names.items()
    ]
    if VERSION_KEY not in data and data:
        start, _ = key_span(document, (next(iter(data)),))
        indent = re.split(r"[\r\n]", text[:start])[-1]
        after = ", " if indent.strip() else ("\r\n" if "\r\n" in text else "\n") + indent
        edits[start, start] = f"{VERSION_KEY}: {SCHEMA_VERSION}{after}"
        changes.insert(0, InputError(document.path, 0, VERSION_KEY, Message("{version} is added", SCHEMA_VERSION)))
    parts, done = [given[: len(given) - len(text)]], 0
    for (start, end), new in sorted(edits.items()):
        parts += [text[done:start], new]
        done = end
    return Migration("".join([*parts, text[done:]]), tuple(changes))


def _old_paths(data: Any, place: Place) -> Iterator[tuple[Place, str]]:
    """Yield the places of keys that are dotted paths with an earlier name, and the newest path."""
    for key, value in data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ():
        yield from _old_paths(value, (*place, key))
        new = str(key)
        for earlier, name in _IN_PATHS:
            new = earlier.sub(name, new)
        if place[:1] == ("sweep",):
            first, dot, rest = new.partition(".")
            new = RENAMED.get(("", first), first) + dot + rest
        if new != str(key):
            yield (*place, key), new


def _foreign_keys(document: Document) -> Iterator[InputError]:
    """Yield the keys at the top of *document* that no scenario has: the file may be another tool's."""
    known = [*Scenario.model_fields, "base", VERSION_KEY, *(old for above, old in RENAMED if not above)]
    for key in document.data:
        if key not in known:
            hint = did_you_mean(str(key), known)
            yield InputError(document.path, document.line((key,)), str(key), Message("unknown key{hint}", hint))
