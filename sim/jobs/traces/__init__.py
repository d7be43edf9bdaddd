"""Recorded jobs. A new format: its file here and its name in `JobTrace`."""

from typing import Annotated

from pydantic import Field

from sim.jobs.traces.alibaba import AlibabaJobs
from sim.jobs.traces.csv_file import CsvJobs
from sim.jobs.traces.faults import JobTraceError
from sim.jobs.traces.helios import HeliosJobs
from sim.jobs.traces.philly import PhillyJobs

JobTrace = Annotated[CsvJobs | PhillyJobs | HeliosJobs | AlibabaJobs, Field(discriminator="format")]

__all__ = ["AlibabaJobs", "CsvJobs", "HeliosJobs", "JobTrace", "JobTraceError", "PhillyJobs"]
