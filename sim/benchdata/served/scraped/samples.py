"""Prometheus samples: the text that a server shows at /metrics, and answers to queries.

The text exposition format 0.0.4 and OpenMetrics 1.0, and the HTTP API's `resultType: matrix` and `vector`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sim.benchdata.errors import BenchdataError
from sim.benchdata.served.scraped.names import SPELLING, read_name
from sim.decimals import number
from sim.infile import opened

LINE = re.compile(r'([A-Za-z_:][\w:]*)(?:\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?\s+(\S+)(?:\s+(-?[\d.]+))?(?:\s+#.*)?\s*$')
"""Name, labels, value, time; an exemplar may follow."""
LABEL = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"')
MS_PER_S = 1000.0
NONE_READ = "has none of the metrics that are read of vLLM or SGLang"
Series = tuple[str, tuple[tuple[str, str], ...]]
"""Name and sorted labels."""
Values = dict[Series, float]


@dataclass(slots=True)
class Scrape:
    """All samples that are read of one moment."""

    place: str
    """File."""
    time_s: float | None = None
    values: Values = field(default_factory=dict)


def text_of(path: Path) -> str:
    """The file's text. Raises BenchdataError."""
    try:
        with opened(path, "r", encoding="utf-8-sig") as file:
            return str(file.read())
    except UnicodeDecodeError:
        raise BenchdataError([(str(path), 0, "cannot be read: it is no text")]) from None
    except OSError as error:
        raise BenchdataError([(str(path), 0, f"cannot be read: {(error.strerror or str(error)).lower()}")]) from None


def is_page(text: str) -> bool:
    """Whether *text* has a line of a metric of vLLM or SGLang."""
    return any(SPELLING.match(line) for line in text.splitlines())


def scrape(path: Path, text: str) -> Scrape:
    """The engine's samples of one /metrics page. Raises BenchdataError."""
    found = Scrape(str(path))
    problems = []
    for place, line in enumerate(text.splitlines(), 1):
        if not SPELLING.match(line):
            continue
        match = LINE.match(line)
        name = read_name(match[1]) if match else None
        value = number(match[3]) if match else None
        if match is None:
            problems.append((str(path), place, "is no sample of the text format: a name, labels, a number"))
        elif name is not None and value is None:
            problems.append((str(path), place, f"{match[1]} must be a finite number, not {match[3]!r}"))
        elif name is not None and value is not None:
            found.values[name, _labels(LABEL.findall(match[2] or ""))] = value
            found.time_s = _time_s(match[4]) if match[4] else found.time_s
    if not problems and not found.values:
        problems.append((str(path), 0, NONE_READ))
    if problems:
        raise BenchdataError(problems)
    return found


def matrices(answers: Sequence[tuple[Path, Any]]) -> list[Scrape]:
    """Scrapes of the moments that all answers to queries have in common, in order. Raises BenchdataError.

    At a moment of one answer the others count with what they said last: their moments need not be the same.
    """
    told = [_moments(path, answer) for path, answer in answers if answer["data"]["resultType"] == "matrix"]
    moments_alone: dict[float, Values] = {}
    for path, answer in answers:
        if answer["data"]["resultType"] == "vector":
            for at_s, values in _moments(path, answer).items():
                moments_alone.setdefault(at_s, {}).update(values)
    told += [moments_alone] if moments_alone else []
    begin_s = max(min(moments) for moments in told)
    end_s = min(max(moments) for moments in told)
    if begin_s > end_s:
        text = "has no time in common with the answers before it; put each stretch into a folder of its own"
        raise BenchdataError([(str(answers[-1][0]), 0, text)])
    now: list[Values] = [{}] * len(told)
    found = []
    for at_s in sorted(set().union(*told)):
        now = [moments.get(at_s, known) for moments, known in zip(told, now, strict=True)]
        if begin_s <= at_s <= end_s:
            values = {series: value for known in now for series, value in known.items()}
            found.append(Scrape(str(answers[-1][0]), at_s, values))
    return found


def _moments(path: Path, answer: Any) -> dict[float, Values]:
    """What one answer said, by its times. Raises BenchdataError."""
    try:
        return _said(path, answer)
    except BenchdataError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError):
        raise BenchdataError([(str(path), 0, "holds a series that is not in the form of Prometheus")]) from None


def _said(path: Path, answer: Any) -> dict[float, Values]:
    found: dict[float, Values] = {}
    for series in answer["data"].get("result", ()):
        said = series.get("values") or [series.get("value") or ()]
        name = read_name(series.get("metric", {}).get("__name__", ""))
        if name is None:
            continue
        key = (name, _labels((k, v) for k, v in series["metric"].items() if k != "__name__"))
        for at_s, text in (one for one in said if len(one) == 2):
            value = number(text)
            if value is None:
                raise BenchdataError([(str(path), 0, f"{name} must be a finite number, not {text!r}")])
            found.setdefault(float(at_s), {})[key] = value
    if not found:
        raise BenchdataError([(str(path), 0, f"{NONE_READ}: query them by name, without rate()")])
    return found


def is_matrix(data: Any) -> bool:
    """Whether *data* is an answer of Prometheus to a query of series."""
    held = data.get("data") if isinstance(data, dict) else None
    return isinstance(held, dict) and held.get("resultType") in ("matrix", "vector")


def _labels(pairs: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(dict(pairs).items()))


def _time_s(said: str) -> float:
    """Milliseconds in the text format, seconds with a point in OpenMetrics."""
    return float(said) if "." in said else float(said) / MS_PER_S


def labelled(series: Series) -> Mapping[str, str]:
    """The labels of a series by name."""
    return dict(series[1])
