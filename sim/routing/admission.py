"""Rules of the gateway: refusal of requests, and ejection of replicas whose requests time out."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Self

from pydantic import model_validator

from sim.records import Request
from sim.spec import Count, Positive, Spec

COMPLETIONS = 32
"""Answers of a replica over which its rate is measured."""
LEAST_COMPLETIONS = 8
"""Number of answers below which no waiting time is predicted."""


class Shed(Spec):
    """Load shedding: requests of low priority are refused before the others."""

    above_priority: int
    """Requests with a higher number, which is a lower priority, are refused first."""
    from_outstanding: Count
    """Number of outstanding requests at the replica from which on they are refused."""


class Ejection(Spec):
    """Circuit breaking: a replica whose requests time out gets no new ones for a while."""

    timeouts: Count = 5
    """Number of consecutive timeouts; the default is Envoy's (consecutive_5xx of its outlier detection)."""
    for_s: Positive = 30.0
    """Time for which the replica gets no requests; the default is Envoy's base_ejection_time [s]."""


class Admission(Spec):
    """Overload rules of the gateway. A refusal is immediate, and the client may send the request again (`client`)."""

    max_outstanding: Count | None = None
    """Queue limit: number of outstanding requests at the chosen replica, waiting and running, from which on it gets no
    more."""
    max_predicted_ttft_s: Positive | None = None
    """Longest predicted waiting time at the chosen replica, at the rate of its last 32 answers; beyond it requests are
    refused [s]."""
    shed: Shed | None = None
    """Load shedding by priority. Default: none."""
    ejection: Ejection | None = None
    """Circuit breaking of replicas whose requests time out. Default: none."""

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("is empty: give max_outstanding, max_predicted_ttft_s, shed or ejection")
        return self


class AdmissionRules:
    """Admission rules of one fleet at run time."""

    def __init__(
        self, rules: Admission, waiting: Sequence[Callable[[], int]], eject: Callable[[int, float], None]
    ) -> None:
        """Apply *rules*. *waiting* counts each replica's waiting requests.

        *eject* closes a replica for some seconds.
        """
        self._rules, self._waiting, self._eject = rules, waiting, eject
        self._outstanding = [0] * len(waiting)
        self._answered_s: list[deque[float]] = [deque(maxlen=COMPLETIONS) for _ in waiting]
        self._timeouts = [0] * len(waiting)
        """Number of consecutive timeouts per replica."""

    def admits(self, request: Request, replica: int, now: float) -> bool:
        """Return whether *request* may go to *replica*."""
        rules, outstanding = self._rules, self._outstanding[replica]
        if rules.max_outstanding is not None and outstanding >= rules.max_outstanding:
            return False
        shed = rules.shed
        if shed is not None and request.priority > shed.above_priority and outstanding >= shed.from_outstanding:
            return False
        limit_s = rules.max_predicted_ttft_s
        return limit_s is None or self.predicted_s(replica, now) <= limit_s

    def predicted_s(self, replica: int, now: float) -> float:
        """Return the time that the requests waiting at *replica* take at the rate of its last answers [s]."""
        answered_s = self._answered_s[replica]
        if len(answered_s) < LEAST_COMPLETIONS:
            return 0.0
        return self._waiting[replica]() * (now - answered_s[0]) / len(answered_s)

    def joined(self, replica: int) -> None:
        """Count a request that is sent to *replica*."""
        self._outstanding[replica] += 1

    def left(self, replica: int) -> None:
        """Discount a request that has left *replica*."""
        self._outstanding[replica] -= 1

    def answered(self, replica: int, now: float) -> None:
        """Record that *replica* has answered a request."""
        self._answered_s[replica].append(now)
        self._timeouts[replica] = 0

    def timed_out(self, replica: int) -> None:
        """Record that a client has given up waiting for *replica*."""
        rule = self._rules.ejection
        self._timeouts[replica] += 1
        if rule is not None and self._timeouts[replica] >= rule.timeouts:
            self._timeouts[replica] = 0
            self._eject(replica, rule.for_s)
