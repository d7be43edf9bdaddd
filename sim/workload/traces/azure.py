"""The Azure LLM inference traces (Patel et al., "Splitwise", ISCA 2024; github.com/Azure/AzurePublicDataset)."""

import re
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sim.workload.requests import RequestTable
from sim.workload.traces import columns
from sim.workload.traces.faults import Faults
from sim.workload.traces.file import TraceFile, TraceReading
from sim.workload.traces.table import read_table

STAMP = re.compile(r"(?:19|20|21)\d\d-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d{1,9})?", re.ASCII)
NANOSECONDS = 1e9


class AzureTrace(TraceFile):
    """`TIMESTAMP,ContextTokens,GeneratedTokens`: absolute dates, read as seconds after the first request."""

    format: Literal["azure"]

    def read(self) -> TraceReading:
        """Read and check the file. Raises TraceError with all that is wrong."""
        faults = Faults(self.path)
        table = read_table(self.path, ("TIMESTAMP", "ContextTokens", "GeneratedTokens"), (), faults)
        texts, lines = table.columns, table.lines
        requests = RequestTable(
            _seconds_after_first(texts["TIMESTAMP"], lines, faults),
            columns.tokens(texts["ContextTokens"], "ContextTokens", lines, faults),
            columns.tokens(texts["GeneratedTokens"], "GeneratedTokens", lines, faults),
        )
        faults.stop_if_any()
        return TraceReading(requests)


def _seconds_after_first(texts: list[str], lines: Sequence[int], faults: Faults) -> NDArray[np.float64]:
    """Dates with up to nine decimals; a UTC offset of zero may follow."""
    stamps = _stamps([text.strip().removesuffix("+00:00") for text in texts])
    wrong = np.isnat(stamps)
    faults.add_rows(
        np.flatnonzero(wrong),
        lines,
        lambda row: f"TIMESTAMP must look like 2023-11-16 18:17:03.97996, not {texts[row]!r}",
    )
    if wrong.all():
        return np.zeros(len(stamps))
    elapsed_s: NDArray[np.float64] = (stamps - stamps[~wrong][0]).astype(np.int64) / NANOSECONDS
    columns.check_order(np.where(wrong, np.nan, elapsed_s), texts, "TIMESTAMP", lines, faults)
    return elapsed_s


def _stamps(dates: list[str]) -> NDArray[np.datetime64]:
    """NaT for what is no date; a 30th of February is found only one by one."""
    formed = [date if STAMP.fullmatch(date) else "NaT" for date in dates]
    try:
        return np.array(formed, dtype="datetime64[ns]")
    except ValueError:
        return np.array([_stamp(date) for date in formed])


def _stamp(date: str) -> np.datetime64:
    try:
        return np.datetime64(date, "ns")
    except ValueError:
        return np.datetime64("NaT", "ns")
