"""Engines whose requests stay from the first token to the last."""

from sim.engine.kv.adapters import AdapterSlots
from sim.records import Request


class Unsplit:
    """Takes no KV from other replicas and leaves none behind: a scenario that asks for it is refused before."""

    def reserve(self, request: Request, now: float) -> bool:
        """See `Engine.reserve`. Raises NotImplementedError."""
        raise NotImplementedError(f"{type(self).__name__} takes no KV from other replicas")

    def let_go(self, request: Request, now: float) -> None:
        """See `Engine.let_go`. Raises NotImplementedError."""
        raise NotImplementedError(f"{type(self).__name__} leaves no KV behind")

    def adapters(self) -> list[AdapterSlots]:
        """See `Engine.adapters`: none, as no request may ask for one here."""
        return []
