"""Engines whose requests stay from the first token to the last."""

from sim.engine.kv.adapters import AdapterSlots
from sim.engine.kv.blocks import BlockPool
from sim.records import Request


class Unsplit:
    """Takes no KV from other replicas and leaves none behind: a scenario that asks for it is refused before."""

    def reserve(self, request: Request, now: float) -> bool:
        """See `Engine.reserve`. Raises NotImplementedError."""
        raise NotImplementedError(f"{type(self).__name__} takes no KV from other replicas")

    def let_go(self, request: Request, now: float) -> None:
        """See `Engine.let_go`. Raises NotImplementedError."""
        raise NotImplementedError(f"{type(self).__name__} leaves no KV behind")

    def caches(self) -> list[BlockPool]:
        """See `Engine.caches`."""
        raise NotImplementedError

    def kv_usage(self, now: float) -> float:
        """See `Engine.kv_usage`: as of the last step that was looked at by itself."""
        caches = self.caches()
        usable = sum(cache.usable for cache in caches)
        return 1 - sum(cache.free for cache in caches) / usable if usable else 0.0

    def last_waiting(self) -> Request | None:
        """See `Engine.last_waiting`: nobody."""
        return None

    def adapters(self) -> list[AdapterSlots]:
        """See `Engine.adapters`: none, as no request may ask for one here."""
        return []
