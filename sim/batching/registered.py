"""A batching policy of a user's own."""

from math import isnan
from typing import Any

from sim.batching.limits import VllmLimits
from sim.message import Message
from sim.records import Request
from sim.registry import Registered


class RegisteredBatching(Registered, VllmLimits):
    """A class with `order(request)`, by which vLLM's scheduler takes waiting requests, or a scheduler of its own.

    The limits are vLLM's, under vLLM's names.
    """

    @property
    def order(self) -> "Order | None":
        """The key by which requests wait, lowest first; None for a class that is a scheduler."""
        return Order(self.made()) if hasattr(self.registration.make, "order") else None


class Order:
    """The keys of a user's policy; nan, which is neither before nor behind any other key, is refused."""

    def __init__(self, policy: Any) -> None:
        self._policy = policy

    def __call__(self, request: Request) -> Any:
        """Where *request* waits. Raises ValueError."""
        key = self._policy.order(request)
        if isinstance(key, float) and isnan(key):
            name = type(self._policy).__name__
            raise ValueError(
                Message("batching policy {name}: order returns nan for request {index}", name, request.index)
            )
        return key
