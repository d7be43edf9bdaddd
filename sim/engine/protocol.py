"""Interfaces of engines towards the fleet, whatever the batching policy.

`ReplicaEngine` is the protocol of all engines, and `KvTransit` that of engines between which the KV of prompts moves.
`NoKvTransfer` is the base of engines whose requests stay on one replica from the first token to the last.
"""

from abc import ABC, abstractmethod
from typing import Protocol

from sim.engine.kv.blocks import BlockPool
from sim.engine.lora import AdapterSlots
from sim.records import Meters, ReplicaProgress, Request, StepSpan


class KvTransit(Protocol):
    """KV of prompts that one replica computes and another one decodes."""

    __slots__ = ()

    def reserve(self, request: Request, now: float) -> bool:
        """Reserve KV blocks for the prompt of *request*, which another replica has computed, if they are free at *now*.

        Return whether they were reserved. `plan` must be called afterwards. A request that can never be served is
        marked `rejected`.
        """
        ...

    def release_kv(self, request: Request, now: float) -> None:
        """Free the blocks that stayed here when *request* moved to another replica, or that were reserved for it.

        They are free at the end of the current step. `plan` must be called afterwards.
        """
        ...


class ReplicaEngine(Protocol):
    """Engine of one replica, with its own clock.

    The fleet calls `plan` after every change and `advance` when the planned end has come. Times are absolute [s]. At
    the end of a step all requests that arrived up to then are offered before the next step is formed.
    """

    __slots__ = ()

    def offer(self, request: Request, now: float, prompt_only: bool = False) -> bool:
        """Add *request*, which arrives at *now*. Return whether the planned end may have changed.

        If so, `plan` must be called. A request that can never be served is marked `rejected` and not added. With
        *prompt_only* the request leaves with its first token, and another replica makes the others; its KV blocks stay
        until `release_kv`. A request whose blocks have been reserved here brings the KV of its prompt and continues
        from there.
        """
        ...

    def kv_transit(self) -> KvTransit | None:
        """Return the interface for KV transfers; None where requests stay from the first token to the last."""
        ...

    def evict(self, request: Request, now: float) -> ReplicaProgress:
        """Remove *request*, which waits or runs here. Return its progress at *now*, in whole steps.

        `plan` must be called afterwards. A step cannot be stopped: the current step continues with the request in it
        and keeps its duration; at its end the request's place in the batch and its KV blocks are free, and the token
        made for it is dropped. In a static batch the request is computed to the batch's end. Where a step ends at
        *now*, `advance` must be called first: the request may have finished.
        """
        ...

    def crash(self, now: float) -> None:
        """Abort the current step at *now*; every request has been evicted before.

        The step's time up to *now* and its whole steps count, unfinished work does not. All batch places and KV blocks
        are free.
        """
        ...

    def plan(self, now: float) -> float:
        """Return the time of the next change that others can see; inf if idle. Forms a step if none runs."""
        ...

    def advance(self) -> list[Request]:
        """Complete the step or leap that ends at the planned time.

        Return the requests that leave: finished, or moving to another replica with `finished_s` still nan.
        """
        ...

    def meters(self, now: float) -> Meters:
        """Return the totals from the start to *now*.

        The current step's time counts up to *now*, its work up to its last whole step.
        """
        ...

    def share_time(self, on: bool, now: float) -> None:
        """Start or stop attributing busy time to requests (`Request.busy`) from *now* on."""
        ...

    def under_way(self, request_index: int = -1) -> list[StepSpan]:
        """Return the current steps, with the place of request number *request_index*; none for one-pass engines."""
        ...

    def caches(self) -> list[BlockPool]:
        """Return the KV caches of the engine's ranks; none for one-pass engines."""
        ...

    def kv_usage(self, now: float) -> float:
        """Return the fraction of KV blocks in use in the steps begun by *now*.

        Blocks kept only for their prefix are free.
        """
        ...

    def adapters(self) -> list[AdapterSlots]:
        """Return the LoRA adapter slots of the engine's ranks; none where no request needs an adapter."""
        ...

    def last_waiting(self) -> Request | None:
        """Return the waiting request that would join last, where a more urgent request may replace it in the queue."""
        ...

    def waiting(self) -> int:
        """Return the number of requests that wait for admission."""
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
        """See `ReplicaEngine.kv_usage`. The value is that of the last step that was formed by itself."""
        caches = self.caches()
        usable = sum(cache.usable for cache in caches)
        return 1 - sum(cache.free for cache in caches) / usable if usable else 0.0

    def last_waiting(self) -> Request | None:
        """See `ReplicaEngine.last_waiting`. Requests are not replaced here."""
        return None

    def adapters(self) -> list[AdapterSlots]:
        """See `ReplicaEngine.adapters`. Requests cannot use adapters here."""
        return []
