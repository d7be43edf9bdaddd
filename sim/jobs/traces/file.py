"""What all formats of job traces have in common."""

import csv
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from math import inf
from pathlib import Path

from sim.decimals import number
from sim.infile import STAGE, opened, status
from sim.jobs.job import Job
from sim.jobs.traces.faults import JobTraceError
from sim.spec import Count, Fraction, NonNegative, Positive, Spec
from sim.units import SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True)
class JobTraceReading:
    """A whole trace file: jobs by arrival, the first at 0."""

    jobs: tuple[Job, ...]
    notes: tuple[str, ...] = ()
    """What a reader of the results must know about the file, a sentence each."""


class JobTraceFile(Spec, ABC):
    """Recorded jobs, replayed with their arrivals, sizes and durations."""

    path: str
    """The file; a relative path starts at the scenario's folder."""
    rate_scale: Positive = 1.0
    """Arrivals are divided by this factor: 2 doubles their rate, durations stay."""
    limit: Count | None = None
    """Only this number of jobs, from the start."""
    checkpoint_h: Positive | None = None
    """Of every job: work between saves, for preemptions. Left out: nothing is saved."""
    restart_h: NonNegative = 0.0
    """Of every job: before its work goes on after a preemption."""
    load: Fraction = 1.0
    """Of every job: how hard it works its GPUs, from 0 at idle power to 1 at the power limit."""

    def reading(self) -> JobTraceReading:
        """The whole file as it is. Read once and kept as long as the file does not change. Raises JobTraceError."""
        try:
            state = status(self.path)
        except OSError as error:
            raise unreadable(self.path, error) from None
        whole = type(self).model_validate(self.model_dump(include={"format", "path", *self.more_files}))
        return _read_once(whole, state.st_mtime_ns, state.st_size)

    @property
    def more_files(self) -> tuple[str, ...]:
        """Keys of further files that the format reads."""
        return ()

    def jobs(self) -> tuple[Job, ...]:
        """The jobs to replay. Raises JobTraceError."""
        whole = self.reading().jobs[: self.limit]
        every_s = self.checkpoint_h * SECONDS_PER_HOUR if self.checkpoint_h else inf
        restart_s, scale = self.restart_h * SECONDS_PER_HOUR, self.rate_scale
        if (scale, every_s, restart_s, self.load) == (1, inf, 0, 1):
            return whole
        return tuple(
            replace(job, arrived_s=job.arrived_s / scale, checkpoint_s=every_s, restart_s=restart_s, load=self.load)
            for job in whole
        )

    @abstractmethod
    def read(self) -> JobTraceReading:
        """Read and check the file. Raises JobTraceError with all that is wrong."""


@lru_cache(maxsize=2)
def _read_once(trace: JobTraceFile, modified_ns: int, size: int) -> JobTraceReading:
    """Points of a sweep replay the same file; its time and size show whether it is unchanged."""
    STAGE.set(f"reading {Path(trace.path).name}")
    return trace.read()


def unreadable(path: str, error: OSError | UnicodeDecodeError) -> JobTraceError:
    """The file is missing, may not be read or is no text."""
    if isinstance(error, UnicodeDecodeError):
        return JobTraceError([(path, 0, "is no UTF-8 text")])
    return JobTraceError([(path, 0, f"cannot be read: {(error.strerror or str(error)).lower()}")])


def from_zero(path: str, jobs: Sequence[Job], notes: Sequence[str] = ()) -> JobTraceReading:
    """*jobs* by arrival, the first at 0. Raises JobTraceError where there are none."""
    if not jobs:
        raise JobTraceError([(path, 0, "holds no job that used a GPU")])
    ordered = sorted(jobs, key=lambda job: job.arrived_s)
    first_s = ordered[0].arrived_s
    return JobTraceReading(tuple(replace(job, arrived_s=job.arrived_s - first_s) for job in ordered), tuple(notes))


def table(path: str, required: Sequence[str], header: Sequence[str] = ()) -> Iterator[tuple[int, dict[str, str]]]:
    """(line, row by column) of a CSV file, whose first line names the columns where no *header* does.

    Raises JobTraceError where it cannot be read or lacks a *required* column.
    """
    try:
        with opened(path, "r", encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            names = [name.strip() for name in (header or next(reader, []))]
            if missing := [name for name in required if name not in names]:
                raise JobTraceError([(path, 1, f"the first line must name the columns {','.join(missing)}")])
            for row in reader:
                if not row:
                    continue
                if len(row) != len(names):
                    raise JobTraceError([(path, reader.line_num, f"{len(row)} fields in place of {len(names)}")])
                yield reader.line_num, dict(zip(names, row, strict=True))
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from None
    except csv.Error as error:
        raise JobTraceError([(path, 0, str(error))]) from None


class Faults:
    """Collects what is wrong with the fields of one file."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._found: list[tuple[str, int, str]] = []

    def number(self, line: int, name: str, text: str, least: float = 0.0, above: bool = False) -> float:
        """A finite number of at least *least* (or above it); 0 after noting what is wrong."""
        value = number(text)
        if value is None or value < least or (above and value == least):
            self._found.append((self._path, line, f"{name} must be a number {'above' if above else 'from'} {least:g}"
                                f"{'' if above else ' on'}, not {text!r}"))  # fmt: skip
            return 0.0
        return value

    def stamp_s(self, line: int, name: str, text: str) -> float:
        """A date such as 2020-06-09 18:41:01 in seconds."""
        try:
            return datetime.fromisoformat(text.strip()).replace(tzinfo=UTC).timestamp()
        except ValueError:
            self._found.append((self._path, line, f"{name} must look like 2020-06-09 18:41:01, not {text!r}"))
            return 0.0

    def stop_if_any(self) -> None:
        """Raises JobTraceError with everything that was found."""
        if self._found:
            raise JobTraceError(self._found)
