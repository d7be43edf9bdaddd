"""Where results go when no --out is given: a folder whose name says what was asked."""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

LONGEST = 100
"""Of what was set, in characters."""


def default_folder(scenario: Any, suffix: str, sets: Sequence[str] | None, **options: Any) -> Path:
    """outputs/<scenario's name><suffix>, and what was set on the command line.

    So the answer to one question never lies where that to another does: 4x4090-vs-2xa100--rate_rps=0.5--seed=3.
    *options* that are None were not given.
    """
    return Path("outputs") / f"{scenario.name}{suffix}{_told(scenario, sets or (), options)}"


def repriced_folder(run: Path, scenario: Any, sets: Sequence[str] | None) -> Path:
    """Beside the *run*, with the prices that were set."""
    return run.with_name(f"{run.name}-repriced{_told(scenario, sets or (), {})}")


def _told(scenario: Any, sets: Sequence[str], options: dict[str, Any]) -> str:
    """--key=value of everything, with a digest where names of files cannot hold it all."""
    given = [(path.strip(), value.strip()) for path, _, value in (item.partition("=") for item in sets)]
    short = _short([path for path, _ in given], scenario)
    named = sorted({short[path]: value for path, value in given}.items())
    named += [(name, str(value)) for name, value in options.items() if value is not None]
    if not named:
        return ""
    exact = "".join(f"--{name}={value}" for name, value in named)
    safe = "".join(f"--{_safe(name)}={_safe(value)}" for name, value in named)
    if safe == exact and len(safe) <= LONGEST:
        return safe
    digest = hashlib.sha256(json.dumps(named).encode()).hexdigest()[:6]
    return f"{safe[:LONGEST].rstrip('-=.,')}--{digest}"


def _safe(text: str) -> str:
    """In characters that every file system and shell takes as they are."""
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", text).strip("-.")


def _short(paths: Sequence[str], scenario: Any) -> dict[str, str]:
    """Each path's shortest suffix that no other place of the scenario ends in."""
    from sim.scenario.reading.errors import dotted
    from sim.scenario.reading.layers import place_of
    from sim.scenario.sweep import shortest_label

    data = scenario.model_dump(mode="json")
    places = {dotted(place) for place in _places(data)}
    found = {}
    for path in paths:
        try:
            own = dotted(place_of(data, path))
        except LookupError:
            own = path
        found[path] = shortest_label(path, [other for other in (*places, *paths) if other not in (own, path)])
    return found


def _places(data: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for step, value in items:
        yield (*above, step)
        yield from _places(value, (*above, step))
