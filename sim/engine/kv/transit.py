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
        self._leaving: list[tuple[Sequence | None, int, int]] = []
        """Blocks that are free at the end of the step under way: whose they are, how many, and tokens in them; of
        nobody where no KV has come.
        """
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
        if request in self._behind:
            self._leaving.append(self._behind.pop(request))
        elif request in self.reserved:  # it may come here again before the step ends
            self._leaving.append((None, self.reserved.pop(request), 0))
        if not stepping:
            self.settle()

    def settle(self) -> None:
        """Frees the blocks that have been let go."""
        for sequence, held, computed in self._leaving:
            if sequence is None:
                self._pool.put_back(held)
            else:
                self._pool.release(sequence, held, False, computed)
        self._leaving.clear()
