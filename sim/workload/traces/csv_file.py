"""The plain format: one line a request."""

from typing import Literal

from sim.records import RequestTable
from sim.workload.traces import columns
from sim.workload.traces.faults import Faults
from sim.workload.traces.file import TraceFile, TraceReading
from sim.workload.traces.table import read_table


class CsvTrace(TraceFile):
    """`arrival_s,prompt_tokens,output_tokens[,priority]`, times in seconds as they are, lower priorities first."""

    format: Literal["csv"]

    def read(self) -> TraceReading:
        """Read and check the file. Raises TraceError with all that is wrong."""
        faults = Faults(self.path)
        table = read_table(self.path, ("arrival_s", "prompt_tokens", "output_tokens"), ("priority",), faults)
        texts, lines = table.columns, table.lines
        arrived_s = columns.seconds(texts["arrival_s"], "arrival_s", lines, faults)
        requests = RequestTable(
            columns.since_the_start(arrived_s, texts["arrival_s"], "arrival_s", lines, faults),
            columns.tokens(texts["prompt_tokens"], "prompt_tokens", lines, faults),
            columns.tokens(texts["output_tokens"], "output_tokens", lines, faults),
        )
        if "priority" in texts:
            requests.priority = columns.integers(texts["priority"], "priority", lines, faults)
        faults.stop_if_any()
        return TraceReading(requests)
