"""The GPU trace of Alibaba PAI (Weng et al., NSDI 2022; github.com/alibaba/clusterdata, cluster-trace-gpu-v2020)."""

from dataclasses import dataclass
from math import ceil, inf
from typing import Literal

from sim.jobs.job import Job
from sim.jobs.traces.file import Faults, JobTraceFile, JobTraceReading, from_zero, table

TASKS = [
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
JOBS = ["job_name", "inst_id", "user", "status", "start_time", "end_time"]
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
        faults = Faults(self.path)
        found: dict[str, _Tasks] = {}
        for line, row in table(self.path, (), TASKS):
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
            Job(name, min(one.start_s, submitted.get(name, one.start_s)), ceil(one.gpus), one.end_s - one.start_s)
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
        faults = Faults(self.job_table)
        rows = [(line, row) for line, row in table(self.job_table, (), JOBS) if row["start_time"]]
        found = {row["job_name"]: faults.number(line, "start_time", row["start_time"]) for line, row in rows}
        faults.stop_if_any()
        return found
