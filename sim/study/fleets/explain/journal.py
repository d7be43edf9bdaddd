"""The steps of the replicas that served one request, from its arrival to its last token."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isnan

from sim.engine.kv.adapters import AdapterSlots
from sim.engine.kv.blocks import BlockPool
from sim.engine.protocol import ReplicaEngine
from sim.fleet import RunningFleet
from sim.fleet.arrivals.intake import IntakeEngine
from sim.fleet.pool import rank_limits
from sim.records import Meters, Progress, Request, Span
from sim.scenario.resolving.resolved import CasePlan


@dataclass(frozen=True, slots=True)
class Journal:
    """A request and what its replicas did meanwhile."""

    plan: CasePlan
    request: Request
    """Its timestamps are as a client sees them."""
    spans: list[tuple[int, Span]]
    """(replica, steps), in order of their ends."""
    reached: list[tuple[int, float]]
    """(replica, when its engine got the request), behind the API server."""
    requests: int
    """Requests of the run."""
    spaced: bool = False
    """Prompts are computed every few steps only (`prefill_schedule_interval`)."""
    held: bool = False
    """Prompts are held back until more have come (`batch_wait_timeout_iters`)."""
    in_batches: bool = False
    """A batch ends before the next one begins (`policy: static`)."""
    pool_of_replica: Sequence[int] = ()
    """Position of each replica's pool in the plan."""

    @property
    def own(self) -> list[Span]:
        """The steps that the request took part in."""
        return [span for _, span in self.spans if takes_part(span, self.request.index)]


def takes_part(span: Span, index: int) -> bool:
    """Whether request number *index* is in the batch of *span*."""
    return index in span.prompts or index in span.decoding


class Watched:
    """An engine whose steps are written down as they end."""

    def __init__(
        self,
        engine: ReplicaEngine,
        replica: int,
        spans: list[tuple[int, Span]],
        reached: list[tuple[int, float]],
        asked: int,
    ) -> None:
        """*asked* is the number of the request whose place and coming are written down, too."""
        self._engine, self._replica, self._spans, self._asked = engine, replica, spans, asked
        self._reached = reached
        self._places: dict[float, str] = {}
        """Begin of steps under way -> where the request was when it came or was taken away meanwhile."""

    def offer(self, request: Request, now: float, prompt_only: bool = False) -> bool:
        """See `Engine.offer`."""
        moved = self._engine.offer(request, now, prompt_only)
        if request.index == self._asked:
            self._reached.append((self._replica, now))
        self._note(request)
        return moved

    def reserve(self, request: Request, now: float) -> bool:
        """See `Engine.reserve`."""
        return self._engine.reserve(request, now)

    def let_go(self, request: Request, now: float) -> None:
        """See `Engine.let_go`."""
        self._engine.let_go(request, now)

    def evict(self, request: Request, now: float) -> Progress:
        """See `Engine.evict`."""
        self._note(request)
        return self._engine.evict(request, now)

    def crash(self, now: float) -> None:
        """See `Engine.crash`; the steps under way end there."""
        begun = [span for span in self._under_way() if span.start_s < now]
        self._spans += [(self._replica, replace(span, end_s=now)) for span in begun]
        self._engine.crash(now)

    def plan(self, now: float) -> float:
        """See `Engine.plan`."""
        return self._engine.plan(now)

    def advance(self) -> list[Request]:
        """See `Engine.advance`."""
        before = self._under_way()
        left = self._engine.advance()
        still = {span.start_s for span in self._engine.under_way()}
        self._spans += [(self._replica, span) for span in before if span.start_s not in still]
        return left

    def _note(self, request: Request) -> None:
        if request.index == self._asked:
            self._places = {span.start_s: span.place for span in self._engine.under_way(self._asked) if span.place}

    def _under_way(self) -> list[Span]:
        spans, places = self._engine.under_way(self._asked), self._places
        return [replace(span, place=places.get(span.start_s, span.place)) for span in spans]

    def meters(self, now: float) -> Meters:
        """See `Engine.meters`."""
        return self._engine.meters(now)

    def share_time(self, on: bool, now: float) -> None:
        """See `Engine.share_time`."""
        self._engine.share_time(on, now)

    def under_way(self, asked: int = -1) -> list[Span]:
        """See `Engine.under_way`."""
        return self._engine.under_way(asked)

    def caches(self) -> list[BlockPool]:
        """See `Engine.caches`."""
        return self._engine.caches()

    def kv_usage(self, now: float) -> float:
        """See `Engine.kv_usage`."""
        return self._engine.kv_usage(now)

    def adapters(self) -> list[AdapterSlots]:
        """See `Engine.adapters`."""
        return self._engine.adapters()

    def last_waiting(self) -> Request | None:
        """See `Engine.last_waiting`."""
        return self._engine.last_waiting()

    def waiting(self) -> int:
        """See `Engine.waiting`."""
        return self._engine.waiting()


class NoSuchRequest(LookupError):
    """The run has fewer requests."""


def journal_of(plan: CasePlan, index: int) -> Journal:
    """Request number *index* of *plan*. Raises NoSuchRequest.

    The run is simulated twice, which gives the same both times: first to see where the request goes.
    """
    log = RunningFleet(plan).run()
    if not 0 <= index < len(log.requests):
        raise NoSuchRequest(f"the run has {len(log.requests)} requests, from 0 on")
    request = log.requests[index]
    replicas = {hop.replica for hop in request.hops}
    spans: list[tuple[int, Span]] = []
    reached: list[tuple[int, float]] = []

    def watch(engine: ReplicaEngine, replica: int) -> ReplicaEngine:
        if replica not in replicas:
            return engine
        if isinstance(engine, IntakeEngine):  # what the engine does is told from when it has a request
            engine.engine = Watched(engine.engine, replica, spans, reached, index)
            return engine
        return Watched(engine, replica, spans, reached, index)

    RunningFleet(plan, watch).run()
    own_s = [span.end_s for _, span in spans if takes_part(span, index)]
    end_s = log.end_s if isnan(request.finished_s) or not own_s else max(own_s)
    seen = [(replica, span) for replica, span in spans if request.arrived_s < span.end_s <= end_s]
    if request.left:
        seen = [(replica, span) for replica, span in seen if _there(request, replica, span)]
    limits = [rank_limits(pool) for pool in plan.pools]
    spaced = any(one.prefill_schedule_interval > 1 for one in limits)
    held = any(one.batch_wait_steps > 0 for one in limits)
    in_batches = all(pool.batching.policy == "static" for pool in plan.pools)
    return Journal(plan, request, seen, reached, len(log.requests), spaced, held, in_batches, log.pool_of_replica)


def _there(request: Request, replica: int, span: Span) -> bool:
    """Whether *request* was at *replica* during *span*: it may have come back after a failure."""
    visits = [hop for hop in request.hops if hop.replica == replica]
    return any(hop.came_s < span.end_s and not span.start_s >= hop.left_s for hop in visits)
