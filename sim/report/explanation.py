"""Timeline of a request as a table, and the steps of a replica as a trace.

The trace is for Perfetto and chrome://tracing (Trace Event Format, JSON object form). Its events are in order of time,
in whole nanoseconds. A viewer nests the events of a thread, so steps that overlap, of several batches in flight or of
ranks that step together, are in threads of their own.
"""

import json
from collections.abc import Iterator
from math import isnan
from typing import Any

from rich.console import RenderableType

from sim.language import N_, _
from sim.records import StepSpan
from sim.report.terminal_table import FittedTable
from sim.report.words.text import MESSAGES, number
from sim.study.explanation import RequestJournal, RequestPhase, exchanged, request_phases, takes_part

HEADS = (
    N_("What"),
    N_("from [s]"),
    N_("to [s]"),
    N_("steps"),
    N_("sequences in the step"),
    N_("new tokens in the step"),
)
WAITS = {
    "": N_("waits for the current step to end"),
    "seats": N_("waits for a free sequence (max_num_seqs)"),
    "kv": N_("waits for KV blocks"),
    "budget": N_("waits for token budget (max_num_batched_tokens; SGLang: chunked_prefill_size)"),
    "adapters": N_("waits for a slot for its LoRA adapter (max_loras)"),
    "batch": N_("waits for the current batch to end"),
    "spaced": N_("waits for the next step with prompts (prefill_schedule_interval)"),
    "unread": N_("waits until the server looks for new requests (scheduler_recv_interval)"),
    "intake": N_("waits for the API server, which reads requests one by one"),
}
STANDS = {
    "prompts": N_("paused: prompts go first"),
    "kv": N_("paused: no KV blocks"),
    "budget": N_("paused: no token budget left"),
    "spaced": N_("paused until the next step with prompts (prefill_schedule_interval)"),
    "held": N_("paused until more prompts arrive (batch_wait_timeout_iters, attention_dp_timeout_iters)"),
}
OUTSIDE_REPLICA = {
    "transfer": N_("its KV crosses the network"),
    "unsent": N_("no replica has the request yet"),
    "resent": N_("no replica has the request until it is sent again"),
}
ENDINGS = {
    "timed_out": N_("Its client gave up waiting."),
    "lost": N_("Its replica failed, and its client had no attempts left."),
}


def request_timeline(journal: RequestJournal) -> Iterator[RenderableType]:
    """Yield sentences and the table of the request's steps, equal steps in one row."""
    request = journal.request
    yield (
        _(
            "Request {index} of {requests}: {prompt_tokens} prompt tokens, {output_tokens} output "
            "tokens, priority {priority}; arrived at {s} s.",
            index=request.index,
            requests=journal.requests,
            prompt_tokens=request.prompt_tokens,
            output_tokens=request.output_tokens,
            priority=request.priority,
            s=_s(request.arrived_s),
        )
    )
    broken = journal.plan.ends_with_errors and bool(request.left) and request.left[-1].progress is None
    if request.rejected and not broken:
        yield _why_rejected(journal)
        return
    if not request.hops:
        yield _("No replica received the request.")
    else:
        yield _served_by(journal)
        yield FittedTable(HEADS, list(rows(journal)))
        yield from _between_gpus(journal)
    for what, at_s in ((_("first token"), request.first_token_s), (_("last token"), request.finished_s)):
        if not isnan(at_s):
            yield _(
                "The client receives the {what} at {at} s, {after} s after the request.",
                what=what,
                at=_s(at_s),
                after=_s(at_s - request.arrived_s),
            )
    if request.attempts > 1:
        yield _("The request was sent {attempts} times.", attempts=request.attempts)
    if request.given_up:
        yield _(ENDINGS[request.gave_up])
    elif request.rejected:
        yield _("The server ended the request with an error: the KV cache was full.")
    elif isnan(request.finished_s):
        yield _("The request had not finished when the run ended.")


def _why_rejected(journal: RequestJournal) -> str:
    request, plan = journal.request, journal.plan
    tenant = next((one for one in plan.workload.tenants if one.name == request.tenant), None)
    limited = tenant is not None and tenant.rate_limit is not None and not request.hops
    if limited and plan.admission is None and not plan.refuses:
        return _("The request was rejected: tenant {tenant} was over its rate limit.", tenant=request.tenant)
    if limited:
        return _(
            "The request was rejected by admission, a queue limit, or the rate limit of tenant {tenant}.",
            tenant=request.tenant,
        )
    if plan.refuses:
        return _(
            "The request was rejected by a queue limit (of the server or in admission), or its tokens fit no replica."
        )
    if request.attempts > 1 or plan.admission is not None:
        return _("The request was rejected at the gateway (admission), or its tokens fit no replica.")
    return _("The request was rejected: its tokens do not fit max_model_len or the KV cache.")


def _served_by(journal: RequestJournal) -> str:
    request = journal.request
    names = ", ".join(f"{_('replica')} {hop.replica}" for hop in request.hops)
    found = (
        _(" {cached_tokens} prompt tokens were found in the prefix cache.", cached_tokens=request.cached_tokens)
        if request.cached_tokens
        else ""
    )
    return _(
        "Served by {names}; {preemptions} preemptions.{found}",
        names=names,
        preemptions=request.preemptions,
        found=found,
    )


def _between_gpus(journal: RequestJournal) -> Iterator[str]:
    """Yield the time that the request's steps spend on messages between GPUs, if any."""
    found = exchanged(journal)
    if found.by_message:
        parts = [
            f"{_(MESSAGES[what][own])} {_s(seconds)} s" for (what, own), seconds in sorted(found.by_message.items())
        ]
        yield _(
            "Messages between GPUs over {link} take {s} s of the {steps} s of its steps: {parts}.",
            steps=_s(found.steps_s),
            s=_s(sum(found.by_message.values())),
            link=", ".join(sorted(found.links)),
            parts="; ".join(parts),
        )


def rows(journal: RequestJournal) -> Iterator[tuple[str, ...]]:
    """Yield a row per phase: name, start, end, steps, sequences and new tokens."""
    for one in request_phases(journal):
        batches = [span.batch for span in one.spans]
        sequences = [batch.decode_seqs + batch.prefill_seqs for batch in batches]
        tokens = [batch.decode_seqs + batch.draft_tokens + batch.prefill_tokens for batch in batches]
        figures = (number(one.steps), _range(sequences), _range(tokens)) if batches else ("", "", "")
        yield _phase_text(one, journal.request.prompt_tokens), _s(one.start_s), _s(one.end_s), *figures


def _phase_text(one: RequestPhase, prompt_tokens: int) -> str:
    if one.what == "prompt":
        return _(
            "prompt: {prompt} tokens, {done} of {prompt_tokens} computed",
            prompt=one.tokens,
            done=one.done,
            prompt_tokens=prompt_tokens,
        )
    if one.what == "again":
        return _("starts over: {tokens} tokens of prompt and answer", tokens=one.tokens)
    if one.what == "decodes":
        return _("decodes")
    if one.what == "stands":
        return _(STANDS[one.why])
    if one.what == "waits":
        return _("preempted: {waits}", waits=_(WAITS[one.why])) if one.preempted else _(WAITS[one.why])
    return _(OUTSIDE_REPLICA[one.what])


def _range(counts: list[int]) -> str:
    low, high = number(min(counts)), number(max(counts))
    return low if low == high else _("{low} to {high}", low=low, high=high)


def _s(seconds: float) -> str:
    return f"{seconds:.4f}"


NANOSECONDS = 1e9
PER_MICROSECOND = 1e3
REQUEST = 0
"""Process number of the request; replicas follow."""


def trace(journal: RequestJournal) -> str:
    """Return the JSON trace: one process for each replica, with its steps, and one for the request."""
    request = journal.request
    threads: dict[int, list[int]] = {REQUEST: []}
    events: list[dict[str, Any]] = []
    for replica, span in sorted(journal.spans, key=lambda seen: (seen[1].start_s, seen[1].end_s, seen[0])):
        events.append(_event(replica + 1, _batch_text(span), span, _figures(span), threads))
        if takes_part(span, request.index):
            chunk = span.prompts.get(request.index)
            name = "decodes" if chunk is None else f"prompt, {chunk} tokens"
            events.append(_event(REQUEST, name, span, {}, threads))
    for what, at_s in (("arrives", request.arrived_s), ("first token", request.first_token_s)):
        if at_s == at_s:  # nan: the event has not happened
            at = round(at_s * NANOSECONDS) / PER_MICROSECOND
            events.append({"name": what, "ph": "i", "s": "p", "ts": at, "pid": REQUEST, "tid": 0})
    events.sort(key=lambda event: event["ts"])
    named = [_process_name_event(REQUEST, f"request {request.index}")]
    named += [
        _process_name_event(process, f"replica {process - 1}") for process in sorted(threads) if process != REQUEST
    ]
    return json.dumps({"traceEvents": [*named, *events], "displayTimeUnit": "ms"})


def _process_name_event(process: int, name: str) -> dict[str, Any]:
    return {"name": "process_name", "ph": "M", "pid": process, "tid": 0, "args": {"name": name}}


def _event(
    process: int, name: str, span: StepSpan, figures: dict[str, Any], threads: dict[int, list[int]]
) -> dict[str, Any]:
    """Build a complete event in the first free thread of *process*; *threads* holds the end of each thread [ns]."""
    start, end = round(span.start_s * NANOSECONDS), round(span.end_s * NANOSECONDS)
    ends = threads.setdefault(process, [])
    thread = next((place for place, last in enumerate(ends) if last <= start), len(ends))
    ends[thread : thread + 1] = [end]
    lasts = (end - start) / PER_MICROSECOND
    start_us = start / PER_MICROSECOND
    return {"name": name, "ph": "X", "ts": start_us, "dur": lasts, "pid": process, "tid": thread, "args": figures}


def _batch_text(span: StepSpan) -> str:
    prompts, decodes = span.batch.prefill_seqs, span.batch.decode_seqs
    return " + ".join(f"{count} {what}" for count, what in ((prompts, "prompts"), (decodes, "decodes")) if count)


def _figures(span: StepSpan) -> dict[str, Any]:
    batch = span.batch
    return {
        "steps": span.steps,
        "prompt tokens": batch.prefill_tokens,
        "decoding sequences": batch.decode_seqs,
        "context tokens": batch.kv_tokens + batch.prefill_context_tokens,
        "queue waits for": span.blocked_by or "nothing",
    }
