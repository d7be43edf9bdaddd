"""The engine's rules, one step at a time and one block at a time: slow and obviously right.

Written straight from the rules of vLLM's V1 scheduler, with physical blocks, without counters or leaps. The fast
engine in `sim/engine` must give the same dates.
"""

from collections import deque
from dataclasses import dataclass, field
from math import inf, isnan, nan

from sim.engine.kv.blocks import NamedBlocks
from sim.records import Batch, ReplicaProgress, Request

Eviction = tuple[float, int]
"""(Time, position of the request in the list); a request that is not running then is left alone."""


@dataclass(eq=False)
class PhysicalBlock:
    users: int = 0
    name: object = None


@dataclass(eq=False)
class Tracked:
    request: Request
    computed: int = 0
    made: int = 0
    blocks: list[PhysicalBlock] = field(default_factory=list)
    first_token_s: float = nan
    finished_s: float = nan
    cached_tokens: int = 0
    started: bool = False
    decoding: bool = False
    passed_over: bool = False
    """Admission has gone on to those behind it; it has not been admitted since."""
    evicted: ReplicaProgress | None = None
    """Progress of the request when it was evicted."""

    @property
    def gone(self) -> bool:
        return self.evicted is not None or not isnan(self.finished_s)

    @property
    def tokens(self) -> int:
        return self.request.prompt_tokens + self.made

    @property
    def key(self):
        return (self.request.priority, self.request.arrived_s, self.request.index)

    def name_of(self, block: int, size: int) -> object:
        end = (block + 1) * size
        request = self.request
        if end <= request.shared_tokens:
            return (request.block_hashes[(end - 1) // request.hash_block_tokens], (end - 1) % request.hash_block_tokens)
        return ("own", request.index, block)


class ReferenceEngine:
    """Runs a list of requests to the end and returns them as `Tracked`, in request order."""

    def __init__(
        self, leap, *, num_gpu_blocks, block_size, max_num_seqs, max_num_batched_tokens, max_model_len,
        enable_prefix_caching, scheduling, window=None, chunked_prefill=True, long_prefill_token_threshold=0,
        watermark=0.0, reserve_full_isl=True, prefill_schedule_interval=1, tiers=None, adapters=None,
    ):  # fmt: skip
        self.step_s = lambda batch: leap(batch).first_s
        self.size = block_size
        self.seats = max_num_seqs
        self.budget = max_num_batched_tokens
        self.max_model_len = max_model_len
        self.caching = enable_prefix_caching
        self.priority = scheduling == "priority"
        self.fair = scheduling == "fair"
        self.counters: dict[str, float] = {}
        self.last_tenant = ""
        self.counted: set[Tracked] = set()
        self.tiers = tiers
        """(room, read_s_per_block, latency_s, through) of each tier, and the recompute time of a block."""
        self.adapters = adapters
        """(slots on the GPU, adapters in host memory, seconds to the GPU, seconds to host memory)."""
        self.on_gpu: list[str] = []
        """Adapters, used longest ago first."""
        self.in_host: list[str] = []
        self.below: list[list[object]] = [[] for _ in (tiers or ((), 0))[0]]
        """Names in each tier, the one not used for longest first."""
        self.read_s = 0.0
        self.window = window or 0
        self.chunked = chunked_prefill
        self.long_prefill = long_prefill_token_threshold
        self.kept_free = int(watermark * num_gpu_blocks)
        self.reserve_full_isl = reserve_full_isl
        self.interval = prefill_schedule_interval
        self.last_prompts_step = -self.interval
        self.prompts_wait = self.left_waiting = self.prompt_withdrawn = False
        self.went_on = self.served = False
        """In the step being formed: true if running requests compute prompts, and if any request does anything."""
        self.longest_chunk = inf
        self.usable = num_gpu_blocks - 1
        self.free = deque(PhysicalBlock() for _ in range(self.usable))
        self.named: dict[object, list[PhysicalBlock]] = {}
        self.waiting: list[Tracked] = []
        self.running: list[Tracked] = []
        self.preemptions = 0
        self.steps = 0

    def run(self, requests: list[Request], evictions: list[Eviction] = (), crashes: list[float] = ()) -> list[Tracked]:
        tracked = [Tracked(r) for r in requests]
        coming = deque(sorted((t for t in tracked if self._possible(t.request)), key=lambda t: t.request.arrived_s))
        leaving = deque((at_s, tracked[place]) for at_s, place in sorted(evictions))
        dying = deque(sorted(crashes))
        now = 0.0
        while coming or self.waiting or self.running:
            if not self.waiting and not self.running:
                now = max(now, coming[0].request.arrived_s)
                while dying and dying[0] < now:
                    self._crash(dying.popleft())
            while coming and coming[0].request.arrived_s <= now:
                self._queue(coming.popleft())
            while leaving and leaving[0][0] <= now:
                self._evict(*leaving.popleft(), {})
            if dying and dying[0] <= now:
                self._crash(dying.popleft())
                continue
            scheduled = self._schedule()
            if not scheduled:
                continue
            end_s = now + self.step_s(self._batch(scheduled)) + self.read_s
            if dying and dying[0] < end_s:
                now = dying.popleft()
                while coming and coming[0].request.arrived_s <= now:
                    self._queue(coming.popleft())
                while leaving and leaving[0][0] <= now:
                    self._evict(*leaving.popleft(), scheduled)
                self._crash(now)
                continue
            now = end_s
            self.steps += 1
            while coming and coming[0].request.arrived_s <= now:
                self._queue(coming.popleft())
            out = []
            while leaving and leaving[0][0] < now:
                out += self._evict(*leaving.popleft(), scheduled)
            self._update(scheduled, now)
            for one in out:
                self._remove(one)
            assert len(self.free) + sum(1 for _ in self._in_use()) == self.usable
        return tracked

    def _queue(self, one: Tracked) -> None:
        """A request arrives; a tenant that was idle is lifted to the level of the others."""
        tenant = one.request.tenant
        if not any(other.request.tenant == tenant for other in self.waiting):
            levels = [self.counters[other.request.tenant] for other in self.waiting]
            level = min(levels) if levels else self.counters.get(self.last_tenant, 0.0)
            self.counters[tenant] = max(self.counters.get(tenant, 0.0), level)
        self.waiting.append(one)

    def _unqueue(self, one: Tracked) -> None:
        self.waiting.remove(one)
        if not any(other.request.tenant == one.request.tenant for other in self.waiting):
            self.last_tenant = one.request.tenant

    def _next(self, able: list[Tracked]) -> Tracked:
        if self.priority:
            return min(able, key=lambda t: t.key)
        if not self.fair:
            return able[0]
        firsts = {}
        for one in able:
            firsts.setdefault(one.request.tenant, one)
        return min(firsts.values(), key=lambda t: (self.counters[t.request.tenant], *t.key[1:]))

    def _count(self, one: Tracked) -> None:
        """A token of the prompt counts once, one of the answer twice."""
        if one not in self.counted:
            request = one.request
            tokens = request.prompt_tokens + 2 * request.output_tokens
            self.counters[request.tenant] += tokens / request.weight
        self.counted.add(one)

    def _evict(self, at_s: float, one: Tracked, under_way: dict[Tracked, int]) -> list[Tracked]:
        """Notes how far *one* has come. Who is in the step under way leaves at its end: it is returned."""
        if one.gone or at_s < one.request.arrived_s or one not in (*self.waiting, *self.running):
            return []
        one.evicted = self._progress(one)
        if one in self.waiting:
            self._unqueue(one)
            return []
        if not under_way:
            self._remove(one)
            return []
        return [one]

    def _crash(self, at_s: float) -> None:
        """Drop all requests, whatever step is under way, and empty the cache."""
        for one in (*self.waiting, *self.running):
            self._evict(at_s, one, {})
        for one in list(self.running):  # evicted before, in the step under way
            self._remove(one)
        for block in self.free:
            block.name = None
        self.named = {}

    def _progress(self, one: Tracked) -> ReplicaProgress:
        return ReplicaProgress(one.computed, one.made)

    def _remove(self, one: Tracked) -> None:
        self.running.remove(one)
        self._left_batch(one)
        self._release(one)

    def _possible(self, request: Request) -> bool:
        needed = -(-(request.prompt_tokens + request.output_tokens - 1) // self.size)
        return request.prompt_tokens + request.output_tokens <= self.max_model_len and needed <= self.usable

    def _in_use(self):
        return iter({id(b) for t in self.running for b in t.blocks})

    def _schedule(self) -> dict[Tracked, int]:
        scheduled: dict[Tracked, int] = {}
        self.read_s = 0.0
        soon = self.steps - self.last_prompts_step < self.interval
        self.prompts_wait = soon and not self.left_waiting and any(one.decoding for one in self.running)
        alone = len(self.running) + len(self.waiting) == 1
        self.longest_chunk = inf if alone or not self.long_prefill else self.long_prefill
        self.prompt_withdrawn = False
        budget, preempted = self._serve_running(scheduled, self.budget)
        self.went_on = self.prompt_withdrawn or any(not one.decoding for one in scheduled)
        self.served = bool(scheduled)
        if not preempted:
            self._admit(scheduled, budget)
            if not self.prompts_wait:
                self.left_waiting = any(not one.passed_over for one in self.waiting)
        if self.went_on or any(not one.decoding and one.tokens - one.computed > 1 for one in scheduled):
            self.last_prompts_step = self.steps
        return scheduled

    def _serve_running(self, scheduled: dict[Tracked, int], budget: int) -> tuple[int, bool]:
        preempted = False
        index = 0
        while index < len(self.running) and budget > 0:
            one = self.running[index]
            if self.prompts_wait and not one.decoding:
                index += 1
                continue
            new = min(self._new_tokens(one), self.longest_chunk, budget)
            if not new:
                index += 1
                continue
            while not (placed := self._allocate(one, new)):
                victim = max(self.running, key=lambda t: t.key[:2]) if self.priority else self.running[-1]
                place = self.running.index(victim)
                self.running.remove(victim)
                if victim in scheduled:
                    budget += scheduled.pop(victim)
                    self.prompt_withdrawn |= not victim.decoding
                if place < index:
                    index -= 1
                self._preempt(victim)
                preempted = True
                if victim is one:
                    break
            if placed:
                scheduled[one] = new
                budget -= new
                index += 1
        return budget, preempted

    @staticmethod
    def _new_tokens(one: Tracked) -> int:
        return one.tokens - one.computed

    def _skipped(self, one: Tracked) -> bool:
        """Return whether admission skips the request in favour of those behind it."""
        if not self.adapters or not one.request.adapter:
            return False
        there = {other.request.adapter for other in self.running} - {""}
        return len(there) == self.adapters[0] and one.request.adapter not in there

    def _load_adapter(self, name: str) -> float:
        if not name:
            return 0.0
        running, took_s = {other.request.adapter for other in self.running}, 0.0
        for kept, room, cost_s in (
            (self.in_host, self.adapters[1], self.adapters[3]),
            (self.on_gpu, *self.adapters[0:3:2]),
        ):
            if name not in kept:
                if len(kept) == room:
                    kept.remove(next(other for other in kept if other not in running))
                kept.append(name)
                took_s += cost_s
        return took_s

    def _left_batch(self, one: Tracked) -> None:
        name = one.request.adapter
        if self.adapters and name and all(other.request.adapter != name for other in self.running):
            for kept in (self.on_gpu, self.in_host):
                kept.remove(name)
                kept.append(name)

    def _admit(self, scheduled: dict[Tracked, int], budget: int) -> None:
        while budget > 0 and len(self.running) < self.seats:
            able = list(self.waiting)
            while able and self._skipped(one := self._next(able)):
                able.remove(one)
                one.passed_over = not self.fair  # vLLM has no fair queue
            if not able:
                break
            hits = self._hits(one)
            below, read_s = self._below(one, len(hits))
            known = (len(hits) + len(below)) * self.size
            new = self._new_to_join(one, known, budget, scheduled)
            total = self._blocks_to_join(one, known + new)
            if not new or total - len(hits) + sum(b.users == 0 for b in hits) > len(self.free):
                break
            self._unqueue(one)
            self._count(one)
            one.passed_over = False
            for block in hits:
                if block.users == 0:
                    self.free.remove(block)
                block.users += 1
            for name in below:
                tier = next(tier for tier in self.below if name in tier)
                tier.remove(name)
                tier.append(name)
            self.read_s += read_s
            one.blocks = hits
            one.computed = known
            if not one.started:
                one.started, one.cached_tokens = True, one.computed
            if self.adapters:
                self.read_s += self._load_adapter(one.request.adapter)
            self.running.append(one)
            assert self._allocate(one, new)
            scheduled[one] = new
            budget -= new

    def _new_to_join(self, one: Tracked, known: int, budget: int, scheduled: dict[Tracked, int]) -> int:
        return self._chunk(one.tokens - known, budget, scheduled)

    def _chunk(self, left: int, budget: int, scheduled: dict[Tracked, int]) -> int:
        if self.prompts_wait and left > 1:
            return 0
        left = min(left, self.longest_chunk)
        return min(left, budget) if self.chunked or left <= budget else 0

    def _blocks_to_join(self, one: Tracked, tokens: int) -> int:
        needed = -(-(max(one.tokens, tokens) if self.reserve_full_isl else tokens) // self.size)
        return needed + (self.kept_free if self.running else 0)

    def _hits(self, one: Tracked) -> list[PhysicalBlock]:
        hits = []
        for block in range((one.tokens - 1) // self.size if self.caching else 0):
            same = self.named.get(one.name_of(block, self.size))
            if not same:
                break
            hits.append(same[0])
        return hits

    def _below(self, one: Tracked, hits: int) -> tuple[list[object], float]:
        """Names behind the first *hits* blocks that tiers below the GPU have, and how long reading them takes."""
        names: list[object] = []
        read_s, used = 0.0, set()
        for block in range(hits, (one.tokens - 1) // self.size if self.tiers else 0):
            name = one.name_of(block, self.size)
            place = next((i for i, tier in enumerate(self.below) if name in tier), None)
            if place is None:
                break
            _, per_block_s, latency_s, _ = self.tiers[0][place]
            read_s += per_block_s + (0.0 if place in used else latency_s)
            used.add(place)
            names.append(name)
        if not names or read_s >= len(names) * self.tiers[1]:
            return [], 0.0
        return names, read_s

    def _put_below(self, place: int, name: object) -> None:
        tier = self.below[place]
        if name in tier:
            tier.remove(name)
        tier.append(name)
        if len(tier) > self.tiers[0][place][0]:
            given_up = tier.pop(0)
            if place + 1 < len(self.below) and not self.tiers[0][place + 1][3]:
                self._put_below(place + 1, given_up)

    def _stored(self, name: object) -> None:
        if self.tiers and name[0] != "own":
            for place, (*_, through) in enumerate(self.tiers[0]):
                if through:
                    self._put_below(place, name)

    def _evicted(self, name: object) -> None:
        if self.tiers and name[0] != "own" and not self.tiers[0][0][3]:
            self._put_below(0, name)

    def _allocate(self, one: Tracked, new: int) -> bool:
        if not self._hold(one, one.computed + new):
            return False
        self._name(one, one.computed + new)
        return True

    def _hold(self, one: Tracked, tokens: int) -> bool:
        missing = -(-tokens // self.size) - len(one.blocks)
        if missing > len(self.free):
            return False
        for _ in range(missing):
            one.blocks.append(self._take())
        return True

    def _name(self, one: Tracked, tokens: int) -> None:
        for index in range(tokens // self.size if self.caching else 0):
            block = one.blocks[index]
            if block.name is None:
                block.name = one.name_of(index, self.size)
                if not self.named.get(block.name):
                    self._stored(block.name)
                self.named.setdefault(block.name, []).append(block)

    def _take(self) -> PhysicalBlock:
        block = self.free.popleft()
        if block.name is not None:
            self.named[block.name].remove(block)
            if not self.named[block.name]:
                self._evicted(block.name)
            block.name = None
        block.users = 1
        return block

    def _release(self, one: Tracked) -> None:
        for block in reversed(one.blocks):
            block.users -= 1
            if block.users == 0 and block.name is None:
                self.free.appendleft(block)
            elif block.users == 0:
                self.free.append(block)
        one.blocks = []

    def _preempt(self, one: Tracked) -> None:
        self._left_batch(one)
        self._release(one)
        one.computed = 0
        one.decoding = False
        self.preemptions += 1
        one.request.preemptions += 1
        self.waiting.insert(0, one)

    def _batch(self, scheduled: dict[Tracked, int]) -> Batch:
        batch = Batch()
        for one, new in scheduled.items():
            batch.sampled_seqs += one.computed + new == one.tokens
            self._into(batch, one, new, one.computed)
        return batch

    def _into(self, batch: Batch, one: Tracked, new: int, context: int) -> None:
        """Adds *new* tokens of *one*, before which lies its *context*."""
        batch.adapted_tokens += new * (one.request.adapter != "")
        if one.decoding:
            batch.decode_seqs += 1
            batch.kv_tokens += context
            batch.windowed_kv_tokens += min(context, self.window)
            batch.windowed_growing_seqs += context < self.window
        else:
            batch.prefill_seqs += 1
            batch.prefill_tokens += new
            batch.prefill_context_tokens += context
            batch.prefill_attention_pairs += new * context + new * (new + 1) // 2

    def _update(self, scheduled: dict[Tracked, int], now: float) -> None:
        for one, new in scheduled.items():
            one.computed += new
            if one.computed >= one.tokens and not one.evicted and self._makes_token(one, now):
                self._remove(one)

    @staticmethod
    def _makes_token(one: Tracked, now: float) -> bool:
        """Add a token, and return whether it was the last one."""
        one.made += 1
        one.decoding = True
        if one.made == 1:
            one.first_token_s = now
        if one.made == one.request.output_tokens:
            one.finished_s = now
        return one.made == one.request.output_tokens


def drain(engine, requests: list[Request]) -> None:
    """Feeds *requests* to a fast engine without a fleet: its clock, arrivals at or before a boundary first."""
    coming = deque(sorted(requests, key=lambda r: r.arrived_s))
    end = inf
    while coming or end < inf:
        if coming and coming[0].arrived_s <= end:
            now = coming[0].arrived_s
            touched = False
            while coming and coming[0].arrived_s == now:
                touched |= engine.offer(coming.popleft(), now)
            if touched:
                end = engine.plan(now)
        else:
            engine.advance()
            end = engine.plan(end)


def drain_evicting(
    engine, requests: list[Request], evictions: list[Eviction], crashes: list[float] = ()
) -> dict[int, ReplicaProgress]:
    """Feeds *requests* to a fast engine, which loses some, and all that it has where it *crashes*: place in the list ->
    how far it had come.

    At a step boundary arrivals come first, then the step is completed, then requests are evicted, then the engine
    crashes, and then the next step is formed.
    """
    coming = deque(sorted(requests, key=lambda r: r.arrived_s))
    leaving = deque(sorted(evictions))
    dying = deque(sorted(crashes))
    evicted: dict[int, ReplicaProgress] = {}
    here: set[Request] = set()
    end = inf
    while coming or end < inf:
        now = min(end, coming[0].arrived_s if coming else inf, leaving[0][0] if leaving else inf)
        now = min(now, dying[0] if dying else inf)
        touched = end <= now
        while coming and coming[0].arrived_s <= now:
            request = coming.popleft()
            touched |= engine.offer(request, now)
            if not request.rejected:
                here.add(request)
        if end <= now:
            here.difference_update(engine.advance())
        while leaving and leaving[0][0] <= now:
            place = leaving.popleft()[1]
            if requests[place] in here:
                evicted[place] = engine.evict(requests[place], now)
                here.remove(requests[place])
                touched = True
        if dying and dying[0] <= now:
            dying.popleft()
            evicted |= {place: engine.evict(one, now) for place, one in enumerate(requests) if one in here}
            here.clear()
            engine.crash(now)
            for pool in engine.caches():
                if isinstance(pool, NamedBlocks):
                    pool.clear()
            touched = True
        if touched:
            end = engine.plan(now)
    assert not here
    return evicted
