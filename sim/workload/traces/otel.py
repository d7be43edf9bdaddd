"""OpenTelemetry spans of calls to language models, in OTLP's JSON (semantic conventions for generative AI)."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import numpy as np

from sim.infile import opened
from sim.workload.requests import RequestTable
from sim.workload.sessions.context import Context
from sim.workload.shared_prefix import HASH_BLOCK_TOKENS
from sim.workload.traces.faults import Faults, TraceError, unreadable
from sim.workload.traces.file import TraceFile, TraceReading

INPUT, OUTPUT = "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"
CONVERSATION = "gen_ai.conversation.id"
NANOSECONDS = 1e9

Span = tuple[int, int, int, int, str]
"""Start and end [ns], prompt and output tokens, conversation."""


class OtelTrace(TraceFile):
    """An export of OTLP in JSON a line, as the collector's file exporter writes it. Spans with
    `gen_ai.usage.input_tokens` and `gen_ai.usage.output_tokens` are requests, the others (tools, agents) are time
    between them.

    A session is a `gen_ai.conversation.id`, or else a trace. A request follows the one of its session whose span ended
    last before its own began, after the same pause: so agents side by side stay so.
    """

    format: Literal["otel"]

    def read(self) -> TraceReading:
        """Read and check the file. Raises TraceError with all that is wrong."""
        faults = Faults(self.path)
        try:
            with opened(self.path) as file:
                spans = sorted(_spans(file, faults))
        except OSError as error:
            raise unreadable(self.path, error) from None
        faults.stop_if_any()
        if not spans:
            raise TraceError([(self.path, 0, f"holds no spans with {INPUT} and {OUTPUT}")])
        return TraceReading(_table(spans))


def _spans(file: Iterable[bytes], faults: Faults) -> Iterator[Span]:
    for line, text in enumerate(file, 1):
        if text.isspace():
            continue
        try:
            export = json.loads(text)
            spans = [
                span
                for resource in export["resourceSpans"]
                for scope in resource.get("scopeSpans", ())
                for span in scope.get("spans", ())
            ]
        except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
            faults.add(line, 'is no export of OTLP in JSON: {"resourceSpans": [...]}')
            continue
        for span in spans:
            try:
                found = _request(span)
            except (ValueError, KeyError, TypeError, AttributeError):
                faults.add(line, f"a span without times or attributes in OTLP's form: {json.dumps(span)[:80]}")
                continue
            if found is not None and (found[1] < found[0] or min(found[2:4]) < 1):
                faults.add(line, f"a span that ends before it begins, or without tokens: {json.dumps(span)[:80]}")
            elif found is not None:
                yield found


def _request(span: dict[str, Any]) -> Span | None:
    """None where the span is no request."""
    known = {one["key"]: next(iter(one["value"].values())) for one in span.get("attributes", ())}
    if INPUT not in known or OUTPUT not in known:
        return None
    times = int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])
    return (*times, int(known[INPUT]), int(known[OUTPUT]), str(known.get(CONVERSATION) or span["traceId"]))


def _table(spans: Sequence[Span]) -> RequestTable:
    """*spans*, in order of their starts, as requests that follow one another."""
    starts = np.array([span[0] - spans[0][0] for span in spans], np.float64) / NANOSECONDS
    prompts, outputs = (np.array([span[i] for span in spans], np.int64) for i in (2, 3))
    table = RequestTable(starts, prompts, outputs)
    table.session = [span[4] for span in spans]
    table.follows = _order(spans)
    turns: dict[str, int] = {}
    table.turn = np.array([turns.setdefault(name, 0) for name in table.session], np.int64)
    for row, name in enumerate(table.session):
        turns[name] += 1
        table.turn[row] = turns[name]
    table.block_hashes, table.hash_block_tokens = _blocks(table), HASH_BLOCK_TOKENS
    return table


def _order(spans: Sequence[Span]) -> list[tuple[int, float]]:
    """The row that each request follows, -1 for none, and the pause between them [s]."""
    earlier: dict[str, list[int]] = {}
    follows = []
    for row, (start, *_, session) in enumerate(spans):
        ended = [one for one in earlier.get(session, ()) if spans[one][1] <= start]
        last = max(ended, key=lambda one: (spans[one][1], one), default=-1)
        follows.append((last, (start - spans[last][1]) / NANOSECONDS if last >= 0 else 0.0))
        earlier.setdefault(session, []).append(row)
    return follows


def _blocks(table: RequestTable) -> list[Sequence[int]]:
    """Ids of blocks: a prompt that has room for what its predecessor said goes on from it, the first one that does."""
    contexts: list[Context | None] = []
    blocks: list[Sequence[int]] = []
    prompts, outputs = table.prompt_tokens.tolist(), table.output_tokens.tolist()
    for row, ((before, _), prompt, output) in enumerate(zip(table.follows or (), prompts, outputs, strict=True)):
        context = contexts[before] if before >= 0 else None
        if context is None or context.tokens > prompt:
            context = Context(row, 0, 0)
        else:
            contexts[before] = None
        contexts.append(context)
        blocks.append(context.grown(prompt - context.tokens, output)[1])
    return blocks
