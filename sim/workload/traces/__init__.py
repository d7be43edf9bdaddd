"""Recorded requests in trace files.

To add a format: a module here, and its class in `Trace`.
"""

from typing import Annotated, get_args

from sim.spec import Tagged
from sim.workload.traces.csv_formats import AzureTrace, BurstgptTrace, CsvTrace, JsonlTrace
from sim.workload.traces.mooncake import MooncakeTrace
from sim.workload.traces.otel import OtelTrace
from sim.workload.traces.trace_file import TraceError, TraceFile

Trace = Annotated[CsvTrace | JsonlTrace | AzureTrace | MooncakeTrace | BurstgptTrace | OtelTrace, Tagged("format")]


def trace_of(path: str, format: str) -> TraceFile:
    """Return the trace of the file *path* in *format*. Raises KeyError for an unknown format."""
    kinds: tuple[type[TraceFile], ...] = get_args(get_args(Trace)[0])
    by_format = {get_args(kind.model_fields["format"].annotation)[0]: kind for kind in kinds}
    return by_format[format].model_validate({"path": path, "format": format})


__all__ = [
    "AzureTrace",
    "BurstgptTrace",
    "CsvTrace",
    "JsonlTrace",
    "MooncakeTrace",
    "OtelTrace",
    "Trace",
    "TraceError",
    "trace_of",
]
