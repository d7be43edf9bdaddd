"""The Philly traces of Microsoft (Jeon et al., USENIX ATC 2019; github.com/msr-fiddle/philly-traces)."""

import json
from typing import Any, Literal

from sim.infile import opened
from sim.jobs.job import Job
from sim.jobs.traces.faults import JobTraceError
from sim.jobs.traces.file import Faults, JobTraceFile, JobTraceReading, from_zero, unreadable


class PhillyJobs(JobTraceFile):
    """`cluster_job_log`: a JSON list of jobs with `submitted_time` and `attempts`, each with `start_time`, `end_time`
    and the GPUs of each server. A job lasts as long as its attempts together and has the GPUs of the last one. Jobs
    without an attempt that ended are left out and counted in a note.
    """

    format: Literal["philly"]

    def read(self) -> JobTraceReading:
        """Read and check the file. Raises JobTraceError with all that is wrong."""
        found, faults, jobs = self._load(), Faults(self.path), []
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
                jobs.append(Job(str(one.get("jobid", place)), arrived_s, gpus, seconds))
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
