"""The Helios traces of SenseTime (Hu et al., SC 2021; github.com/S-Lab-System-Group/HeliosData)."""

from typing import Literal

from sim.jobs.job import Job
from sim.jobs.traces.file import Faults, JobTraceFile, JobTraceReading, from_zero, table

REQUIRED = ("job_id", "gpu_num", "submit_time", "duration")


class HeliosJobs(JobTraceFile):
    """`cluster_log.csv`: job_id, user, vc, gpu_num, cpu_num, node_num, state, submit_time, start_time, end_time,
    duration, queue. Jobs without GPUs and those that ran for no time are left out and counted in a note.
    """

    format: Literal["helios"]

    def read(self) -> JobTraceReading:
        """Read and check the file. Raises JobTraceError with all that is wrong."""
        faults, jobs, rows = Faults(self.path), [], 0
        for line, row in table(self.path, REQUIRED):
            rows += 1
            gpus = round(faults.number(line, "gpu_num", row["gpu_num"]))
            duration_s = faults.number(line, "duration", row["duration"])
            if gpus and duration_s:
                jobs.append(
                    Job(row["job_id"], faults.stamp_s(line, "submit_time", row["submit_time"]), gpus, duration_s)
                )
        faults.stop_if_any()
        left = rows - len(jobs)
        note = f"{left} of {rows} jobs used no GPU or no time; they are left out"
        return from_zero(self.path, jobs, [note] if left else [])
