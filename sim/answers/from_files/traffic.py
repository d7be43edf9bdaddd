"""Traffic of files: request logs, and recordings of a server's metrics."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sim.answers.from_files.source import FileErrors, SourceFile
from sim.benchdata.errors import BenchdataError
from sim.benchdata.served import ServedPeriod, fragment, traffic_of
from sim.benchdata.served.traffic import combined_traffic
from sim.infile import opened
from sim.message import Message
from sim.workload.traces import TraceError, trace_of

MOST_REQUESTS = 20_000
"""Most requests of a trace that a draft simulates."""
AZURE = {"TIMESTAMP", "ContextTokens", "GeneratedTokens"}
BURSTGPT = {"Timestamp", "Request tokens", "Response tokens"}
MOONCAKE = {"timestamp", "input_length", "output_length", "hash_ids"}


def table_format(path: Path) -> str:
    """Return the trace format of a file of separated values, by its first line."""
    with opened(path, "r", encoding="utf-8-sig", errors="replace") as file:
        headers = {name.strip() for name in file.readline().split(",")}
    return "azure" if headers >= AZURE else "burstgpt" if headers >= BURSTGPT else "csv"


def lines_format(first: object) -> str:
    """Return the trace format of a file of JSON objects, by its *first* object."""
    if isinstance(first, dict) and "resourceSpans" in first:
        return "otel"
    return "mooncake" if isinstance(first, dict) and first.keys() >= MOONCAKE else "jsonl"


def request_log(path: Path, format: str, columns: Mapping[str, str]) -> SourceFile:
    """Return the requests of the log *path*, whose headers *columns* names (column of a trace -> header).

    Raises FileErrors.
    """
    source = SourceFile(path.name, "request log")
    trace: dict[str, Any] = {"path": str(path.resolve()), "format": format}
    if columns:
        format = trace["format"] = {"azure": "csv", "burstgpt": "csv", "mooncake": "jsonl"}.get(format, format)
        trace["columns"] = dict(columns)
    try:
        whole = trace_of(str(path), format)
        reading = whole.model_copy(update={"columns": dict(columns)} if columns else {}).read()
    except TraceError as error:
        raise FileErrors([(str(path), line, text) for _, line, text in error.errors]) from None
    requests = reading.requests
    if reading.units:
        raise FileErrors(
            [(str(path), 1, "has no columns of prompt and output tokens: a log of language models has both")]
        )
    count = len(requests.arrived_s)
    source.span_s = float(np.max(requests.arrived_s)) if count > 1 else None
    source.rate_rps = count / source.span_s if source.span_s else None
    prompts, outputs = requests.prompt_tokens, requests.output_tokens
    source.longest = int(np.max(prompts + outputs))
    source.read += [
        Message("{count:,} requests in {duration}", count, _duration(source.span_s)),
        Message(
            "prompts of {prompt_mean:,.0f} tokens (p95 {prompt_p95:,.0f}), "
            "answers of {answer_mean:,.0f} tokens (p95 {answer_p95:,.0f})",
            np.mean(prompts),
            np.percentile(prompts, 95),
            np.mean(outputs),
            np.percentile(outputs, 95),
        ),
        *(
            note.values["text"] if isinstance(note, Message) and note.values.get("place") == path.name else note
            for note in reading.notes
        ),
    ]
    if count > MOST_REQUESTS:
        trace["limit"] = MOST_REQUESTS
        source.read.append(Message("the first {most_requests:,} of them are simulated (limit)", MOST_REQUESTS))
    source.workload = {"trace": trace}
    return source


def recording(paths: Sequence[Path], seconds: float | None) -> SourceFile:
    """Return the traffic of pages of /metrics, answers of Prometheus or OTLP metrics. Raises FileErrors."""
    source = SourceFile(" and ".join(path.name for path in paths), "metrics of a server")
    try:
        periods, notes = traffic_of(paths, seconds)
    except BenchdataError as error:
        raise FileErrors(error.problems) from None
    whole = combined_traffic(periods) if len(periods) > 1 else periods[0]
    source.workload = fragment(whole)["workload"]
    source.rate_rps, source.span_s = whole.rate_rps, whole.seconds
    source.model, source.engine, source.observed_servers = whole.model, whole.engine.lower(), len(periods)
    source.read += [
        Message("{requests:,.0f} requests in {duration}", whole.requests, _duration(whole.seconds)),
        lengths_line(whole),
        *notes,
        *(remark for one in periods for remark in one.remarks),
        *cached_lines(whole),
    ]
    return source


def lengths_line(seen: ServedPeriod) -> str:
    """Return the line on the mean lengths of prompts and answers."""
    return Message(
        "prompts of {prompt_tokens:,.0f} tokens, answers of {output_tokens:,.0f} tokens in the mean",
        seen.prompt_tokens,
        seen.output_tokens,
    )


def cached_lines(seen: ServedPeriod) -> list[str]:
    """Return the line on cached prompt tokens; none if no tokens were cached."""
    if not seen.cached_share:
        return []
    return [Message("{cached_share:.0f} % of the prompt tokens were cached: a shared prefix", 100 * seen.cached_share)]


def objects_at_start(text: str) -> list[object]:
    """Return the JSON objects at the start of *text*, whose last line may be cut off; empty if it holds none."""
    try:
        whole = json.loads(text)
        return whole if isinstance(whole, list) else [whole]
    except (ValueError, RecursionError):
        pass
    first = next((line for line in text.splitlines() if line.strip()), "")
    try:
        return [json.loads(first)]
    except (ValueError, RecursionError):
        return []


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "an unknown time"
    if seconds < 600:
        return f"{seconds:,.0f} s"
    return f"{seconds / 3600:,.1f} h" if seconds < 72 * 3600 else f"{seconds / 86400:,.1f} days"
