"""Reader of the results of `vllm bench serve --save-result` and `sglang.bench_serving`.

A file holds one JSON object per run: a single object, a list, or one object per line, as both clients append them.

vLLM's client does not know the hardware: `gpu`, `n_gpus`, `tp`, `precision`, ... come from its option
`--metadata gpu=rtx-4090 tp=2 precision=fp8`, which it writes into the same object. SGLang's client asks the server.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from sim.benchdata.errors import NO_TRACE, BenchdataError, why_unusable
from sim.benchdata.row import AMOUNTS, COUNTS, TEXTS, BenchRow
from sim.benchdata.table import Problem, row_of
from sim.infile import json_objects, opened
from sim.message import Message

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
    "total_throughput": "total_tok_s",
    "mean_e2e_latency_ms": "e2e_mean_ms",
}
"""Columns of the clients' names of measured quantities; the last two names are SGLang's."""
SERVER = {"model_path": "model", "version": "engine_version", "kv_cache_dtype": "kv_dtype"}
"""Columns of the server settings that SGLang's client reports."""
SERVER_SIZES = {"tp_size": "tp", "pp_size": "pp", "max_running_requests": "max_num_seqs"}
"""Columns of the server sizes that SGLang's client reports, valid without data-parallel attention."""
QUANTIZATION = {
    "fp8": "fp8",
    "w8a8_fp8": "fp8",
    "modelopt_fp8": "fp8",
    "w8a8_int8": "int8-w8a8",
    "awq": "awq-int4",
    "awq_marlin": "awq-int4",
    "gptq_marlin": "gptq-int4",
    "modelopt_fp4": "nvfp4",
    "mxfp4": "mxfp4",
}
"""Precisions of SGLang's quantization names; for other names the model's name is more specific."""
BURST_SHARE = 0.5
"""Fraction of a run's duration within which a client that sends all requests at once has sent them."""
ACCEPTED = ("spec_decode_acceptance_length", "accept_length")
"""Names in vLLM's and SGLang's results of the mean tokens per decode step and sequence."""
HINTS = {"gpu is missing": "gpu is missing: set it with --about gpu=..., or with the client's --metadata gpu=..."}
BACKENDS = {
    "sglang": "SGLang",
    "tensorrt-llm": "TensorRT-LLM",
    "trt": "TensorRT-LLM",
    "lmdeploy": "LMDeploy",
    "tgi": "TGI",
}
"""Engines by the beginning of the client's backend option; all other backends are vLLM's."""


def read_results(path: Path, known: Mapping[str, str]) -> list[BenchRow]:
    """Read the runs of a result file; *known* is that of `result_row`.

    Raises
    ------
    BenchdataError
        The file has mistakes; the error lists all of them.

    """
    try:
        with opened(path, "r", encoding="utf-8-sig") as file:
            runs = json_objects(file.read())
    except json.JSONDecodeError as error:
        raise BenchdataError([(str(path), error.lineno, Message("is not JSON: {reason}", error.msg.lower()))]) from None
    except (OSError, UnicodeDecodeError) as error:
        raise BenchdataError([(str(path), 0, Message("cannot be read: {reason}", error))]) from None
    if not runs or not all(map(is_result, runs)):
        raise BenchdataError([(str(path), 0, "is not a result of `vllm bench serve`: there is no 'completed' in it")])
    return [row for _, row in rows_of(runs, path, path.stem, known)]


def rows_of(
    runs: Sequence[dict[str, Any]], path: Path, name: str, known: Mapping[str, str]
) -> list[tuple[dict[str, Any], BenchRow]]:
    """Return pairs of the raw run and its row.

    The rows are called *name*, with a number appended if the file has several runs. Raises BenchdataError with all
    mistakes.
    """
    found, problems = [], []
    for number, one in enumerate(runs, 1):
        try:
            found.append((one, result_row(one, path, f"{name}-{number}" if len(runs) > 1 else name, known)))
        except BenchdataError as error:
            which = f"run {number}: " if len(runs) > 1 else ""
            problems += [(place, line, which + text) for place, line, text in error.problems]
    if problems:
        raise BenchdataError(problems)
    return found


def is_result(data: Any) -> bool:
    """Return whether *data* is the result of one run of a client."""
    return isinstance(data, dict) and "completed" in data


def result_row(data: dict[str, Any], path: Path, name: str, known: Mapping[str, str]) -> BenchRow:
    """Return a run as a row called *name*.

    *known* adds columns that the client does not write, and overrides those of the file except its GPU. Raises
    BenchdataError.
    """
    cells = _cells(data) | {"id": name}
    cells |= {column: value for column, value in known.items() if column != "gpu" or not cells.get("gpu")}
    problems: list[Problem] = [(0, text) for text in _not_simulated(data)]
    if (ranks := _ranks(data)) > 1 and not cells.get("dp"):
        problems.append(
            (0, Message("its server has {ranks} data-parallel ranks: add --about dp={ranks} and --about tp=...", ranks))
        )
    row = row_of(cells, 0, path.parent, problems)
    if row is None or problems:
        raise BenchdataError([(str(path), line, HINTS.get(text, text)) for line, text in problems])
    return row


def _not_simulated(data: dict[str, Any]) -> Iterator[str]:
    if ramp := data.get("ramp_up_strategy"):
        yield Message("the rate grew during the run (ramp_up_strategy {ramp}), which is not simulated", ramp)
    answered, asked, seconds = (data.get(name) for name in ("completed", "num_prompts", "duration"))
    if data.get("request_rate") == "trace" or _has_own_times(data):
        yield NO_TRACE
    failed = asked - answered if isinstance(asked, int) and isinstance(answered, int) else 0
    if isinstance(answered, int) and (why := why_unusable(answered, failed)):
        yield why
    if isinstance(seconds, int | float) and not 0 < seconds < inf:
        yield Message("duration must be a time above 0 s, not {seconds}", seconds)


def _has_own_times(data: dict[str, Any]) -> bool:
    """Return whether requests of a supposed burst started over a long time.

    vLLM's client does not report a trace's arrival times otherwise, and start times only with --save-detailed.
    """
    begun, seconds = data.get("start_times"), data.get("duration")
    if _load(data)["load"] != "burst" or not isinstance(begun, list) or not isinstance(seconds, int | float):
        return False
    known = [one for one in begun if isinstance(one, int | float)]
    return bool(known) and max(known) - min(known) > BURST_SHARE * seconds


def _cells(data: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of a table from the client's object."""
    cells = {name: data[name] for name in (*TEXTS, *COUNTS, *AMOUNTS) if name in data}
    cells |= {ours: data[theirs] for theirs, ours in NAMES.items() if theirs in data}
    cells = _server_columns(data) | cells
    completed = data["completed"] or None
    cells.setdefault("model", data.get("model_id"))
    cells.setdefault("engine", _engine(str(data.get("backend") or "")))
    cells.setdefault("engine_version", data.get("version"))
    cells.setdefault("spec_decode", _spec_decode(data))
    cells["num_requests"] = data.get("num_prompts") or completed
    cells["concurrency"] = data.get("max_concurrency")
    if completed:
        cells["isl"] = cells.get("isl") or _mean(data.get("total_input_tokens"), completed)
        cells["osl"] = cells.get("osl") or _mean(data.get("total_output_tokens"), completed)
        cells["prompt_cv"] = spread(data.get("input_lens"))
        cells["output_cv"] = spread(data.get("output_lens"))
    return cells | _load(data)


def _server_columns(data: dict[str, Any]) -> dict[str, Any]:
    """Return the columns that SGLang's server settings and prefix-cache report determine."""
    server, cache = (data.get(name) for name in ("server_info", "cache_report"))
    columns: dict[str, Any] = {}
    if isinstance(server, dict):
        sizes = SERVER_SIZES if _ranks(data) == 1 else {}
        columns = {ours: server[theirs] for theirs, ours in (SERVER | sizes).items() if server.get(theirs)}
        columns |= {"precision": QUANTIZATION.get(str(server.get("quantization")), "")}
    if isinstance(cache, dict) and isinstance(hit := cache.get("cache_hit_rate_pct"), int | float) and hit > 0:
        columns["cached_share"] = hit / 100
    return columns


def _ranks(data: dict[str, Any]) -> int:
    """Return the number of data-parallel ranks of SGLang's server.

    With more than one, the meaning of its tensor-parallel size depends on the attention mode.
    """
    server = data.get("server_info")
    ranks = server.get("dp_size") if isinstance(server, dict) else None
    return ranks if isinstance(ranks, int) else 1


def _spec_decode(data: dict[str, Any]) -> str:
    """Return `drafts` if the server produced more than one token per decode step of a sequence, else empty."""
    lengths = [data.get(name) for name in ACCEPTED]
    return "drafts" if any(isinstance(one, int | float) and one > 1 for one in lengths) else ""


def _engine(backend: str) -> str:
    return next((engine for name, engine in BACKENDS.items() if backend.startswith(name)), "vLLM")


def _load(data: dict[str, Any]) -> dict[str, Any]:
    """Return the columns that describe the load.

    A limit on requests in flight is a closed loop; with a finite rate both apply. A finite rate alone is an open loop;
    without either, the load is a burst.
    """
    rate, limit = data.get("request_rate"), data.get("max_concurrency")
    finite = rate if isinstance(rate, int | float) and rate != inf else None
    if finite is None:
        return {"load": "closed_loop" if limit else "burst", "rate_req_s": None, "burstiness": None}
    shape = data.get("burstiness")
    burstiness = shape if isinstance(shape, int | float) and shape != 1 else None
    return {"load": "closed_loop" if limit else "poisson", "rate_req_s": finite, "burstiness": burstiness}


def spread(lengths: Any) -> float | None:
    """Return the coefficient of variation of the lengths that --save-detailed writes; None if equal or not written."""
    known = [one for one in lengths if isinstance(one, int | float) and one > 0] if isinstance(lengths, list) else []
    return pstdev(known) / fmean(known) or None if known else None


def _mean(total: Any, count: Any) -> Any:
    """Return the mean, or *total* unchanged if either value is not a number, which the table's checks report."""
    return total / count if isinstance(total, int | float) and isinstance(count, int | float) else total
