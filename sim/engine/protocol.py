"""What the fleet calls on an engine, whatever its batching policy.

`ReplicaEngine` is the protocol, and `KvTransit` that of engines between which the KV of prompts moves. `NoKvTransfer`
is the base of engines whose requests stay on one replica from the first token to the last.
"""

from abc import ABC, abstractmethod
from typing import Protocol

from sim.engine.kv.blocks import BlockPool
from sim.engine.lora import AdapterSlots
from sim.records import Meters, ReplicaProgress, Request, StepSpan


class KvTransit(Protocol):
    """KV of prompts that one replica computes and another one decodes."""

    def reserve(self, request: Request, now: float) -> bool:
        """Sets KV blocks aside for the prompt of *request*, which another replica has computed, if they are free at
        *now*; whether that was done. `plan` must be asked afterwards.

        A request that can never be served is marked `rejected`.
        """
        ...

    def let_go(self, request: Request, now: float) -> None:
        """Gives up the blocks that stayed here when *request* was handed over, or that were reserved for it. They are
        free at the end of the step under way. `plan` must be asked afterwards.
        """
        ...


class ReplicaEngine(Protocol):
    """One replica. It keeps its own clock; the fleet calls `plan` after every change and `advance` when the planned
    end has come.

    Times are absolute [s]. At the end of a step all requests that arrived up to then are offered before the next step
    is formed.
    """

    def offer(self, request: Request, now: float, prompt_only: bool = False) -> bool:
        """Takes *request*, which arrives at *now*; whether the planned end may have moved, so that `plan` must be
        asked.

        A request that can never be served is marked `rejected` and not taken. With *prompt_only* it is handed over
        after its prompt: it leaves with its first token, for another replica to make the others; its KV blocks stay
        until `let_go`. One whose blocks have been reserved here brings the KV of its prompt and goes on from there.
        """
        ...

    def kv_transit(self) -> KvTransit | None:
        """Return what takes KV from other replicas and leaves some for them; None where requests stay from the first
        token to the last.
        """
        ...

    def evict(self, request: Request, now: float) -> ReplicaProgress:
        """Gives up *request*, which waits or runs here; how far it had come at *now*, in whole steps. `plan` must be
        asked afterwards.

        Nobody can stop a step half-way: the step under way goes on with the request in it and takes as long as it
        would have; at its end seat and KV blocks are free, and the token that it made for the request is nobody's. A
        static batch is computed along with the request to the batch's end. Where a step ends at *now*, `advance`
        comes first: a request may have finished.
        """
        ...

    def crash(self, now: float) -> None:
        """Dies at *now*; every request has been evicted before. The step under way is dropped: its time up to *now* and
        its whole steps count, what it would have made does not, seats and KV blocks are free.
        """
        ...

    def plan(self, now: float) -> float:
        """When this replica next changes something that others see; inf if it is idle. Forms a step if none runs."""
        ...

    def advance(self) -> list[Request]:
        """Completes the step or leap that ends at the planned time; the requests that leave: finished, or handed over
        with `finished_s` still nan.
        """
        ...

    def meters(self, now: float) -> Meters:
        """Totals from the start to *now*, a step under way counted up to its last whole step, its time up to *now*."""
        ...

    def share_time(self, on: bool, now: float) -> None:
        """From *now* on, shares busy time out among requests (`Request.busy`), or stops doing so."""
        ...

    def under_way(self, asked: int = -1) -> list[StepSpan]:
        """The steps under way, each with the place of request number *asked*; none where requests are answered in one
        pass.
        """
        ...

    def caches(self) -> list[BlockPool]:
        """The KV caches of its ranks; none where requests are answered in one pass."""
        ...

    def kv_usage(self, now: float) -> float:
        """Share of its KV blocks that are in use in the steps begun by *now*; blocks kept for their prefix alone are
        free.
        """
        ...

    def adapters(self) -> list[AdapterSlots]:
        """The slots for LoRA adapters of its ranks; none where no request asks for one."""
        ...

    def last_waiting(self) -> Request | None:
        """Who of those that wait would join last, where a more urgent request may take its place in the queue."""
        ...

    def waiting(self) -> int:
        """Requests that wait for admission."""
        ...


class NoKvTransfer(ABC):
    """Base of engines without `KvTransit`, LoRA adapters or a queue in which requests are replaced."""

    def kv_transit(self) -> None:
        """See `ReplicaEngine.kv_transit`."""
        return

    @abstractmethod
    def caches(self) -> list[BlockPool]:
        """See `ReplicaEngine.caches`."""

    def kv_usage(self, now: float) -> float:
        """See `ReplicaEngine.kv_usage`: as of the last step that was looked at by itself."""
        caches = self.caches()
        usable = sum(cache.usable for cache in caches)
        return 1 - sum(cache.free for cache in caches) / usable if usable else 0.0

    def last_waiting(self) -> Request | None:
        """See `ReplicaEngine.last_waiting`: nobody."""
        return None

    def adapters(self) -> list[AdapterSlots]:
        """See `ReplicaEngine.adapters`: none, as no request may ask for one here."""
        return []
