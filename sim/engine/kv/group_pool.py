"""KV blocks of groups of layers that share one pool, block by block (vLLM V1 `HybridKVCacheCoordinator`).

`StatePool` adds groups that keep the states of linear attention (vLLM V1 `MambaManager`, `mamba_cache_mode: align`).
"""

from collections import OrderedDict
from collections.abc import Callable
from collections.abc import Sequence as Listed
from functools import partial

from sim.engine.kv.blocks import NamedBlocks, block_name
from sim.engine.sequence import Sequence

Windows = tuple[int | None, ...]
Offer = Callable[[list[int], int | None, int], int]


def by_window(windows: Windows) -> dict[int | None, list[int]]:
    """Return the groups of each of *windows*, those without a window first."""
    found: dict[int | None, list[int]] = {}
    for group, window in enumerate(windows):
        found.setdefault(window, []).append(group)
    return {window: found[window] for window in sorted(found, key=lambda window: window is not None)}


def neighbours(windows: Windows) -> list[tuple[range, int | None]]:
    """Return the runs of neighbouring groups with the same window, each with that window."""
    kinds: list[tuple[range, int | None]] = []
    for group, window in enumerate(windows):
        if kinds and kinds[-1][1] == window:
            kinds[-1] = range(kinds[-1][0].start, group + 1), window
        else:
            kinds.append((range(group, group + 1), window))
    return kinds


def reported_group(windows: Windows) -> int:
    """Return the group whose blocks are reported to routers: one that keeps all tokens, where *windows* have one."""
    return windows.index(None) if None in windows else 0


def common_prefix(groups: dict[int | None, list[int]], most: int, offer: Offer) -> int:
    """Return the longest prefix, at most *most* places, that all *groups* have.

    *groups* are keyed by window. *offer* returns the prefix that the groups of one window have, given the groups, their
    window and the longest prefix looked for.
    """
    while True:
        found = most
        for window, alike in groups.items():
            found = offer(alike, window, found)
        if found >= most or (len(groups) == 2 and None in groups):
            return found
        most = found


class GroupBlock:
    """Block of any group."""

    __slots__ = ("name", "users")

    def __init__(self) -> None:
        self.name: tuple[int, object] | None = None
        """(Group, content name); None: the block cannot be looked up."""
        self.users = 0


class GroupPool(NamedBlocks):
    """Pool of blocks with one table per sequence and group; None stands for a block before the group's window.

    A group with a window of 0 has one block per sequence, for a state that does not grow; then no block has a name. A
    freed block keeps its name until it is reallocated, as in `PrefixCache`. A prefix is found where every group has the
    blocks that the next token reads: all of them, or those of its window.
    """

    __slots__ = ("_alike", "_caches", "_full", "_named", "_queue", "_reported", "_tables", "windows")

    def __init__(self, num_gpu_blocks: int, block_size: int, windows: Windows, caches: bool) -> None:
        super().__init__(num_gpu_blocks, block_size)
        self.windows = windows
        self._alike = by_window(windows)
        self._reported = reported_group(windows)
        self._caches = caches
        self._queue: OrderedDict[GroupBlock, None] = OrderedDict((GroupBlock(), None) for _ in range(self.usable))
        """Free blocks in the order of their reallocation."""
        self._named: dict[object, dict[GroupBlock, None]] = {}
        self._tables: dict[Sequence, list[list[GroupBlock | None]]] = {}
        self._full: dict[Sequence, int] = {}
        """Sequence -> number of leading blocks that have names."""

    def skipped(self, group: int, computed: int) -> int:
        """Return the number of leading blocks of *group* that no token after the first *computed* ones reads."""
        window = self.windows[group]
        return max(0, computed - window + 1) // self.block_size if window else 0

    def wanted(self, group: int, tokens: int) -> int:
        """Return the number of places in the table of *group* for *tokens* tokens."""
        blocks = -(-tokens // self.block_size)
        return min(blocks, 1) if self.windows[group] == 0 else blocks

    def lookup(self, sequence: Sequence) -> int:
        """Return the number of leading blocks that every group has cached, as far as *sequence* still reads them."""
        if not self._named:
            return 0
        most = (sequence.tokens - 1) // self.block_size
        return common_prefix(self._alike, most, partial(self._found, sequence))

    def _found(self, sequence: Sequence, groups: list[int], window: int | None, most: int) -> int:
        """Return the longest prefix, at most *most* blocks, cached in *groups*, which have the same *window*."""

        def cached(block: int) -> bool:
            name = block_name(sequence, block, self.block_size)
            return all((group, name) in self._named for group in groups)

        if window is None:
            return next((block for block in range(most) if not cached(block)), most)
        wanted = -(-(window - 1) // self.block_size)
        run = 0
        for block in range(most - 1, -1, -1):
            run = run + 1 if cached(block) else 0
            if run and run >= wanted:
                return block + run
        return run

    def joins(self, sequence: Sequence, hits: int, blocks: Listed[int]) -> int:
        """Return the free blocks that *sequence* takes with *blocks* per group, cached ones without users included."""
        total = 0
        for group, wanted in enumerate(blocks):
            skipped = self.skipped(group, hits * self.block_size)
            total += max(0, wanted - max(skipped, hits))
            total += sum(not self._cached(sequence, group, block).users for block in range(skipped, hits))
        return total

    def _cached(self, sequence: Sequence, group: int, block: int) -> GroupBlock:
        return next(iter(self._named[group, block_name(sequence, block, self.block_size)]))

    def claim(self, sequence: Sequence, hits: int) -> None:
        """Add *sequence* as a user of its cached blocks."""
        tables: list[list[GroupBlock | None]] = []
        for group in range(len(self.windows)):
            skipped = self.skipped(group, hits * self.block_size)
            found = [self._cached(sequence, group, block) for block in range(skipped, hits)]
            for block in found:
                if not block.users:
                    del self._queue[block]
                block.users += 1
            tables.append([*[None] * skipped, *found])
        self._full[sequence] = hits
        self._tables[sequence] = tables
        self._count()

    def needs(self, sequence: Sequence, tokens: int) -> int:
        """Return the number of blocks that are missing for the first *tokens* of *sequence*."""
        tables = enumerate(self._tables[sequence])
        return sum(max(0, self.wanted(group, tokens) - len(table)) for group, table in tables)

    def grow(self, sequence: Sequence, tokens: int) -> None:
        """Allocate the missing blocks for the first *tokens* of *sequence*."""
        for group, table in enumerate(self._tables[sequence]):
            table += [self._reallocate() for _ in range(self.wanted(group, tokens) - len(table))]
        self._count()

    def _reallocate(self) -> GroupBlock:
        block, _ = self._queue.popitem(last=False)
        self._unname(block)
        block.users = 1
        return block

    def _unname(self, block: GroupBlock) -> None:
        if block.name is None:
            return
        same = self._named[block.name]
        del same[block]
        if not same:
            del self._named[block.name]
            self._report(*block.name, False)
        block.name = None

    def _report(self, group: int, name: object, stored: bool) -> None:
        if self.listener is not None and group == self._reported:
            self.listener([name], stored)

    def preload(self, sequence: Sequence) -> None:
        """See `NamedBlocks.preload`. Where states are kept, one is cached after the last whole block."""
        whole = sequence.tokens // self.block_size * self.block_size
        self.claim(sequence, 0)
        if self.needs(sequence, sequence.tokens) <= self.free:
            self.grow(sequence, whole)
            self.name(sequence, whole)
            self.give_back(sequence, whole)
        self.release(sequence, 0, False, whole)

    def clear(self) -> None:
        """Empty the cache: blocks without users lose their contents."""
        for block in self._queue:
            self._unname(block)

    def give_back(self, sequence: Sequence, computed: int) -> None:
        """Free the blocks before the windows, with *computed* tokens done; the last block first."""
        for group, table in enumerate(self._tables[sequence]):
            freed: list[GroupBlock] = []
            for place in self._behind(sequence, group, min(self.skipped(group, computed), len(table))):
                if (block := table[place]) is not None:
                    freed.append(block)
                    table[place] = None
            self._free(freed)
        self._count()

    def _behind(self, sequence: Sequence, group: int, places: int) -> list[int]:
        """Return the places among the first *places* that *sequence* still holds in *group*, the last one first."""
        table = self._tables[sequence][group]
        first = places
        while first and table[first - 1] is not None:
            first -= 1
        return list(range(places - 1, first - 1, -1))

    def name(self, sequence: Sequence, tokens: int) -> None:
        """Name the full blocks with the first *tokens* of *sequence*."""
        full = tokens // self.block_size
        known = self._full.get(sequence, 0)
        if not self._caches or full <= known:
            return
        self._full[sequence] = full
        for group, table in enumerate(self._tables[sequence]):
            for place in range(known, full):
                block = table[place]
                if block is not None and block.name is None:
                    block.name = group, block_name(sequence, place, self.block_size)
                    same = self._named.setdefault(block.name, {})
                    if not same:
                        self._report(*block.name, True)
                    same[block] = None

    def release(self, sequence: Sequence, held: int, resumes: bool, computed: int) -> None:
        """Free all blocks of *sequence*, group by group, the last ones first."""
        self._full.pop(sequence, None)
        for table in self._tables.pop(sequence):
            self._free([block for block in reversed(table) if block is not None])
        self._count()

    def _free(self, blocks: list[GroupBlock]) -> None:
        """Free *blocks*: those without a name will be reallocated first, the others last."""
        idle = []
        for block in blocks:
            block.users -= 1
            if not block.users:
                idle.append(block)
        self._queue.update((block, None) for block in idle if block.name is not None)
        for block in reversed(idle):
            if block.name is None:
                self._queue[block] = None
                self._queue.move_to_end(block, last=False)

    def _count(self) -> None:
        self.free = len(self._queue)
        self.peak = max(self.peak, self.usable - self.free)


class StatePool(GroupPool):
    """Pool whose groups with a window of 0 keep states of linear attention.

    A step writes a state at the end of its chunk: the block of that place holds it, and the places between two chunk
    ends have none. A block is full, and can be found by others, once its state is that after its last token. Then the
    next state gets a new block, and the old one is freed when the step that reads it has ended. A state named in a step
    cannot be read before the next step.
    """

    __slots__ = ("_held", "_named_in_step", "_states")

    def __init__(self, num_gpu_blocks: int, block_size: int, windows: Windows) -> None:
        super().__init__(num_gpu_blocks, block_size, windows, True)
        self._states = self._alike[0]
        """Groups that keep states."""
        self._held: dict[Sequence, list[int]] = {}
        """Sequence -> places of the states that it holds in each of these groups."""
        self._named_in_step: set[object] = set()

    def begin_step(self) -> None:
        """Make the states named in earlier steps readable in the step that is formed now."""
        self._named_in_step.clear()

    def junction(self, sequence: Sequence) -> int:
        """Return the number of leading tokens with cached keys and values, with a state after them or without."""
        full = self._alike.get(None)
        if not full or not self._named:
            return 0
        most = (sequence.tokens - 1) // self.block_size
        return self._found(sequence, full, None, most) * self.block_size

    def skipped(self, group: int, computed: int) -> int:
        """See `GroupPool.skipped`. The last state is read."""
        return max(0, computed - 1) // self.block_size if self.windows[group] == 0 else super().skipped(group, computed)

    def wanted(self, group: int, tokens: int) -> int:
        """See `GroupPool.wanted`."""
        return -(-tokens // self.block_size)

    def joins(self, sequence: Sequence, hits: int, blocks: Listed[int]) -> int:
        """See `GroupPool.joins`. More than all blocks where the state that *sequence* finds was named in this step."""
        if hits and self._cached(sequence, self._states[0], hits - 1).name in self._named_in_step:
            return self.usable + 1
        one_each = [hits + 1 if self.windows[group] == 0 else wanted for group, wanted in enumerate(blocks)]
        return super().joins(sequence, hits, one_each)

    def claim(self, sequence: Sequence, hits: int) -> None:
        """See `GroupPool.claim`."""
        super().claim(sequence, hits)
        self._held[sequence] = [hits - 1] if hits else []

    def needs(self, sequence: Sequence, tokens: int) -> int:
        """See `GroupPool.needs`. A new state needs one block."""
        tables = self._tables[sequence]
        missing = [max(0, self.wanted(group, tokens) - len(table)) for group, table in enumerate(tables)]
        return sum(min(1, new) if self.windows[group] == 0 else new for group, new in enumerate(missing))

    def grow(self, sequence: Sequence, tokens: int) -> None:
        """See `GroupPool.grow`."""
        tables = self._tables[sequence]
        new = self.wanted(self._states[0], tokens) - len(tables[self._states[0]])
        for group in self._states if new > 0 else ():
            tables[group] += [None] * (new - 1)
        super().grow(sequence, tokens)
        if new > 0:
            self._held[sequence].append(len(tables[self._states[0]]) - 1)

    def give_back(self, sequence: Sequence, computed: int) -> None:
        """See `GroupPool.give_back`."""
        super().give_back(sequence, computed)
        held, skipped = self._held[sequence], self.skipped(self._states[0], computed)
        while held and held[0] < skipped:
            del held[0]

    def _behind(self, sequence: Sequence, group: int, places: int) -> list[int]:
        if self.windows[group] != 0:
            return super()._behind(sequence, group, places)
        return [place for place in reversed(self._held[sequence]) if place < places]

    def name(self, sequence: Sequence, tokens: int) -> None:
        """See `GroupPool.name`."""
        known = self._full.get(sequence, 0)
        super().name(sequence, tokens)
        for group in self._states:
            named: list[GroupBlock | None] = self._tables[sequence][group][known : self._full.get(sequence, 0)]
            self._named_in_step.update(block.name for block in named if block is not None)

    def release(self, sequence: Sequence, held: int, resumes: bool, computed: int) -> None:
        """See `GroupPool.release`."""
        self._held.pop(sequence, None)
        super().release(sequence, held, resumes, computed)
