"""A batching policy of a user's own."""

from typing import Any

from sim.batching.limits import VllmLimits
from sim.registry import Registered


class RegisteredBatching(Registered, VllmLimits):
    """A class with `order(request)`, by which vLLM's scheduler takes waiting requests, or a scheduler of its own.

    The limits are vLLM's, under vLLM's names.
    """

    @property
    def order(self) -> Any:
        """The key by which requests wait, lowest first; None for a class that is a scheduler."""
        return self.made().order if hasattr(self.registration.make, "order") else None
