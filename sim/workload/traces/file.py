"""What all trace formats have in common."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from sim.infile import STAGE, status
from sim.spec import Count, Positive, Spec
from sim.workload.requests import RequestTable
from sim.workload.traces.faults import unreadable


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
        return _read_once(self.model_copy(update={"rate_scale": 1.0, "limit": None}), state.st_mtime_ns, state.st_size)

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
def _read_once(trace: TraceFile, modified_ns: int, size: int) -> TraceReading:
    """The points of a sweep replay the same file; its time and size show whether it is unchanged."""
    STAGE.set(f"reading {Path(trace.path).name}")
    reading = trace.read()
    for column in (reading.requests.arrived_s, reading.requests.prompt_tokens, reading.requests.output_tokens):
        column.setflags(write=False)
    return reading
