"""OpenTelemetry spans of language model calls, in OTLP's JSON (semantic conventions for generative AI)."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sim.decimals import whole_number
from sim.infile import opened
from sim.message import Message
from sim.otel import OUTPUT_TOKENS, PROMPT_TOKENS, first_of, unknown_token_keys
from sim.workload.requests import RequestTable
from sim.workload.shared_prefix import HASH_BLOCK_TOKENS, Context
from sim.workload.traces.columns import LARGEST
from sim.workload.traces.trace_file import TraceError, TraceFaults, TraceFile, TraceReading, unreadable

CONVERSATION = "gen_ai.conversation.id"
NANOSECONDS = 1e9

Span = tuple[int, int, int, int, str]
"""Span of a request: start and end [ns], prompt and output tokens, conversation."""


class OtelTrace(TraceFile):
    """OpenTelemetry trace: an OTLP export in JSON per line, as written by the collector's file exporter.

    Spans with `gen_ai.usage.input_tokens` and `gen_ai.usage.output_tokens` are requests; the others (tools, agents) are
    time between them. A session is a `gen_ai.conversation.id`, or else a trace. A request follows the request of its
    session whose span ended last before its own start, after the recorded pause, so that parallel agents remain
    parallel.
    """

    format: Literal["otel"]

    def read(self) -> TraceReading:
        """Return the requests of the file, checked. Raises TraceError listing all faults."""
        faults = TraceFaults(self.path)
        unread: dict[str, int] = {}
        try:
            with opened(self.path) as file:
                spans = sorted(_spans(file, faults, unread))
        except OSError as error:
            raise unreadable(self.path, error) from None
        faults.stop_if_any()
        if not spans:
            raise TraceError(
                [
                    (
                        self.path,
                        0,
                        Message(
                            "holds no spans with {prompt_tokens} and {output_tokens}",
                            PROMPT_TOKENS[0],
                            OUTPUT_TOKENS[0],
                        ),
                    )
                ]
            )
        notes = [
            Message(
                "{name}: ignored unknown token key {key!r} of {count} span{plural}",
                Path(self.path).name,
                key,
                count,
                "s" if count > 1 else "",
            )
            for key, count in unread.items()
        ]
        return TraceReading(_table(spans), tuple(notes))


def _spans(file: Iterable[bytes], faults: TraceFaults, unread: dict[str, int]) -> Iterator[Span]:
    """Yield the requests among the spans of *file*; unread token keys of requests are counted in *unread*.

    A span that is not a request because a token key is unknown is added to *faults*, once per key.
    """
    misnamed: set[str] = set()
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
            faults.add(line, 'is not an OTLP export in JSON: {"resourceSpans": [...]}')
            continue
        for span in spans:
            try:
                known = {one["key"]: next(iter(one["value"].values())) for one in span.get("attributes", ())}
                unknown = unknown_token_keys(known)
                found = _request(span, known)
            except (ValueError, KeyError, TypeError, AttributeError, StopIteration):
                faults.add(
                    line, Message("a span without times or attributes in OTLP's form: {span}", json.dumps(span)[:80])
                )
                continue
            if found is None:
                for key, nearest in unknown.items():
                    if key not in misnamed:
                        faults.add(
                            line,
                            Message("unknown token key {key!r} in a span; did you mean {nearest!r}?", key, nearest),
                        )
                        misnamed.add(key)
                continue
            for key in unknown:
                unread[key] = unread.get(key, 0) + 1
            if found[1] < found[0] or not all(1 <= tokens <= LARGEST for tokens in found[2:4]):
                faults.add(
                    line, Message("a span that ends before it begins, or without tokens: {span}", json.dumps(span)[:80])
                )
            else:
                yield found


def _request(span: dict[str, Any], known: Mapping[str, Any]) -> Span | None:
    """Return *span* as a request; None where one of its attributes *known* is missing. Raises ValueError."""
    prompt, output = first_of(known, PROMPT_TOKENS), first_of(known, OUTPUT_TOKENS)
    if prompt is None or output is None:
        return None
    figures = [whole_number(one) for one in (span["startTimeUnixNano"], span["endTimeUnixNano"], prompt, output)]
    start, end, prompt, output = figures
    if start is None or end is None or prompt is None or output is None:
        raise ValueError("no whole number")
    return start, end, prompt, output, str(known.get(CONVERSATION) or span["traceId"])


def _table(spans: Sequence[Span]) -> RequestTable:
    """Return *spans*, in order of their starts, as requests that follow one another."""
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
    """Return the row that each request follows (-1: none) and the pause between them [s]."""
    earlier: dict[str, list[int]] = {}
    follows = []
    for row, (start, *_, session) in enumerate(spans):
        ended = [one for one in earlier.get(session, ()) if spans[one][1] <= start]
        last = max(ended, key=lambda one: (spans[one][1], one), default=-1)
        follows.append((last, (start - spans[last][1]) / NANOSECONDS if last >= 0 else 0.0))
        earlier.setdefault(session, []).append(row)
    return follows


def _blocks(table: RequestTable) -> list[Sequence[int]]:
    """Return the block ids of each request.

    A prompt at least as long as the conversation up to its predecessor continues it; only the first such prompt does.
    """
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
