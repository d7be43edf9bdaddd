"""Traffic observed on a running server, from /metrics, spans, or reports of load generators."""

from sim.benchdata.served.files import is_recording, parsed, read_rows, traffic_of
from sim.benchdata.served.traffic import ServedPeriod, fragment, traffic_files, traffic_text, why_not_written

__all__ = [
    "ServedPeriod",
    "fragment",
    "is_recording",
    "parsed",
    "read_rows",
    "traffic_files",
    "traffic_of",
    "traffic_text",
    "why_not_written",
]
