"""Recorded requests. A new format: its file here and its name in `Trace`."""

from typing import Annotated

from pydantic import Field

from sim.workload.traces.azure import AzureTrace
from sim.workload.traces.burstgpt import BurstgptTrace
from sim.workload.traces.csv_file import CsvTrace
from sim.workload.traces.faults import TraceError
from sim.workload.traces.mooncake import MooncakeTrace
from sim.workload.traces.otel import OtelTrace

Trace = Annotated[CsvTrace | AzureTrace | MooncakeTrace | BurstgptTrace | OtelTrace, Field(discriminator="format")]

__all__ = ["AzureTrace", "BurstgptTrace", "CsvTrace", "MooncakeTrace", "OtelTrace", "Trace", "TraceError"]
