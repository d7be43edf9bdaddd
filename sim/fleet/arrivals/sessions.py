"""Where the requests of sessions come from: most of them from the answers to earlier ones."""

from heapq import heappop, heappush
from math import inf, isnan

from sim.fleet.arrivals.source import ClientSource, Clock, OpenSource, Send, Source
from sim.records import Request
from sim.workload import Streams, Workload
from sim.workload.sessions.arriving import ComingSessions, Start
from sim.workload.sessions.session import Session, Turn


def source_of(workload: Workload, streams: Streams, horizon_s: float | None, env: Clock, send: Send) -> Source:
    """What sends the requests of *workload*."""
    coming = workload.coming_sessions(streams, horizon_s)
    if coming is not None:
        return SessionSource(env, coming, horizon_s, send)
    if workload.closed_loop() is not None:
        return ClientSource(env, workload, streams, horizon_s, send)
    return OpenSource(env, workload.open_table(streams, horizon_s), send)


class _Going:
    """A session that has begun."""

    __slots__ = ("cut", "following", "open", "refused", "session", "start", "waits_for")

    def __init__(self, start: Start) -> None:
        self.start = start
        self.session: Session = start.session
        turns = start.session.turns
        self.waits_for = [len(turn.after) for turn in turns]
        """Answers that each request still waits for."""
        self.following: list[list[int]] = [[] for _ in turns]
        for place, turn in enumerate(turns):
            for earlier in turn.after:
                self.following[earlier].append(place)
        self.open = 0
        """Requests that are due or have not been answered."""
        self.refused = False
        self.cut = False
        """The horizon comes before its next request does."""


class SessionSource:
    """Sends the requests of sessions: the first ones when the session begins, the others when those that they wait for
    have been answered. A request without an answer ends its session.
    """

    def __init__(self, env: Clock, coming: ComingSessions, horizon_s: float | None, send: Send) -> None:
        self.requests: list[Request] = []
        """Those that have arrived."""
        self._env, self._send = env, send
        self._coming, self._starts = coming, coming.starts()
        self._horizon_s = inf if horizon_s is None else horizon_s
        self._due: list[tuple[float, int, _Going, int]] = []
        """Heap of (when, order, session, place of the request in it)."""
        self._order = 0
        self._next_start_s = inf
        self._following: Start | None = None
        self._asked: dict[Request, tuple[_Going, int]] = {}
        """Requests without an answer."""
        self._call = -1
        """Number of the wake-up call that is due."""
        self._call_s = inf
        self._look_ahead()
        self._arm()

    @property
    def exhausted(self) -> bool:
        """Whether nothing will arrive any more unless an answer comes."""
        return not self._due and self._following is None

    def release(self, until_s: float) -> None:
        """Sends what arrives at or before *until_s*."""
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
        """*request* has its answer, or its refusal, at *now*."""
        going, place = self._asked.pop(request)
        going.refused |= isnan(request.finished_s)
        if not going.refused:
            for following in going.following[place]:
                going.waits_for[following] -= 1
                if not going.waits_for[following]:
                    self._put(going, following, now)
        going.open -= 1
        if not going.open and not going.cut:
            self._over(going, now)
        if self._next_s() <= now:
            self.release(now)
        else:
            self._arm()

    def _over(self, going: _Going, now: float) -> None:
        following = self._coming.next_of(going.start.number)
        if following is None:
            return
        pause_s, start = following
        self._begin(start, now + (max(pause_s, ClientSource.REJECTED_PAUSE_S) if going.refused else pause_s))

    def _look_ahead(self) -> None:
        start = next(self._starts, None)
        self._following = None if start is None or start.at_s >= self._horizon_s else start
        self._next_start_s = inf if self._following is None else self._following.at_s

    def _begin_next(self) -> None:
        start = self._following
        assert start is not None
        self._look_ahead()
        self._begin(start, start.at_s)

    def _begin(self, start: Start, at_s: float) -> None:
        going = _Going(start)
        for place, turn in enumerate(start.session.turns):
            if not turn.after:
                self._put(going, place, at_s)

    def _put(self, going: _Going, place: int, now: float) -> None:
        """Request number *place* of a session arrives, at or after *now*, unless the horizon comes first."""
        turn = going.session.turns[place]
        at_s = max(now + turn.delay_s, turn.earliest_s)
        if at_s >= self._horizon_s:
            going.cut = True
            return
        heappush(self._due, (at_s, self._order, going, place))
        self._order += 1
        going.open += 1

    def _next_s(self) -> float:
        return min(self._next_start_s, self._due[0][0]) if self._due else self._next_start_s

    def _arrive(self) -> Request:
        at_s, _, going, place = heappop(self._due)
        request = _request(len(self.requests), at_s, going.session, going.session.turns[place])
        self._asked[request] = going, place
        self.requests.append(request)
        return request

    def _arm(self) -> None:
        at_s = self._next_s()
        if at_s != self._call_s:
            self._call_s = at_s
            self._call = -1 if at_s == inf else self._env.call(self, max(0.0, at_s - self._env.now))

    def wake(self, number: int) -> None:
        """The clock's call with this *number* has come."""
        if number == self._call:
            due_s, self._call_s = self._call_s, inf
            self.release(due_s)


def _request(index: int, at_s: float, session: Session, turn: Turn) -> Request:
    request = Request(index, at_s, turn.prompt_tokens, turn.output_tokens, turn.priority)
    request.block_hashes, request.hash_block_tokens = turn.block_hashes, turn.hash_block_tokens
    request.service, request.session, request.tenant = session.service, session.name, session.tenant
    request.turn = turn.number if session.name else 0
    return request
