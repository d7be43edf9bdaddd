"""Recorded jobs from a file. A new format: its class here and its name in `JobTrace`.

Our own CSV format; the Philly traces of Microsoft (Jeon et al., USENIX ATC 2019; github.com/msr-fiddle/philly-traces);
the Helios traces of SenseTime (Hu et al., SC 2021; github.com/S-Lab-System-Group/HeliosData); the GPU trace of Alibaba
PAI (Weng et al., NSDI 2022; github.com/alibaba/clusterdata, cluster-trace-gpu-v2020).
"""

import csv
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from math import ceil, inf
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from sim.decimals import number
from sim.infile import STAGE, opened, status
from sim.jobs.cluster import ClusterJob
from sim.spec import Count, Fraction, NonNegative, Positive, Spec
from sim.units import SECONDS_PER_HOUR

SHOWN = 20


class JobTraceError(ValueError):
    """A trace that cannot be read. `errors` holds (path, line, message); line 0 is the file as a whole."""

    def __init__(self, errors: list[tuple[str, int, str]]) -> None:
        self.errors = errors[:SHOWN]
        if len(errors) > SHOWN:
            self.errors.append((errors[0][0], 0, f"and {len(errors) - SHOWN} more"))
        super().__init__(errors)

    def __str__(self) -> str:
        return "\n".join(f"{path}:{line}: {text}" for path, line, text in self.errors)


@dataclass(frozen=True, slots=True)
class JobTraceReading:
    """A whole trace file: jobs by arrival, the first at 0."""

    jobs: tuple[ClusterJob, ...]
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

    def jobs(self) -> tuple[ClusterJob, ...]:
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


def from_zero(path: str, jobs: Sequence[ClusterJob], notes: Sequence[str] = ()) -> JobTraceReading:
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


class JobTraceFaults:
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


CSV_REQUIRED = ("arrival_s", "gpus", "duration_s")
CSV_OPTIONAL = ("job", "priority", "deadline_s", "walltime_s", "user")


class CsvJobs(JobTraceFile):
    """`arrival_s,gpus,duration_s[,job,priority,deadline_s,walltime_s,user]`; times in seconds, a deadline on the clock
    of the arrivals.
    """

    format: Literal["csv"]

    def read(self) -> JobTraceReading:
        """Read and check the file. Raises JobTraceError with all that is wrong."""
        faults = JobTraceFaults(self.path)
        jobs: list[ClusterJob] = []
        for line, row in table(self.path, CSV_REQUIRED):
            if unknown := [name for name in row if name not in (*CSV_REQUIRED, *CSV_OPTIONAL)]:
                raise JobTraceError([(self.path, 1, f"unknown column {unknown[0]!r}")])
            deadline, estimate = row.get("deadline_s", ""), row.get("walltime_s", "")
            jobs.append(
                ClusterJob(
                    name=row.get("job") or str(len(jobs)),
                    arrived_s=faults.number(line, "arrival_s", row["arrival_s"]),
                    gpus=round(faults.number(line, "gpus", row["gpus"], 1)),
                    duration_s=faults.number(line, "duration_s", row["duration_s"], above=True),
                    priority=round(faults.number(line, "priority", row.get("priority") or "0", -inf)),
                    deadline_s=faults.number(line, "deadline_s", deadline) if deadline else inf,
                    walltime_s=faults.number(line, "walltime_s", estimate, above=True) if estimate else 0.0,
                )
            )
        faults.stop_if_any()
        if not jobs:
            raise JobTraceError([(self.path, 0, "holds no jobs")])
        return JobTraceReading(tuple(sorted(jobs, key=lambda job: job.arrived_s)))


class PhillyJobs(JobTraceFile):
    """`cluster_job_log`: a JSON list of jobs with `submitted_time` and `attempts`, each with `start_time`, `end_time`
    and the GPUs of each server. A job lasts as long as its attempts together and has the GPUs of the last one. Jobs
    without an attempt that ended are left out and counted in a note.
    """

    format: Literal["philly"]

    def read(self) -> JobTraceReading:
        """Read and check the file. Raises JobTraceError with all that is wrong."""
        found, faults, jobs = self._load(), JobTraceFaults(self.path), []
        for place, one in enumerate(found):
            where = f"[{place}].submitted_time"
            attempts = [each for each in one.get("attempts") or () if each.get("start_time") and each.get("end_time")]
            seconds = sum(
                faults.stamp_s(0, f"[{place}].end_time", each["end_time"])
                - faults.stamp_s(0, f"[{place}].start_time", each["start_time"])
                for each in attempts
            )
            gpus = sum(len(server.get("gpus", ())) for server in attempts[-1].get("detail", ())) if attempts else 0
            if gpus and seconds > 0:
                arrived_s = faults.stamp_s(0, where, str(one.get("submitted_time")))
                jobs.append(ClusterJob(str(one.get("jobid", place)), arrived_s, gpus, seconds))
        faults.stop_if_any()
        left = len(found) - len(jobs)
        note = f"{left} of {len(found)} jobs have no attempt on a GPU that ended; they are left out"
        return from_zero(self.path, jobs, [note] if left else [])

    def _load(self) -> list[dict[str, Any]]:
        try:
            with opened(self.path, "r", encoding="utf-8") as file:
                found = json.load(file)
        except (OSError, UnicodeDecodeError) as error:
            raise unreadable(self.path, error) from None
        except ValueError as error:
            raise JobTraceError([(self.path, getattr(error, "lineno", 0), f"is no JSON: {error}")]) from None
        if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
            raise JobTraceError([(self.path, 0, "must be a JSON list of jobs, as cluster_job_log is")])
        return found


HELIOS_REQUIRED = ("job_id", "gpu_num", "submit_time", "duration")


class HeliosJobs(JobTraceFile):
    """`cluster_log.csv`: job_id, user, vc, gpu_num, cpu_num, node_num, state, submit_time, start_time, end_time,
    duration, queue. Jobs without GPUs and those that ran for no time are left out and counted in a note.
    """

    format: Literal["helios"]

    def read(self) -> JobTraceReading:
        """Read and check the file. Raises JobTraceError with all that is wrong."""
        faults, jobs, rows = JobTraceFaults(self.path), [], 0
        for line, row in table(self.path, HELIOS_REQUIRED):
            rows += 1
            gpus = round(faults.number(line, "gpu_num", row["gpu_num"]))
            duration_s = faults.number(line, "duration", row["duration"])
            if gpus and duration_s:
                jobs.append(
                    ClusterJob(row["job_id"], faults.stamp_s(line, "submit_time", row["submit_time"]), gpus, duration_s)
                )
        faults.stop_if_any()
        left = rows - len(jobs)
        note = f"{left} of {rows} jobs used no GPU or no time; they are left out"
        return from_zero(self.path, jobs, [note] if left else [])


ALIBABA_TASKS = [
    "job_name",
    "task_name",
    "inst_num",
    "status",
    "start_time",
    "end_time",
    "plan_cpu",
    "plan_mem",
    "plan_gpu",
    "gpu_type",
]
ALIBABA_JOBS = ["job_name", "inst_id", "user", "status", "start_time", "end_time"]
PERCENT = 100


@dataclass(slots=True)
class _Tasks:
    """What the tasks of one job come to."""

    gpus: float = 0.0
    start_s: float = inf
    end_s: float = -inf


class AlibabaJobs(JobTraceFile):
    """`pai_task_table.csv`, without a header as it is published: a job has the GPUs of all instances of its tasks and
    lasts from the first task's start to the last one's end. Parts of GPUs are rounded up, job by job.
    """

    format: Literal["alibaba"]
    job_table: str | None = None
    """`pai_job_table.csv`, for the time of submission; left out: jobs arrive when their first task starts."""

    @property
    def more_files(self) -> tuple[str, ...]:
        """The table of jobs."""
        return ("job_table",)

    def read(self) -> JobTraceReading:
        """Read and check the files. Raises JobTraceError with all that is wrong."""
        faults = JobTraceFaults(self.path)
        found: dict[str, _Tasks] = {}
        for line, row in table(self.path, (), ALIBABA_TASKS):
            job = found.setdefault(row["job_name"], _Tasks())
            if not (row["start_time"] and row["end_time"]):
                continue
            share = faults.number(line, "plan_gpu", row["plan_gpu"] or "0") / PERCENT
            job.gpus += share * faults.number(line, "inst_num", row["inst_num"] or "0")
            if share:
                job.start_s = min(job.start_s, faults.number(line, "start_time", row["start_time"]))
                job.end_s = max(job.end_s, faults.number(line, "end_time", row["end_time"]))
        faults.stop_if_any()
        submitted = self._submitted_s()
        jobs = [
            ClusterJob(
                name, min(one.start_s, submitted.get(name, one.start_s)), ceil(one.gpus), one.end_s - one.start_s
            )
            for name, one in found.items()
            if one.gpus and one.end_s > one.start_s
        ]
        left, parts = len(found) - len(jobs), sum(not one.gpus.is_integer() for one in found.values())
        notes = [f"{left} of {len(found)} jobs used no GPU or have not ended; they are left out"] if left else []
        if parts:
            notes.append(f"{parts} jobs ask for parts of a GPU and get whole ones")
        return from_zero(self.path, jobs, notes)

    def _submitted_s(self) -> dict[str, float]:
        if self.job_table is None:
            return {}
        faults = JobTraceFaults(self.job_table)
        rows = [(line, row) for line, row in table(self.job_table, (), ALIBABA_JOBS) if row["start_time"]]
        found = {row["job_name"]: faults.number(line, "start_time", row["start_time"]) for line, row in rows}
        faults.stop_if_any()
        return found


JobTrace = Annotated[CsvJobs | PhillyJobs | HeliosJobs | AlibabaJobs, Field(discriminator="format")]

__all__ = ["AlibabaJobs", "CsvJobs", "HeliosJobs", "JobTrace", "JobTraceError", "PhillyJobs"]
