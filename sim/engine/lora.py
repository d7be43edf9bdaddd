"""LoRA adapters on a GPU and in host memory."""

from collections import OrderedDict
from collections.abc import Iterable

from sim.engine.sequence import Sequence
from sim.records import Batch


class AdapterSlots:
    """The slots of one rank, and what its host keeps (vLLM's `LRUCacheLoRAModelManager`).

    An adapter that is asked for takes a slot; where none is empty, it is that of the one that nobody runs with for
    longest. Host memory keeps more of them in the same order.
    """

    __slots__ = ("_fetch_s", "_gpu", "_host", "_in_host", "_on_gpu", "_running", "_swap_s", "fetches", "swaps")

    def __init__(self, on_gpu: int, in_host: int, swap_s: float, fetch_s: float) -> None:
        """*swap_s* brings one from host memory to the GPU, *fetch_s* from where it is stored to host memory."""
        self._on_gpu, self._in_host = on_gpu, in_host
        self._swap_s, self._fetch_s = swap_s, fetch_s
        self._gpu: OrderedDict[str, None] = OrderedDict()
        """Used longest ago first."""
        self._host: OrderedDict[str, None] = OrderedDict()
        self._running: dict[str, int] = {}
        """Requests in the batch."""
        self.swaps = self.fetches = 0

    @property
    def running(self) -> int:
        """Different adapters in the batch."""
        return len(self._running)

    def has_room(self, adapter: str) -> bool:
        """Whether a request that asks for *adapter* may join the batch."""
        return not adapter or adapter in self._running or len(self._running) < self._on_gpu

    @property
    def full(self) -> bool:
        """Whether the batch has as many adapters as there are slots."""
        return len(self._running) >= self._on_gpu

    def batched(self) -> list[str]:
        """Adapters of the batch."""
        return list(self._running)

    def bring(self, adapter: str) -> float:
        """Brings *adapter*, of a request that joins, to the GPU; how long that takes [s]."""
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
        """A request that asks for *adapter* has joined the batch."""
        if adapter:
            self._running[adapter] = self._running.get(adapter, 0) + 1

    def leave(self, adapter: str) -> None:
        """A request that asks for *adapter* has left the batch."""
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
        still: list[Sequence],
        per_decode: int,
    ) -> None:
        """Writes into *batch* what of it asks for adapters: *chunks* of prompts, and *per_decode* tokens of each of
        those *running* who decode and do not stand *still*.
        """
        batch.adapters = len(self._running)
        decoding = sum(1 for one in running if one.decoding and one.request.adapter)
        decoding -= sum(1 for one in still if one.request.adapter)
        batch.adapted_tokens = sum(chunk for one, chunk in chunks if one.request.adapter) + per_decode * decoding

    def clear(self) -> None:
        """The machine starts anew."""
        self._gpu.clear()
        self._host.clear()


class AdaptedBatch(dict[Sequence, None]):
    """Running sequences in admission order; *slots* learn who joins and leaves."""

    def __init__(self, slots: AdapterSlots) -> None:
        super().__init__()
        self._slots = slots

    def __setitem__(self, sequence: Sequence, value: None) -> None:
        self._slots.enter(sequence.request.adapter)
        super().__setitem__(sequence, value)

    def __delitem__(self, sequence: Sequence) -> None:
        super().__delitem__(sequence)
        self._slots.leave(sequence.request.adapter)
