"""Clients whose requests get no answer: they give up, or pause and send again."""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from math import isnan, nan

import simpy

from sim.fleet.clock import FleetClock
from sim.records import Request
from sim.workload import Streams
from sim.workload.client import Client


@dataclass(frozen=True, slots=True)
class ClientCallbacks:
    """Callbacks from clients to the fleet."""

    send: Callable[[list[Request], float], None]
    """Route requests that arrive."""
    send_again: Callable[[list[Request], float], None]
    """Route requests that have been sent before."""
    take: Callable[[list[Request], float], list[Request]]
    """Remove requests from where they are. Return all but those that get their last tokens at that time."""
    ended: Callable[[list[Request], float], None]
    """Report requests that have ended without an answer."""


class Attempts:
    """Attempts of all requests. A request ends once: finished, rejected, timed out or lost.

    Without a `Client`, a request that is lost with its replica is sent again at once, as often as needed.
    """

    CHUNK = 1024
    MIN_PAUSE_S = 0.001
    """Pause of a client without backoff whose request is refused [s]."""

    def __init__(self, env: FleetClock, client: Client | None, streams: Streams, callbacks: ClientCallbacks) -> None:
        self._env, self._client, self._callbacks = env, client, callbacks
        self._rng = streams("backoff")
        self._uniforms: list[float] = []
        self._pausing: set[Request] = set()
        timeout_s, patience_s = (client.timeout_s, client.patience_s) if client else (None, None)
        self._timeouts = Deadlines(env, timeout_s, self._timed_out, _has_ended)
        self._patience = Deadlines(env, patience_s, self._out_of_patience, _has_begun)

    def arrive(self, requests: list[Request], now: float) -> None:
        """Send the first attempts of *requests*."""
        for request in requests:
            self._patience.add(request, now)
            self._timeouts.add(request, now)
        self._callbacks.send(requests, now)

    def lose(self, requests: Iterable[Request], now: float) -> None:
        """Retry *requests*, whose replica has failed, once the failure is detected at *now*."""
        again = [request for request in requests if self._retries(request, "lost", now)]
        if again:
            self._callbacks.send_again(again, now)

    def move(self, requests: list[Request], now: float) -> None:
        """Continue *requests*, whose replica is being withdrawn, on other replicas in the same attempt."""
        for request in requests:
            progress = request.left[-1].progress
            request.kept_tokens = progress.output_tokens if progress is not None else 0
        self._callbacks.send_again(requests, now)

    def refuse(self, requests: Iterable[Request], now: float) -> None:
        """Retry or end *requests*, which have been refused."""
        for request in requests:
            if self._client is None:
                self._end(request, "rejected", now)
            elif self._retries(request, "rejected", now):
                # without a pause it would be refused again and again at the same time
                self._pausing.add(request)
                self._env.timeout(self.MIN_PAUSE_S).callbacks.append(partial(self._resume, request))

    def _timed_out(self, requests: list[Request], now: float) -> None:
        again = [request for request in self._taken(requests, now) if self._retries(request, "timed_out", now)]
        if again:
            self._callbacks.send_again(again, now)

    def _out_of_patience(self, requests: list[Request], now: float) -> None:
        for request in self._taken(requests, now):
            self._end(request, "timed_out", now)

    def _taken(self, requests: list[Request], now: float) -> list[Request]:
        pausing = [request for request in requests if request in self._pausing]
        self._pausing.difference_update(pausing)
        sent = [request for request in requests if request not in pausing] if pausing else requests
        return [*pausing, *self._callbacks.take(sent, now)]

    def _retries(self, request: Request, ending: str, now: float) -> bool:
        """Return whether *request* is to be sent again now; otherwise it pauses, or that was its last attempt."""
        client = self._client
        if client is not None and request.attempts >= client.attempts:
            self._end(request, ending, now)
            return False
        if client is not None and client.retry == "resume" and request.left and request.left[-1].progress is not None:
            request.kept_tokens = request.left[-1].progress.output_tokens
        else:
            request.first_token_s = nan
        pause_s = client.pause_s(request.attempts, self._uniform(request.index)) if client else 0.0
        request.attempts += 1
        if pause_s <= 0:
            self._timeouts.add(request, now)
            return True
        self._pausing.add(request)
        self._env.timeout(pause_s).callbacks.append(partial(self._resume, request))
        return False

    def _resume(self, request: Request, event: simpy.Event) -> None:
        """Send *request* again after its pause, unless the client has given up meanwhile."""
        if request in self._pausing:
            self._pausing.remove(request)
            self._timeouts.add(request, self._env.now)
            self._callbacks.send_again([request], self._env.now)

    def _end(self, request: Request, ending: str, now: float) -> None:
        if ending == "rejected":
            request.rejected = True
        else:
            request.gave_up = ending
        self._callbacks.ended([request], now)

    def _uniform(self, index: int) -> float:
        """Return the random number in [0, 1) of a request's pauses, the same in every fleet."""
        while index >= len(self._uniforms):
            self._uniforms += self._rng.random(self.CHUNK).tolist()
        return self._uniforms[index]


class Deadlines:
    """Deadlines after a constant delay.

    They fall due in the order in which they began, so one event at a time suffices.
    """

    def __init__(
        self,
        env: FleetClock,
        after_s: float | None,
        passed: Callable[[list[Request], float], None],
        is_past: Callable[[Request, int], bool],
    ) -> None:
        """Call *passed* with the requests that reach their deadlines together, unless the attempt *is_past*.

        Without *after_s* there are no deadlines.
        """
        self._env, self._after_s = env, after_s
        self._passed, self._is_past = passed, is_past
        self._coming: deque[tuple[float, Request, int]] = deque()
        self._armed = False

    def add(self, request: Request, now: float) -> None:
        """Begin the deadline of the current attempt of *request*."""
        if self._after_s is not None:
            self._coming.append((now + self._after_s, request, request.attempts))
            self._arm()

    def _arm(self) -> None:
        coming = self._coming
        while coming and self._is_past(*coming[0][1:]):
            coming.popleft()
        if coming and not self._armed:
            self._armed = True
            self._env.timeout(max(0.0, coming[0][0] - self._env.now)).callbacks.append(self._wake)

    def _wake(self, event: simpy.Event) -> None:
        self._armed = False
        now = self._env.now
        passed = []
        while self._coming and self._coming[0][0] <= now:
            _, request, attempt = self._coming.popleft()
            if not self._is_past(request, attempt):
                passed.append(request)
        if passed:
            self._passed(passed, now)
        self._arm()


def _has_ended(request: Request, attempt: int) -> bool:
    """Return whether *attempt* of *request* is over."""
    return request.attempts != attempt or request.status != "unfinished"


def _has_begun(request: Request, attempt: int) -> bool:
    """Return whether the first token of *request* has come, or the request has ended without one."""
    return not isnan(request.first_token_s) or request.status != "unfinished"
