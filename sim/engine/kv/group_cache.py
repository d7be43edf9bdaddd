"""KV blocks of groups of layers that share one pool, most of them in runs (vLLM V1 `HybridKVCacheCoordinator`).

`GroupPool` keeps the same books block by block. `FreeQueue` has the free blocks in the order in which they will be
reallocated (`FreeKVCacheBlockQueue`).
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from operator import attrgetter

from sim.engine.kv.blocks import NamedBlocks, vanishes
from sim.engine.kv.group_pool import Windows, by_window, neighbours, offered_by_all, reported_group
from sim.engine.sequence import Sequence


class FreeQueueEntry:
    """One or several free blocks in a row."""

    __slots__ = ("after", "before", "length")

    before: "FreeQueueEntry"
    after: "FreeQueueEntry"

    def __init__(self, length: int) -> None:
        self.length = length


class NamedGroupBlock(FreeQueueEntry):
    """A block of one group that others may ask for, or its owner after a preemption."""

    __slots__ = ("group", "name", "twins", "users")

    def __init__(self, group: int, name: object, users: int) -> None:
        super().__init__(1)
        self.group, self.name, self.users = group, name, users
        self.twins: tuple[NamedGroupBlock, ...] = ()
        """Of the oldest block of a name, the younger ones that bear it, too."""


class OwnedBlocks(FreeQueueEntry):
    """Blocks that only their owner can ask for, if it is preempted: of several groups of layers the same places of its
    context, group by group, the last place first.
    """

    __slots__ = ("_first_group", "_last", "_places", "_total", "owner")

    def __init__(self, owner: Sequence | None, groups: range, places: range) -> None:
        self._total = len(groups) * len(places)
        super().__init__(self._total)
        self.owner = owner
        """None: nobody can ask for them."""
        self._first_group, self._last, self._places = groups.start, places.stop - 1, len(places)

    @property
    def first(self) -> int:
        """The first place."""
        return self._last - self._places + 1

    def left(self) -> Iterator[tuple[int, int]]:
        """(group, place) of those that have not been reallocated."""
        for at in range(self._total - self.length, self._total):
            group, back = divmod(at, self._places)
            yield self._first_group + group, self._last - back


class WindowFreedBlocks(FreeQueueEntry):
    """Blocks that left a window place after place: of each owner in turn, one in each of *groups*."""

    __slots__ = ("groups", "owners")

    MOST = 1000
    """Owners of one entry: those in front of it are kept until it is used up."""

    def __init__(self, groups: range, owners: list[Sequence]) -> None:
        super().__init__(len(groups) * len(owners))
        self.groups, self.owners = groups, owners

    def left(self) -> list[tuple[Sequence, range]]:
        """Owners and groups of those that have not been reallocated."""
        groups, owners = self.groups, self.owners
        over, part = divmod(len(groups) * len(owners) - self.length, len(groups))
        left = [(owner, groups) for owner in owners[over:]]
        return [(left[0][0], groups[part:]), *left[1:]] if left else []


class FreeQueue:
    """Entries in a ring: they join at both ends and leave from the head or from the middle."""

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
        """A block in each of *groups* of each of *owners* in turn will be reallocated last."""
        last = self._ends.before
        if type(last) is WindowFreedBlocks and last.groups is groups and len(last.owners) < WindowFreedBlocks.MOST:
            last.owners += owners
            last.length += len(owners) * len(groups)
        else:
            self.add(WindowFreedBlocks(groups, owners))

    def insert(self, entry: FreeQueueEntry, after: FreeQueueEntry) -> None:
        """Puts *entry* in front of *after*."""
        before = after.before
        entry.before, entry.after = before, after
        before.after = after.before = entry

    def add(self, entry: FreeQueueEntry) -> None:
        """*entry* will be reallocated last."""
        ends = self._ends
        last = ends.before
        entry.before, entry.after = last, ends
        last.after = ends.before = entry

    def add_unknown(self, blocks: int) -> None:
        """*blocks* that nobody can ask for will be reallocated last."""
        self._add_unknown(blocks, self._ends.before, self._ends)

    def add_unknown_first(self, blocks: int) -> None:
        """*blocks* that nobody can ask for will be reallocated first."""
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
        """Takes *entry* out, wherever it stands."""
        entry.before.after, entry.after.before = entry.after, entry.before

    def take(self, blocks: int) -> list[FreeQueueEntry]:
        """Takes *blocks* from the head; the entries that are used up."""
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
    """What a running sequence holds in each group."""

    __slots__ = ("blocks", "first", "named")

    def __init__(self, kinds: int, groups: int) -> None:
        self.first = [0] * kinds
        """First place of each kind of groups that it still holds."""
        self.blocks: list[list[NamedGroupBlock]] = [[] for _ in range(groups)]
        """Of each group, from its first place on up to `named`."""
        self.named = 0
        """Leading places whose blocks have names, those before the windows included."""


class GroupCache(NamedBlocks):
    """Places in the context of a sequence are counted in blocks; it holds one block for each place and group, from the
    window of the group on. A group with a window of 0 has one block for a sequence; then nothing has a name.

    Blocks that nobody else can ask for have no name, as in `PrefixCache`: those that left a window stand in the free
    queue as runs of their owner, and get their names if it is preempted. The listener hears of one group: one that
    keeps all tokens, where there is one.
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
        """The windows."""
        kinds = [kind for kind, (_, window) in enumerate(self._kinds) if window]
        self.only_sliding = kinds[0] if len(kinds) == 1 else -1
        """The one kind of groups with a window; -1 if there are none or several."""
        self.states = windows.count(0)
        """Groups that keep one block for a sequence."""
        self.growing = len(windows) - self.states
        self._queue = FreeQueue(self.usable)
        self._named: list[dict[object, NamedGroupBlock]] = [{} for _ in windows]
        """Of each group, the oldest block of each name."""
        self._tables: dict[Sequence, BlockTable] = {}
        self._found_blocks: list[list[NamedGroupBlock]] = []
        """Of each group, what the last one who wants to join has found."""

    def skipped(self, window: int | None, computed: int) -> int:
        """Leading places that no token after the first *computed* ones reads."""
        return max(0, computed - window + 1) // self.block_size if window else 0

    def nameless(self, most: int) -> int:
        """See `BlockPool.nameless`; the names of the reported group count."""
        blocks = 0
        for entry in self._queue:
            if blocks >= most or (isinstance(entry, NamedGroupBlock) and entry.group == self._reported):
                return min(blocks, most)
            blocks += entry.length
        return most

    def shares(self, sequence: Sequence) -> bool:
        """Whether *sequence*, which runs, holds blocks in its windows that others may hold, too."""
        table = self._tables[sequence]
        return table.named > min(table.first)

    def unnamed(self, sequence: Sequence, computed: int) -> bool:
        """Whether a block has no name yet that others may ask for and that lies before a window of *sequence* once
        *computed* tokens are done.
        """
        shared = sequence.request.shared_tokens // self.block_size
        return min(shared, self.skipped(self.sliding[0], computed)) > self._tables[sequence].named

    def sliding_groups(self, window: int) -> int:
        """Groups with that *window*."""
        return self.windows.count(window)

    def lookup(self, sequence: Sequence) -> int:
        """Leading places of *sequence* that every group has cached, as far as it still reads them."""
        if not self._caches or not any(self._named):
            return 0
        return offered_by_all(self._alike, self.sought(sequence), partial(self._found, sequence))

    def _found(self, sequence: Sequence, groups: list[int], window: int | None, most: int) -> int:
        """The longest prefix of at most *most* places that *groups*, which have the same *window*, offer."""
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
        """Free blocks that *sequence* takes with *places* in a group by its window, the cached ones that nobody
        uses included, at the most of *places*, of which the first follow the *hits*; and the fewest if some were lost.
        """
        found = self._found_blocks = [self._cached(sequence, group, hits) for group in range(len(self.windows))]
        new = [sum([max(0, one[window] - hits) for window in self.windows]) for one in places]
        if not hits:
            return max(new), max(new)
        idle = [[*map(USERS, blocks)].count(0) for blocks in found]
        surely = sum(one for one, window in zip(idle, self.windows, strict=True) if not window)
        return max(new) + sum(idle), max([new[0], *[one + surely for one in new[1:]]])

    def _cached(self, sequence: Sequence, group: int, hits: int) -> list[NamedGroupBlock]:
        """The blocks in *group* of the first *hits* places of *sequence*, from the window on."""
        if not hits:
            return []
        named, names = self._named[group], self._names(sequence, hits)
        skipped = self.skipped(self.windows[group], hits * self.block_size)
        return [*map(named.__getitem__, names[skipped:])]

    def claim(self, sequence: Sequence, hits: int) -> None:
        """Takes the cached blocks of *sequence* for it, which `joins` has found."""
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
        """Reallocates *blocks* blocks from the head of the free queue; their names are forgotten."""
        super().take(blocks)
        if self._caches and blocks:
            for entry in self._queue.take(blocks):
                if isinstance(entry, NamedGroupBlock):
                    self._unname(entry)

    def put_back(self, blocks: int) -> None:
        """Takes back *blocks* blocks that nothing was written to: they are the next to be handed out."""
        self.free += blocks
        if self._caches:
            self._queue.add_unknown_first(blocks)

    def named(self, sequence: Sequence) -> int:
        """Leading places of *sequence*, which runs, that have had their names."""
        return self._tables[sequence].named

    def name(self, sequence: Sequence, tokens: int) -> None:
        """Names the full blocks among the first *tokens* of *sequence* that others may ask for and have no name yet."""
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
            oldest.twins += (block,)
        elif self.listener is not None and group == self._reported:
            self.listener([name], True)
        return block

    def _unname(self, block: NamedGroupBlock) -> None:
        vanished = vanishes(self._named[block.group], block.name, block)
        if vanished and self.listener is not None and block.group == self._reported:
            self.listener([block.name], False)

    def slide(self, sequence: Sequence, computed: int) -> None:
        """Gives back what lies before the windows of *sequence*, *computed* tokens being done; the last place first."""
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
        """Gives back the next place of each of *sequences* that lies before the window of that *kind* of groups."""
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
            self._let_go(blocks[:count])
            del blocks[:count]

    def _add_run(self, sequence: Sequence, groups: range, places: range) -> None:
        self.free += len(groups) * len(places)
        self._queue.add(OwnedBlocks(sequence, groups, places))

    def _let_go(self, blocks: list[NamedGroupBlock]) -> None:
        for block in reversed(blocks):
            block.users -= 1
            if not block.users:
                self._queue.add(block)
                self.free += 1

    def release(self, sequence: Sequence, held: int, resumes: bool, computed: int) -> None:
        """Takes back the blocks of *sequence* for its *held* places, group by group, the last place first. It has
        filled *computed* tokens and may come back for them.
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
                self._let_go(table.blocks[group])

    def _forget_own(self, sequence: Sequence, table: BlockTable) -> None:
        """*sequence* does not come back: nobody asks for what it shares with nobody."""
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
        """Free blocks that *sequence* has filled get their names; there are few, for it is preempted."""
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
        """*slid* is the last place of *sequence* in *entry* and before, of each kind of groups."""
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

    def remember(self, sequence: Sequence) -> None:
        """See `NamedBlocks.remember`; where states are kept, nothing is."""
        places = -(-sequence.tokens // self.block_size)
        if self._caches and not self.states and places * self.growing <= self.free:
            self.claim(sequence, 0)
            self.take(places * self.growing)
            self.name(sequence, sequence.tokens)
            self.release(sequence, places, False, sequence.tokens)

    def clear(self) -> None:
        """What is cached is lost: blocks that nobody uses hold nothing."""
        for entry in self._queue:
            if isinstance(entry, NamedGroupBlock):
                self._unname(entry)
        self._queue = FreeQueue(self.free)
