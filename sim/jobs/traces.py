"""Recorded jobs from a file, in one of several formats.

The formats are a CSV format of gpufleet; the Philly traces of Microsoft (Jeon et al., USENIX ATC 2019;
github.com/msr-fiddle/philly-traces); the Helios traces of SenseTime (Hu et al., SC 2021;
github.com/S-Lab-System-Group/HeliosData); and the GPU trace of Alibaba PAI (Weng et al., NSDI 2022;
github.com/alibaba/clusterdata, cluster-trace-gpu-v2020). To add a format, define its class here and add it to
`JobTrace`.
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

from sim.decimals import number
from sim.infile import STAGE, opened, state_of
from sim.jobs.cluster import ClusterJob
from sim.message import Message
from sim.spec import Count, Fraction, NonNegative, Positive, Spec, Tagged
from sim.units import SECONDS_PER_HOUR
from sim.workload.traces.trace_file import TraceError, unreadable


@dataclass(frozen=True, slots=True)
class JobTraceReading:
    """Jobs of a whole trace file by arrival, the first at time 0."""

    jobs: tuple[ClusterJob, ...]
    notes: tuple[str, ...] = ()
    """Remarks on the file for the reader of the results, a sentence each."""


class JobTraceFile(Spec, ABC):
    """Recorded jobs, replayed with their arrivals, sizes and durations."""

    path: str
    """Path of the file, relative to the scenario's folder."""
    rate_scale: Positive = 1.0
    """Factor on the arrival rate; durations stay the same."""
    limit: Count | None = None
    """Largest number of jobs to replay, from the start. Default: all."""
    checkpoint_h: Positive | None = None
    """Work of every job between saves, for preemptions [h]. Default: no saves."""
    restart_h: NonNegative = 0.0
    """Time of every job after a preemption before work continues [h]."""
    load: Fraction = 1.0
    """Load of every job on its GPUs, from 0 (idle power) to 1 (power limit)."""

    def reading(self) -> JobTraceReading:
        """Return the whole file, read once per version of the file. Raises TraceError."""
        states = tuple(_state(path) for key in ("path", *self.more_files) if (path := getattr(self, key)) is not None)
        whole = type(self).model_validate(self.model_dump(include={"format", "path", *self.more_files}))
        return _read_once(whole, states)

    @property
    def more_files(self) -> tuple[str, ...]:
        """Keys of further files that the format reads."""
        return ()

    def jobs(self) -> tuple[ClusterJob, ...]:
        """Return the jobs to replay. Raises TraceError."""
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
        """Read and check the file. Raises TraceError with all mistakes."""


def _state(path: str) -> tuple[int, ...]:
    try:
        return state_of(path)
    except OSError as error:
        raise unreadable(path, error) from None


@lru_cache(maxsize=2)
def _read_once(trace: JobTraceFile, states: tuple[tuple[int, ...], ...]) -> JobTraceReading:
    """Read a trace file, cached across the points of a sweep.

    The *states* of its files show whether they are unchanged.
    """
    STAGE.set(Message("reading {name}", Path(trace.path).name))
    return trace.read()


def shifted_to_zero(path: str, jobs: Sequence[ClusterJob], notes: Sequence[str] = ()) -> JobTraceReading:
    """Return the reading of *jobs* by arrival, shifted to start at 0. Raises TraceError without jobs."""
    if not jobs:
        raise TraceError([(path, 0, "holds no job that used a GPU")])
    ordered = sorted(jobs, key=lambda job: job.arrived_s)
    first_s = ordered[0].arrived_s
    return JobTraceReading(tuple(replace(job, arrived_s=job.arrived_s - first_s) for job in ordered), tuple(notes))


def table(path: str, required: Sequence[str], header: Sequence[str] = ()) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield (line, row by column) of a CSV file; without *header*, the first line names the columns.

    Raises
    ------
    TraceError
        The file cannot be read or lacks a *required* column.

    """
    try:
        with opened(path, "r", encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            names = [name.strip() for name in (header or next(reader, []))]
            if missing := [name for name in required if name not in names]:
                raise TraceError(
                    [(path, 1, Message("the first line must name the columns {missing}", ",".join(missing)))]
                )
            for row in reader:
                if not row:
                    continue
                if len(row) != len(names):
                    raise TraceError(
                        [(path, reader.line_num, Message("{count} fields in place of {columns}", len(row), len(names)))]
                    )
                yield reader.line_num, dict(zip(names, row, strict=True))
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from None
    except csv.Error as error:
        raise TraceError([(path, 0, str(error))]) from None


class JobTraceFaults:
    """Collector of the mistakes in the fields of one file."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._found: list[tuple[str, int, str]] = []

    def number(self, line: int, name: str, text: str, least: float = 0.0, above: bool = False) -> float:
        """Parse a finite number of at least *least* (or above it). Return 0 after recording a mistake."""
        value = number(text)
        if value is None or value < least or (above and value == least):
            self._found.append((self._path, line, Message("{name} must be a number {above} {least:g}"
"{on}, not {value!r}", name, 'above' if above else 'from', least, '' if above else ' on', text)))  # fmt: skip
            return 0.0
        return value

    def stamp_s(self, line: int, name: str, text: str) -> float:
        """Parse a date such as 2020-06-09 18:41:01 [s]. Return 0 after recording a mistake."""
        try:
            return datetime.fromisoformat(text.strip()).replace(tzinfo=UTC).timestamp()
        except ValueError:
            self._found.append(
                (self._path, line, Message("{name} must look like 2020-06-09 18:41:01, not {value!r}", name, text))
            )
            return 0.0

    def stop_if_any(self) -> None:
        """Raise TraceError if there are mistakes."""
        if self._found:
            raise TraceError(self._found)


CSV_REQUIRED = ("arrival_s", "gpus", "duration_s")
CSV_OPTIONAL = ("job", "priority", "deadline_s", "walltime_s", "user")


class CsvJobs(JobTraceFile):
    """CSV file with the columns `arrival_s,gpus,duration_s[,job,priority,deadline_s,walltime_s,user]`.

    Times are in seconds; a deadline is on the clock of the arrivals.
    """

    format: Literal["csv"]

    def read(self) -> JobTraceReading:
        """Read and check the file. Raises TraceError with all mistakes."""
        faults = JobTraceFaults(self.path)
        jobs: list[ClusterJob] = []
        for line, row in table(self.path, CSV_REQUIRED):
            if unknown := [name for name in row if name not in (*CSV_REQUIRED, *CSV_OPTIONAL)]:
                raise TraceError([(self.path, 1, Message("unknown column {unknown!r}", unknown[0]))])
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
            raise TraceError([(self.path, 0, "holds no jobs")])
        return JobTraceReading(tuple(sorted(jobs, key=lambda job: job.arrived_s)))


class PhillyJobs(JobTraceFile):
    """Trace file `cluster_job_log` of Philly.

    The file is a JSON list of jobs with `submitted_time` and `attempts`, each with `start_time`, `end_time` and the
    GPUs of each server. The duration of a job is that of its attempts together; its GPUs are those of the last
    attempt. Jobs without a completed attempt are left out and counted in a note.
    """

    format: Literal["philly"]

    def read(self) -> JobTraceReading:
        """Read and check the file. Raises TraceError with all mistakes."""
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
        note = Message(
            "{ignored} of {count} jobs have no attempt on a GPU that ended; they are ignored", left, len(found)
        )
        return shifted_to_zero(self.path, jobs, [note] if left else [])

    def _load(self) -> list[dict[str, Any]]:
        try:
            with opened(self.path, "r", encoding="utf-8") as file:
                found = json.load(file)
        except (OSError, UnicodeDecodeError) as error:
            raise unreadable(self.path, error) from None
        except ValueError as error:
            raise TraceError(
                [(self.path, getattr(error, "lineno", 0), Message("is not JSON: {reason}", error))]
            ) from None
        if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
            raise TraceError([(self.path, 0, "must be a JSON list of jobs, as cluster_job_log is")])
        return found


HELIOS_REQUIRED = ("job_id", "gpu_num", "submit_time", "duration")


class HeliosJobs(JobTraceFile):
    """Trace file `cluster_log.csv` of Helios.

    Columns: job_id, user, vc, gpu_num, cpu_num, node_num, state, submit_time, start_time, end_time, duration, queue.
    Jobs without GPUs or with zero duration are left out and counted in a note.
    """

    format: Literal["helios"]

    def read(self) -> JobTraceReading:
        """Read and check the file. Raises TraceError with all mistakes."""
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
        note = Message("{ignored} of {count} jobs used no GPU or no time; they are ignored", left, rows)
        return shifted_to_zero(self.path, jobs, [note] if left else [])


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
    """Total GPUs and time span of the tasks of one job."""

    gpus: float = 0.0
    start_s: float = inf
    end_s: float = -inf


class AlibabaJobs(JobTraceFile):
    """Trace file `pai_task_table.csv` of Alibaba PAI, without a header as published.

    A job has the GPUs of all instances of its tasks and lasts from the first start to the last end of a task.
    Fractions of GPUs are rounded up per job.
    """

    format: Literal["alibaba"]
    job_table: str | None = None
    """Path of `pai_job_table.csv`, which has the submission times. Default: jobs arrive when their first task starts.
    """

    @property
    def more_files(self) -> tuple[str, ...]:
        """Key of the table of jobs."""
        return ("job_table",)

    def read(self) -> JobTraceReading:
        """Read and check the files. Raises TraceError with all mistakes."""
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
        notes = (
            [Message("{ignored} of {count} jobs used no GPU or have not ended; they are ignored", left, len(found))]
            if left
            else []
        )
        if parts:
            notes.append(Message("{count} jobs request parts of a GPU and get whole GPUs", parts))
        return shifted_to_zero(self.path, jobs, notes)

    def _submitted_s(self) -> dict[str, float]:
        if self.job_table is None:
            return {}
        faults = JobTraceFaults(self.job_table)
        rows = [(line, row) for line, row in table(self.job_table, (), ALIBABA_JOBS) if row["start_time"]]
        found = {row["job_name"]: faults.number(line, "start_time", row["start_time"]) for line, row in rows}
        faults.stop_if_any()
        return found


JobTrace = Annotated[CsvJobs | PhillyJobs | HeliosJobs | AlibabaJobs, Tagged("format")]

__all__ = ["AlibabaJobs", "CsvJobs", "HeliosJobs", "JobTrace", "PhillyJobs"]
