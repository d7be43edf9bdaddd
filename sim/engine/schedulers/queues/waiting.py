"""Queues of requests that wait for a seat and for KV blocks."""

from collections import deque
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any

from sim.engine.schedulers.queues.adapters import AdapterQueue
from sim.engine.schedulers.queues.fair import FairQueue
from sim.engine.sequence import Sequence
from sim.records import Request


class FcfsQueue:
    """First-come, first-served queue; a preempted request returns to its head."""

    __slots__ = ("_queue",)

    def __init__(self) -> None:
        self._queue: deque[Sequence] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def head(self) -> Sequence:
        """The next to be admitted."""
        return self._queue[0]

    def first(self, able: Callable[[Any], bool]) -> Any:
        """Return the first request in the order of the queue that is *able* to be admitted; None if there is none."""
        return next((sequence for sequence in self._queue if able(sequence)), None)

    def add(self, sequence: Sequence) -> bool:
        """A new request; whether it is now the head."""
        self._queue.append(sequence)
        return len(self._queue) == 1

    def put_back(self, sequence: Sequence) -> None:
        """A preempted request."""
        self._queue.appendleft(sequence)

    def pop(self) -> Sequence:
        """Takes the head out."""
        return self._queue.popleft()

    def remove(self, request: Request) -> Sequence | None:
        """Takes *request* out, wherever it stands; None if it does not wait here."""
        for place, sequence in enumerate(self._queue):
            if sequence.request is request:
                del self._queue[place]
                return sequence
        return None

    def has(self, asked: int) -> bool:
        """Whether request number *asked* waits here."""
        return any(one.request.index == asked for one in self._queue)

    @staticmethod
    def victim(running: list[Any]) -> Any:
        """The next to be preempted: the newest of *running*, which is in admission order."""
        return running[-1]


class PrefixQueue(FcfsQueue):
    """First come first served until it is sorted; a preempted request joins the end."""

    __slots__ = ()

    def add(self, sequence: Sequence) -> bool:
        """A new request; it may be the head once the queue is sorted."""
        super().add(sequence)
        return True

    def put_back(self, sequence: Sequence) -> None:
        """A preempted request."""
        super().add(sequence)

    def sort(self, places: dict[Sequence, float]) -> None:
        """Orders those who wait by their *places*, and as they stand where these are equal."""
        self._queue = deque(sorted(self._queue, key=places.__getitem__))

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._queue)


class PriorityQueue:
    """The lowest (priority, arrival) first, or by another *order* before that; a preempted request returns to its
    place.
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
        """The next to be admitted."""
        return self._heap[0][1]

    def first(self, able: Callable[[Any], bool]) -> Any:
        """Return the first request in the order of the queue that is *able* to be admitted; None if there is none."""
        if not self._heap or able(self._heap[0][1]):
            return self._heap[0][1] if self._heap else None
        return next((sequence for _, sequence in sorted(self._heap)[1:] if able(sequence)), None)

    def add(self, sequence: Sequence) -> bool:
        """A new request; whether it is now the head."""
        heappush(self._heap, (self._key(sequence), sequence))
        return self._heap[0][1] is sequence

    def put_back(self, sequence: Sequence) -> None:
        """A preempted request."""
        heappush(self._heap, (self._key(sequence), sequence))

    def pop(self) -> Sequence:
        """Takes the head out."""
        return heappop(self._heap)[1]

    def remove(self, request: Request) -> Sequence | None:
        """Takes *request* out, wherever it stands; None if it does not wait here."""
        found = next((entry for entry in self._heap if entry[1].request is request), None)
        if found is None:
            return None
        self._heap.remove(found)
        heapify(self._heap)
        return found[1]

    def has(self, asked: int) -> bool:
        """Whether request number *asked* waits here."""
        return any(one.request.index == asked for _, one in self._heap)

    def victim(self, running: list[Any]) -> Any:
        """Who is preempted: the last of *running* in the order of the queue; where several arrived together, the first
        of them that was admitted (vLLM: `max` by priority and arrival alone).
        """
        return max(running, key=lambda sequence: self._key(sequence)[:-1])


class EntryQueue(PriorityQueue):
    """The lowest priority first, and of equals who joined the queue first; a preempted request joins it again."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        super().__init__()
        self._entries = 0

    def _key(self, sequence: Sequence) -> tuple[Any, ...]:
        return sequence.request.priority, sequence.entered

    def add(self, sequence: Sequence) -> bool:
        """A new request, or one that joins again; whether it is now the head."""
        self._entries += 1
        sequence.entered = self._entries
        return super().add(sequence)

    def last(self) -> Request | None:
        """The last of those who wait."""
        return max(self._heap)[1].request if self._heap else None

    def put_back(self, sequence: Sequence) -> None:
        """A preempted request."""
        self.add(sequence)


WaitingQueue = FcfsQueue | PriorityQueue | FairQueue | AdapterQueue
