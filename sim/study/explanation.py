"""Explanation of one request of a run, step by step, from its arrival to its last token.

The journal records the steps of the replicas that served the request. From the journal follow the phases in which the
request was computed or waited, with the reason, and the time that GPUs spent on collectives in its steps.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, inf, isnan

from sim.engine.kv.blocks import BlockPool
from sim.engine.lora import AdapterSlots
from sim.engine.protocol import KvTransit, ReplicaEngine
from sim.fleet.fleet import RunningFleet
from sim.fleet.intake import IntakeEngine
from sim.fleet.pool import rank_limits
from sim.message import Message
from sim.records import Meters, ReplicaProgress, ReplicaVisit, Request, StepSpan
from sim.scenario.resolving.resolved import CasePlan
from sim.steptime.drafting import ComputedStepTime


@dataclass(frozen=True, slots=True)
class RequestJournal:
    """Request with the steps of the replicas that served it."""

    plan: CasePlan
    request: Request
    """Request, with timestamps as seen by a client."""
    spans: list[tuple[int, StepSpan]]
    """(replica, steps), in order of the ends of the steps."""
    reached: list[tuple[int, float]]
    """(replica, time at which its engine received the request [s]), behind the API server."""
    requests: int
    """Number of requests of the run."""
    spaced: bool = False
    """True if prompts are computed only every few steps (`prefill_schedule_interval`)."""
    held: bool = False
    """True if prompts are held back until more have come (`batch_wait_timeout_iters`), or until all ranks have some
    (`attention_dp_timeout_iters`)."""
    in_batches: bool = False
    """True if a batch ends before the next one begins (`policy: static`)."""
    pool_of_replica: Sequence[int] = ()
    """Position of each replica's pool in the plan."""

    @property
    def own(self) -> list[StepSpan]:
        """Steps that the request took part in."""
        return [span for _, span in self.spans if takes_part(span, self.request.index)]


def takes_part(span: StepSpan, index: int) -> bool:
    """Return whether request number *index* is in the batch of *span*."""
    return index in span.prompts or index in span.decoding


class RecordingEngine:
    """Engine that records its steps as they end.

    Parameters
    ----------
    engine
        Engine that is wrapped.
    replica
        Number of the replica.
    spans
        List to which (replica, step) is appended.
    reached
        List to which (replica, time) is appended when the engine receives the request.
    asked
        Number of the request that is explained.

    """

    def __init__(
        self,
        engine: ReplicaEngine,
        replica: int,
        spans: list[tuple[int, StepSpan]],
        reached: list[tuple[int, float]],
        asked: int,
    ) -> None:
        self._engine, self._replica, self._spans, self._asked = engine, replica, spans, asked
        self._reached = reached
        self._places: dict[float, str] = {}
        """Start of each step in flight -> place of the request when it came or was removed during the step."""

    def offer(self, request: Request, now: float, prompt_only: bool = False) -> bool:
        """See `ReplicaEngine.offer`."""
        moved = self._engine.offer(request, now, prompt_only)
        if request.index == self._asked:
            self._reached.append((self._replica, now))
        self._note(request)
        return moved

    def kv_transit(self) -> KvTransit | None:
        """See `ReplicaEngine.kv_transit`."""
        return self._engine.kv_transit()

    def evict(self, request: Request, now: float) -> ReplicaProgress:
        """See `ReplicaEngine.evict`."""
        self._note(request)
        return self._engine.evict(request, now)

    def crash(self, now: float) -> None:
        """See `ReplicaEngine.crash`; the steps in flight end at *now*."""
        begun = [span for span in self._under_way() if span.start_s < now]
        self._spans += [(self._replica, replace(span, end_s=now)) for span in begun]
        self._engine.crash(now)

    def plan(self, now: float) -> float:
        """See `ReplicaEngine.plan`."""
        return self._engine.plan(now)

    def advance(self) -> list[Request]:
        """See `ReplicaEngine.advance`."""
        before = self._under_way()
        left = self._engine.advance()
        still = {span.start_s for span in self._engine.under_way()}
        self._spans += [(self._replica, span) for span in before if span.start_s not in still]
        return left

    def _note(self, request: Request) -> None:
        if request.index == self._asked:
            self._places = {span.start_s: span.place for span in self._engine.under_way(self._asked) if span.place}

    def _under_way(self) -> list[StepSpan]:
        spans, places = self._engine.under_way(self._asked), self._places
        return [replace(span, place=places.get(span.start_s, span.place)) for span in spans]

    def meters(self, now: float) -> Meters:
        """See `ReplicaEngine.meters`."""
        return self._engine.meters(now)

    def share_time(self, on: bool, now: float) -> None:
        """See `ReplicaEngine.share_time`."""
        self._engine.share_time(on, now)

    def under_way(self, asked: int = -1) -> list[StepSpan]:
        """See `ReplicaEngine.under_way`."""
        return self._engine.under_way(asked)

    def caches(self) -> list[BlockPool]:
        """See `ReplicaEngine.caches`."""
        return self._engine.caches()

    def kv_usage(self, now: float) -> float:
        """See `ReplicaEngine.kv_usage`."""
        return self._engine.kv_usage(now)

    def adapters(self) -> list[AdapterSlots]:
        """See `ReplicaEngine.adapters`."""
        return self._engine.adapters()

    def last_waiting(self) -> Request | None:
        """See `ReplicaEngine.last_waiting`."""
        return self._engine.last_waiting()

    def waiting(self) -> int:
        """See `ReplicaEngine.waiting`."""
        return self._engine.waiting()


class NoSuchRequest(LookupError):
    """Error for the number of a request that the run does not have."""


def journal_of(plan: CasePlan, index: int) -> RequestJournal:
    """Return the journal of request number *index* of *plan*.

    The run is simulated twice with equal results: first to find the replicas of the request, then to record them.

    Raises
    ------
    NoSuchRequest
        Where the run has fewer requests.

    """
    log = RunningFleet(plan).run()
    if not 0 <= index < len(log.requests):
        raise NoSuchRequest(Message("the run has {count} requests, from 0 on", len(log.requests)))
    request = log.requests[index]
    replicas = {hop.replica for hop in request.hops}
    spans: list[tuple[int, StepSpan]] = []
    reached: list[tuple[int, float]] = []

    def watch(engine: ReplicaEngine, replica: int) -> ReplicaEngine:
        if replica not in replicas:
            return engine
        # the engine's steps are recorded from the time at which it has the request
        if isinstance(engine, IntakeEngine):
            engine.engine = RecordingEngine(engine.engine, replica, spans, reached, index)
            return engine
        return RecordingEngine(engine, replica, spans, reached, index)

    RunningFleet(plan, watch).run()
    own_s = [span.end_s for _, span in spans if takes_part(span, index)]
    end_s = log.end_s if isnan(request.finished_s) or not own_s else max(own_s)
    seen = [(replica, span) for replica, span in spans if request.arrived_s < span.end_s <= end_s]
    if request.left:
        seen = [(replica, span) for replica, span in seen if _was_at_replica(request, replica, span)]
    limits = [rank_limits(pool) for pool in plan.pools]
    spaced = any(one.options.prefill_schedule_interval > 1 for one in limits)
    held = any(max(one.options.batch_wait_timeout_iters, one.options.attention_dp_timeout_iters) for one in limits)
    in_batches = all(pool.batching.policy == "static" for pool in plan.pools)
    return RequestJournal(
        plan, request, seen, reached, len(log.requests), spaced, held, in_batches, log.pool_of_replica
    )


def _was_at_replica(request: Request, replica: int, span: StepSpan) -> bool:
    """Return whether *request* was at *replica* during *span*: it may have come back after a failure."""
    visits = [hop for hop in request.hops if hop.replica == replica]
    return any(hop.came_s < span.end_s and not span.start_s >= hop.left_s for hop in visits)


TINY_S = 1e-9


@dataclass(slots=True)
class RequestPhase:
    """Period of one activity of a request."""

    what: str
    """Activity.

    `prompt`, `again` (prompt and output, after a preemption or a loss) and `decodes` are computed; `waits` is in the
    queue, `stands` in the batch but not in the step; `transfer`, `unsent` and `resent` are at no replica.
    """
    start_s: float
    end_s: float
    why: str = ""
    """Reason for waiting; empty: only for the step in flight.

    `seats` (max_num_seqs), `kv`, `budget`, `batch` (its end), `spaced` (the next step with prompts), `held` (until more
    prompts have come), `unread`, `intake` (the API server) or `prompts` (which are scheduled first).
    """
    preempted: bool = False
    tokens: int = 0
    """Number of new prompt tokens."""
    done: int = 0
    """Number of prompt tokens computed so far, the new ones included."""
    steps: int = 0
    spans: list[StepSpan] = field(default_factory=list)
    """Steps of the request's replica in the period; empty where it is at no replica."""


def request_phases(journal: RequestJournal) -> Iterator[RequestPhase]:
    """Yield the phases of the request in order; adjacent equal phases are merged, except prompt chunks."""
    last: RequestPhase | None = None
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


def _kind(one: RequestPhase) -> tuple[str, str, bool]:
    return one.what, one.why, one.preempted


def _single(journal: RequestJournal) -> Iterator[RequestPhase]:
    """Yield the phases of the request, one per span of a replica."""
    request = journal.request
    since_s, seen, before = request.arrived_s, False, "unsent"
    for hop in request.hops:
        if hop.came_s > since_s + TINY_S:
            yield RequestPhase(before, since_s, hop.came_s)
        visit = _Visit(journal, hop, seen)
        yield from visit.phases()
        seen = visit.seen
        since_s = hop.left_s
        before = "transfer" if hop.progress is None else "resent"


class _Visit:
    """Visit of a request at one replica."""

    def __init__(self, journal: RequestJournal, hop: ReplicaVisit, seen: bool) -> None:
        request = journal.request
        self._journal, self._index = journal, request.index
        self._sent_s, self._left_s = hop.came_s, inf if isnan(hop.left_s) else hop.left_s
        spans = [span for replica, span in journal.spans if replica == hop.replica]
        here = (at_s for replica, at_s in journal.reached if replica == hop.replica and at_s >= hop.came_s)
        known_s = self._left_s if self._left_s < inf else max((span.end_s for span in spans), default=hop.came_s)
        self._came_s = min(next(here, known_s), self._left_s)
        """Time at which the engine received the request, or until which it was certainly at the API server [s]."""
        self._spans = [span for span in spans if span.end_s > self._came_s and span.start_s < self._left_s]
        self._own = [span for span in self._spans if self._takes_part(span)]
        self.seen = seen
        self._again = seen
        self._runs = self._preempted = False
        self._done = request.cached_tokens if self._came_s <= request.started_s < self._left_s else 0

    def phases(self) -> Iterator[RequestPhase]:
        """Yield the phases of the visit, one per span."""
        covered_s, last = self._came_s, None
        if self._came_s > self._sent_s + TINY_S:
            yield RequestPhase("waits", self._sent_s, self._came_s, "intake")
        for span in self._spans:
            one: RequestPhase | None = None
            idle = covered_s == self._came_s  # the request's rank is idle while others step
            if self._takes_part(span):
                one = self._took_part(span)
            elif span.place == "running" and self._joined_by(span):
                one = None if self._is_in_other_batch(span) else self._stood(span)
            elif span.place:
                one = self._waited(span, covered_s)
            if one is not None:
                late = one.start_s > covered_s + TINY_S
                if late and idle:
                    yield RequestPhase("waits", covered_s, one.start_s)
                elif late and last is not None and last.what == "waits":  # earlier batches are computed first
                    yield RequestPhase("waits", covered_s, one.start_s, last.why, last.preempted)
                covered_s, last = max(covered_s, one.end_s), one
                yield one

    def _joined_by(self, span: StepSpan) -> bool:
        """Return whether *span* began during this visit; the request may be in earlier spans of an interrupted one."""
        return span.start_s > self._came_s - TINY_S

    def _takes_part(self, span: StepSpan) -> bool:
        return takes_part(span, self._index) and self._joined_by(span)

    def _took_part(self, span: StepSpan) -> RequestPhase:
        end_s = min(span.end_s, self._left_s)
        self._runs, self._preempted, self.seen = True, False, True
        tokens = span.prompts.get(self._index)
        if tokens is None:
            return RequestPhase("decodes", span.start_s, end_s, steps=span.steps, spans=[span])
        self._done += tokens
        done = min(self._done, self._journal.request.prompt_tokens)
        what = "again" if self._again else "prompt"
        return RequestPhase(what, span.start_s, end_s, tokens=tokens, done=done, steps=span.steps, spans=[span])

    def _is_in_other_batch(self, span: StepSpan) -> bool:
        """Return whether the request was in another batch in flight."""
        return any(own.start_s < span.end_s and span.start_s < own.end_s for own in self._own)

    def _stood(self, span: StepSpan) -> RequestPhase:
        mid_prompt = self._done < self._journal.request.prompt_tokens
        why = span.blocked_by
        if not span.batch.decode_seqs and not mid_prompt:
            why = "prompts"
        elif mid_prompt and (self._journal.spaced or self._journal.held) and not span.batch.prefill_seqs:
            why = "spaced" if self._journal.spaced else "held"
        elif why != "kv":
            why = "budget"
        return RequestPhase("stands", span.start_s, min(span.end_s, self._left_s), why, steps=span.steps, spans=[span])

    def _waited(self, span: StepSpan, covered_s: float) -> RequestPhase | None:
        """Return the phase of waiting in the queue, up to the request's next step; batches of a pipeline overlap."""
        start_s = max(span.start_s, covered_s)
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
        if start_s > span.start_s:  # the number of steps is estimated as if they were equally long
            steps = max(1, ceil(steps * (span.end_s - start_s) / (span.end_s - span.start_s) - TINY_S))
        return RequestPhase("waits", start_s, end_s, why, self._preempted, steps=steps, spans=[span])


@dataclass(slots=True)
class CollectiveTime:
    """Time that collectives took in the steps of a request [s]."""

    steps_s: float = 0.0
    by_message: dict[tuple[str, bool], float] = field(default_factory=lambda: defaultdict(float))
    """(message, whether the engine's own kernel sends it) -> time [s]; see `sim.steptime.links.Exchange`."""
    links: set[str] = field(default_factory=set)
    """Names of the links that the messages went over."""


def exchanged(journal: RequestJournal) -> CollectiveTime:
    """Return the collective time of the request's steps, all pipeline stages together; none for given step times."""
    found = CollectiveTime()
    for replica, span in journal.spans:
        if not takes_part(span, journal.request.index):
            continue
        found.steps_s += span.end_s - span.start_s
        steptime, batch = journal.plan.pools[journal.pool_of_replica[replica]].steptime, span.batch
        if not isinstance(steptime, ComputedStepTime):
            continue
        passes = span.steps * steptime.inputs.pipeline_parallel_size
        tokens = batch.decode_seqs + batch.draft_tokens + batch.prefill_tokens
        for one in steptime.exchanges(tokens, batch.replica_tokens):
            if one.calls * one.each_s:
                found.by_message[one.what, one.own] += passes * one.calls * one.each_s
                found.links.update(one.over)
    return found


__all__ = [
    "CollectiveTime",
    "NoSuchRequest",
    "RequestJournal",
    "RequestPhase",
    "exchanged",
    "journal_of",
    "request_phases",
]
