"""A queue that shares a replica fairly among tenants: virtual token counters.

Sheng et al., "Fairness in serving large language models" (OSDI 2024): whoever has been served the fewest tokens by
weight is next, and a tenant that was idle gains nothing by it. An admitted request counts with its prompt and, twice,
with its answer, as the paper's variant with known lengths does; the plain algorithm counts answers as they are made.
"""

from collections.abc import Callable
from typing import Any, Protocol

from sim.engine.kv.adapters import AdapterSlots
from sim.engine.sequence import Sequence
from sim.records import Request

OF_PROMPT, OF_ANSWER = 1, 2
"""What a token counts, as in the paper."""
Payer = tuple[str, str]
"""Service and tenant."""


def _payer(request: Request) -> Payer:
    return request.service, request.tenant


class OwnQueue(Protocol):
    """The queue of one tenant."""

    def __len__(self) -> int: ...

    def head(self) -> Any:
        """The next to be admitted; None where nobody can be now."""

    def add(self, sequence: Sequence) -> bool:
        """A new request."""

    def put_back(self, sequence: Sequence) -> None:
        """A preempted request: before all others."""

    def pop(self) -> Sequence:
        """Takes the head out."""

    def remove(self, request: Request) -> Sequence | None:
        """Takes *request* out, wherever it stands; None if it does not wait here."""

    def has(self, asked: int) -> bool:
        """Whether request number *asked* waits here."""


class FairQueue:
    """A queue for each tenant, in order of arrival; a preempted request returns to the head of its own.

    With *slots* for LoRA adapters a tenant's first request that finds one stands for it, and a tenant none of whose
    requests finds one is passed over.
    """

    __slots__ = ("_again", "_counters", "_last", "_new", "_queues", "slots")

    def __init__(self, new: Callable[[], OwnQueue], slots: AdapterSlots | None = None) -> None:
        """*new* makes the queue of a tenant."""
        self._new, self.slots = new, slots
        self._queues: dict[Payer, OwnQueue] = {}
        """Only of tenants with waiting requests."""
        self._counters: dict[Payer, float] = {}
        self._last: Payer = ("", "")
        """The tenant whose queue was the last to become empty."""
        self._again: set[Sequence] = set()
        """Preempted ones: they have been counted."""

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def head(self) -> Any:
        """The next to be admitted; None where nobody finds a slot."""
        counters = self._counters
        able = [(tenant, head) for tenant, queue in self._queues.items() if (head := queue.head()) is not None]
        return min(able, key=lambda one: (counters[one[0]], *one[1].key[1:]), default=(None, None))[1]

    def first(self, able: Callable[[Any], bool]) -> Any:
        """The head if it is *able* to be admitted, else None: nobody overtakes."""
        head = self.head()
        return head if head is not None and able(head) else None

    def add(self, sequence: Sequence) -> bool:
        """A new request; whether it is now the head."""
        tenant = _payer(sequence.request)
        if tenant not in self._queues:
            waiting = [self._counters[other] for other in self._queues]
            level = min(waiting) if waiting else self._counters.get(self._last, 0.0)
            self._counters[tenant] = max(self._counters.get(tenant, 0.0), level)
        self._own(tenant).add(sequence)
        return self.head() is sequence

    def put_back(self, sequence: Sequence) -> None:
        """A preempted request; its tenant may be new here, where it came with the KV of its prompt."""
        self._again.add(sequence)
        tenant = _payer(sequence.request)
        self._counters.setdefault(tenant, 0.0)
        self._own(tenant).put_back(sequence)

    def _own(self, tenant: Payer) -> OwnQueue:
        if tenant not in self._queues:
            self._queues[tenant] = self._new()
        return self._queues[tenant]

    def pop(self) -> Sequence:
        """Takes the head out, to be admitted: it counts from now on."""
        sequence: Sequence = self.head()
        tenant = _payer(sequence.request)
        self._queues[tenant].pop()
        self._drop_empty(tenant)
        if sequence in self._again:
            self._again.remove(sequence)
        else:
            request = sequence.request
            tokens = OF_PROMPT * request.prompt_tokens + OF_ANSWER * request.output_tokens
            self._counters[tenant] += tokens / request.weight
        return sequence

    def remove(self, request: Request) -> Sequence | None:
        """Takes *request* out, wherever it stands; None if it does not wait here."""
        tenant = _payer(request)
        found = self._queues[tenant].remove(request) if tenant in self._queues else None
        if found is not None:
            self._drop_empty(tenant)
            self._again.discard(found)
        return found

    def _drop_empty(self, tenant: Payer) -> None:
        if not len(self._queues[tenant]):
            del self._queues[tenant]
            self._last = tenant

    def has(self, asked: int) -> bool:
        """Whether request number *asked* waits here."""
        return any(queue.has(asked) for queue in self._queues.values())

    @staticmethod
    def victim(running: list[Any]) -> Any:
        """The next to be preempted: the newest of *running*, which is in admission order."""
        return running[-1]
