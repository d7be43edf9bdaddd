"""KV blocks of one rank: a plain count, or vLLM's prefix cache with its eviction order.

Prefix blocks have names that equal prefixes share:

    prompt of A   | system prompt | question A |      names  h0  h1  a2
    prompt of B   | system prompt | question B |      names  h0  h1  b2   -> hits: h0, h1

Blocks that decoding fills are named only when another request may look them up.
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
        """Number of blocks that requests can use: all but the null block."""
        self.free = self.usable
        self.peak = 0
        """Most blocks in use at once so far."""
        self.listener: Callable[[list[object], bool], None] | None = None
        """Function that gets the block names that appear in the cache (with True) or disappear (with False)."""

    def nameless(self, most: int) -> int:
        """Return how many of the next *most* blocks to be reallocated have no name before the first that has one."""
        return most

    def lookup(self, sequence: Sequence) -> int:
        """Return the number of leading blocks of *sequence* that are cached: 0 here."""
        return 0

    def below(self, sequence: Sequence, hits: int) -> int:
        """Return the number of blocks after the first *hits* that are worth reading from a lower tier: 0 here."""
        return 0

    def read(self, sequence: Sequence, hits: int, below: int) -> float:
        """Read the *below* blocks of *sequence* after the first *hits* from the tiers.

        Return the time this takes [s].
        """
        return 0.0

    def claim(self, sequence: Sequence, hits: int) -> None:
        """Add *sequence* as a user of its *hits* cached blocks: there are none here."""

    def missing(self, sequence: Sequence, hits: int, tokens: int) -> int:
        """Return the number of free blocks that the first *tokens* of *sequence* would use."""
        return -(-tokens // self.block_size)

    def take(self, blocks: int) -> None:
        """Allocate *blocks* free blocks, at most `free`."""
        self.free -= blocks
        if self.usable - self.free > self.peak:
            self.peak = self.usable - self.free

    def put_back(self, blocks: int) -> None:
        """Free *blocks* blocks that nothing was written to."""
        self.free += blocks

    def name(self, sequence: Sequence, tokens: int) -> None:
        """Name the blocks with the first *tokens* of *sequence*: blocks have no names here."""

    def release(self, sequence: Sequence, held: int, resumes: bool, computed: int) -> None:
        """Free the *held* blocks of *sequence*."""
        self.free += held

    def forget(self, sequence: Sequence) -> None:
        """Forget *sequence*, which leaves without any blocks: nothing is stored here."""


class NamedBlock:
    """KV block with a name: its contents can be found until the block is reallocated."""

    __slots__ = ("duplicates", "key", "users")

    def __init__(self, key: object) -> None:
        self.key = key
        self.users = 1
        self.duplicates: tuple[NamedBlock, ...] = ()
        """Younger blocks with the same name; set only on the oldest block of a name."""


class ResumableBlocks:
    """Leading blocks of a preempted request that no other request can look up, in the free queue.

    They are reallocated from the last to the first, so that their number determines which are left.
    """

    __slots__ = ("request",)

    def __init__(self, request: int) -> None:
        self.request = request
        """Number of the request."""


class DuplicateBlock(Protocol):
    """Block that may share its name with younger blocks."""

    duplicates: tuple[Any, ...]


def remove_name(named: dict[object, _Twinned], name: object, block: _Twinned) -> bool:
    """Remove the *name* of *block* from *named*, which maps names to their oldest block.

    Return whether no other block has the name.
    """
    oldest = named[name]
    if oldest is not block:
        oldest.duplicates = tuple(one for one in oldest.duplicates if one is not block)
    elif block.duplicates:
        named[name], *others = block.duplicates
        named[name].duplicates = tuple(others)
    else:
        del named[name]
        return True
    return False


class NamedBlocks(BlockPool):
    """Blocks whose contents can be found by name."""

    __slots__ = ("_names_of",)

    def __init__(self, num_gpu_blocks: int, block_size: int) -> None:
        super().__init__(num_gpu_blocks, block_size)
        self._names_of: dict[Sequence, list[object]] = {}
        """Sequence -> names of its leading blocks, as far as they have been computed."""

    def cacheable_blocks(self, sequence: Sequence) -> int:
        """Return the number of leading blocks of *sequence* that may be cached.

        These are the blocks it shares with other requests; after a preemption all that it had.
        """
        tokens = sequence.tokens - 1
        if not sequence.request.preemptions:
            tokens = min(tokens, sequence.request.shared_tokens)
        return tokens // self.block_size

    def name_of(self, sequence: Sequence, block: int) -> object:
        """Return the name of block number *block* of *sequence*."""
        return self._names(sequence, block + 1)[block]

    def named(self, sequence: Sequence) -> int:
        """Return the number of leading blocks of the running *sequence* that have been named."""
        return 0

    def clear(self) -> None:
        """Empty the cache: blocks without users lose their contents."""

    def preload(self, sequence: Sequence) -> None:
        """Cache the prompt of *sequence*, as if its request had just left, if there is room."""

    def forget(self, sequence: Sequence) -> None:
        """Forget the names of *sequence*, which holds no blocks and does not return."""
        self._names_of.pop(sequence, None)

    def _names(self, sequence: Sequence, blocks: int) -> list[object]:
        """Return the names of the first *blocks* blocks: shared names where whole blocks of the trace cover them."""
        names = self._names_of.setdefault(sequence, [])
        if len(names) < blocks:
            names += block_names(sequence, len(names), blocks, self.block_size)
        return names[:blocks]


class PrefixCache(NamedBlocks):
    """Prefix cache: named blocks shared by equal prefixes (vLLM V1 `BlockPool`, `KVCacheManager`).

    The free queue holds named blocks and runs of nameless ones in the order of their reallocation:

        head (next to be reallocated)                                        end
        | partly filled blocks | ... | last block of A | ... | first block of A |

    A freed block that is not full is put at the head; full ones are put at the end, the last block of a request first.
    A hit removes its block from the queue; a name stays until its block is reallocated. Two blocks may have the same
    name (computed by two requests side by side): lookups find the older one. Blocks that no other request can look up
    are named only if their request is preempted, until it leaves: as one run (`ResumableBlocks`) while that is enough.
    While no block has a name, the order of the queue does not matter and is not maintained.
    """

    __slots__ = ("_blocks_of", "_named", "_queue", "_resumable", "_runs_suffice", "_tiers")

    def __init__(self, num_gpu_blocks: int, block_size: int, tiers: Tiers | None = None) -> None:
        super().__init__(num_gpu_blocks, block_size)
        self._tiers = tiers
        self._queue: OrderedDict[object, int] = OrderedDict()
        """Free blocks: a `NamedBlock` -> 1; `ResumableBlocks` or a token for nameless blocks -> their number. Not
        maintained while no block has a name."""
        self._named: dict[object, NamedBlock] = {}
        """Name -> oldest block with this name."""
        self._blocks_of: dict[Sequence, list[NamedBlock]] = {}
        """Running sequence -> its named blocks, in order."""
        self._resumable: dict[int, ResumableBlocks] = {}
        """Number of a preempted request -> its blocks in the queue."""
        self._runs_suffice = tiers is None
        """True while a resumed request may look up all blocks that are left of it, so that they need no names."""

    @property
    def _is_ordered(self) -> bool:
        """True if the order of the free queue matters."""
        return bool(self._named) or bool(self._resumable)

    def nameless(self, most: int) -> int:
        """See `BlockPool.nameless`."""
        blocks = 0
        for entry, length in self._queue.items() if self._is_ordered else ():
            if blocks >= most or isinstance(entry, NamedBlock | ResumableBlocks):
                return min(blocks, most)
            blocks += length
        return most

    def lookup(self, sequence: Sequence) -> int:
        """Return the number of leading blocks of *sequence* that are cached.

        At least its last token is left to compute.
        """
        if self._resumable and (run := self._resumable.get(sequence.request.index)) is not None:
            left = self._queue[run]
            if left <= self.cacheable_blocks(sequence):
                return left
            self._name_runs()
        named = self._named
        if not named:
            return 0
        hits = 0
        for name in self._names(sequence, self.cacheable_blocks(sequence)):
            if name not in named:
                break
            hits += 1
        return hits

    def missing(self, sequence: Sequence, hits: int, tokens: int) -> int:
        """Return the free blocks that the first *tokens* of *sequence* would use: new ones, and hits without users."""
        if not hits or sequence.request.index in self._resumable:
            return -(-tokens // self.block_size)
        named = self._named
        idle = [named[name].users for name in self._names(sequence, hits)].count(0)
        return -(-tokens // self.block_size) - hits + idle

    def claim(self, sequence: Sequence, hits: int) -> None:
        """Add *sequence* as a user of its *hits* cached blocks."""
        if not hits:
            return
        if self._resumable and (run := self._resumable.pop(sequence.request.index, None)) is not None:
            del self._queue[run]
            self.free -= hits
            return
        named = self._named
        blocks = self._blocks_of[sequence] = [named[name] for name in self._names(sequence, hits)]
        for block in blocks:
            if not block.users:
                del self._queue[block]
                self.free -= 1
            block.users += 1

    def take(self, blocks: int) -> None:
        """Reallocate *blocks* blocks from the head of the free queue; their names are dropped."""
        super().take(blocks)
        if not self._is_ordered:
            return
        queue = self._queue
        reallocated: list[NamedBlock] = []
        while blocks > 0:
            entry = next(iter(queue))
            length = queue[entry]
            if length > blocks:
                queue[entry] = length - blocks
                break
            del queue[entry]
            blocks -= length
            if isinstance(entry, NamedBlock):
                reallocated.append(entry)
            elif isinstance(entry, ResumableBlocks):
                del self._resumable[entry.request]
        if reallocated:
            self._unname(reallocated)

    def put_back(self, blocks: int) -> None:
        """Free *blocks* blocks that nothing was written to: they are the next to be reallocated."""
        self._put(blocks, last=False)

    def named(self, sequence: Sequence) -> int:
        """Return the number of leading blocks of the running *sequence* that have names."""
        return len(self._blocks_of.get(sequence, ()))

    def name(self, sequence: Sequence, tokens: int) -> None:
        """Name the full blocks with the first *tokens* of *sequence* that others may look up, if unnamed."""
        if sequence.request.block_hashes:
            self._name_blocks(sequence, min(tokens, sequence.request.shared_tokens) // self.block_size)

    def _name_blocks(self, sequence: Sequence, count: int) -> None:
        blocks = self._blocks_of.setdefault(sequence, [])
        if len(blocks) >= count:
            return
        named = self._named
        self._begin_order()
        appeared = []
        for name in self._names(sequence, count)[len(blocks) :]:
            block = NamedBlock(name)
            blocks.append(block)
            oldest = named.setdefault(name, block)
            if oldest is block:
                appeared.append(name)
            else:
                oldest.duplicates += (block,)
        if appeared:
            self._report(appeared, True)

    def _begin_order(self) -> None:
        """Begin to maintain the order of the free queue, if it has not mattered."""
        if not self._is_ordered:
            self._queue = OrderedDict({object(): self.free} if self.free else {})

    def _name_runs(self) -> None:
        """Name each of the blocks that are in runs, from now on."""
        self._runs_suffice = False
        if not self._resumable:
            return
        queue: OrderedDict[object, int] = OrderedDict()
        for entry, length in self._queue.items():
            if not isinstance(entry, ResumableBlocks):
                queue[entry] = length
                continue
            for number in reversed(range(length)):
                block = self._named[entry.request, number] = NamedBlock((entry.request, number))
                block.users = 0
                queue[block] = 1
        self._queue = queue
        self._resumable.clear()

    def _unname(self, blocks: Iterable[NamedBlock]) -> None:
        """Drop the names of *blocks*."""
        vanished = [block.key for block in blocks if remove_name(self._named, block.key, block)]
        if vanished:
            self._report(vanished, False)

    def _report(self, names: list[object], stored: bool) -> None:
        if self._tiers is not None:
            (self._tiers.stored if stored else self._tiers.evicted)(names)
        if self.listener is not None:
            self.listener(names, stored)

    def release(self, sequence: Sequence, held: int, resumes: bool, computed: int) -> None:
        """Free the *held* blocks of *sequence*, with *computed* tokens filled.

        If it *resumes*, it may look them up again.
        """
        request = sequence.request
        if not (resumes or request.block_hashes or self._is_ordered):
            self.free += held
            self._names_of.pop(sequence, None)
            return
        full = computed // self.block_size
        if resumes and (self.listener is not None or request.index in self._resumable):
            self._name_runs()
        if self._runs_suffice and not request.block_hashes:
            if not resumes:
                self._names_of.pop(sequence, None)
            self._release_run(request.index, held, resumes, full)
            return
        if resumes:
            self._name_blocks(sequence, full)
        else:
            self.name(sequence, computed)
            self._names_of.pop(sequence, None)
        blocks = self._blocks_of.pop(sequence, [])
        if not resumes:
            shared = request.shared_tokens // self.block_size
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

    def _release_run(self, request: int, held: int, resumes: bool, full: int) -> None:
        """Free the *held* blocks of a request, of which *full* are full; it may look them up if it *resumes*."""
        run = ResumableBlocks(request) if resumes and full else None
        if run is not None:
            self._begin_order()
            self._resumable[request] = run
        if held > full:
            self._put(held - full, last=False)
        if run is not None:
            self._queue[run] = full
            self.free += full
        elif full:
            self._put(full, last=True)

    def below(self, sequence: Sequence, hits: int) -> int:
        """Return the number of blocks after the first *hits* that are worth reading from a lower tier."""
        if self._tiers is None:
            return 0
        return self._tiers.found(self._names(sequence, self.cacheable_blocks(sequence))[hits:])

    def read(self, sequence: Sequence, hits: int, below: int) -> float:
        """Read the *below* blocks of *sequence* after the first *hits* from the tiers.

        Return the time this takes [s].
        """
        return 0.0 if self._tiers is None else self._tiers.read(self._names(sequence, hits + below)[hits:])

    def preload(self, sequence: Sequence) -> None:
        """See `NamedBlocks.preload`."""
        blocks = -(-sequence.tokens // self.block_size)
        if blocks <= self.free:
            self.take(blocks)
            self.name(sequence, sequence.tokens)
            self.release(sequence, blocks, resumes=False, computed=sequence.tokens)

    def clear(self) -> None:
        """Empty the cache: blocks without users lose their contents."""
        if self._is_ordered:
            self._unname([entry for entry in self._queue if isinstance(entry, NamedBlock)])
            self._resumable.clear()
            self._queue = OrderedDict({object(): self.free} if self.free else {})
        if self._tiers is not None:
            self._tiers.clear()

    def _put(self, blocks: int, last: bool) -> None:
        """Add a run of nameless blocks at one end of the free queue, or lengthen the run that is there."""
        self.free += blocks
        if not self._is_ordered:
            return
        queue = self._queue
        end = next(reversed(queue) if last else iter(queue), None)
        if end is not None and not isinstance(end, NamedBlock | ResumableBlocks):
            queue[end] += blocks
            return
        run = object()
        queue[run] = blocks
        if not last:
            queue.move_to_end(run, last=False)


def block_names(sequence: Sequence, start: int, stop: int, size: int) -> list[object]:
    """Return the names of the blocks of *sequence* from number *start* to before *stop*, *size* tokens each."""
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
    """Return the name of block number *block* of *sequence*, *size* tokens each."""
    request, last = sequence.request, (block + 1) * size - 1
    if last < request.shared_tokens:
        return request.block_hashes[last // request.hash_block_tokens] * request.hash_block_tokens + (
            last % request.hash_block_tokens
        )
    return request.index, block


class DecodedBlockHashes(dict[Sequence, None]):
    """Decoding sequences whose answers other requests may share; their blocks are named only when that matters."""

    __slots__ = ("_pool",)

    def __init__(self, pool: NamedBlocks) -> None:
        super().__init__()
        self._pool = pool

    def add(self, sequence: Sequence) -> None:
        """Add *sequence*, which starts to decode."""
        if sequence.request.shared_tokens > sequence.request.prompt_tokens:
            self[sequence] = None

    def remove(self, sequence: Sequence) -> None:
        """Remove *sequence*, which stops decoding."""
        self.pop(sequence, None)

    def name(self, step: int, ahead: Collection[Sequence] = ()) -> None:
        """Name the blocks filled once contexts are base + *step*, one token more for sequences in *ahead*.

        Blocks are named in the order in which they were filled: of two blocks with one name, lookups find the older
        one.
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
        """Return the number of steps until another block is to be named after `name` with *step* and *ahead*.

        Inf if none is.
        """
        size, steps = self._pool.block_size, inf
        for sequence in self:
            end = (self._pool.named(sequence) + 1) * size
            if end <= sequence.request.shared_tokens:
                steps = min(steps, end - sequence.base - step - (sequence in ahead))
        return steps

    def steps_until_found(self, sequence: Sequence | None, step: int) -> float:
        """Return the steps until a block is named that *sequence* looks up and does not find now; inf if none is.

        Contexts of base + *step* tokens have been named. None, for a queue whose requests wait for adapter slots, looks
        up nothing.
        """
        if sequence is None:
            return inf
        pool = self._pool
        size = pool.block_size
        steps = inf
        for other in self:
            block = (other.base + step) // size
            end = (block + 1) * size
            known = end <= other.request.shared_tokens and block < pool.cacheable_blocks(sequence)
            if known and pool.name_of(other, block) == pool.name_of(sequence, block):
                steps = min(steps, end - other.base - step)
        return steps
