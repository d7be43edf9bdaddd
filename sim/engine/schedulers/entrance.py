"""Who waits at a rank, who runs there, and the KV on its way to it and from it."""

from collections import deque

from sim.engine.kv.adapters import AdaptedBatch
from sim.engine.kv.blocks import BlockPool
from sim.engine.kv.transit import Transit
from sim.engine.schedulers.queues.adapters import AdapterQueue
from sim.engine.schedulers.queues.fair import FairQueue
from sim.engine.schedulers.queues.waiting import WaitingQueue
from sim.engine.sequence import Sequence
from sim.records import Progress, Request


class Entrance:
    """The queue of a rank, those before it who brought the KV of their prompts, and whom it has let in."""

    __slots__ = ("adapters", "joining", "pool", "read_s", "running", "transit", "waiting")

    def __init__(self, pool: BlockPool, waiting: WaitingQueue) -> None:
        self.pool = pool
        self.waiting = waiting
        self.adapters = waiting.slots if isinstance(waiting, AdapterQueue | FairQueue) else None
        """Where requests may ask for LoRA adapters."""
        self.running: dict[Sequence, None] = {} if self.adapters is None else AdaptedBatch(self.adapters)
        """In admission order."""
        self.joining: deque[Sequence] = deque()
        """Who brought the KV of its prompt and waits for a seat: its blocks are held, so it goes first."""
        self.transit = Transit(pool)
        self.read_s = 0.0
        """How long the step formed last reads KV from tiers below the GPU before it computes [s]."""

    def enqueue(self, sequence: Sequence) -> bool:
        """*sequence* waits from now on; whether it is the next of its kind to join. Where blocks were reserved for it,
        it brings the KV of its prompt.
        """
        if self.transit.reserved and (blocks := self.transit.reserved.pop(sequence.request, 0)):
            sequence.bring(blocks)
            self.joining.append(sequence)
            return len(self.joining) == 1
        return self.waiting.add(sequence)

    def _bring_adapter(self, sequence: Sequence) -> float:
        """The LoRA adapter that *sequence* asks for comes to the GPU; how long that takes [s]."""
        return 0.0 if self.adapters is None else self.adapters.bring(sequence.request.adapter)

    def queued(self) -> int:
        """Requests that wait for admission."""
        return len(self.waiting) + len(self.joining)

    def place(self, asked: int) -> str:
        """Where request number *asked* is: running, queued or nowhere (empty)."""
        if any(one.request.index == asked for one in self.running):
            return "running"
        return "queued" if self.waiting.has(asked) or any(one.request.index == asked for one in self.joining) else ""

    def steps_until_read(self, steps: int) -> int:
        """Steps of those under way, at least *steps*, after which a request that arrives now is looked at."""
        return steps

    def blocks_ahead(self, steps: int) -> int:
        """KV blocks that steps 2 to *steps* of those under way take: none where they are held from the start."""
        return 0

    def turn_away(self, request: Request) -> Progress | None:
        """Takes *request* out of those who wait; how far it had come, None if it does not wait."""
        waiting = self.waiting.remove(request)
        if waiting is not None:
            self.pool.forget(waiting)
            return Progress(0, waiting.made)
        joining = next((one for one in self.joining if one.request is request), None)
        if joining is None:
            return None
        self.joining.remove(joining)
        self.pool.put_back(joining.held)
        return Progress(joining.computed, joining.made)
