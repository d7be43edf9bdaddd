"""The steps of a replica as a trace that Perfetto and chrome://tracing open (Trace Event Format, JSON object form).

Events are in order of time, in whole nanoseconds. A viewer nests events of one thread, so steps that overlap, of
several batches in flight or of ranks that step together, stand in threads of their own.
"""

import json
from typing import Any

from sim.records import Span
from sim.study.fleets.explain.journal import Journal, takes_part

NANOSECONDS = 1e9
PER_MICROSECOND = 1e3
REQUEST = 0
"""Number of the request's process; replicas follow."""


def trace(journal: Journal) -> str:
    """A JSON document: one process for each replica, with its steps, and one for the request."""
    request = journal.request
    threads: dict[int, list[int]] = {REQUEST: []}
    events: list[dict[str, Any]] = []
    for replica, span in sorted(journal.spans, key=lambda seen: (seen[1].start_s, seen[1].end_s, seen[0])):
        events.append(_event(replica + 1, _what(span), span, _figures(span), threads))
        if takes_part(span, request.index):
            chunk = span.prompts.get(request.index)
            name = "decodes" if chunk is None else f"prompt, {chunk} tokens"
            events.append(_event(REQUEST, name, span, {}, threads))
    for what, at_s in (("arrives", request.arrived_s), ("first token", request.first_token_s)):
        if at_s == at_s:  # it has happened
            at = round(at_s * NANOSECONDS) / PER_MICROSECOND
            events.append({"name": what, "ph": "i", "s": "p", "ts": at, "pid": REQUEST, "tid": 0})
    events.sort(key=lambda event: event["ts"])
    named = [_named(REQUEST, f"request {request.index}")]
    named += [_named(process, f"replica {process - 1}") for process in sorted(threads) if process != REQUEST]
    return json.dumps({"traceEvents": [*named, *events], "displayTimeUnit": "ms"})


def _named(process: int, name: str) -> dict[str, Any]:
    return {"name": "process_name", "ph": "M", "pid": process, "tid": 0, "args": {"name": name}}


def _event(
    process: int, name: str, span: Span, figures: dict[str, Any], threads: dict[int, list[int]]
) -> dict[str, Any]:
    """A complete event in the first thread of *process* that is free by then; *threads* are their ends [ns]."""
    start, end = round(span.start_s * NANOSECONDS), round(span.end_s * NANOSECONDS)
    ends = threads.setdefault(process, [])
    thread = next((place for place, last in enumerate(ends) if last <= start), len(ends))
    ends[thread : thread + 1] = [end]
    lasts = (end - start) / PER_MICROSECOND
    start_us = start / PER_MICROSECOND
    return {"name": name, "ph": "X", "ts": start_us, "dur": lasts, "pid": process, "tid": thread, "args": figures}


def _what(span: Span) -> str:
    prompts, decodes = span.batch.prefill_seqs, span.batch.decode_seqs
    return " + ".join(f"{count} {what}" for count, what in ((prompts, "prompts"), (decodes, "decodes")) if count)


def _figures(span: Span) -> dict[str, Any]:
    batch = span.batch
    return {
        "steps": span.steps,
        "prompt tokens": batch.prefill_tokens,
        "decoding sequences": batch.decode_seqs,
        "context tokens": batch.kv_tokens + batch.prefill_context_tokens,
        "queue waits for": span.blocked_by or "nothing",
    }
