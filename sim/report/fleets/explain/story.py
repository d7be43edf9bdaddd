"""What happened to one request, as a table."""

from collections.abc import Iterator
from math import isnan

from rich.console import RenderableType

from sim.records import Span
from sim.report.terminal.fitted import FittedTable
from sim.report.words.text import number
from sim.study.fleets.explain.journal import Journal

HEADS = ("What", "from [s]", "to [s]", "steps", "sequences in the step", "new tokens in the step")
REASONS = {
    "": "waits for the step under way",
    "seats": "waits for a free sequence (max_num_seqs)",
    "kv": "waits for KV blocks",
    "budget": "waits for token budget (max_num_batched_tokens)",
}
AFTER = "is left out: no budget"


def story(journal: Journal) -> Iterator[RenderableType]:
    """Sentences and the steps of the request, equal ones in one row."""
    request, pool = journal.request, journal.plan.pools
    yield (
        f"Request {request.index} of {journal.requests}: {request.prompt_tokens} prompt tokens, "
        f"{request.output_tokens} output tokens, priority {request.priority}; arrived at {_s(request.arrived_s)} s."
    )
    if request.rejected:
        yield "It was rejected: its tokens do not fit max_model_len or the KV cache."
        return
    names = ", ".join(f"{pool[0].name if len(pool) == 1 else 'replica'} {hop.replica}" for hop in request.hops)
    found = f" {request.cached_tokens} prompt tokens were found in the prefix cache." if request.cached_tokens else ""
    yield f"Served by {names}; {request.preemptions} preemptions.{found}"
    yield FittedTable(HEADS, list(rows(journal)))
    for what, at_s in (("first token", request.first_token_s), ("last token", request.finished_s)):
        if not isnan(at_s):
            yield f"The client has the {what} at {_s(at_s)} s, {_s(at_s - request.arrived_s)} s after it asked."
    if isnan(request.finished_s):
        yield "It had not finished when the run ended."


def rows(journal: Journal) -> Iterator[tuple[str, ...]]:
    """What, from, to, steps, sequences and new tokens of each stretch of like steps."""
    request = journal.request
    started, done = False, request.cached_tokens
    alike: list[Span] = []
    last = ""
    for _, span in journal.spans:
        prompt = span.prompts.get(request.index)
        if prompt is not None:
            started, done = True, done + prompt
            what = f"prompt: {prompt} tokens, {min(done, request.prompt_tokens)} of {request.prompt_tokens} computed"
        elif request.index in span.decoding:
            what = "decodes"
        else:
            what = REASONS[span.blocked_by] if not started or span.blocked_by == "kv" else AFTER
        if alike and (what != last or prompt is not None):
            yield _row(last, alike, request.arrived_s)
            alike = []
        last = what
        alike.append(span)
    if alike:
        yield _row(last, alike, request.arrived_s)


def _row(what: str, spans: list[Span], arrived_s: float) -> tuple[str, ...]:
    batches = [span.batch for span in spans]
    sequences = [batch.decode_seqs + batch.prefill_seqs for batch in batches]
    tokens = [batch.decode_seqs + batch.draft_tokens + batch.prefill_tokens for batch in batches]
    steps = sum(span.steps for span in spans)
    times = _s(max(spans[0].start_s, arrived_s)), _s(spans[-1].end_s)
    return what, *times, number(steps), _range(sequences), _range(tokens)


def _range(counts: list[int]) -> str:
    low, high = number(min(counts)), number(max(counts))
    return low if low == high else f"{low} to {high}"


def _s(seconds: float) -> str:
    return f"{seconds:.4f}"
