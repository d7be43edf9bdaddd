"""LoRA adapters in GPU slots and in host memory."""

from collections import OrderedDict
from collections.abc import Iterable

from sim.engine.sequence import Sequence
from sim.records import Batch


class AdapterSlots:
    """Adapter slots of one rank, and the adapters in its host memory (vLLM's `LRUCacheLoRAModelManager`).

    A requested adapter gets a free slot, or that of the least recently used adapter that no running request needs. Host
    memory keeps more adapters in the same order.
    """

    __slots__ = ("_fetch_s", "_gpu", "_host", "_in_host", "_on_gpu", "_running", "_swap_s", "fetches", "swaps")

    def __init__(self, on_gpu: int, in_host: int, swap_s: float, fetch_s: float) -> None:
        """Set the sizes and times: *swap_s* from host memory to the GPU, *fetch_s* from storage to host memory [s]."""
        self._on_gpu, self._in_host = on_gpu, in_host
        self._swap_s, self._fetch_s = swap_s, fetch_s
        self._gpu: OrderedDict[str, None] = OrderedDict()
        """Adapters on the GPU, least recently used first."""
        self._host: OrderedDict[str, None] = OrderedDict()
        self._running: dict[str, int] = {}
        """Adapter -> number of running requests that use it."""
        self.swaps = self.fetches = 0

    @property
    def running(self) -> int:
        """Number of different adapters in the batch."""
        return len(self._running)

    def has_room(self, adapter: str) -> bool:
        """Return whether a request with *adapter* may join the batch."""
        return not adapter or adapter in self._running or len(self._running) < self._on_gpu

    @property
    def full(self) -> bool:
        """True if the batch has as many adapters as there are slots."""
        return len(self._running) >= self._on_gpu

    def batched(self) -> list[str]:
        """Return the adapters of the batch."""
        return list(self._running)

    def load(self, adapter: str) -> float:
        """Load *adapter*, of a request that joins, to the GPU. Return the time this takes [s]."""
        if not adapter:
            return 0.0
        took_s = 0.0
        if adapter not in self._host:
            self._make_room(self._host, self._in_host)
            took_s += self._fetch_s
            self.fetches += 1
        if adapter not in self._gpu:
            self._make_room(self._gpu, self._on_gpu)
            took_s += self._swap_s
            self.swaps += 1
        self._gpu[adapter] = self._host[adapter] = None
        return took_s

    def _make_room(self, kept: "OrderedDict[str, None]", most: int) -> None:
        if len(kept) >= most:
            del kept[next(name for name in kept if name not in self._running)]

    def enter(self, adapter: str) -> None:
        """Count a request with *adapter* that has joined the batch."""
        if adapter:
            self._running[adapter] = self._running.get(adapter, 0) + 1

    def leave(self, adapter: str) -> None:
        """Discount a request with *adapter* that has left the batch."""
        if not adapter:
            return
        self._running[adapter] -= 1
        if not self._running[adapter]:
            del self._running[adapter]
            self._gpu.move_to_end(adapter)
            self._host.move_to_end(adapter)

    def fill(
        self,
        batch: Batch,
        running: Iterable[Sequence],
        chunks: list[tuple[Sequence, int]],
        excluded: list[Sequence],
        per_decode: int,
    ) -> None:
        """Set the adapter sums of *batch*.

        *chunks* of prompts count, and *per_decode* tokens of each decoding sequence of *running* that is not in
        *excluded*.
        """
        batch.adapters = len(self._running)
        decoding = sum(1 for one in running if one.decoding and one.request.adapter)
        decoding -= sum(1 for one in excluded if one.request.adapter)
        batch.adapted_tokens = sum(chunk for one, chunk in chunks if one.request.adapter) + per_decode * decoding

    def clear(self) -> None:
        """Empty all slots and the host memory: the server has restarted."""
        self._gpu.clear()
        self._host.clear()


class AdaptedBatch(dict[Sequence, None]):
    """Running sequences in admission order; *slots* count the adapters of those that join and leave."""

    def __init__(self, slots: AdapterSlots) -> None:
        super().__init__()
        self._slots = slots

    def __setitem__(self, sequence: Sequence, value: None) -> None:
        self._slots.enter(sequence.request.adapter)
        super().__setitem__(sequence, value)

    def __delitem__(self, sequence: Sequence) -> None:
        super().__delitem__(sequence)
        self._slots.leave(sequence.request.adapter)
