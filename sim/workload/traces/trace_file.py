"""Trace files: what all formats have in common, and all that is wrong with a file, every fault with its line."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.infile import STAGE, status
from sim.spec import Count, Positive, Spec
from sim.workload.requests import RequestTable

SHOWN = 20


class TraceError(ValueError):
    """A trace that cannot be read. `errors` holds (path, line, message); line 0 is the file as a whole."""

    def __init__(self, errors: list[tuple[str, int, str]]) -> None:
        self.errors = errors
        super().__init__(
            "\n".join(f"{path}:{line}: {text}" if line else f"{path}: {text}" for path, line, text in errors)
        )

    def __reduce__(self) -> Any:
        return type(self), (self.errors,)


class TraceFaults:
    """Collects the faults of one file; the first 20 in line order are shown, the others counted."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._found: list[tuple[int, str]] = []
        self._hidden = 0

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, line: int, message: str) -> None:
        """One fault."""
        self._found.append((line, message))

    def add_rows(self, rows: NDArray[np.intp], lines: Sequence[int], message: Callable[[int], str]) -> None:
        """One kind of fault in many rows. Only the first ones get a text: a file may be wrong a million times."""
        for row in rows[:SHOWN].tolist():
            self._found.append((lines[row], message(row)))
        self._hidden += max(0, len(rows) - SHOWN)

    def stop_if_any(self) -> None:
        """Raises TraceError if a fault has been found."""
        if self._found:
            raise self.error()

    def error(self) -> TraceError:
        """All that was found."""
        found = sorted(self._found)
        errors = [(self._path, line, message) for line, message in found[:SHOWN]]
        if more := len(found) - len(errors) + self._hidden:
            errors.append((self._path, 0, f"and {more} more"))
        return TraceError(errors)


def unreadable(path: str, error: OSError | UnicodeDecodeError) -> TraceError:
    """The file is missing, may not be read or is no text."""
    if isinstance(error, UnicodeDecodeError):
        return TraceError([(path, 0, "is no UTF-8 text")])
    return TraceError([(path, 0, f"cannot be read: {(error.strerror or str(error)).lower()}")])


def misnamed(kind: str, found: Sequence[str], required: Sequence[str], optional: Sequence[str] = ()) -> list[str]:
    """What is wrong with the names in *found*, a line each; *kind* is what such a name is called."""
    unknown = [name for name in found if name not in required and name not in optional]
    complaints: list[str] = []
    for name in required:
        if name in found:
            continue
        nearest = get_close_matches(name, unknown, 1)
        complaints.append(f"missing {kind} {name!r}" + (f"; is {nearest[0]!r} meant?" if nearest else ""))
        unknown = [other for other in unknown if other not in nearest]
    for name in unknown:
        nearest = get_close_matches(name, [other for other in (*required, *optional) if other not in found], 1)
        complaints.append(f"unknown {kind} {name!r}" + (f"; did you mean {nearest[0]!r}?" if nearest else ""))
    return complaints


@dataclass(frozen=True, slots=True)
class TraceReading:
    """A whole trace file."""

    requests: RequestTable
    notes: tuple[str, ...] = ()
    """What a reader of the results must know about the file, a sentence each."""
    units: bool = False
    """Requests are units of work of a service that answers in one pass, without tokens."""


class TraceFile(Spec, ABC):
    """Recorded requests, replayed with their times and lengths."""

    path: str
    """The file; a relative path starts at the scenario's folder."""
    rate_scale: Positive = 1.0
    """The trace's times are divided by this factor: 2 doubles its rate."""
    limit: Count | None = None
    """Only this number of requests, from the start."""

    def reading(self) -> TraceReading:
        """The whole file, as it is. Read once and kept as long as the file does not change. Raises TraceError."""
        try:
            state = status(self.path)
        except OSError as error:
            raise unreadable(self.path, error) from None
        whole = self.model_copy(update={"rate_scale": 1.0, "limit": None})
        return _read_once(type(self), whole.model_dump_json(), state.st_mtime_ns, state.st_size)

    def requests(self, horizon_s: float | None) -> RequestTable:
        """The requests to replay: the first `limit` ones that arrive before *horizon_s*. Raises TraceError."""
        whole = self.chosen(self.reading().requests)
        arrived_s = whole.arrived_s[: self.limit] / self.rate_scale
        end = len(arrived_s) if horizon_s is None else int(np.searchsorted(arrived_s, horizon_s))
        return rows_of(replace(whole, arrived_s=whole.arrived_s / self.rate_scale), slice(end))

    def chosen(self, whole: RequestTable) -> RequestTable:
        """The rows of *whole* that are asked for: all of them. Raises TraceError where there are none."""
        return whole

    def mean_rate_rps(self) -> float | None:
        """Requests over the time from the first to the last; None if all come at once. Raises TraceError."""
        arrived_s = self.requests(None).arrived_s
        span_s = float(arrived_s[-1] - arrived_s[0])
        return len(arrived_s) / span_s if span_s > 0 else None

    def describe(self) -> str:
        """Half a sentence. Raises TraceError."""
        count, rate_rps = len(self.requests(None).arrived_s), self.mean_rate_rps()
        rate = "at once" if rate_rps is None else f"at {rate_rps:.3g} requests/s on average"
        return f"{count} request{'s' if count > 1 else ''} of {Path(self.path).name} {rate}"

    @abstractmethod
    def read(self) -> TraceReading:
        """Read and check the file. Raises TraceError with all that is wrong."""


def rows_of(table: RequestTable, rows: Sequence[int] | slice) -> RequestTable:
    """Only *rows* of *table*, in their order."""
    columns = {one.name: getattr(table, one.name) for one in fields(table) if one.name != "hash_block_tokens"}
    return replace(table, **{name: _at(column, rows) for name, column in columns.items() if column is not None})


def _at(column: Any, rows: Sequence[int] | slice) -> Any:
    if isinstance(rows, slice):
        return column[rows]
    return column[list(rows)] if isinstance(column, np.ndarray) else [column[row] for row in rows]


@lru_cache(maxsize=2)
def _read_once(kind: type[TraceFile], data: str, modified_ns: int, size: int) -> TraceReading:
    """Read the file of a trace, once for all points of a sweep: time and size of the file show whether it changed."""
    trace = kind.model_validate_json(data)
    STAGE.set(f"reading {Path(trace.path).name}")
    reading = trace.read()
    for column in (reading.requests.arrived_s, reading.requests.prompt_tokens, reading.requests.output_tokens):
        column.setflags(write=False)
    return reading
