"""The plain format: one line a request."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sim.records import RequestTable
from sim.workload.traces import columns
from sim.workload.traces.faults import Faults
from sim.workload.traces.file import TraceFile, TraceReading
from sim.workload.traces.table import header, read_table

TOKENS = ("prompt_tokens", "output_tokens")


class CsvTrace(TraceFile):
    """`arrival_s,prompt_tokens,output_tokens[,priority]`, times in seconds as they are, lower priorities first.

    Requests of services that answer in one pass have no tokens: `arrival_s[,priority]`.
    """

    format: Literal["csv"]

    def read(self) -> TraceReading:
        """Read and check the file. Raises TraceError with all that is wrong."""
        faults = Faults(self.path)
        units = "arrival_s" in (names := header(self.path)) and names <= {"arrival_s", "priority"}
        table = read_table(self.path, ("arrival_s", *(() if units else TOKENS)), ("priority",), faults)
        texts, lines = table.columns, table.lines
        arrived_s = columns.seconds(texts["arrival_s"], "arrival_s", lines, faults)
        requests = RequestTable(
            columns.since_the_start(arrived_s, texts["arrival_s"], "arrival_s", lines, faults),
            *(_units(len(lines)) if units else (columns.tokens(texts[name], name, lines, faults) for name in TOKENS)),
        )
        if "priority" in texts:
            requests.priority = columns.integers(texts["priority"], "priority", lines, faults)
        faults.stop_if_any()
        return TraceReading(requests, units=units)


def _units(count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """No prompt, and one unit of work in the place of an answer."""
    return np.zeros(count, np.int64), np.ones(count, np.int64)
