"""Scheduler of one rank under any policy: waiting and running requests, the contents of a step, and its results.

A step changes no decoding sequence: with S the step counter, a sequence's context is `base + S`, and it finishes when S
reaches `finish_step`. So k equal steps (a leap) cost as much to simulate as one, and a policy only determines which
requests join, which are preempted and which KV blocks they hold:

    step counter S      10      11      12      13      14
    sequence a          |-------|-------|-------|  finish_step 13
    sequence b          |-------|-------|-------|-------|  finish_step 14
    leap                |<----- 3 steps ------->|  then a leaves

`FinishQueue` has the order in which requests finish. `BlocksInTransfer` has the KV blocks of prompts between two
replicas: those that stay until they have been fetched, and those reserved for KV to come.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Iterable
from copy import copy
from math import isnan
from typing import ClassVar

from sim.engine.kv.blocks import BlockPool
from sim.engine.kv.decode_steps import WindowedContexts
from sim.engine.limits import SchedulerLimits
from sim.engine.lora import AdaptedBatch
from sim.engine.schedulers.waiting_queue import AdapterQueue, FairQueue, WaitingQueue
from sim.engine.sequence import RequestGpuTime, Sequence, add_decode, add_prompt, chunk_parts, place, recomputed_tokens
from sim.native import mypyc_attr
from sim.records import Batch, ReplicaProgress, Request, StepSpan


class BlocksInTransfer:
    """KV blocks of one rank that belong to requests on other replicas.

    The KV of a prompt is held on one side only: where it was computed until it has been fetched, then where it is
    decoded. Blocks that the decoding side sets aside before are reserved: not free, and without KV.
    """

    __slots__ = ("_behind", "_leaving", "_pool", "joining", "reserved")

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool
        self._behind: dict[Request, tuple[Sequence, int, int]] = {}
        """Request that has moved on -> its sequence, the blocks held for it, and the tokens in them."""
        self._leaving: list[tuple[Sequence | None, int, int]] = []
        """Blocks that become free at the end of the current step: (sequence, number of blocks, tokens in them); the
        sequence is None where no KV has come."""
        self.reserved: dict[Request, int] = {}
        """Request -> blocks that are reserved for the KV of its prompt."""
        self.joining: deque[Sequence] = deque()
        """Sequences that came with the KV of their prompts and wait for a place in the batch; they hold blocks, so they
        go first."""

    def leave_behind(self, sequence: Sequence, held: int, computed: int) -> None:
        """Keep the *held* blocks with *computed* tokens of *sequence*, which has moved on."""
        self._behind[sequence.request] = sequence, held, computed

    def reserve(self, request: Request, blocks: int) -> None:
        """Reserve *blocks* free blocks for *request*."""
        self._pool.take(blocks)
        self.reserved[request] = blocks

    def release_kv(self, request: Request, stepping: bool) -> None:
        """Free the blocks of *request*: now, or where the rank is *stepping* when `settle` is called."""
        if request in self._behind:
            self._leaving.append(self._behind.pop(request))
        # entries are removed now, since the request may return to this replica before the step ends
        elif request in self.reserved:
            self._leaving.append((None, self.reserved.pop(request), 0))
        if not stepping:
            self.settle()

    def settle(self) -> None:
        """Free the blocks whose release was deferred to the end of the step."""
        for sequence, held, computed in self._leaving:
            if sequence is None:
                self._pool.put_back(held)
            else:
                self._pool.release(sequence, held, False, computed)
        self._leaving.clear()


NEVER = 1 << 60
"""Step counter that no rank reaches."""


class FinishQueue:
    """Decoding sequences in order of the step counter at which they finish, then of admission; the next one is last.

    A sorted list is faster here than a heap: finding a place reads a few sequences, while a heap visits sequences
    spread over memory whenever one is added or leaves.
    """

    __slots__ = ("_next_step", "_sequences", "_sum")

    def __init__(self) -> None:
        self._sequences: list[Sequence] = []
        self._next_step = NEVER
        """Step counter at which the next sequence finishes; most steps need no more of the queue."""
        self._sum = 0
        """Sum of all finish steps."""

    def _read_next(self) -> None:
        self._next_step = self._sequences[-1].finish_step if self._sequences else NEVER

    def add(self, sequence: Sequence) -> None:
        """Add *sequence*, which decodes until its finish step."""
        self._sequences.insert(self._place(sequence), sequence)
        self._sum += sequence.finish_step
        self._next_step = min(self._next_step, sequence.finish_step)

    def _place(self, sequence: Sequence) -> int:
        """Return the place that *sequence* has, or would have, in this order."""
        sequences, finish_step, admission = self._sequences, sequence.finish_step, sequence.admission
        low, high = 0, len(sequences)
        while low < high:
            middle = (low + high) >> 1
            finish = sequences[middle].finish_step
            if finish > finish_step or (finish == finish_step and sequences[middle].admission > admission):
                low = middle + 1
            else:
                high = middle
        return low

    def remove(self, sequence: Sequence) -> None:
        """Remove *sequence*, which stops before its finish step."""
        del self._sequences[self._sequences.index(sequence, self._place(sequence))]
        self._sum -= sequence.finish_step
        self._read_next()

    def rebuild(self, decoding: Iterable[Sequence]) -> None:
        """Rebuild the queue from the *decoding* sequences, whose finish steps have changed."""
        self._sequences = sorted(decoding, key=lambda sequence: (-sequence.finish_step, -sequence.admission))
        self._sum = sum(sequence.finish_step for sequence in self._sequences)
        self._read_next()

    def sequences(self) -> list[Sequence]:
        """Return all sequences."""
        return list(self._sequences)

    def next_step(self) -> int:
        """Return the step counter at which the next sequence finishes. The queue must not be empty."""
        return self._next_step

    def pop_reached(self, step: int) -> list[Sequence]:
        """Remove and return the sequences that have finished at counter *step*, in order."""
        reached: list[Sequence] = []
        if step < self._next_step:
            return reached
        sequences = self._sequences
        while sequences and sequences[-1].finish_step <= step:
            sequence = sequences.pop()
            self._sum -= sequence.finish_step
            reached.append(sequence)
        self._read_next()
        return reached

    def steps_left(self, step: int, at_most: int) -> int:
        """Return the sum of the steps left to all sequences from counter *step* on, with *at_most* of each."""
        total = self._sum - len(self._sequences) * step
        for sequence in self._sequences:
            beyond = sequence.finish_step - step - at_most
            if beyond <= 0:
                break
            total -= beyond
        return total


# mypyc: users may register a subclass
@mypyc_attr(allow_interpreted_subclasses=True)
class Scheduler(ABC):
    """Scheduler state of one data-parallel rank, or of one pipeline lane.

    Pipeline lanes share the block pool and the waiting queue.
    """

    # slots keep the fields next to each other in memory: hundreds of replicas share the CPU caches. Compiled, fields
    # lie in the order in which `__init__` sets them: those that each step reads are set last, before a subclass's own
    __slots__ = (
        "_admissions", "_base_sum", "_chunked_prefill", "_chunks", "_decodes_wait", "_decoding", "_evicted",
        "_finishing", "_max_num_batched_tokens", "_overlaps_chunks", "_prefilling", "_step", "_transit", "_windows",
        "adapters", "batch", "blocked_by", "cached_in_step", "max_num_seqs", "overshoot", "pool", "preemptions",
        "read_s", "recomputed_in_step", "running", "shares", "waiting",
    )  # fmt: skip

    abstract_methods: ClassVar[tuple[str, ...]] = ("form", "may_admit")
    """Names of the methods that subclasses define: a compiled class has no `__abstractmethods__`."""

    def __init__(self, limits: SchedulerLimits, pool: BlockPool, waiting: WaitingQueue) -> None:
        self.preemptions = 0
        self.overshoot = 0.0
        """Tokens that meters count although they lie beyond the ends of answers."""
        self.shares = RequestGpuTime()
        self.max_num_seqs = limits.max_num_seqs
        """Most sequences that may run at once (`max_num_seqs`, divided among pipeline lanes)."""
        self._max_num_batched_tokens = limits.max_num_batched_tokens
        self._chunked_prefill = limits.chunked_prefill
        self._overlaps_chunks = limits.overlaps_chunks
        self._admissions = 0
        self.adapters = waiting.slots if isinstance(waiting, AdapterQueue | FairQueue) else None
        """LoRA adapter slots; None where requests cannot use adapters."""
        self.waiting = waiting
        self.running: dict[Sequence, None] = {} if self.adapters is None else AdaptedBatch(self.adapters)
        """Running sequences in admission order."""
        self.pool = pool
        self._transit: BlocksInTransfer | None = None
        self.read_s = 0.0
        """Time for which the step formed last reads KV from tiers below the GPU before it computes [s]."""
        self.batch = Batch()
        """Batch of the step formed last."""
        self.blocked_by = ""
        """Reason why the head of the queue is not in the step formed last: seats, kv, budget, adapters or empty."""
        self.recomputed_in_step = 0
        """Tokens of the step formed last that had been computed before."""
        self.cached_in_step = 0
        """Prompt tokens that requests admitted in the step formed last found in the prefix cache, computed by other
        requests."""
        self._step = 0
        self._finishing = FinishQueue()
        self._decoding = 0
        self._base_sum = 0
        self._prefilling: dict[Sequence, None] = {}
        """Sequences whose prompts are being computed, in admission order."""
        self._chunks: list[tuple[Sequence, int]] = []
        self._evicted: tuple[Sequence, ...] = ()
        """Evicted sequences that are still in the current step; they leave at its end."""
        self._decodes_wait = False
        """True if the step formed last computes prompts only, so that decoding sequences are not in it."""
        self._windows = WindowedContexts(limits.window) if limits.window else None

    @property
    def admitted(self) -> int:
        """Number of admissions so far; a preempted request is admitted again."""
        return self._admissions

    @property
    def transit(self) -> BlocksInTransfer:
        """KV blocks here that belong to requests on other replicas."""
        if self._transit is None:
            self._transit = BlocksInTransfer(self.pool)
        return self._transit

    @property
    def joining(self) -> Collection[Sequence]:
        """Sequences that came with the KV of their prompts and wait for a place in the batch."""
        return () if self._transit is None else self._transit.joining

    def settle_transit(self) -> None:
        """Free the blocks of other replicas' requests whose release was deferred to the end of the step."""
        if self._transit is not None:
            self._transit.settle()

    def enqueue(self, sequence: Sequence) -> bool:
        """Queue *sequence*. Return whether it is the next of its kind to join.

        Where blocks were reserved for its request, the sequence brings the KV of its prompt.
        """
        transit = self._transit
        if transit is not None and (blocks := transit.reserved.pop(sequence.request, 0)):
            sequence.receive_kv(blocks)
            transit.joining.append(sequence)
            return len(transit.joining) == 1
        return self.waiting.add(sequence)

    def _load_adapter(self, sequence: Sequence) -> float:
        """Load the LoRA adapter of *sequence* to the GPU. Return the time this takes [s]."""
        return 0.0 if self.adapters is None else self.adapters.load(sequence.request.adapter)

    def queued(self) -> int:
        """Return the number of requests that wait for admission."""
        return len(self.waiting) + len(self.joining)

    def place(self, request_index: int) -> str:
        """Return the place of request number *request_index*: running, queued or empty."""
        waits = self.waiting.has(request_index) or any(one.request.index == request_index for one in self.joining)
        return place(request_index, waits, self.running)

    def steps_until_read(self, steps: int) -> int:
        """Return after how many current steps, at least *steps*, a request that arrives now is considered."""
        return steps

    def blocks_ahead(self, steps: int) -> int:
        """Return the KV blocks that steps 2 to *steps* of the current leap take: 0 if held from the start."""
        return 0

    def remove_waiting(self, request: Request) -> ReplicaProgress | None:
        """Remove *request* from the waiting ones. Return its progress; None if it does not wait."""
        waiting = self.waiting.remove(request)
        if waiting is not None:
            self.pool.forget(waiting)
            return ReplicaProgress(0, waiting.made)
        joining = next((one for one in self.joining if one.request is request), None)
        if joining is None:
            return None
        self.transit.joining.remove(joining)
        self.pool.put_back(joining.held)
        return ReplicaProgress(joining.computed, joining.made)

    @property
    def pace(self) -> float:
        """Mean tokens per step of the decoding sequences of `batch`."""
        return 1

    @abstractmethod
    def form(self, now: float) -> int:
        """Form the next step in `batch`.

        Return how many such steps may pass before the batch changes; 0 if there is no work.
        """

    @abstractmethod
    def may_admit(self, sequence: Sequence) -> bool:
        """Return whether *sequence*, now at the head of the queue, could join a step.

        If so, a leap must end early for it.
        """

    def has_room(self) -> bool:
        """Return whether a batch place and tokens are left for one more prompt in the next step."""
        return len(self.running) < self.max_num_seqs and self._decoding < self._max_num_batched_tokens

    def _missing(self, sequence: Sequence, hits: int, chunk: int) -> int:
        """Return the blocks that must be free to admit *sequence* with *chunk* tokens: those of all its tokens."""
        return self.pool.missing(sequence, hits, sequence.tokens)

    def _hold(self, sequence: Sequence, hits: int) -> None:
        """Give *sequence*, just admitted, its first blocks: the cached ones."""
        self.pool.claim(sequence, hits)
        sequence.held = hits

    def _held(self, sequence: Sequence) -> int:
        """Return the number of blocks that the decoding *sequence* holds."""
        return sequence.held

    def _chunk(self, tokens: int, budget: int) -> int:
        """Return how many of the *tokens* left of a prompt are computed within *budget*; 0 if the prompt must wait.

        A whole prompt beyond every budget is computed by itself.
        """
        if tokens <= budget:
            return tokens
        if self._chunked_prefill:
            return budget
        return tokens if tokens > self._max_num_batched_tokens and not self._chunks else 0

    def _admit(self, budget: int, now: float) -> None:
        """Admit waiting requests in order while token budget, batch places and blocks last.

        Requests that hold transferred blocks come first.
        """
        pool, waiting = self.pool, self.waiting
        transit = self._transit
        while transit is not None and transit.joining:
            if budget <= 0 or len(self.running) >= self.max_num_seqs:
                self.blocked_by = "budget" if budget <= 0 else "seats"
                return
            self._start_running(sequence := transit.joining.popleft(), 0, now)
            self._schedule_chunk(sequence, 1)
            budget -= 1
        while waiting:
            if budget <= 0 or len(self.running) >= self.max_num_seqs:
                self.blocked_by = "budget" if budget <= 0 else "seats"
                return
            head = waiting.head()
            if head is None:
                self.blocked_by = "adapters"
                return
            sequence = head
            hits = pool.lookup(sequence)
            below = pool.below(sequence, hits)
            known = (hits + below) * pool.block_size
            chunk = self._chunk(sequence.tokens - known, budget)
            padding = self._padding(sequence, known)
            if padding >= budget:
                chunk = 0
            if not chunk or self._missing(sequence, hits, below * pool.block_size + chunk + padding) > pool.free:
                self.blocked_by = "kv" if chunk else "budget"
                return
            self.read_s += pool.read(sequence, hits, below) + self._load_adapter(sequence)
            self._start_running(waiting.pop(), hits, now, below)
            self._schedule_chunk(sequence, chunk)
            if padding:
                self._pad(sequence, padding)
            budget -= chunk + padding

    def _padding(self, sequence: Sequence, known: int) -> int:
        """Return how many draft tokens *sequence* is padded with if it is admitted with its first *known* tokens."""
        return 0

    def _pad(self, sequence: Sequence, padding: int) -> None:  # noqa: B027
        """Add *padding* draft tokens to the chunk of *sequence*, just admitted."""

    def _continue_prompt(self, budget: int) -> int:
        """Continue the prompt that was cut. Return the rest of *budget*."""
        for sequence in self._prefilling:
            chunk = min(sequence.tokens - sequence.computed, budget)
            self._schedule_chunk(sequence, chunk)
            budget -= chunk
        return budget

    def _start_running(self, sequence: Sequence, hits: int, now: float, below: int = 0) -> None:
        """Start running *sequence*: its first *hits* blocks are cached, and *below* more have been read from tiers."""
        if not sequence.kv_transferred:
            self._hold(sequence, hits)
            sequence.computed = (hits + below) * self.pool.block_size
        self._admissions += 1
        self.cached_in_step += sequence.start_running(now, self._admissions)
        self.running[sequence] = None
        self._prefilling[sequence] = None

    def hand_over_prompt(self) -> Sequence | None:
        """Remove and return the prompt whose next chunk another lane may compute; None if prompts stay in their lane.

        Its chunk in flight stays here and counts as computed.
        """
        if not self._overlaps_chunks:
            return None
        for one in self._prefilling:  # at most one prompt is cut
            chunk = self.chunk_in_flight(one.request)
            if one.computed + chunk < one.tokens and one not in self._evicted:
                self._chunks = [(part.chunk_part() if part is one else part, new) for part, new in self._chunks]
                del self._prefilling[one], self.running[one]
                one.computed += chunk
                return one
        return None

    def take_over_prompt(self, sequence: Sequence) -> None:
        """Continue the prompt of *sequence*, which another lane has handed over."""
        self.running[sequence] = None
        self._prefilling[sequence] = None

    def abort_without_blocks(self) -> Request | None:
        """Remove and return the last request that could decode in this lane if its next token finds no block."""
        return None

    def chunk_in_flight(self, request: Request) -> int:
        """Return the prompt tokens of *request* in the step formed last."""
        return sum(chunk for one, chunk in self._chunks if one.request is request)

    def _schedule_chunk(self, sequence: Sequence, chunk: int) -> None:
        """Schedule the next *chunk* prompt tokens of *sequence* in the step being formed."""
        self.pool.name(sequence, sequence.computed + chunk)
        self._chunks.append((sequence, chunk))

    def _fill_decodes(self) -> None:
        """Write the sums over decoding sequences into `batch`."""
        batch = self.batch
        decoding = self._decoding
        batch.decode_seqs = batch.sampled_seqs = decoding
        batch.kv_tokens = self._base_sum + decoding * self._step
        if self._windows:
            batch.windowed_kv_tokens, batch.windowed_growing_seqs = self._windows.at(self._step)

    def _fill_no_decodes(self) -> None:
        """Clear the sums over decoding sequences in `batch`, for a step with prompts only."""
        batch = self.batch
        batch.decode_seqs = batch.sampled_seqs = batch.kv_tokens = 0
        batch.windowed_kv_tokens = batch.windowed_growing_seqs = 0

    def _fill_chunks(self) -> None:
        """Write the prompt chunks into `batch`, after the decodes."""
        batch = self.batch
        if not self._chunks and not batch.prefill_seqs:
            return
        batch.prefill_seqs = len(self._chunks)
        batch.prefill_tokens = batch.prefill_context_tokens = batch.prefill_attention_pairs = 0
        for sequence, chunk in self._chunks:
            computed = sequence.computed
            if sequence.kv_transferred:
                self._fill_continued(computed)
                continue
            add_prompt(batch, computed, chunk)
            batch.sampled_seqs += computed + chunk == sequence.tokens
            self.recomputed_in_step += recomputed_tokens(sequence, chunk)

    def _fill_continued(self, context: int) -> None:
        """Add a sequence that continues with transferred KV to `batch`: it decodes like the others."""
        batch = self.batch
        batch.prefill_seqs -= 1
        batch.decode_seqs += 1
        batch.sampled_seqs += 1
        add_decode(batch, context, self._windows.window if self._windows else None)

    def _steps_until_finish(self) -> int:
        """Return the steps that a decode-only batch may take until a finish or a context that reaches the window."""
        steps = self._finishing.next_step() - self._step
        return min(steps, self._windows.steps_until_change(self._step)) if self._windows else steps

    def commit(self, steps: int, end_s: float) -> list[Sequence]:
        """Complete *steps* steps, the last of which ends at *end_s*.

        Return the sequences that leave with their last token made here, in admission order.
        """
        finished: list[Sequence] = []
        if not self._decodes_wait:
            if steps > 1:
                self._take_leap(steps)
            self._step = step = self._step + steps
            finished = self._finishing.pop_reached(step)
        if self._chunks:
            for sequence, chunk in self._chunks:
                sequence.computed += chunk
                if sequence.computed == sequence.tokens and sequence not in self._evicted:
                    self._end_prefill(sequence, end_s, finished)
            self._chunks.clear()
        if self._evicted:  # as in vLLM, aborts are handled before a step's tokens
            self._drop_evicted()
        for sequence in finished:
            if not sequence.prompt_only:
                sequence.request.finished_s = end_s
            self._leave(sequence)
        self.settle_transit()
        return finished

    def _blocks_of_leap(self, steps: int) -> int:
        """Return the KV blocks that steps 2 to *steps* of a leap need: 0 where they are held from the start."""
        return 0

    def _take_leap(self, steps: int) -> None:
        self.pool.take(self._blocks_of_leap(steps))

    def _leave(self, sequence: Sequence) -> None:
        """Remove *sequence*, which leaves, from the batch and free its blocks."""
        held, computed = sequence.held, sequence.computed
        if sequence.decoding:
            held, computed = self._held(sequence), self._context(sequence, self._step)
            self._leave_decoding(sequence)
        if sequence.prompt_only:
            self.transit.leave_behind(sequence, held, computed)
        else:
            self.pool.release(sequence, held, False, computed)
        del self.running[sequence]

    def evict(self, request: Request, whole_steps: int, stepping: bool) -> ReplicaProgress:
        """Evict the running *request*. Return its progress after *whole_steps* of the current steps.

        It leaves now, or where this rank is *stepping* at the end of the current step.
        """
        sequence = next(one for one in self.running if one.request is request)
        sequence.prompt_only = False
        progress = self._progress(sequence, whole_steps)
        if sequence.decoding:
            self._finishing.remove(sequence)
        self._evicted = *self._evicted, sequence
        if not stepping:
            self._drop_evicted()
        return progress

    def _progress(self, sequence: Sequence, whole_steps: int) -> ReplicaProgress:
        if not sequence.decoding:
            return ReplicaProgress(sequence.computed, sequence.made)
        step = self._step + whole_steps + (sequence in self.shares.excluded(self._step))
        context = self._context(sequence, step)
        return ReplicaProgress(context, context + 1 - sequence.request.prompt_tokens)

    def _drop_evicted(self) -> None:
        for sequence in self._evicted:
            self._prefilling.pop(sequence, None)
            self._leave(sequence)
        self._evicted = ()

    def _end_prefill(self, sequence: Sequence, end_s: float, finished: list[Sequence]) -> None:
        """Start decoding *sequence*: the last chunk of its prompt also makes a token."""
        request = sequence.request
        if sequence in self._prefilling:
            del self._prefilling[sequence]
        if isnan(request.first_token_s):
            request.first_token_s = end_s
        sequence.made += 1
        left = sequence.output_tokens - sequence.made
        self._start_decoding(sequence, left)
        if left == 0:
            finished.append(sequence)
            return
        self._enter_decoding(sequence)
        self._finishing.add(sequence)

    def _start_decoding(self, sequence: Sequence, left: int) -> None:
        """Set base and finish step of *sequence*, whose prompt is computed, for the *left* tokens of its answer."""
        sequence.base = sequence.computed - self._step
        sequence.finish_step = self._step + left

    def _context(self, sequence: Sequence, step: int) -> int:
        """Return the tokens with KV of the decoding *sequence* at step counter *step*."""
        return sequence.base + step

    def span(self, start_s: float, end_s: float, steps: int, request_index: int = -1) -> StepSpan:
        """Return the span of the steps formed last, with the place of request number *request_index*."""
        prompts = {sequence.request.index: chunk for sequence, chunk in self._chunks if not sequence.kv_transferred}
        excluded = self.shares.excluded(self._step)
        able = () if self._decodes_wait else self.running
        indices = frozenset(s.request.index for s in able if (s.decoding or s.kv_transferred) and s not in excluded)
        return StepSpan(
            start_s, end_s, steps, copy(self.batch), self.blocked_by, prompts, indices, self.place(request_index)
        )

    def share_time(self, elapsed_s: float, last: bool = False) -> None:
        """Attribute the step's time up to *elapsed_s* after its start to its requests.

        *last*: and stop the attribution.
        """
        shares = self.shares
        if elapsed_s > shares.shared_s:
            shares.share(elapsed_s, self.batch, chunk_parts(self._chunks), shares.excluded(self._step))
        if last:
            shares.settle(self.running)

    def _enter_decoding(self, sequence: Sequence) -> None:
        sequence.decoding = True
        self.shares.start(sequence)
        self._decoding += 1
        self._base_sum += sequence.base
        if self._windows:
            self._windows.add(sequence)

    def _leave_decoding(self, sequence: Sequence) -> None:
        sequence.decoding = False
        self.shares.stop(sequence)
        self._decoding -= 1
        self._base_sum -= sequence.base
        if self._windows:
            self._windows.remove(sequence)


def switch_shares(rank: Scheduler, on: bool, elapsed_s: float) -> None:
    """Start or stop attributing the time of the rank's steps to requests, *elapsed_s* into a step."""
    if on:
        rank.shares.shared_s = elapsed_s
    else:
        rank.share_time(elapsed_s, last=True)
