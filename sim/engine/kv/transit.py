"""KV blocks of prompts between two replicas: those that stay behind, and those reserved for KV to come."""

from sim.engine.kv.blocks import BlockPool
from sim.engine.sequence import Sequence
from sim.records import Request


class Transit:
    """Blocks of one rank that belong to requests which are not here.

    The KV of a prompt is held on one side only: where it was computed until it has been fetched, then where it is
    decoded. What the decoding side sets aside before is reserved: not free, and without KV.
    """

    __slots__ = ("_behind", "_leaving", "_pool", "reserved")

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool
        self._behind: dict[Request, tuple[Sequence, int, int]] = {}
        """Of requests handed over: blocks held, and tokens in them."""
        self._leaving: list[Request] = []
        """Whose blocks are free at the end of the step under way."""
        self.reserved: dict[Request, int] = {}
        """Blocks that wait for the KV of a prompt."""

    def leave_behind(self, sequence: Sequence, held: int, computed: int) -> None:
        """*sequence* has been handed over; its *held* blocks with *computed* tokens stay."""
        self._behind[sequence.request] = sequence, held, computed

    def reserve(self, request: Request, blocks: int) -> None:
        """Sets *blocks* free blocks aside for *request*."""
        self._pool.take(blocks)
        self.reserved[request] = blocks

    def let_go(self, request: Request, stepping: bool) -> None:
        """The blocks of *request* are free: now, or where the rank is *stepping* when `settle` is called."""
        self._leaving.append(request)
        if not stepping:
            self.settle()

    def settle(self) -> None:
        """Frees the blocks that have been let go."""
        for request in self._leaving:
            if request in self._behind:
                sequence, held, computed = self._behind.pop(request)
                self._pool.release(sequence, held, False, computed)
            elif request in self.reserved:
                self._pool.put_back(self.reserved.pop(request))
        self._leaving.clear()
