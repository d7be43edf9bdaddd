"""Free KV blocks in the order in which they will be reallocated, most of them in runs (`FreeKVCacheBlockQueue`)."""

from collections.abc import Iterator

from sim.engine.sequence import Sequence


class Entry:
    """One or several free blocks in a row."""

    __slots__ = ("after", "before", "length")

    before: "Entry"
    after: "Entry"

    def __init__(self, length: int) -> None:
        self.length = length


class Block(Entry):
    """A block of one group that others may ask for, or its owner after a preemption."""

    __slots__ = ("group", "name", "twins", "users")

    def __init__(self, group: int, name: object, users: int) -> None:
        super().__init__(1)
        self.group, self.name, self.users = group, name, users
        self.twins: tuple[Block, ...] = ()
        """Of the oldest block of a name, the younger ones that bear it, too."""


class Run(Entry):
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


class Slid(Entry):
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
        self._ends = ends = Entry(0)
        ends.before = ends.after = ends
        self.add_unknown(blocks)

    def __iter__(self) -> Iterator[Entry]:
        entry = self._ends.after
        while entry is not self._ends:
            following = entry.after
            yield entry
            entry = following

    def add_slid(self, owners: list[Sequence], groups: range) -> None:
        """A block in each of *groups* of each of *owners* in turn will be reallocated last."""
        last = self._ends.before
        if type(last) is Slid and last.groups is groups and len(last.owners) < Slid.MOST:
            last.owners += owners
            last.length += len(owners) * len(groups)
        else:
            self.add(Slid(groups, owners))

    def insert(self, entry: Entry, after: Entry) -> None:
        """Puts *entry* in front of *after*."""
        before = after.before
        entry.before, entry.after = before, after
        before.after = after.before = entry

    def add(self, entry: Entry) -> None:
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

    def _add_unknown(self, blocks: int, neighbour: Entry, after: Entry) -> None:
        if not blocks:
            return
        if isinstance(neighbour, Run) and neighbour.owner is None:
            neighbour.length += blocks
        else:
            run = Run(None, range(1), range(0))
            run.length = blocks
            self.insert(run, after)

    @staticmethod
    def remove(entry: Entry) -> None:
        """Takes *entry* out, wherever it stands."""
        entry.before.after, entry.after.before = entry.after, entry.before

    def take(self, blocks: int) -> list[Entry]:
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
