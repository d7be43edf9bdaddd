"""Base class of trace formats, and the collection of faults in a file with their lines."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.infile import STAGE, state_of
from sim.message import Message, located, os_reason
from sim.spec import Count, Positive, Spec
from sim.workload.requests import RequestTable

MOST_SHOWN = 20


class TraceError(ValueError):
    """Trace that cannot be read. `errors` holds (path, line, message); line 0 is the file as a whole.

    The first 20 of *errors* are kept, the others counted, with *hidden* ones that have no message.
    """

    def __init__(self, errors: list[tuple[str, int, str]], hidden: int = 0) -> None:
        self.errors = errors[:MOST_SHOWN]
        if more := len(errors) - len(self.errors) + hidden:
            self.errors.append((errors[0][0], 0, Message("and {more} more", more)))
        super().__init__(errors, hidden)

    def __str__(self) -> str:
        return located(self.errors)


class TraceFaults:
    """Collection of the faults of one file; the first 20 in line order are shown, the others counted."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._found: list[tuple[int, str]] = []
        self._hidden = 0

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, line: int, message: str) -> None:
        """Add one fault."""
        self._found.append((line, message))

    def add_rows(self, rows: NDArray[np.intp], lines: Sequence[int], message: Callable[[int], str]) -> None:
        """Add a fault of several rows; only the first rows get a message, since a file may have a million faults."""
        for row in rows[:MOST_SHOWN].tolist():
            self._found.append((lines[row], message(row)))
        self._hidden += max(0, len(rows) - MOST_SHOWN)

    def stop_if_any(self) -> None:
        """Raise TraceError if a fault has been found."""
        if self._found:
            raise self.error()

    def error(self) -> TraceError:
        """Return the error with all faults found."""
        return TraceError([(self._path, line, message) for line, message in sorted(self._found)], self._hidden)


def unreadable(path: str, error: OSError | UnicodeDecodeError) -> TraceError:
    """Return the error of a file that is missing, not readable or not text."""
    if isinstance(error, UnicodeDecodeError):
        return TraceError([(path, 0, "is not UTF-8 text")])
    return TraceError([(path, 0, Message("cannot be read: {reason}", os_reason(error)))])


def misnamed(kind: str, found: Sequence[str], required: Sequence[str], optional: Sequence[str] = ()) -> list[str]:
    """Return messages on wrong names in *found*, one per name; *kind* is the noun for such a name."""
    unknown = [name for name in found if name not in required and name not in optional]
    complaints: list[str] = []
    for name in required:
        if name in found:
            continue
        nearest = get_close_matches(name, unknown, 1)
        complaints.append(
            Message("missing {kind} {name!r}", kind, name)
            + (Message("; is {nearest!r} meant?", nearest[0]) if nearest else "")
        )
        unknown = [other for other in unknown if other not in nearest]
    for name in unknown:
        nearest = get_close_matches(name, [other for other in (*required, *optional) if other not in found], 1)
        complaints.append(
            Message("unknown {kind} {name!r}", kind, name)
            + (Message("; did you mean {nearest!r}?", nearest[0]) if nearest else "")
        )
    return complaints


@dataclass(frozen=True, slots=True)
class TraceReading:
    """Contents of a whole trace file."""

    requests: RequestTable
    notes: tuple[str, ...] = ()
    """Notes on the file for readers of the results, a sentence each."""
    units: bool = False
    """True if requests are units of work of a one-pass service, without tokens."""


class TraceFile(Spec, ABC):
    """Recorded requests, replayed with their times and lengths."""

    path: str
    """Path of the file; a relative path starts at the scenario's folder."""
    rate_scale: Positive = 1.0
    """Factor by which the trace's times are divided: 2 doubles its rate."""
    limit: Count | None = None
    """Maximum number of requests, from the start."""

    def reading(self) -> TraceReading:
        """Return the whole file without limits, cached until the file changes. Raises TraceError."""
        try:
            state = state_of(self.path)
        except OSError as error:
            raise unreadable(self.path, error) from None
        whole = self.model_copy(update={"rate_scale": 1.0, "limit": None})
        return _read_once(type(self), whole.model_dump_json(), state)

    def requests(self, horizon_s: float | None) -> RequestTable:
        """Return the requests to replay: the first `limit` ones that arrive before *horizon_s*. Raises TraceError."""
        whole = self.chosen(self.reading().requests)
        arrived_s = whole.arrived_s[: self.limit] / self.rate_scale
        end = len(arrived_s) if horizon_s is None else int(np.searchsorted(arrived_s, horizon_s))
        return rows_of(replace(whole, arrived_s=whole.arrived_s / self.rate_scale), slice(end))

    def chosen(self, whole: RequestTable) -> RequestTable:
        """Return the selected rows of *whole*: all of them. Raises TraceError if there are none."""
        return whole

    def mean_rate_rps(self) -> float | None:
        """Return the mean rate from first to last request [requests/s]; None if all arrive at once.

        Raises TraceError.
        """
        arrived_s = self.requests(None).arrived_s
        span_s = float(arrived_s[-1] - arrived_s[0])
        return len(arrived_s) / span_s if span_s > 0 else None

    def describe(self) -> str:
        """Return a description, as part of a sentence. Raises TraceError."""
        count, rate_rps = len(self.requests(None).arrived_s), self.mean_rate_rps()
        rate = "at once" if rate_rps is None else Message("at {rate_rps:.3g} requests/s on average", rate_rps)
        return Message(
            "{count} request{plural} of {name} {rate}", count, "s" if count > 1 else "", Path(self.path).name, rate
        )

    @abstractmethod
    def read(self) -> TraceReading:
        """Return the requests of the file, checked. Raises TraceError listing all faults."""


def rows_of(table: RequestTable, rows: Sequence[int] | slice) -> RequestTable:
    """Return only *rows* of *table*, in the given order."""
    columns = {one.name: getattr(table, one.name) for one in fields(table) if one.name != "hash_block_tokens"}
    return replace(
        table, **{name: _rows_of_column(column, rows) for name, column in columns.items() if column is not None}
    )


def _rows_of_column(column: Any, rows: Sequence[int] | slice) -> Any:
    if isinstance(rows, slice):
        return column[rows]
    return column[list(rows)] if isinstance(column, np.ndarray) else [column[row] for row in rows]


@lru_cache(maxsize=2)
def _read_once(kind: type[TraceFile], data: str, state: tuple[int, ...]) -> TraceReading:
    """Return the contents of a trace file, read once for all points of a sweep.

    The state of the file is part of the cache key.
    """
    trace = kind.model_validate_json(data)
    STAGE.set(Message("reading {name}", Path(trace.path).name))
    reading = trace.read()
    for column in (reading.requests.arrived_s, reading.requests.prompt_tokens, reading.requests.output_tokens):
        column.setflags(write=False)
    return reading
