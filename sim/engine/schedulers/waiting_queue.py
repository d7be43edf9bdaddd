"""Waiting queues: first come first served, by priority, fair between tenants, or by LoRA adapter."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any

from sim.engine.lora import AdapterSlots
from sim.engine.sequence import Sequence
from sim.records import Request

PROMPT_WEIGHT, OUTPUT_WEIGHT = 1, 2
"""Weights of prompt and output tokens in the fair queue's counters, as in the Virtual Token Counter paper."""
TenantKey = tuple[str, str]
"""Service and tenant whose counter a request adds to."""


def _tenant_key(request: Request) -> TenantKey:
    return request.service, request.tenant


def _remove_from(heap: list[tuple[Any, Sequence]], request: Request) -> Sequence | None:
    """Remove the sequence of *request* from *heap* and return it; None if it is not there."""
    found = next((entry for entry in heap if entry[1].request is request), None)
    if found is None:
        return None
    heap.remove(found)
    heapify(heap)
    return found[1]


class WaitingQueue(ABC):
    """Waiting requests of a rank, or of one tenant, in the order in which they are admitted."""

    __slots__ = ()

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def head(self) -> Sequence | None:
        """Return the next sequence to be admitted; None if none can be admitted now."""

    @abstractmethod
    def first(self, able: Callable[[Any], bool]) -> Any:
        """Return the first sequence in order that is *able* to be admitted and may overtake others; None if none."""

    @abstractmethod
    def add(self, sequence: Sequence) -> bool:
        """Add a new *sequence*. Return whether it is now the head."""

    @abstractmethod
    def put_back(self, sequence: Sequence) -> None:
        """Add a preempted *sequence*."""

    @abstractmethod
    def pop(self) -> Sequence:
        """Remove and return the head."""

    @abstractmethod
    def remove(self, request: Request) -> Sequence | None:
        """Remove the sequence of *request* and return it; None if it does not wait here."""

    @abstractmethod
    def has(self, request_index: int) -> bool:
        """Return whether request number *request_index* waits here."""

    def victim(self, running: list[Any]) -> Any:
        """Return the sequence to be preempted next, of *running* in admission order."""
        return running[-1]


class FairQueue(WaitingQueue):
    """Fair queue: one queue per tenant, in order of arrival; the tenant with the lowest token counter is next.

    A preempted request returns to the head of its tenant's queue. With *slots* for LoRA adapters, the head of a
    tenant's queue is its first request whose adapter finds a slot; a tenant without such a request is skipped.
    """

    __slots__ = ("_counters", "_last", "_new", "_preempted", "_queues", "slots")

    def __init__(self, new: Callable[[], WaitingQueue], slots: AdapterSlots | None = None) -> None:
        """Create the queue; *new* makes the queue of a tenant."""
        self._new, self.slots = new, slots
        self._queues: dict[TenantKey, WaitingQueue] = {}
        """Tenant -> its queue; only tenants with waiting requests."""
        self._counters: dict[TenantKey, float] = {}
        self._last: TenantKey = ("", "")
        """Tenant whose queue became empty last."""
        self._preempted: set[Sequence] = set()
        """Preempted sequences, whose tokens have been counted."""

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def head(self) -> Sequence | None:
        """Return the next sequence to be admitted; None if none finds a slot."""
        counters = self._counters
        able = [(tenant, head) for tenant, queue in self._queues.items() if (head := queue.head()) is not None]
        return min(able, key=lambda one: (counters[one[0]], *one[1].key[1:]))[1] if able else None

    def first(self, able: Callable[[Any], bool]) -> Any:
        """Return the head if it is *able* to be admitted, else None: no request overtakes it."""
        head = self.head()
        return head if head is not None and able(head) else None

    def add(self, sequence: Sequence) -> bool:
        """Add a new *sequence*. Return whether it is now the head."""
        tenant = _tenant_key(sequence.request)
        if tenant not in self._queues:
            waiting = [self._counters[other] for other in self._queues]
            level = min(waiting) if waiting else self._counters.get(self._last, 0.0)
            self._counters[tenant] = max(self._counters.get(tenant, 0.0), level)
        self._own(tenant).add(sequence)
        return self.head() is sequence

    def put_back(self, sequence: Sequence) -> None:
        """Add a preempted *sequence*.

        Its tenant may have no counter yet: a request that arrives with the KV of its prompt skips this queue.
        """
        self._preempted.add(sequence)
        tenant = _tenant_key(sequence.request)
        self._counters.setdefault(tenant, 0.0)
        self._own(tenant).put_back(sequence)

    def _own(self, tenant: TenantKey) -> WaitingQueue:
        if tenant not in self._queues:
            self._queues[tenant] = self._new()
        return self._queues[tenant]

    def pop(self) -> Sequence:
        """Remove and return the head, which is admitted; its tokens are counted from now on."""
        sequence = self.head()
        assert sequence is not None
        tenant = _tenant_key(sequence.request)
        self._queues[tenant].pop()
        self._drop_empty(tenant)
        if sequence in self._preempted:
            self._preempted.remove(sequence)
        else:
            request = sequence.request
            tokens = PROMPT_WEIGHT * request.prompt_tokens + OUTPUT_WEIGHT * request.output_tokens
            self._counters[tenant] += tokens / request.weight
        return sequence

    def remove(self, request: Request) -> Sequence | None:
        """Remove the sequence of *request* and return it; None if it does not wait here."""
        tenant = _tenant_key(request)
        found = self._queues[tenant].remove(request) if tenant in self._queues else None
        if found is not None:
            self._drop_empty(tenant)
            self._preempted.discard(found)
        return found

    def _drop_empty(self, tenant: TenantKey) -> None:
        if not len(self._queues[tenant]):
            del self._queues[tenant]
            self._last = tenant

    def has(self, request_index: int) -> bool:
        """Return whether request number *request_index* waits here."""
        return any(queue.has(request_index) for queue in self._queues.values())


class AdapterQueue(WaitingQueue):
    """Waiting requests by adapter, in order of arrival or by priority.

    The rule is vLLM's: a request whose adapter is not in the batch waits while the batch has as many adapters as there
    are slots, and requests after it may go first.
    """

    __slots__ = ("_before", "_behind", "_by_priority", "_counts", "_heaps", "passed_over", "slots")

    def __init__(self, slots: AdapterSlots, by_priority: bool, counts: bool = False) -> None:
        """Create the queue; *counts*: whether it records the requests that admission has passed over."""
        self.slots, self._by_priority, self._counts = slots, by_priority, counts
        self.passed_over: set[Sequence] = set()
        """Waiting requests that admission has passed over, where the queue records them."""
        self._heaps: dict[str, list[tuple[Any, Sequence]]] = {}
        """Adapter -> heap of its requests; only adapters with waiting requests."""
        self._behind, self._before = 0, 0

    def __len__(self) -> int:
        return sum(map(len, self._heaps.values()))

    def _next(self) -> str | None:
        heaps, slots = self._heaps, self.slots
        able: Iterable[str] = [name for name in ("", *slots.batched()) if name in heaps] if slots.full else heaps
        return min(able, key=lambda name: heaps[name][0][0], default=None)

    def head(self) -> Sequence | None:
        """Return the next sequence to be admitted; None if none finds a slot."""
        name = self._next()
        head = None if name is None else self._heaps[name][0]
        if self._counts and self.slots.full:
            waiting = (entry for heap in self._heaps.values() for entry in heap)
            self.passed_over.update(entry[1] for entry in waiting if head is None or entry[0] < head[0])
        return None if head is None else head[1]

    def first(self, able: Callable[[Any], bool]) -> Any:
        """Return the head if it is *able* to be admitted, else None."""
        head = self.head()
        return head if head is not None and able(head) else None

    def add(self, sequence: Sequence) -> bool:
        """Add a new *sequence*. Return whether it is now the head."""
        self._behind += 1
        self._put(sequence, self._behind)
        name = self._next()
        return name is not None and self._heaps[name][0][1] is sequence

    def put_back(self, sequence: Sequence) -> None:
        """Add a preempted *sequence*: before all others, or by its priority."""
        self._before -= 1
        self._put(sequence, self._before)

    def _put(self, sequence: Sequence, place: int) -> None:
        key = sequence.key if self._by_priority else place
        heappush(self._heaps.setdefault(sequence.request.adapter, []), (key, sequence))

    def pop(self) -> Sequence:
        """Remove and return the head."""
        name = self._next()
        assert name is not None
        sequence = heappop(self._heaps[name])[1]
        self.passed_over.discard(sequence)
        self._drop_empty(name)
        return sequence

    def remove(self, request: Request) -> Sequence | None:
        """Remove the sequence of *request* and return it; None if it does not wait here."""
        found = _remove_from(self._heaps.get(request.adapter, []), request)
        if found is not None:
            self.passed_over.discard(found)
            self._drop_empty(request.adapter)
        return found

    def _drop_empty(self, name: str) -> None:
        if not self._heaps[name]:
            del self._heaps[name]

    def has(self, request_index: int) -> bool:
        """Return whether request number *request_index* waits here."""
        return any(one.request.index == request_index for heap in self._heaps.values() for _, one in heap)

    def victim(self, running: list[Any]) -> Any:
        """Return the sequence to be preempted next, of *running* in admission order."""
        return max(running, key=lambda sequence: sequence.key[:-1]) if self._by_priority else running[-1]


class FcfsQueue(WaitingQueue):
    """First-come, first-served queue; a preempted request returns to its head."""

    __slots__ = ("_queue",)

    def __init__(self) -> None:
        self._queue: deque[Sequence] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def head(self) -> Sequence:
        """Return the next sequence to be admitted."""
        return self._queue[0]

    def first(self, able: Callable[[Any], bool]) -> Any:
        """Return the first request in the order of the queue that is *able* to be admitted; None if there is none."""
        return next((sequence for sequence in self._queue if able(sequence)), None)

    def add(self, sequence: Sequence) -> bool:
        """Add a new *sequence*. Return whether it is now the head."""
        self._queue.append(sequence)
        return len(self._queue) == 1

    def put_back(self, sequence: Sequence) -> None:
        """Add a preempted *sequence* at the head."""
        self._queue.appendleft(sequence)

    def pop(self) -> Sequence:
        """Remove and return the head."""
        return self._queue.popleft()

    def remove(self, request: Request) -> Sequence | None:
        """Remove the sequence of *request* and return it; None if it does not wait here."""
        for place, sequence in enumerate(self._queue):
            if sequence.request is request:
                del self._queue[place]
                return sequence
        return None

    def has(self, request_index: int) -> bool:
        """Return whether request number *request_index* waits here."""
        return any(one.request.index == request_index for one in self._queue)


class PrefixQueue(FcfsQueue):
    """First-come, first-served queue that can be sorted; a preempted request joins the end."""

    __slots__ = ()

    def add(self, sequence: Sequence) -> bool:
        """Add a new *sequence*. Return True: it may be the head once the queue is sorted."""
        super().add(sequence)
        return True

    def put_back(self, sequence: Sequence) -> None:
        """Add a preempted *sequence* at the end."""
        super().add(sequence)

    def sort(self, places: dict[Sequence, float]) -> None:
        """Sort the waiting sequences by their *places*; equal ones keep their order."""
        self._queue = deque(sorted(self._queue, key=places.__getitem__))

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._queue)


class PriorityQueue(WaitingQueue):
    """Queue by (priority, arrival), lowest first; a preempted request returns to its place.

    A user's *order* takes precedence over priority and arrival.
    """

    __slots__ = ("_heap", "_order")

    def __init__(self, order: Callable[[Request], Any] | None = None) -> None:
        self._heap: list[tuple[tuple[Any, ...], Sequence]] = []
        self._order = order

    def _key(self, sequence: Sequence) -> tuple[Any, ...]:
        return sequence.key if self._order is None else (self._order(sequence.request), *sequence.key)

    def __len__(self) -> int:
        return len(self._heap)

    def head(self) -> Sequence:
        """Return the next sequence to be admitted."""
        return self._heap[0][1]

    def first(self, able: Callable[[Any], bool]) -> Any:
        """Return the first request in the order of the queue that is *able* to be admitted; None if there is none."""
        if not self._heap or able(self._heap[0][1]):
            return self._heap[0][1] if self._heap else None
        return next((sequence for _, sequence in sorted(self._heap)[1:] if able(sequence)), None)

    def add(self, sequence: Sequence) -> bool:
        """Add a new *sequence*. Return whether it is now the head."""
        heappush(self._heap, (self._key(sequence), sequence))
        return self._heap[0][1] is sequence

    def put_back(self, sequence: Sequence) -> None:
        """Add a preempted *sequence*."""
        heappush(self._heap, (self._key(sequence), sequence))

    def pop(self) -> Sequence:
        """Remove and return the head."""
        return heappop(self._heap)[1]

    def remove(self, request: Request) -> Sequence | None:
        """Remove the sequence of *request* and return it; None if it does not wait here."""
        return _remove_from(self._heap, request)

    def has(self, request_index: int) -> bool:
        """Return whether request number *request_index* waits here."""
        return any(one.request.index == request_index for _, one in self._heap)

    def victim(self, running: list[Any]) -> Any:
        """Return the sequence to be preempted: the last of *running* in the order of the queue.

        Of several that arrived together, the one that was admitted first is chosen, as by vLLM's `max` over priority
        and arrival.
        """
        return max(running, key=lambda sequence: self._key(sequence)[:-1])


class EntryQueue(PriorityQueue):
    """Queue by (priority, entry into the queue), lowest first; a preempted request enters again."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        super().__init__()
        self._entries = 0

    def _key(self, sequence: Sequence) -> tuple[Any, ...]:
        return sequence.request.priority, sequence.entered

    def add(self, sequence: Sequence) -> bool:
        """Add a new *sequence*, or one that enters again. Return whether it is now the head."""
        self._entries += 1
        sequence.entered = self._entries
        return super().add(sequence)

    def last(self) -> Request | None:
        """Return the last waiting request; None if the queue is empty."""
        return max(self._heap)[1].request if self._heap else None

    def put_back(self, sequence: Sequence) -> None:
        """Add a preempted *sequence* as a new entry."""
        self.add(sequence)
