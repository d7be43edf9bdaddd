"""What a request did and what kept it waiting, from its arrival to its last token."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import ceil, inf, isnan

from sim.records import Hop, Span
from sim.study.fleets.explain.journal import Journal, takes_part

TINY_S = 1e-9


@dataclass(slots=True)
class Stretch:
    """A time in which a request did one thing."""

    what: str
    """prompt, again (prompt and answer, after a preemption or a loss), decodes; waits or stands (it is in the batch,
    and not in the step); transfer, unsent or resent (it is at no replica).
    """
    start_s: float
    end_s: float
    why: str = ""
    """What it waits for: seats, kv, budget, batch (its end), spaced (the next step with prompts), held (until
    more prompts have come), unread, intake (the API server), prompts (that go first), or nothing but the step under
    way."""
    preempted: bool = False
    tokens: int = 0
    """New ones, of prompts."""
    done: int = 0
    """Prompt tokens that are computed, these included."""
    steps: int = 0
    spans: list[Span] = field(default_factory=list)
    """Of its replica meanwhile; none where it is at no replica."""


def stretches(journal: Journal) -> Iterator[Stretch]:
    """The life of the request; what is alike and follows each other is one stretch, but each prompt chunk is."""
    last: Stretch | None = None
    for one in _single(journal):
        if last is not None and one.what not in ("prompt", "again") and _kind(one) == _kind(last):
            last.end_s, last.steps = one.end_s, last.steps + one.steps
            last.spans += one.spans
            continue
        if last is not None:
            yield last
        last = one
    if last is not None:
        yield last


def _kind(one: Stretch) -> tuple[str, str, bool]:
    return one.what, one.why, one.preempted


def _single(journal: Journal) -> Iterator[Stretch]:
    """One for each span."""
    request = journal.request
    since_s, seen, before = request.arrived_s, False, "unsent"
    for hop in request.hops:
        if hop.came_s > since_s + TINY_S:
            yield Stretch(before, since_s, hop.came_s)
        visit = _Visit(journal, hop, seen)
        yield from visit.stretches()
        seen = visit.seen
        since_s = hop.left_s
        before = "transfer" if hop.progress is None else "resent"


class _Visit:
    """A request at one replica."""

    def __init__(self, journal: Journal, hop: Hop, seen: bool) -> None:
        """*seen*: another replica has computed something of it."""
        request = journal.request
        self._journal, self._index = journal, request.index
        self._sent_s, self._left_s = hop.came_s, inf if isnan(hop.left_s) else hop.left_s
        spans = [span for replica, span in journal.spans if replica == hop.replica]
        here = (at_s for replica, at_s in journal.reached if replica == hop.replica and at_s >= hop.came_s)
        known_s = self._left_s if self._left_s < inf else max((span.end_s for span in spans), default=hop.came_s)
        self._came_s = min(next(here, known_s), self._left_s)
        """When the engine got it, or how far it is known that the API server had it."""
        self._spans = [span for span in spans if span.end_s > self._came_s and span.start_s < self._left_s]
        self._own = [span for span in self._spans if self._takes_part(span)]
        self.seen = seen
        self._again = seen
        self._runs = self._preempted = False
        self._done = request.cached_tokens if self._came_s <= request.started_s < self._left_s else 0

    def stretches(self) -> Iterator[Stretch]:
        """One for each span that concerns it."""
        told_s, last = self._came_s, None
        if self._came_s > self._sent_s + TINY_S:
            yield Stretch("waits", self._sent_s, self._came_s, "intake")
        for span in self._spans:
            one: Stretch | None = None
            idle = told_s == self._came_s  # its rank, while others step
            if self._takes_part(span):
                one = self._took_part(span)
            elif span.place == "running" and self._joined_by(span):
                one = None if self._elsewhere(span) else self._stood(span)
            elif span.place:
                one = self._waited(span, told_s)
            if one is not None:
                late = one.start_s > told_s + TINY_S
                if late and idle:
                    yield Stretch("waits", told_s, one.start_s)
                elif late and last is not None and last.what == "waits":  # batches that were formed before go first
                    yield Stretch("waits", told_s, one.start_s, last.why, last.preempted)
                told_s, last = max(told_s, one.end_s), one
                yield one

    def _joined_by(self, span: Span) -> bool:
        """False where *span* began before: if the request is in it, then by an earlier visit that was broken off."""
        return span.start_s > self._came_s - TINY_S

    def _takes_part(self, span: Span) -> bool:
        return takes_part(span, self._index) and self._joined_by(span)

    def _took_part(self, span: Span) -> Stretch:
        end_s = min(span.end_s, self._left_s)
        self._runs, self._preempted, self.seen = True, False, True
        tokens = span.prompts.get(self._index)
        if tokens is None:
            return Stretch("decodes", span.start_s, end_s, steps=span.steps, spans=[span])
        self._done += tokens
        done = min(self._done, self._journal.request.prompt_tokens)
        what = "again" if self._again else "prompt"
        return Stretch(what, span.start_s, end_s, tokens=tokens, done=done, steps=span.steps, spans=[span])

    def _elsewhere(self, span: Span) -> bool:
        """Whether it was in another batch in flight."""
        return any(own.start_s < span.end_s and span.start_s < own.end_s for own in self._own)

    def _stood(self, span: Span) -> Stretch:
        mid_prompt = self._done < self._journal.request.prompt_tokens
        why = span.blocked_by
        if not span.batch.decode_seqs and not mid_prompt:
            why = "prompts"
        elif mid_prompt and (self._journal.spaced or self._journal.held) and not span.batch.prefill_seqs:
            why = "spaced" if self._journal.spaced else "held"
        elif why != "kv":
            why = "budget"
        return Stretch("stands", span.start_s, min(span.end_s, self._left_s), why, steps=span.steps, spans=[span])

    def _waited(self, span: Span, told_s: float) -> Stretch | None:
        """In the queue, up to its next step: batches of a pipeline overlap."""
        start_s = max(span.start_s, told_s)
        joins_s = min((own.start_s for own in self._own if own.end_s >= span.end_s), default=inf)
        end_s = min(span.end_s, joins_s, self._left_s)
        if end_s <= start_s + TINY_S:
            return None
        why = span.blocked_by
        if span.place == "unread":
            why = "unread"
        elif span.start_s < self._came_s:
            why = ""
        elif why == "seats" and self._journal.in_batches:
            why = "batch"
        elif why == "budget" and self._journal.spaced and not span.batch.prefill_seqs:
            why = "spaced"
        if self._runs:
            self._runs, self._preempted, self._again = False, True, True
        steps = span.steps
        if start_s > span.start_s:  # of steps that last about as long as each other
            steps = max(1, ceil(steps * (span.end_s - start_s) / (span.end_s - span.start_s) - TINY_S))
        return Stretch("waits", start_s, end_s, why, self._preempted, steps=steps, spans=[span])
