"""KV blocks of groups of layers that share one pool, stored in runs (vLLM V1 `HybridKVCacheCoordinator`).

`GroupPool` implements the same rules block by block. `FreeQueue` has the free blocks in the order of their reallocation
(`FreeKVCacheBlockQueue`).
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from operator import attrgetter
from typing import ClassVar

from sim.engine.kv.blocks import NamedBlocks, remove_name
from sim.engine.kv.group_pool import Windows, by_window, common_prefix, neighbours, reported_group
from sim.engine.sequence import Sequence


class FreeQueueEntry:
    """Consecutive free blocks in the free queue."""

    __slots__ = ("after", "before", "length")

    before: "FreeQueueEntry"
    after: "FreeQueueEntry"

    def __init__(self, length: int) -> None:
        self.length = length


class NamedGroupBlock(FreeQueueEntry):
    """Block of one group that other requests may look up, or its owner after a preemption."""

    __slots__ = ("duplicates", "group", "name", "users")

    def __init__(self, group: int, name: object, users: int) -> None:
        super().__init__(1)
        self.group, self.name, self.users = group, name, users
        self.duplicates: tuple[NamedGroupBlock, ...] = ()
        """Younger blocks with the same name; set only on the oldest block of a name."""


class OwnedBlocks(FreeQueueEntry):
    """Blocks that only their owner can look up, if it is preempted.

    They are the same places of its context in several groups of layers, group by group, the last place first.
    """

    __slots__ = ("_first_group", "_last", "_places", "_total", "owner")

    def __init__(self, owner: Sequence | None, groups: range, places: range) -> None:
        self._total = len(groups) * len(places)
        super().__init__(self._total)
        self.owner = owner
        """Sequence that filled the blocks; None: their contents cannot be looked up."""
        self._first_group, self._last, self._places = groups.start, places.stop - 1, len(places)

    @property
    def first(self) -> int:
        """First place of the run."""
        return self._last - self._places + 1

    def left(self) -> Iterator[tuple[int, int]]:
        """Yield (group, place) of the blocks that have not been reallocated."""
        for at in range(self._total - self.length, self._total):
            group, back = divmod(at, self._places)
            yield self._first_group + group, self._last - back


class WindowFreedBlocks(FreeQueueEntry):
    """Blocks that left a window place by place: for each owner in turn, one block in each of *groups*."""

    __slots__ = ("groups", "owners")

    MOST: ClassVar = 1000
    """Most owners of one entry: reallocated owners at its front are kept until the entry is used up."""

    def __init__(self, groups: range, owners: list[Sequence]) -> None:
        super().__init__(len(groups) * len(owners))
        self.groups, self.owners = groups, owners

    def left(self) -> list[tuple[Sequence, range]]:
        """Return the owners and groups of the blocks that have not been reallocated."""
        groups, owners = self.groups, self.owners
        over, part = divmod(len(groups) * len(owners) - self.length, len(groups))
        left = [(owner, groups) for owner in owners[over:]]
        return [(left[0][0], groups[part:]), *left[1:]] if left else []


class FreeQueue:
    """Ring of entries, added at both ends and removed from the head or from the middle."""

    __slots__ = ("_ends",)

    def __init__(self, blocks: int) -> None:
        self._ends = ends = FreeQueueEntry(0)
        ends.before = ends.after = ends
        self.add_unknown(blocks)

    def __iter__(self) -> Iterator[FreeQueueEntry]:
        entry = self._ends.after
        while entry is not self._ends:
            following = entry.after
            yield entry
            entry = following

    def add_slid(self, owners: list[Sequence], groups: range) -> None:
        """Add a block in each of *groups* for each of *owners* in turn, to be reallocated last."""
        last = self._ends.before
        if type(last) is WindowFreedBlocks and last.groups is groups and len(last.owners) < WindowFreedBlocks.MOST:
            last.owners += owners
            last.length += len(owners) * len(groups)
        else:
            self.add(WindowFreedBlocks(groups, owners))

    def insert(self, entry: FreeQueueEntry, after: FreeQueueEntry) -> None:
        """Insert *entry* before *after*."""
        before = after.before
        entry.before, entry.after = before, after
        before.after = after.before = entry

    def add(self, entry: FreeQueueEntry) -> None:
        """Add *entry*, to be reallocated last."""
        ends = self._ends
        last = ends.before
        entry.before, entry.after = last, ends
        last.after = ends.before = entry

    def add_unknown(self, blocks: int) -> None:
        """Add *blocks* blocks without a name, to be reallocated last."""
        self._add_unknown(blocks, self._ends.before, self._ends)

    def add_unknown_first(self, blocks: int) -> None:
        """Add *blocks* blocks without a name, to be reallocated first."""
        self._add_unknown(blocks, self._ends.after, self._ends.after)

    def _add_unknown(self, blocks: int, neighbour: FreeQueueEntry, after: FreeQueueEntry) -> None:
        if not blocks:
            return
        if isinstance(neighbour, OwnedBlocks) and neighbour.owner is None:
            neighbour.length += blocks
        else:
            run = OwnedBlocks(None, range(1), range(0))
            run.length = blocks
            self.insert(run, after)

    @staticmethod
    def remove(entry: FreeQueueEntry) -> None:
        """Remove *entry*, wherever it is in the queue."""
        entry.before.after, entry.after.before = entry.after, entry.before

    def take(self, blocks: int) -> list[FreeQueueEntry]:
        """Take *blocks* blocks from the head. Return the entries that are used up."""
        used = []
        entry = self._ends.after
        while blocks > 0:
            if entry.length > blocks:
                entry.length -= blocks
                break
            blocks -= entry.length
            used.append(entry)
            entry = entry.after
        first, ends = entry, self._ends
        first.before, ends.after = ends, first
        return used


USERS = attrgetter("users")


class BlockTable:
    """Blocks of a running sequence in each group."""

    __slots__ = ("blocks", "first", "named")

    def __init__(self, kinds: int, groups: int) -> None:
        self.first = [0] * kinds
        """First place that the sequence still holds, per kind of groups."""
        self.blocks: list[list[NamedGroupBlock]] = [[] for _ in range(groups)]
        """Blocks per group, from the group's first place up to `named`."""
        self.named = 0
        """Number of leading places whose blocks have names, those before the windows included."""


class GroupCache(NamedBlocks):
    """Cache of groups of layers that share one pool of blocks.

    A place is a block-sized part of a sequence's context. The sequence holds one block per place and group, from the
    group's window on. A group with a window of 0 has one block per sequence; then no block has a name.

        place           0   1   2   3   4   5
        full group      x   x   x   x   x   x
        window group    .   .   .   x   x   x      (. left the window: freed)

    As in `PrefixCache`, blocks that no other request can look up have no name: those that left a window are in the free
    queue as runs of their owner, and are named if it is preempted. The listener gets the blocks of one group: a group
    that keeps all tokens, where there is one.
    """

    __slots__ = (
        "_alike", "_caches", "_found_blocks", "_kind_of", "_kinds", "_named", "_queue", "_reported", "_tables",
        "growing", "only_sliding", "sliding", "states", "windows",
    )  # fmt: skip

    def __init__(self, num_gpu_blocks: int, block_size: int, windows: Windows, caches: bool) -> None:
        super().__init__(num_gpu_blocks, block_size)
        self.windows = windows
        self._caches = caches
        self._alike = by_window(windows)
        self._reported = reported_group(windows)
        self._kinds = neighbours(windows)
        self._kind_of = [kind for kind, (groups, _) in enumerate(self._kinds) for _ in groups]
        self.sliding = sorted({window for window in windows if window})
        """Window sizes of the groups, ascending [tokens]."""
        kinds = [kind for kind, (_, window) in enumerate(self._kinds) if window]
        self.only_sliding = kinds[0] if len(kinds) == 1 else -1
        """Index of the only kind of groups with a window; -1 if there are none or several."""
        self.states = windows.count(0)
        """Number of groups that keep one block per sequence."""
        self.growing = len(windows) - self.states
        self._queue = FreeQueue(self.usable)
        self._named: list[dict[object, NamedGroupBlock]] = [{} for _ in windows]
        """Oldest block of each name, per group."""
        self._tables: dict[Sequence, BlockTable] = {}
        self._found_blocks: list[list[NamedGroupBlock]] = []
        """Cached blocks per group that `joins` has found last."""

    def skipped(self, window: int | None, computed: int) -> int:
        """Return the number of leading places that no token after the first *computed* ones reads."""
        return max(0, computed - window + 1) // self.block_size if window else 0

    def nameless(self, most: int) -> int:
        """See `BlockPool.nameless`. The names of the reported group count."""
        blocks = 0
        for entry in self._queue:
            if blocks >= most or (isinstance(entry, NamedGroupBlock) and entry.group == self._reported):
                return min(blocks, most)
            blocks += entry.length
        return most

    def shares(self, sequence: Sequence) -> bool:
        """Return whether the running *sequence* holds blocks in its windows that other sequences may hold, too."""
        table = self._tables[sequence]
        return table.named > min(table.first)

    def unnamed(self, sequence: Sequence, computed: int) -> bool:
        """Return whether an unnamed block that others may look up leaves a window of *sequence*.

        The windows are those after *computed* tokens.
        """
        shared = sequence.request.shared_tokens // self.block_size
        return min(shared, self.skipped(self.sliding[0], computed)) > self._tables[sequence].named

    def sliding_groups(self, window: int) -> int:
        """Return the number of groups with the given *window*."""
        return self.windows.count(window)

    def lookup(self, sequence: Sequence) -> int:
        """Return the number of leading places that every group has cached, as far as *sequence* still reads them."""
        if not self._caches or not any(self._named):
            return 0
        return common_prefix(self._alike, self.cacheable_blocks(sequence), partial(self._found, sequence))

    def _found(self, sequence: Sequence, groups: list[int], window: int | None, most: int) -> int:
        """Return the longest prefix, at most *most* places, cached in *groups*, which have the same *window*."""
        names = self._names(sequence, most)
        named = [self._named[group] for group in groups]
        if window is None:
            for place, name in enumerate(names):
                for cached in named:
                    if name not in cached:
                        return place
            return most
        wanted = -(-(window - 1) // self.block_size)
        last = names[-wanted:] if wanted else []
        if last and all(all(map(cached.__contains__, last)) for cached in named):
            return most
        run = 0
        for place in range(most - 1, -1, -1):
            name = names[place]
            run = run + 1 if all(name in cached for cached in named) else 0
            if run and run >= wanted:
                return place + run
        return run

    def joins(self, sequence: Sequence, hits: int, *places: Mapping[int | None, int]) -> tuple[int, int]:
        """Return the free blocks that *sequence* takes when it joins, cached blocks without users included.

        Parameters
        ----------
        sequence
            Sequence that joins.
        hits
            Number of leading places that are cached.
        places
            Window -> places needed in a group. The largest of several alternatives counts; the first is that of the
            cached places and the first chunk.

        Returns
        -------
        tuple of int
            Free blocks taken, and a lower bound in case some cached blocks are lost.

        """
        found = self._found_blocks = [self._cached(sequence, group, hits) for group in range(len(self.windows))]
        new = [sum([max(0, one[window] - hits) for window in self.windows]) for one in places]
        if not hits:
            return max(new), max(new)
        idle = [[*map(USERS, blocks)].count(0) for blocks in found]
        certain = sum(one for one, window in zip(idle, self.windows, strict=True) if not window)
        return max(new) + sum(idle), max([new[0], *[one + certain for one in new[1:]]])

    def _cached(self, sequence: Sequence, group: int, hits: int) -> list[NamedGroupBlock]:
        """Return the blocks in *group* of the first *hits* places of *sequence*, from the window on."""
        if not hits:
            return []
        named, names = self._named[group], self._names(sequence, hits)
        skipped = self.skipped(self.windows[group], hits * self.block_size)
        return [*map(named.__getitem__, names[skipped:])]

    def claim(self, sequence: Sequence, hits: int) -> None:
        """Add *sequence* as a user of the cached blocks that `joins` has found."""
        table = self._tables[sequence] = BlockTable(len(self._kinds), len(self.windows))
        if not hits:
            return
        table.named = hits
        table.first = [self.skipped(window, hits * self.block_size) for _, window in self._kinds]
        table.blocks = self._found_blocks
        for blocks in table.blocks:
            for block in blocks:
                if not block.users:
                    self._queue.remove(block)
                    self.free -= 1
                block.users += 1

    def take(self, blocks: int) -> None:
        """Reallocate *blocks* blocks from the head of the free queue; their names are dropped."""
        super().take(blocks)
        if self._caches and blocks:
            for entry in self._queue.take(blocks):
                if isinstance(entry, NamedGroupBlock):
                    self._unname(entry)

    def put_back(self, blocks: int) -> None:
        """Free *blocks* blocks that nothing was written to: they are the next to be reallocated."""
        self.free += blocks
        if self._caches:
            self._queue.add_unknown_first(blocks)

    def named(self, sequence: Sequence) -> int:
        """Return the number of leading places of the running *sequence* that have been named."""
        return self._tables[sequence].named

    def name(self, sequence: Sequence, tokens: int) -> None:
        """Name the full blocks with the first *tokens* of *sequence* that others may look up, if unnamed."""
        if self._caches and sequence.request.block_hashes:
            self._name_places(sequence, min(tokens, sequence.request.shared_tokens) // self.block_size)

    def _name_places(self, sequence: Sequence, count: int) -> None:
        table = self._tables[sequence]
        if count <= table.named:
            return
        names = self._names(sequence, count)
        for kind, (groups, _) in enumerate(self._kinds):
            new = names[max(table.named, table.first[kind]) :]
            for group in groups:
                table.blocks[group] += [self._new_block(group, name, 1) for name in new]
        table.named = count

    def _new_block(self, group: int, name: object, users: int) -> NamedGroupBlock:
        block = NamedGroupBlock(group, name, users)
        oldest = self._named[group].setdefault(name, block)
        if oldest is not block:
            oldest.duplicates += (block,)
        elif self.listener is not None and group == self._reported:
            self.listener([name], True)
        return block

    def _unname(self, block: NamedGroupBlock) -> None:
        vanished = remove_name(self._named[block.group], block.name, block)
        if vanished and self.listener is not None and block.group == self._reported:
            self.listener([block.name], False)

    def slide(self, sequence: Sequence, computed: int) -> None:
        """Free the blocks before the windows of *sequence*, with *computed* tokens done; the last place first."""
        table = self._tables[sequence]
        for kind, (groups, window) in enumerate(self._kinds):
            if not window:
                continue
            first, skipped = table.first[kind], (computed - window + 1) // self.block_size
            if skipped == first + 1:
                self.slide_each((sequence,), kind)
            elif skipped > first:
                table.first[kind] = skipped
                self._slide_several(sequence, groups, range(first, skipped))

    def slide_each(self, sequences: Iterable[Sequence], kind: int) -> None:
        """Free the next place of each of *sequences* before the window of the given *kind* of groups."""
        tables, groups = self._tables, self._kinds[kind][0]
        owners: list[Sequence] = []
        for one in sequences:
            table = tables[one]
            place = table.first[kind]
            table.first[kind] = place + 1
            if table.named > place:
                self._add_slid(owners, groups)
                owners = []
                for group in groups:
                    block = table.blocks[group].pop(0)
                    block.users -= 1
                    if not block.users:
                        self._queue.add(block)
                        self.free += 1
            else:
                owners.append(one)
        self._add_slid(owners, groups)

    def _add_slid(self, owners: list[Sequence], groups: range) -> None:
        self.free += len(owners) * len(groups)
        if self._caches and owners:
            self._queue.add_slid(owners, groups)

    def _slide_several(self, sequence: Sequence, groups: range, places: range) -> None:
        table = self._tables[sequence]
        if not self._caches:
            self.free += len(places) * len(groups)
            return
        named = min(places.stop, max(places.start, table.named))
        if not (count := named - places.start):
            self._add_run(sequence, groups, places)
            return
        for group in groups:
            if named < places.stop:
                self._add_run(sequence, range(group, group + 1), range(named, places.stop))
            blocks = table.blocks[group]
            self._release_blocks(blocks[:count])
            del blocks[:count]

    def _add_run(self, sequence: Sequence, groups: range, places: range) -> None:
        self.free += len(groups) * len(places)
        self._queue.add(OwnedBlocks(sequence, groups, places))

    def _release_blocks(self, blocks: list[NamedGroupBlock]) -> None:
        for block in reversed(blocks):
            block.users -= 1
            if not block.users:
                self._queue.add(block)
                self.free += 1

    def release(self, sequence: Sequence, held: int, resumes: bool, computed: int) -> None:
        """Free the blocks of *sequence* for its *held* places, group by group, the last place first.

        It has filled *computed* tokens; if it *resumes*, it may look the blocks up again.
        """
        full = min(computed // self.block_size, held)
        if not self._caches:
            table = self._tables.pop(sequence)
            self.free += sum(
                min(held, 1) * len(groups) if window == 0 else (held - first) * len(groups)
                for (groups, window), first in zip(self._kinds, table.first, strict=True)
            )
            return
        if resumes:
            self._name_places(sequence, full)
            self._name_runs(sequence)
        else:
            self.name(sequence, computed)
        table = self._tables.pop(sequence)
        if not resumes:
            self._forget_own(sequence, table)
        self.put_back((held - full) * len(self.windows))
        for (groups, _), first in zip(self._kinds, table.first, strict=True):
            nameless = full - max(first, table.named)
            for group in groups:
                self.free += nameless
                self._queue.add_unknown(nameless)
                self._release_blocks(table.blocks[group])

    def _forget_own(self, sequence: Sequence, table: BlockTable) -> None:
        """Drop the names of the blocks that only *sequence*, which does not return, can look up."""
        self._names_of.pop(sequence, None)
        shared = sequence.request.shared_tokens // self.block_size
        if table.named <= shared:
            return
        for kind, (groups, _) in enumerate(self._kinds):
            kept = max(0, shared - table.first[kind])
            for group in groups:
                for block in table.blocks[group][kept:]:
                    self._unname(block)
                del table.blocks[group][kept:]
        table.named = shared

    def _name_runs(self, sequence: Sequence) -> None:
        """Name the free blocks that *sequence* has filled; they are few, because it has been preempted."""
        slid = [first - 1 for first in self._tables[sequence].first]
        for entry in reversed(list(self._queue)):
            if isinstance(entry, OwnedBlocks) and entry.owner is sequence:
                for group, place in entry.left():
                    slid[self._kind_of[group]] = entry.first - 1
                    self._queue.insert(self._new_block(group, self.name_of(sequence, place), 0), entry)
                self._queue.remove(entry)
            elif isinstance(entry, WindowFreedBlocks) and sequence in entry.owners:
                self._name_slid(sequence, entry, slid)

    def _name_slid(self, sequence: Sequence, entry: WindowFreedBlocks, slid: list[int]) -> None:
        """Name the blocks of *sequence* in *entry*.

        *slid*, per kind of groups the last freed place up to this entry, moves to the place before the entry.
        """
        kind = self._kind_of[entry.groups.start]
        mine = sum(owner is sequence for owner, _ in entry.left())
        slid[kind] = place = slid[kind] - mine
        for owner, groups in entry.left():
            if owner is sequence:
                place += 1
                for group in groups:
                    self._queue.insert(self._new_block(group, self.name_of(sequence, place), 0), entry)
            else:
                others = WindowFreedBlocks(entry.groups, [owner])
                others.length = len(groups)
                self._queue.insert(others, entry)
        self._queue.remove(entry)

    def preload(self, sequence: Sequence) -> None:
        """See `NamedBlocks.preload`. Nothing is cached where groups keep states."""
        places = -(-sequence.tokens // self.block_size)
        if self._caches and not self.states and places * self.growing <= self.free:
            self.claim(sequence, 0)
            self.take(places * self.growing)
            self.name(sequence, sequence.tokens)
            self.release(sequence, places, False, sequence.tokens)

    def clear(self) -> None:
        """Empty the cache: blocks without users lose their contents."""
        for entry in self._queue:
            if isinstance(entry, NamedGroupBlock):
                self._unname(entry)
        self._queue = FreeQueue(self.free)
