"""Latencies of requests, read back from the request table of a stored case."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def latencies_s(table: pa.Table, name: str) -> NDArray[np.float64]:
    """ttft_s, tpot_s or e2e_s of the measured requests: inf for those that never finished, none for a TPOT of one
    token.
    """
    columns = {
        key: table.column(key).to_numpy() for key in ("arrived_s", "first_token_s", "finished_s", "output_tokens")
    }
    chosen = table.column("measured").to_numpy() > 0
    finished = np.array([status == "finished" for status in table.column("status").to_pylist()], bool)
    first, last, start = columns["first_token_s"], columns["finished_s"], columns["arrived_s"]
    if name == "tpot_s":
        chosen &= columns["output_tokens"] > 1
        times = (last - first) / np.maximum(columns["output_tokens"] - 1, 1)
    else:
        times = (first if name == "ttft_s" else last) - start
    times = np.where(finished, times, np.inf)[chosen]
    return np.asarray(times[~np.isnan(times)])
