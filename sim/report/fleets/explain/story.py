"""What happened to one request, as a table."""

from collections.abc import Iterator
from math import isnan

from rich.console import RenderableType

from sim.language import N_, _
from sim.records import Span
from sim.report.terminal.fitted import FittedTable
from sim.report.words.text import number
from sim.study.fleets.explain.journal import Journal

HEADS = (
    N_("What"),
    N_("from [s]"),
    N_("to [s]"),
    N_("steps"),
    N_("sequences in the step"),
    N_("new tokens in the step"),
)
REASONS = {
    "": N_("waits for the step under way"),
    "seats": N_("waits for a free sequence (max_num_seqs)"),
    "kv": N_("waits for KV blocks"),
    "budget": N_("waits for token budget (max_num_batched_tokens)"),
}
ENDINGS = {
    "timed_out": N_("Its client gave up waiting."),
    "lost": N_("It was lost with its replica, and its client had no attempt left."),
}
AFTER = N_("is left out: no budget")
MOVES = N_("its KV crosses the network")


def story(journal: Journal) -> Iterator[RenderableType]:
    """Sentences and the steps of the request, equal ones in one row."""
    request, pool = journal.request, journal.plan.pools
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
    if request.rejected:
        if request.attempts > 1 or journal.plan.admission is not None:
            yield _("It was turned away at the gateway (admission), or its tokens fit no replica.")
        else:
            yield _("It was rejected: its tokens do not fit max_model_len or the KV cache.")
        return
    names = ", ".join(f"{pool[0].name if len(pool) == 1 else _('replica')} {hop.replica}" for hop in request.hops)
    found = (
        _(" {cached_tokens} prompt tokens were found in the prefix cache.", cached_tokens=request.cached_tokens)
        if request.cached_tokens
        else ""
    )
    yield _(
        "Served by {names}; {preemptions} preemptions.{found}",
        names=names,
        preemptions=request.preemptions,
        found=found,
    )
    yield FittedTable(HEADS, list(rows(journal)))
    for what, at_s in ((_("first token"), request.first_token_s), (_("last token"), request.finished_s)):
        if not isnan(at_s):
            yield _(
                "The client has the {what} at {at} s, {after} s after it asked.",
                what=what,
                at=_s(at_s),
                after=_s(at_s - request.arrived_s),
            )
    if request.attempts > 1:
        yield _("It was sent {attempts} times.", attempts=request.attempts)
    if request.given_up:
        yield _(ENDINGS[request.gave_up])
    elif isnan(request.finished_s):
        yield _("It had not finished when the run ended.")


def rows(journal: Journal) -> Iterator[tuple[str, ...]]:
    """What, from, to, steps, sequences and new tokens of each stretch of like steps."""
    request = journal.request
    started, done = False, request.cached_tokens
    alike: list[Span] = []
    last = ""
    for _step, span in journal.spans:
        prompt = span.prompts.get(request.index)
        if prompt is not None:
            started, done = True, done + prompt
            what = _(
                "prompt: {prompt} tokens, {done} of {prompt_tokens} computed",
                prompt=prompt,
                done=min(done, request.prompt_tokens),
                prompt_tokens=request.prompt_tokens,
            )
        elif request.index in span.decoding:
            what = _("decodes")
        elif span.start_s < request.first_token_s + request.kv_transfer_s:
            what = _(MOVES)
        else:
            what = _(REASONS[span.blocked_by] if not started or span.blocked_by == "kv" else AFTER)
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
    return low if low == high else _("{low} to {high}", low=low, high=high)


def _s(seconds: float) -> str:
    return f"{seconds:.4f}"
