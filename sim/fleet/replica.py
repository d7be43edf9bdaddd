"""One engine on the fleet's clock."""

from collections.abc import Callable, Iterable
from math import inf, isnan, nan

from sim.engine.protocol import ReplicaEngine
from sim.fleet.arrivals.source import Clock
from sim.records import BusyTime, Hop, Progress, Request

Finished = Callable[["Replica", list[Request], float], None]
Released = Callable[[float], None]


class Replica:
    """Wakes only when its engine changes something that others can see.

    It is no process: it asks to be called at the engine's planned end and remembers the call as due. A later plan asks
    for another one; a call that is no longer due does nothing. The engine's clock decides, because
    adding a delay to `env.now` rounds.
    """

    __slots__ = ("_due", "_env", "_finished", "_release", "after_step", "end_s", "engine", "formed", "index", "pool")

    def __init__(
        self,
        env: Clock,
        engine: ReplicaEngine,
        index: int,
        pool: int,
        release: Released,
        finished: Finished,
    ) -> None:
        self.engine = engine
        self.index = index
        self.pool = pool
        self.end_s = inf
        self._env = env
        self._due = -1
        self._release = release
        self._finished = finished
        self.after_step: Callable[[Replica, float], None] | None = None
        """Who wants to know that a step has ended and the next one is formed."""
        self.formed: Callable[[Replica], None] | None = None
        """Who looks at every step that begins."""

    def catch_up(self, now: float) -> None:
        """Ends the step that was over before *now*, where rounding woke an arrival first."""
        if now > self.end_s:
            self._fire()

    def offer(self, request: Request, now: float, prompt_only: bool = False) -> bool:
        """Hands *request* to the engine, or only its prompt; whether `replan` is needed."""
        if now > self.end_s:
            self._fire()
        return self.engine.offer(request, now, prompt_only)

    def reserve(self, request: Request, now: float) -> bool:
        """Sets blocks aside for the KV of *request*'s prompt; whether there were enough."""
        self.catch_up(now)
        if not self.engine.reserve(request, now):
            return False
        self.replan(now)
        return True

    def let_go(self, request: Request, now: float) -> None:
        """The KV of *request*'s prompt has been fetched from here."""
        self.catch_up(now)
        self.engine.let_go(request, now)
        self.replan(now)

    def evict(self, requests: Iterable[Request], now: float) -> list[Request]:
        """Takes *requests* away from here at *now*, before the next step is formed; those that were taken: who gets the
        last token just then is not.
        """
        gone = self._take_away(requests, now)
        self.replan(now)
        return gone

    def crash(self, requests: Iterable[Request], now: float) -> list[Request]:
        """Dies at *now* with *requests*, all that it has, and with the step under way; those that are lost: who
        gets the last token just then is answered.
        """
        gone = self._take_away(requests, now)
        self.engine.crash(now)
        self.end_s, self._due = inf, -1
        return gone

    def stop(self, now: float) -> None:
        """Is switched off at *now*, when all requests have left: the step under way, which nobody waits for, ends."""
        if self.end_s < inf:
            self.engine.crash(now)
            self.end_s, self._due = inf, -1

    def _take_away(self, requests: Iterable[Request], now: float) -> list[Request]:
        """The visits of *requests* end."""
        if now >= self.end_s:
            self._complete()
        gone = [request for request in requests if request.replica == self.index and isnan(request.finished_s)]
        for request in gone:
            self._end_visit(request, self.engine.evict(request, now), now)
        return gone

    def broken_off(self, requests: Iterable[Request], now: float) -> list[Request]:
        """Those of *requests*, which the engine has just let go, that it ended with an error: their visits end."""
        broken = [request for request in requests if request.rejected]
        for request in broken:
            request.rejected = False
            self._end_visit(request, None, now)
        return broken

    def _end_visit(self, request: Request, progress: Progress | None, now: float) -> None:
        request.left = (*request.left, Hop(self.index, request.came_s, now, progress, request.busy))
        request.replica, request.came_s, request.busy = -1, nan, BusyTime()

    def withdraw(self, request: Request, now: float) -> None:
        """Takes *request*, which waits, away from here; `replan` is needed."""
        self._end_visit(request, self.engine.evict(request, now), now)

    def replan(self, now: float) -> None:
        """Asks the engine for its next end and arms the timeout."""
        end_s = self.engine.plan(now)
        if end_s == self.end_s:
            return
        self.end_s = end_s
        if end_s == inf:
            self._due = -1
            return
        env = self._env
        delay = end_s - env.now
        self._due = env.call(self, delay if delay > 0 else 0.0)
        if self.formed is not None:
            self.formed(self)

    def wake(self, number: int) -> None:
        """The clock's call with this *number* has come."""
        if number == self._due:
            self._fire()

    def _fire(self) -> None:
        """Ends the step: arrivals up to its end come first, then it is completed and the next one formed."""
        end_s = self._complete()
        self.replan(end_s)
        if self.after_step is not None:
            self.after_step(self, end_s)

    def _complete(self) -> float:
        """Ends the step: arrivals up to its end come first; when it ended [s]."""
        self._release(self.end_s)
        end_s = self.end_s
        done = self.engine.advance()
        self.end_s = inf
        if done:
            self._finished(self, done, end_s)
        return end_s
