"""Request arrivals: the sources that send requests on the fleet's clock.

A source is a table of arrivals (open loop), a fixed number of clients that wait for their answers (closed loop), or
sessions, in which most requests wait for the answers to earlier ones.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from heapq import heappop, heappush
from itertools import repeat
from math import inf, isnan
from typing import ClassVar, Protocol

from sim.fleet.clock import FleetClock, TimedWakeup
from sim.records import Request
from sim.workload import HASH_BLOCK_TOKENS, Streams, Workload
from sim.workload.requests import RequestTable
from sim.workload.sessions import OfferedSessions, Session, SessionStart, Turn

ROWS_AT_ONCE = 4096
"""Rows of a table that become Python numbers at a time."""
Send = Callable[[list[Request], float], None]
"""Function that gets requests which arrive together, and their arrival time [s]."""


class RequestSource(Protocol):
    """Source of the requests of a fleet."""

    requests: list[Request]
    """Requests that have arrived."""

    @property
    def exhausted(self) -> bool:
        """True if no further requests will arrive, whatever is answered before."""
        ...

    def release(self, until_s: float) -> None:
        """Send the requests that arrive at or before *until_s*."""
        ...

    def answered(self, request: Request, now: float) -> None:
        """Report that *request* has been answered or refused at *now*."""
        ...


@contextmanager
def collector_paused() -> Iterator[None]:
    """Disable garbage collection, which costs a tenth of a run: a simulation makes no cycles that outlive an event."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class OpenSource(TimedWakeup, RequestSource):
    """Source of requests that arrive at given times; requests with equal times arrive together."""

    def __init__(self, env: FleetClock, offered: Iterator[list[Request]], send: Send) -> None:
        """Send the requests of all batches of *offered* in turn."""
        super().__init__()
        self.requests: list[Request] = []
        """Requests that have arrived."""
        self._env = env
        self._send = send
        self._offered = offered
        self._batch: list[Request] = []
        self._following_at = -1
        """Place of `_following` in its batch."""
        self._following = self._next()
        self._arm()

    @property
    def exhausted(self) -> bool:
        """True if no further requests will arrive."""
        return self._following is None

    def release(self, until_s: float) -> None:
        """Send the requests that arrive at or before *until_s*."""
        if self._following is None or self._following.arrived_s > until_s:
            return
        while self._following is not None and self._following.arrived_s <= until_s:
            self._arrive(self._following)
        self._arm()

    def answered(self, request: Request, now: float) -> None:
        """Ignore the answer: an open loop does not wait for answers."""

    def _arm(self) -> None:
        self._env.move_call(self, inf if self._following is None else self._following.arrived_s)

    def wake(self) -> None:
        """Send the next arrivals."""
        if self._following is not None:
            self._arrive(self._following)
        self._arm()

    def _arrive(self, first: Request) -> None:
        """Send *first* and the requests that arrive with it."""
        now = first.arrived_s
        together = [first]
        following = self._next()
        while following is not None and following.arrived_s == now:
            together.append(following)
            following = self._next()
        self._following = following
        self.requests.extend(together)
        self._send(together, now)

    def _next(self) -> Request | None:
        """Return the request after `_following`; None if there is none."""
        self._following_at += 1
        while self._following_at >= len(self._batch):
            batch = next(self._offered, None)
            if batch is None:
                self._batch = []  # requests of a shard, which are dropped once they are served
                return None
            self._batch, self._following_at = batch, 0
        return self._batch[self._following_at]


class ClientSource(RequestSource):
    """Source with a fixed number of clients, each with one request at a time, until the horizon."""

    CHUNK = 1024
    REJECTED_PAUSE_S: ClassVar = 1.0
    """Pause after which a client whose request is refused sends its next request [s]."""

    def __init__(
        self, env: FleetClock, workload: Workload, streams: Streams, horizon_s: float | None, send: Send
    ) -> None:
        loop = workload.closed_loop()
        if loop is None:
            raise ValueError("the workload is not a closed loop")
        self.requests: list[Request] = []
        """Requests that have arrived."""
        self._env = env
        self._send = send
        self._loop, self._streams = loop, streams
        self._pauses_s: list[float] = []
        """Think time after the answer of each request [s]."""
        self._numbers: dict[Request, int] = {}
        """Request without an answer -> its number."""
        self._horizon_s = inf if horizon_s is None else horizon_s
        self._drawn = _drawn(workload, streams, loop.num_requests, self.CHUNK)
        self._exhausted = False
        if loop.random:
            for at_s in loop.think_times_s(streams, "first pauses", 0, loop.concurrency).tolist():
                self._send_at(at_s)
        else:
            first = [self._next(0.0) for _ in range(loop.concurrency)]
            start = env.timeout(0)
            start.callbacks.append(lambda _: send([request for request in first if request], 0.0))

    @property
    def exhausted(self) -> bool:
        """True if no further requests will arrive."""
        return self._exhausted or self._env.now >= self._horizon_s

    def release(self, until_s: float) -> None:
        """Do nothing: clients send when their events come, and no arrival is known beforehand."""

    def answered(self, request: Request, now: float) -> None:
        """Schedule the next request of the client whose *request* has been answered or refused at *now*."""
        pause_s = self._pause_s(self._numbers.pop(request))
        at_s = now + (max(pause_s, self.REJECTED_PAUSE_S) if request.rejected else pause_s)
        if at_s == now < self._horizon_s:
            self._send_next(at_s)
        else:
            self._send_at(at_s)

    def _pause_s(self, index: int) -> float:
        if not self._loop.random:
            return self._loop.think_s
        while index >= len(self._pauses_s):
            known = len(self._pauses_s)
            self._pauses_s += self._loop.think_times_s(self._streams, "pauses", known, self.CHUNK).tolist()
        return self._pauses_s[index]

    def _send_at(self, at_s: float) -> None:
        if at_s < self._horizon_s:
            due = self._env.timeout(max(0.0, at_s - self._env.now))
            due.callbacks.append(lambda _: self._send_next(at_s))

    def _send_next(self, now: float) -> None:
        request = self._next(now)
        if request is not None:
            self._send([request], now)

    def _next(self, now: float) -> Request | None:
        drawn = next(self._drawn, None)
        if drawn is None:
            self._exhausted = True
            return None
        prompt_tokens, output_tokens, hashes, tenant = drawn
        request = Request(len(self.requests), now, prompt_tokens, output_tokens)
        if tenant:
            request.tenant = tenant
        if hashes:
            request.block_hashes, request.hash_block_tokens = hashes, HASH_BLOCK_TOKENS
        self._numbers[request] = request.index
        self.requests.append(request)
        return request


def batches_of(table: RequestTable) -> Iterator[list[Request]]:
    """Yield the rows of *table* as requests, ROWS_AT_ONCE at a time."""
    hashes, hash_block_tokens = table.block_hashes, table.hash_block_tokens
    known: dict[int, int] = {}  # equal lengths are one object: there are many requests, and few lengths
    columns = [(name, column) for name in ("tenant", "service") if (column := getattr(table, name)) is not None]
    for start in range(0, len(table.arrived_s), ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        prompts, outputs = table.prompt_tokens[part].tolist(), table.output_tokens[part].tolist()
        lengths = [map(known.setdefault, column, column) for column in (prompts, outputs)]
        priorities = None if table.priority is None else table.priority[part].tolist()
        batch: list[Request] = []
        for arrived_s, prompt_tokens, output_tokens in zip(table.arrived_s[part].tolist(), *lengths, strict=True):
            request = Request(start + len(batch), arrived_s, prompt_tokens, output_tokens)
            if priorities is not None:
                request.priority = priorities[len(batch)]
            if hashes is not None:
                request.block_hashes, request.hash_block_tokens = hashes[request.index], hash_block_tokens
            for name, column in columns:
                setattr(request, name, column[request.index])
            batch.append(request)
        yield batch


def _drawn(
    workload: Workload, streams: Streams, limit: int | None, chunk: int
) -> Iterator[tuple[int, int, tuple[int, ...], str]]:
    """Yield (prompt tokens, output tokens, shared block ids, tenant) of requests 0, 1, ..., at most *limit*."""
    start = 0
    while limit is None or start < limit:
        count = chunk if limit is None else min(chunk, limit - start)
        prompt, output = workload.lengths_table(streams, start, count)
        hashes = workload.block_hashes(streams, start, prompt) or repeat((), count)
        tenants = workload.tenant_names(streams, start, count) or repeat("", count)
        yield from zip(prompt.tolist(), output.tolist(), hashes, tenants, strict=True)
        start += count


def source_of(
    workload: Workload, streams: Streams, horizon_s: float | None, env: FleetClock, send: Send
) -> RequestSource:
    """Return the source of the requests of *workload*."""
    offered = workload.offered_sessions(streams, horizon_s)
    if offered is not None:
        return SessionSource(env, offered, horizon_s, send)
    if workload.closed_loop() is not None:
        return ClientSource(env, workload, streams, horizon_s, send)
    return OpenSource(env, batches_of(workload.open_table(streams, horizon_s)), send)


class _ActiveSession:
    """Session in progress."""

    __slots__ = ("cut", "following", "open", "refused", "session", "start", "waits_for")

    def __init__(self, start: SessionStart) -> None:
        self.start = start
        self.session: Session = start.session
        turns = start.session.turns
        self.waits_for = [len(turn.after) for turn in turns]
        """Number of answers that each request still waits for."""
        self.following: list[list[int]] = [[] for _ in turns]
        for place, turn in enumerate(turns):
            for earlier in turn.after:
                self.following[earlier].append(place)
        self.open = 0
        """Number of requests that are due or have not been answered."""
        self.refused = False
        self.cut = False
        """True if the horizon comes before the next request."""


class SessionSource(TimedWakeup, RequestSource):
    """Source of the requests of sessions.

    The first requests of a session arrive when it begins, the others when the requests they wait for have been
    answered. A request without an answer ends its session.
    """

    def __init__(self, env: FleetClock, offered: OfferedSessions, horizon_s: float | None, send: Send) -> None:
        super().__init__()
        self.requests: list[Request] = []
        """Requests that have arrived."""
        self._env, self._send = env, send
        self._offered, self._starts = offered, offered.starts()
        self._horizon_s = inf if horizon_s is None else horizon_s
        self._due: list[tuple[float, int, _ActiveSession, int]] = []
        """Heap of (arrival time [s], order, session, place of the request in it)."""
        self._due_so_far = 0
        self._next_start_s = inf
        self._following: SessionStart | None = None
        self._unanswered: dict[Request, tuple[_ActiveSession, int]] = {}
        """Request without an answer -> its session and its place in it."""
        self._planned_s = inf
        """Time at which the next request is due; inf if none is [s]."""
        self._look_ahead()
        self._arm()

    @property
    def exhausted(self) -> bool:
        """True if no further requests will arrive unless an answer comes."""
        return not self._due and self._following is None

    def release(self, until_s: float) -> None:
        """Send the requests that arrive at or before *until_s*."""
        while (at_s := self._next_s()) <= until_s:
            together: list[Request] = []
            while self._next_s() == at_s:
                if self._next_start_s == at_s:
                    self._begin_next()
                else:
                    together.append(self._arrive())
            if together:
                self._send(together, at_s)
        self._arm()

    def answered(self, request: Request, now: float) -> None:
        """Release the requests that wait for the answer to *request*, which has been answered or refused at *now*."""
        active, place = self._unanswered.pop(request)
        active.refused |= isnan(request.finished_s)
        if not active.refused:
            for following in active.following[place]:
                active.waits_for[following] -= 1
                if not active.waits_for[following]:
                    self._put(active, following, now)
        active.open -= 1
        if not active.open and not active.cut:
            self._plan_next_session(active, now)
        if self._next_s() <= now:
            self.release(now)
        else:
            self._arm()

    def _plan_next_session(self, active: _ActiveSession, now: float) -> None:
        following = self._offered.next_of(active.start.number)
        if following is None:
            return
        pause_s, start = following
        self._begin(start, now + (max(pause_s, ClientSource.REJECTED_PAUSE_S) if active.refused else pause_s))

    def _look_ahead(self) -> None:
        start = next(self._starts, None)
        self._following = None if start is None or start.at_s >= self._horizon_s else start
        self._next_start_s = inf if self._following is None else self._following.at_s

    def _begin_next(self) -> None:
        start = self._following
        assert start is not None
        self._look_ahead()
        self._begin(start, start.at_s)

    def _begin(self, start: SessionStart, at_s: float) -> None:
        active = _ActiveSession(start)
        for place, turn in enumerate(start.session.turns):
            if not turn.after:
                self._put(active, place, at_s)

    def _put(self, active: _ActiveSession, place: int, now: float) -> None:
        """Schedule request number *place* of a session, at or after *now*, unless the horizon comes first."""
        turn = active.session.turns[place]
        at_s = max(now + turn.delay_s, turn.earliest_s)
        if at_s >= self._horizon_s:
            active.cut = True
            return
        heappush(self._due, (at_s, self._due_so_far, active, place))
        self._due_so_far += 1
        active.open += 1

    def _next_s(self) -> float:
        return min(self._next_start_s, self._due[0][0]) if self._due else self._next_start_s

    def _arrive(self) -> Request:
        at_s, _, active, place = heappop(self._due)
        request = _request(len(self.requests), at_s, active.session, active.session.turns[place])
        self._unanswered[request] = active, place
        self.requests.append(request)
        return request

    def _arm(self) -> None:
        at_s = self._next_s()
        if at_s != self._planned_s:
            self._planned_s = at_s
            self._env.move_call(self, at_s)

    def wake(self) -> None:
        """Send what is due."""
        due_s, self._planned_s = self._planned_s, inf
        self.release(due_s)


def _request(index: int, at_s: float, session: Session, turn: Turn) -> Request:
    request = Request(index, at_s, turn.prompt_tokens, turn.output_tokens, turn.priority)
    request.block_hashes, request.hash_block_tokens = turn.block_hashes, turn.hash_block_tokens
    request.service, request.session, request.tenant = session.service, session.name, session.tenant
    request.turn = turn.number if session.name else 0
    return request
