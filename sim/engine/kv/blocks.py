"""KV blocks of one rank: a plain count, or vLLM's prefix cache with its eviction order.

Blocks that decoding fills under names which other requests may ask for are named just before anybody looks.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from math import inf
from typing import Any, Protocol, TypeVar

from sim.engine.kv.tiers import Tiers
from sim.engine.sequence import Sequence

_Twinned = TypeVar("_Twinned", bound="DuplicateBlock")


class BlockPool:
    """Blocks without names: only their number matters."""

    __slots__ = ("block_size", "free", "listener", "peak", "usable")

    def __init__(self, num_gpu_blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self.usable = num_gpu_blocks - 1
        """One block is the null block."""
        self.free = self.usable
        self.peak = 0
        """Most blocks in use at once so far."""
        self.listener: Callable[[list[object], bool], None] | None = None
        """Gets the names that appear here, with True, or vanish, with False."""

    def nameless(self, most: int) -> int:
        """Return how many of the next *most* blocks to be reallocated have no name before the first that has one."""
        return most

    def lookup(self, sequence: Sequence) -> int:
        """Leading blocks of *sequence* that are cached: none here."""
        return 0

    def below(self, sequence: Sequence, hits: int) -> int:
        """Blocks behind the first *hits* of *sequence* that a tier below the GPU has, where to read them pays: none."""
        return 0

    def read(self, sequence: Sequence, hits: int, below: int) -> float:
        """Reads the *below* blocks of *sequence* behind the first *hits* from the tiers; how long that takes [s]."""
        return 0.0

    def claim(self, sequence: Sequence, hits: int) -> None:
        """Takes the *hits* cached blocks of *sequence* for it: there are none."""

    def missing(self, sequence: Sequence, hits: int, tokens: int) -> int:
        """Free blocks that the first *tokens* of *sequence* would use up."""
        return -(-tokens // self.block_size)

    def take(self, blocks: int) -> None:
        """Hands out *blocks* free blocks, at most `free`."""
        self.free -= blocks
        if self.usable - self.free > self.peak:
            self.peak = self.usable - self.free

    def put_back(self, blocks: int) -> None:
        """Takes back *blocks* blocks that nothing was written to."""
        self.free += blocks

    def name(self, sequence: Sequence, tokens: int) -> None:
        """Remembers that the first *tokens* of *sequence* are in its blocks: nothing to share here."""

    def release(self, sequence: Sequence, held: int, resumes: bool, computed: int) -> None:
        """Takes back the *held* blocks of *sequence*."""
        self.free += held

    def forget(self, sequence: Sequence) -> None:
        """*sequence* leaves without any blocks: nothing is known of it here."""


class NamedBlock:
    """A KV block with a name: what it holds can be found again until the block is reallocated."""

    __slots__ = ("key", "twins", "users")

    def __init__(self, key: object) -> None:
        self.key = key
        self.users = 1
        self.twins: tuple[NamedBlock, ...] = ()
        """Of the oldest block of a name, the younger ones that bear it, too."""


class DuplicateBlock(Protocol):
    """A block that may share its name with younger ones."""

    twins: tuple[Any, ...]


def vanishes(named: dict[object, _Twinned], name: object, block: _Twinned) -> bool:
    """*block* does not answer to *name* any more, in *named* by the oldest block of each; whether none does now."""
    oldest = named[name]
    if oldest is not block:
        oldest.twins = tuple(twin for twin in oldest.twins if twin is not block)
    elif block.twins:
        named[name], *others = block.twins
        named[name].twins = tuple(others)
    else:
        del named[name]
        return True
    return False


class NamedBlocks(BlockPool):
    """Blocks whose content can be asked for by name."""

    __slots__ = ("_names_of",)

    def __init__(self, num_gpu_blocks: int, block_size: int) -> None:
        super().__init__(num_gpu_blocks, block_size)
        self._names_of: dict[Sequence, list[object]] = {}
        """Names of a sequence's leading blocks, as far as they have been worked out."""

    def sought(self, sequence: Sequence) -> int:
        """Leading blocks of *sequence* that may be cached: what it shares, and after a preemption all it had."""
        tokens = sequence.tokens - 1
        if not sequence.request.preemptions:
            tokens = min(tokens, sequence.request.shared_tokens)
        return tokens // self.block_size

    def name_of(self, sequence: Sequence, block: int) -> object:
        """Name of block number *block* of *sequence*."""
        return self._names(sequence, block + 1)[block]

    def named(self, sequence: Sequence) -> int:
        """Leading blocks of *sequence*, which runs, that have had their names."""
        return 0

    def clear(self) -> None:
        """What is cached is lost: blocks that nobody uses hold nothing."""

    def remember(self, sequence: Sequence) -> None:
        """*sequence* has been here before: its prompt is cached, as of the last one that left, if there is room."""

    def forget(self, sequence: Sequence) -> None:
        """*sequence*, which holds no blocks, will not come back: its names need not be kept."""
        self._names_of.pop(sequence, None)

    def _names(self, sequence: Sequence, blocks: int) -> list[object]:
        """Names of the first *blocks* blocks: shared where whole blocks of the trace cover them, else its own."""
        names = self._names_of.setdefault(sequence, [])
        if len(names) < blocks:
            names += block_names(sequence, len(names), blocks, self.block_size)
        return names[:blocks]


class PrefixCache(NamedBlocks):
    """Blocks with names, shared by equal prefixes (vLLM V1 `BlockPool`, `KVCacheManager`).

    The free queue holds named blocks and runs of nameless ones in the order in which they will be reallocated. A
    freed block that is not full joins its head; the full ones join its end, the last block of a request first; a hit
    takes its block out; a name lives until its block is reallocated. Two blocks may bear the same name (computed by
    two requests side by side): the older one answers. Blocks that nobody else can ask for get their names only if
    their request is preempted, and keep them until it leaves. While no block has a name, the order of the queue
    matters to nobody and is not kept.
    """

    __slots__ = ("_blocks_of", "_named", "_queue", "_tiers")

    def __init__(self, num_gpu_blocks: int, block_size: int, tiers: Tiers | None = None) -> None:
        super().__init__(num_gpu_blocks, block_size)
        self._tiers = tiers
        self._queue: OrderedDict[object, int] = OrderedDict()
        """Free blocks: a Block (1) or an anonymous token for a run of nameless blocks (its length). Stale while no
        block has a name."""
        self._named: dict[object, NamedBlock] = {}
        """The oldest block of each name."""
        self._blocks_of: dict[Sequence, list[NamedBlock]] = {}
        """Named blocks that a running sequence holds, in sequence order."""

    def nameless(self, most: int) -> int:
        """See `BlockPool.nameless`."""
        blocks = 0
        for entry, length in self._queue.items() if self._named else ():
            if blocks >= most or isinstance(entry, NamedBlock):
                return min(blocks, most)
            blocks += length
        return most

    def lookup(self, sequence: Sequence) -> int:
        """Leading blocks of *sequence* that are cached; at least its last token is left to compute."""
        named = self._named
        if not named:
            return 0
        hits = 0
        for name in self._names(sequence, self.sought(sequence)):
            if name not in named:
                break
            hits += 1
        return hits

    def missing(self, sequence: Sequence, hits: int, tokens: int) -> int:
        """Free blocks that the first *tokens* of *sequence* would use up: new ones, and hits that nobody uses now."""
        if not hits:
            return -(-tokens // self.block_size)
        named = self._named
        idle = [named[name].users for name in self._names(sequence, hits)].count(0)
        return -(-tokens // self.block_size) - hits + idle

    def claim(self, sequence: Sequence, hits: int) -> None:
        """Takes the *hits* cached blocks of *sequence* for it."""
        if not hits:
            return
        named = self._named
        blocks = self._blocks_of[sequence] = [named[name] for name in self._names(sequence, hits)]
        for block in blocks:
            if not block.users:
                del self._queue[block]
                self.free -= 1
            block.users += 1

    def take(self, blocks: int) -> None:
        """Reallocates *blocks* blocks from the head of the free queue; their names are forgotten."""
        super().take(blocks)
        if not self._named:
            return
        queue = self._queue
        reallocated: list[NamedBlock] = []
        while blocks > 0:
            entry, length = queue.popitem(last=False)
            if length > blocks:
                queue[entry] = length - blocks
                queue.move_to_end(entry, last=False)
                break
            blocks -= length
            if isinstance(entry, NamedBlock):
                reallocated.append(entry)
        self._unname(reallocated)

    def put_back(self, blocks: int) -> None:
        """Takes back *blocks* blocks that nothing was written to: they are the next to be handed out."""
        self._put(blocks, last=False)

    def named(self, sequence: Sequence) -> int:
        """Leading blocks of *sequence*, which runs, that have their names."""
        return len(self._blocks_of.get(sequence, ()))

    def name(self, sequence: Sequence, tokens: int) -> None:
        """Names the full blocks among the first *tokens* of *sequence* that others may ask for and have no name yet."""
        if sequence.request.block_hashes:
            self._name_blocks(sequence, min(tokens, sequence.request.shared_tokens) // self.block_size)

    def _name_blocks(self, sequence: Sequence, count: int) -> None:
        blocks = self._blocks_of.setdefault(sequence, [])
        if len(blocks) >= count:
            return
        named = self._named
        if not named:
            self._queue = OrderedDict({object(): self.free} if self.free else {})
        appeared = []
        for name in self._names(sequence, count)[len(blocks) :]:
            block = NamedBlock(name)
            blocks.append(block)
            oldest = named.setdefault(name, block)
            if oldest is block:
                appeared.append(name)
            else:
                oldest.twins += (block,)
        if appeared:
            self._report(appeared, True)

    def _unname(self, blocks: Iterable[NamedBlock]) -> None:
        """What *blocks* hold is not found any more."""
        vanished = [block.key for block in blocks if vanishes(self._named, block.key, block)]
        if vanished:
            self._report(vanished, False)

    def _report(self, names: list[object], stored: bool) -> None:
        if self._tiers is not None:
            (self._tiers.stored if stored else self._tiers.evicted)(names)
        if self.listener is not None:
            self.listener(names, stored)

    def release(self, sequence: Sequence, held: int, resumes: bool, computed: int) -> None:
        """Takes back the *held* blocks of *sequence*, which has filled *computed* tokens and may come back for them."""
        if not (self._named or resumes or sequence.request.block_hashes):
            self.free += held
            self._names_of.pop(sequence, None)
            return
        full = computed // self.block_size
        if resumes:
            self._name_blocks(sequence, full)
        else:
            self.name(sequence, computed)
            self._names_of.pop(sequence, None)
        blocks = self._blocks_of.pop(sequence, [])
        if not resumes:
            shared = sequence.request.shared_tokens // self.block_size
            self._unname(blocks[shared:])
            del blocks[shared:]
        if held > full:
            self._put(held - full, last=False)
        if full > len(blocks):
            self._put(full - len(blocks), last=True)
        queue, free = self._queue, 0
        for block in reversed(blocks):
            block.users -= 1
            if not block.users:
                queue[block] = 1
                free += 1
        self.free += free

    def below(self, sequence: Sequence, hits: int) -> int:
        """Blocks behind the first *hits* of *sequence* that a tier below the GPU has, where to read them pays."""
        if self._tiers is None:
            return 0
        return self._tiers.found(self._names(sequence, self.sought(sequence))[hits:])

    def read(self, sequence: Sequence, hits: int, below: int) -> float:
        """Reads the *below* blocks of *sequence* behind the first *hits* from the tiers; how long that takes [s]."""
        return 0.0 if self._tiers is None else self._tiers.read(self._names(sequence, hits + below)[hits:])

    def remember(self, sequence: Sequence) -> None:
        """See `NamedBlocks.remember`."""
        blocks = -(-sequence.tokens // self.block_size)
        if blocks <= self.free:
            self.take(blocks)
            self.name(sequence, sequence.tokens)
            self.release(sequence, blocks, resumes=False, computed=sequence.tokens)

    def clear(self) -> None:
        """What is cached is lost: blocks that nobody uses hold nothing."""
        if self._named:
            self._unname([entry for entry in self._queue if isinstance(entry, NamedBlock)])
            self._queue = OrderedDict({object(): self.free} if self.free else {})
        if self._tiers is not None:
            self._tiers.clear()

    def _put(self, blocks: int, last: bool) -> None:
        """Adds a run of blocks that nobody can ask for at one end of the free queue."""
        self.free += blocks
        if self._named:
            run = object()
            self._queue[run] = blocks
            self._queue.move_to_end(run, last=last)


def block_names(sequence: Sequence, start: int, stop: int, size: int) -> list[object]:
    """Names of the blocks of *sequence* from number *start* to before *stop*, *size* tokens each."""
    request = sequence.request
    hashed, hashes = request.hash_block_tokens, request.block_hashes
    names: list[object] = []
    shared = min(stop, request.shared_tokens // size)
    if hashed % size == 0:
        each = hashed // size
        while len(names) < shared - start:
            part, skipped = divmod(start + len(names), each)
            first = hashes[part] * hashed + size - 1
            names += range(first + skipped * size, first + min(each, shared - part * each) * size, size)
    return names + [block_name(sequence, block, size) for block in range(start + len(names), stop)]


def block_name(sequence: Sequence, block: int, size: int) -> object:
    """Name of block number *block* of *sequence*, *size* tokens each."""
    request, last = sequence.request, (block + 1) * size - 1
    if last < request.shared_tokens:
        return request.block_hashes[last // request.hash_block_tokens] * request.hash_block_tokens + (
            last % request.hash_block_tokens
        )
    return request.index, block


class DecodedBlockHashes(dict[Sequence, None]):
    """Decoding sequences whose answers are shared. A step changes none of them; they are named when that matters."""

    __slots__ = ("_pool",)

    def __init__(self, pool: NamedBlocks) -> None:
        super().__init__()
        self._pool = pool

    def add(self, sequence: Sequence) -> None:
        """*sequence* starts to decode."""
        if sequence.request.shared_tokens > sequence.request.prompt_tokens:
            self[sequence] = None

    def remove(self, sequence: Sequence) -> None:
        """*sequence* stops."""
        self.pop(sequence, None)

    def name(self, step: int, ahead: Collection[Sequence] = ()) -> None:
        """Names what is filled once contexts are base + *step*, one token more for those *ahead*, in the order in
        which it was filled: of two blocks with one name the older one answers.
        """
        size = self._pool.block_size
        filled = []
        for sequence in self:
            tokens = min(sequence.base + step + (sequence in ahead), sequence.request.shared_tokens)
            ends = range((self._pool.named(sequence) + 1) * size, tokens + 1, size)
            filled += [(end - sequence.base, sequence.admission, end, sequence) for end in ends]
        for _, _, end, sequence in sorted(filled):
            self._pool.name(sequence, end)

    def steps_until_named(self, step: int, ahead: Collection[Sequence] = ()) -> float:
        """Return the number of steps before another block is to be named, once `name` has been called with *step* and
        *ahead*; inf if none is.
        """
        size, steps = self._pool.block_size, inf
        for sequence in self:
            end = (self._pool.named(sequence) + 1) * size
            if end <= sequence.request.shared_tokens:
                steps = min(steps, end - sequence.base - step - (sequence in ahead))
        return steps

    def steps_until_found(self, sequence: Sequence | None, step: int) -> float:
        """Steps until one names a block that *sequence* looks for and does not find now, with base + *step* tokens
        named; None, who waits for a slot of an adapter, looks for none.
        """
        if sequence is None:
            return inf
        pool = self._pool
        size = pool.block_size
        steps = inf
        for other in self:
            block = (other.base + step) // size
            end = (block + 1) * size
            known = end <= other.request.shared_tokens and block < pool.sought(sequence)
            if known and pool.name_of(other, block) == pool.name_of(sequence, block):
                steps = min(steps, end - other.base - step)
        return steps
