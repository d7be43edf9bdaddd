"""Batching policies that users register."""

from math import isnan
from typing import Any

from sim.batching.limits import VllmLimits
from sim.message import Message
from sim.records import Request
from sim.registry import Registered


class RegisteredBatching(Registered, VllmLimits):
    """User-defined batching policy, registered by the user.

    The scenario names a class with `order(request)`, the sort key of vLLM's waiting queue, or a scheduler.

    The limits are vLLM's, under vLLM's names.
    """

    @property
    def order(self) -> "Order | None":
        """Sort key of waiting requests, lowest first; None for a class that is a scheduler."""
        return Order(self.made()) if hasattr(self.registration.make, "order") else None


class Order:
    """Checked sort keys of a user-defined policy; nan is refused because it cannot be ordered."""

    def __init__(self, policy: Any) -> None:
        self._policy = policy

    def __call__(self, request: Request) -> Any:
        """Return the sort key of *request*. Raises ValueError for nan."""
        key = self._policy.order(request)
        if isinstance(key, float) and isnan(key):
            name = type(self._policy).__name__
            raise ValueError(
                Message("batching policy {name}: order returns nan for request {index}", name, request.index)
            )
        return key
