"""Our own format of job traces."""

from math import inf
from typing import Literal

from sim.jobs.job import Job
from sim.jobs.traces.faults import JobTraceError
from sim.jobs.traces.file import Faults, JobTraceFile, JobTraceReading, table

REQUIRED = ("arrival_s", "gpus", "duration_s")
OPTIONAL = ("job", "priority", "deadline_s", "walltime_s", "user")


class CsvJobs(JobTraceFile):
    """`arrival_s,gpus,duration_s[,job,priority,deadline_s,walltime_s,user]`; times in seconds, a deadline on the clock
    of the arrivals.
    """

    format: Literal["csv"]

    def read(self) -> JobTraceReading:
        """Read and check the file. Raises JobTraceError with all that is wrong."""
        faults = Faults(self.path)
        jobs: list[Job] = []
        for line, row in table(self.path, REQUIRED):
            if unknown := [name for name in row if name not in (*REQUIRED, *OPTIONAL)]:
                raise JobTraceError([(self.path, 1, f"unknown column {unknown[0]!r}")])
            deadline, estimate = row.get("deadline_s", ""), row.get("walltime_s", "")
            jobs.append(
                Job(
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
