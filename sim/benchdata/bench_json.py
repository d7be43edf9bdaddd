"""Results of `vllm bench serve --save-result`, one JSON object a file.

The client does not know the hardware: `gpu`, `n_gpus`, `tp`, `precision`, ... come from its option
`--metadata gpu=rtx-4090 tp=2 precision=fp8`, which it writes into the same object.
"""

import json
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from sim.benchdata.csv_rows import Problem
from sim.benchdata.errors import BenchdataError
from sim.benchdata.row import AMOUNTS, COUNTS, TEXTS, BenchRow
from sim.benchdata.table import row_of
from sim.infile import opened

NAMES = {
    "output_throughput": "output_tok_s",
    "total_token_throughput": "total_tok_s",
    "request_throughput": "req_s",
    "mean_ttft_ms": "ttft_mean_ms",
    "median_ttft_ms": "ttft_p50_ms",
    "p99_ttft_ms": "ttft_p99_ms",
    "mean_tpot_ms": "tpot_mean_ms",
    "median_tpot_ms": "tpot_p50_ms",
    "p99_tpot_ms": "tpot_p99_ms",
    "mean_e2el_ms": "e2e_mean_ms",
}
"""The client's names of what it measured -> ours."""


def read_result(path: Path) -> BenchRow:
    """One result file. Raises BenchdataError."""
    try:
        with opened(path, "r", encoding="utf-8-sig") as file:
            data = json.load(file)
    except json.JSONDecodeError as error:
        raise BenchdataError([(str(path), error.lineno, f"is no JSON: {error.msg.lower()}")]) from None
    except (OSError, UnicodeDecodeError) as error:
        raise BenchdataError([(str(path), 0, f"cannot be read: {error}")]) from None
    if not isinstance(data, dict) or "completed" not in data:
        raise BenchdataError([(str(path), 0, "is no result of `vllm bench serve`: there is no 'completed' in it")])
    problems: list[Problem] = []
    row = row_of(_cells(data, path), 0, path.parent, problems)
    if row is None:
        raise BenchdataError([(str(path), line, text) for line, text in problems])
    return row


def _cells(data: dict[str, Any], path: Path) -> dict[str, Any]:
    """The columns of a table from the client's object."""
    cells = {name: data[name] for name in (*TEXTS, *COUNTS, *AMOUNTS) if name in data}
    cells |= {ours: data.get(theirs) for theirs, ours in NAMES.items()}
    completed = data["completed"] or None
    cells["id"] = path.stem
    cells.setdefault("model", data.get("model_id"))
    cells.setdefault("engine", "vLLM")
    cells.setdefault("engine_version", data.get("version"))
    cells.setdefault("n_gpus", _times(data, "tp", "pp", "dp"))
    cells["num_requests"] = data.get("num_prompts") or completed
    cells["concurrency"] = data.get("max_concurrency")
    if completed:
        cells["isl"] = cells.get("isl") or _mean(data.get("total_input_tokens"), completed)
        cells["osl"] = cells.get("osl") or _mean(data.get("total_output_tokens"), completed)
        cells["prompt_cv"] = spread(data.get("input_lens"))
        cells["output_cv"] = spread(data.get("output_lens"))
    return cells | _load(data)


def _load(data: dict[str, Any]) -> dict[str, Any]:
    """A finite request rate is an open loop, a limit on requests in flight a closed one, neither a burst."""
    rate = data.get("request_rate")
    if isinstance(rate, int | float) and rate != float("inf"):
        return {"load": "poisson", "rate_req_s": rate}
    return {"load": "closed_loop" if data.get("max_concurrency") else "burst", "rate_req_s": None}


def spread(lengths: Any) -> float | None:
    """Standard deviation over mean of the lengths that --save-detailed writes; None: all alike, or not written."""
    known = [one for one in lengths if isinstance(one, int | float) and one > 0] if isinstance(lengths, list) else []
    return pstdev(known) / fmean(known) or None if known else None


def _mean(total: Any, count: Any) -> Any:
    """Left to the checks of the table where these are no numbers."""
    return total / count if isinstance(total, int | float) and isinstance(count, int | float) else total


def _times(data: dict[str, Any], *names: str) -> int:
    product = 1
    for name in names:
        value = str(data.get(name) or 1)
        product *= int(value) if value.isdecimal() else 1
    return product
