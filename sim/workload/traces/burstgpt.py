"""The BurstGPT traces (Wang et al., "BurstGPT", KDD 2025; github.com/HPMLL/BurstGPT)."""

from pathlib import Path
from typing import Literal

import numpy as np

from sim.workload.requests import RequestTable
from sim.workload.traces import columns
from sim.workload.traces.faults import Faults, TraceError
from sim.workload.traces.file import TraceFile, TraceReading
from sim.workload.traces.table import read_table


class BurstgptTrace(TraceFile):
    """`Timestamp,[Session ID,Elapsed time,]Model,Request tokens,Response tokens,Total tokens,Log Type`, times in s.

    A row without response tokens is a request that failed: it is left out and counted in a note. The first request that
    did not fail arrives at 0.
    """

    format: Literal["burstgpt"]

    def read(self) -> TraceReading:
        """Read and check the file. Raises TraceError with all that is wrong."""
        faults = Faults(self.path)
        required = ("Timestamp", "Request tokens", "Response tokens")
        optional = ("Session ID", "Elapsed time", "Model", "Total tokens", "Log Type")
        table = read_table(self.path, required, optional, faults)
        texts, lines = table.columns, table.lines
        times_s = columns.seconds(texts["Timestamp"], "Timestamp", lines, faults)
        prompts = columns.tokens(texts["Request tokens"], "Request tokens", lines, faults, least=0)
        outputs = columns.tokens(texts["Response tokens"], "Response tokens", lines, faults, least=0)
        answered = outputs > 0
        faults.add_rows(
            np.flatnonzero(answered & (prompts == 0)),
            lines,
            lambda row: "Request tokens are 0 although there was a response",
        )
        faults.stop_if_any()
        if not answered.any():
            raise TraceError([(self.path, 0, "holds no request with response tokens")])
        times_s = times_s[answered]
        failed = len(answered) - len(times_s)
        note = (
            f"{Path(self.path).name}: {failed} of {len(answered)} requests have no response tokens (failures); left out"
        )
        requests = RequestTable(times_s - times_s[0], prompts[answered], outputs[answered])
        return TraceReading(requests, (note,) if failed else ())
