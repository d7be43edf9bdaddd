"""A queue that shares a replica fairly among tenants: virtual token counters.

Sheng et al., "Fairness in serving large language models" (OSDI 2024): whoever has been served the fewest tokens by
weight is next, and a tenant that was idle gains nothing by it. An admitted request counts with its prompt and, twice,
with its answer, as the paper's variant with known lengths does; the plain algorithm counts answers as they are made.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from sim.engine.sequence import Sequence
from sim.records import Request

OF_PROMPT, OF_ANSWER = 1, 2
"""What a token counts, as in the paper."""
Payer = tuple[str, str]
"""Service and tenant."""


def _payer(request: Request) -> Payer:
    return request.service, request.tenant


class FairQueue:
    """A queue for each tenant, in order of arrival; a preempted request returns to the head of its own."""

    __slots__ = ("_again", "_counters", "_last", "_queues")

    def __init__(self) -> None:
        self._queues: dict[Payer, deque[Sequence]] = {}
        """Only of tenants with waiting requests."""
        self._counters: dict[Payer, float] = {}
        self._last: Payer = ("", "")
        """The tenant whose queue was the last to become empty."""
        self._again: set[Sequence] = set()
        """Preempted ones: they have been counted."""

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def _next(self) -> Payer:
        queues, counters = self._queues, self._counters
        return min(queues, key=lambda tenant: (counters[tenant], *queues[tenant][0].key[1:]))

    def head(self) -> Sequence:
        """The next to be admitted."""
        return self._queues[self._next()][0]

    def first(self, able: Callable[[Any], bool]) -> Any:
        """The head if it is *able* to be admitted, else None: nobody overtakes."""
        head = self.head() if self._queues else None
        return head if head is not None and able(head) else None

    def add(self, sequence: Sequence) -> bool:
        """A new request; whether it is now the head."""
        tenant = _payer(sequence.request)
        if tenant not in self._queues:
            waiting = [self._counters[other] for other in self._queues]
            level = min(waiting) if waiting else self._counters.get(self._last, 0.0)
            self._counters[tenant] = max(self._counters.get(tenant, 0.0), level)
        self._queues.setdefault(tenant, deque()).append(sequence)
        return self.head() is sequence

    def put_back(self, sequence: Sequence) -> None:
        """A preempted request; its tenant may be new here, where it came with the KV of its prompt."""
        self._again.add(sequence)
        tenant = _payer(sequence.request)
        self._counters.setdefault(tenant, 0.0)
        self._queues.setdefault(tenant, deque()).appendleft(sequence)

    def pop(self) -> Sequence:
        """Takes the head out, to be admitted: it counts from now on."""
        sequence = self.head()
        self._take_out(sequence)
        if sequence in self._again:
            self._again.remove(sequence)
        else:
            request = sequence.request
            tokens = OF_PROMPT * request.prompt_tokens + OF_ANSWER * request.output_tokens
            self._counters[_payer(request)] += tokens / request.weight
        return sequence

    def remove(self, request: Request) -> Sequence | None:
        """Takes *request* out, wherever it stands; None if it does not wait here."""
        found = next((one for one in self._queues.get(_payer(request), ()) if one.request is request), None)
        if found is not None:
            self._take_out(found)
            self._again.discard(found)
        return found

    def _take_out(self, sequence: Sequence) -> None:
        tenant = _payer(sequence.request)
        self._queues[tenant].remove(sequence)
        if not self._queues[tenant]:
            del self._queues[tenant]
            self._last = tenant

    def has(self, asked: int) -> bool:
        """Whether request number *asked* waits here."""
        return any(one.request.index == asked for queue in self._queues.values() for one in queue)

    @staticmethod
    def victim(running: list[Any]) -> Any:
        """The next to be preempted: the newest of *running*, which is in admission order."""
        return running[-1]
