"""A queue of requests for LoRA adapters: who finds no slot is passed over."""

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from typing import Any

from sim.engine.kv.adapters import AdapterSlots
from sim.engine.sequence import Sequence
from sim.records import Request


class AdapterQueue:
    """Waiting requests by adapter, in order of arrival or by priority.

    vLLM's rule: a request whose adapter is not in the batch waits while the batch has as many as there are slots, and
    those behind it may go first.
    """

    __slots__ = ("_before", "_behind", "_by_priority", "_counts", "_heaps", "passed_over", "slots")

    def __init__(self, slots: AdapterSlots, by_priority: bool, counts: bool = False) -> None:
        """Whether the queue *counts* the requests that admission has passed over."""
        self.slots, self._by_priority, self._counts = slots, by_priority, counts
        self.passed_over: set[Sequence] = set()
        """Waiting requests that admission has passed over, where the queue counts them."""
        self._heaps: dict[str, list[tuple[Any, Sequence]]] = {}
        """Only of adapters with waiting requests."""
        self._behind, self._before = 0, 0

    def __len__(self) -> int:
        return sum(map(len, self._heaps.values()))

    def _next(self) -> str | None:
        heaps, slots = self._heaps, self.slots
        able: Iterable[str] = [name for name in ("", *slots.batched()) if name in heaps] if slots.full else heaps
        return min(able, key=lambda name: heaps[name][0][0], default=None)

    def head(self) -> Any:
        """The next to be admitted; None where nobody finds a slot."""
        name = self._next()
        head = None if name is None else self._heaps[name][0]
        if self._counts and self.slots.full:
            waiting = (entry for heap in self._heaps.values() for entry in heap)
            self.passed_over.update(entry[1] for entry in waiting if head is None or entry[0] < head[0])
        return None if head is None else head[1]

    def first(self, able: Callable[[Any], bool]) -> Any:
        """The head if it is *able* to be admitted, else None."""
        head = self.head()
        return head if head is not None and able(head) else None

    def add(self, sequence: Sequence) -> bool:
        """A new request; whether it is now the head."""
        self._behind += 1
        self._put(sequence, self._behind)
        name = self._next()
        return name is not None and self._heaps[name][0][1] is sequence

    def put_back(self, sequence: Sequence) -> None:
        """A preempted request: before all others, or by its priority."""
        self._before -= 1
        self._put(sequence, self._before)

    def _put(self, sequence: Sequence, place: int) -> None:
        key = sequence.key if self._by_priority else place
        heappush(self._heaps.setdefault(sequence.request.adapter, []), (key, sequence))

    def pop(self) -> Sequence:
        """Takes the head out."""
        name = self._next()
        assert name is not None
        sequence = heappop(self._heaps[name])[1]
        self.passed_over.discard(sequence)
        self._drop_empty(name)
        return sequence

    def remove(self, request: Request) -> Sequence | None:
        """Takes *request* out, wherever it stands; None if it does not wait here."""
        heap = self._heaps.get(request.adapter, [])
        found = next((entry for entry in heap if entry[1].request is request), None)
        if found is None:
            return None
        heap.remove(found)
        heapify(heap)
        self.passed_over.discard(found[1])
        self._drop_empty(request.adapter)
        return found[1]

    def _drop_empty(self, name: str) -> None:
        if not self._heaps[name]:
            del self._heaps[name]

    def has(self, asked: int) -> bool:
        """Whether request number *asked* waits here."""
        return any(one.request.index == asked for heap in self._heaps.values() for _, one in heap)

    def victim(self, running: list[Any]) -> Any:
        """The next to be preempted, of *running* in admission order."""
        return max(running, key=lambda sequence: sequence.key[:-1]) if self._by_priority else running[-1]
