"""Recorded requests in trace files.

To add a format: a module here, and its class in `Trace`.
"""

from typing import Annotated

from pydantic import Field

from sim.workload.traces.csv_formats import AzureTrace, BurstgptTrace, CsvTrace, JsonlTrace
from sim.workload.traces.mooncake import MooncakeTrace
from sim.workload.traces.otel import OtelTrace
from sim.workload.traces.trace_file import TraceError

Trace = Annotated[
    CsvTrace | JsonlTrace | AzureTrace | MooncakeTrace | BurstgptTrace | OtelTrace, Field(discriminator="format")
]

__all__ = ["AzureTrace", "BurstgptTrace", "CsvTrace", "JsonlTrace", "MooncakeTrace", "OtelTrace", "Trace", "TraceError"]
