"""Prometheus samples: the text that a server shows at /metrics, and answers to range queries.

The text exposition format 0.0.4 and the HTTP API's `resultType: matrix`.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

from sim.benchdata.errors import BenchdataError
from sim.infile import opened

LINE = re.compile(r"([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+(-?\d+))?\s*$")
LABEL = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"')
PREFIXES = ("vllm:", "sglang:")
MS_PER_S = 1000.0
Series = tuple[str, tuple[tuple[str, str], ...]]
"""Name and sorted labels."""


@dataclass(slots=True)
class Scrape:
    """All samples of one moment."""

    place: str
    """File, or file and query."""
    time_s: float | None = None
    values: dict[Series, float] = field(default_factory=dict)


def text_of(path: Path) -> str:
    """The file's text. Raises BenchdataError."""
    try:
        with opened(path, "r", encoding="utf-8-sig") as file:
            return str(file.read())
    except UnicodeDecodeError:
        raise BenchdataError([(str(path), 0, "cannot be read: it is no text")]) from None
    except OSError as error:
        raise BenchdataError([(str(path), 0, f"cannot be read: {(error.strerror or str(error)).lower()}")]) from None


def scrape(path: Path, text: str) -> Scrape:
    """The engine's samples of one /metrics page. Raises BenchdataError."""
    found = Scrape(str(path))
    problems = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith(PREFIXES):
            continue
        match = LINE.match(line)
        value = _number(match[3]) if match else None
        if match is None:
            problems.append((str(path), number, "is no sample of the text format: a name, labels, a number"))
        elif value is None:
            problems.append((str(path), number, f"{match[1]} must be a finite number, not {match[3]!r}"))
        else:
            found.values[match[1], _labels(LABEL.findall(match[2] or ""))] = value
            found.time_s = float(match[4]) / MS_PER_S if match[4] else found.time_s
    if not problems and not found.values:
        problems.append((str(path), 0, "is no page of metrics of vLLM or SGLang: no line begins with vllm: or sglang:"))
    if problems:
        raise BenchdataError(problems)
    return found


def matrices(files: Iterable[tuple[Path, Any]]) -> list[Scrape]:
    """Scrapes of the moments that range queries answered for, in order. Raises BenchdataError."""
    moments: dict[float, Scrape] = {}
    problems = []
    for path, answer in files:
        for series in _results(answer):
            name = series.get("metric", {}).get("__name__", "")
            if not name.startswith(PREFIXES):
                continue
            key = (name, _labels((k, v) for k, v in series["metric"].items() if k != "__name__"))
            for at_s, said in series.get("values", ()):
                value = _number(said)
                if value is None:
                    problems.append((str(path), 0, f"{name} must be a finite number, not {said!r}"))
                else:
                    moments.setdefault(float(at_s), Scrape(str(path), float(at_s))).values[key] = value
        if not moments and not problems:
            problems.append((str(path), 0, "has no series of vLLM or SGLang: query them by name, without rate()"))
    if problems:
        raise BenchdataError(problems[:1])
    return [moments[at_s] for at_s in sorted(moments)]


def is_matrix(data: Any) -> bool:
    """Whether *data* is an answer to a range query."""
    return isinstance(data, dict) and isinstance(data.get("data"), dict) and data["data"].get("resultType") == "matrix"


def objects(text: str) -> list[Any] | None:
    """A JSON document, or one a line; None if the text is neither."""
    try:
        return [json.loads(text)]
    except json.JSONDecodeError:
        pass
    try:
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    except json.JSONDecodeError:
        return None


def _results(answer: Any) -> Iterator[dict[str, Any]]:
    yield from answer["data"].get("result", ())


def _labels(pairs: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(dict(pairs).items()))


def _number(said: Any) -> float | None:
    try:
        value = float(said)
    except (TypeError, ValueError):
        return None
    return value if isfinite(value) else None


def labelled(series: Series) -> Mapping[str, str]:
    """The labels of a series by name."""
    return dict(series[1])
