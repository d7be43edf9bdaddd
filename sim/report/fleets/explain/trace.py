"""The steps of a replica as a trace that Perfetto and chrome://tracing open (Trace Event Format, JSON array form)."""

import json
from typing import Any

from sim.records import Span
from sim.study.fleets.explain.journal import Journal, takes_part

MICROSECONDS = 1e6


def trace(journal: Journal) -> str:
    """A JSON document: one process for each replica, with its steps, and one for the request."""
    request = journal.request
    replicas = sorted({replica for replica, _ in journal.spans})
    events = [_named(replica + 1, f"replica {replica}") for replica in replicas]
    events.append(_named(0, f"request {request.index}"))
    for replica, span in journal.spans:
        events.append(_event(replica + 1, _what(span), span, _figures(span)))
        if takes_part(span, request.index):
            chunk = span.prompts.get(request.index)
            events.append(_event(0, "decodes" if chunk is None else f"prompt, {chunk} tokens", span, {}))
    for what, at_s in (("arrives", request.arrived_s), ("first token", request.first_token_s)):
        if at_s == at_s:  # it has happened
            events.append({"name": what, "ph": "i", "s": "p", "ts": at_s * MICROSECONDS, "pid": 0, "tid": 0})
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})


def _named(process: int, name: str) -> dict[str, Any]:
    return {"name": "process_name", "ph": "M", "pid": process, "tid": 0, "args": {"name": name}}


def _event(process: int, name: str, span: Span, figures: dict[str, Any]) -> dict[str, Any]:
    start, end = span.start_s * MICROSECONDS, span.end_s * MICROSECONDS
    return {"name": name, "ph": "X", "ts": start, "dur": end - start, "pid": process, "tid": 0, "args": figures}


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
