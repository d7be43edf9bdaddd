"""vLLM's V1 scheduler for one rank, with and without asynchronous scheduling.

`VllmScheduler` follows `v1/core/sched/scheduler.py` (docs/engine.md): which requests are in the next step, and how many
steps may pass before that changes. A step serves every running request in admission order, with blocks as it needs
them. Where one finds no block, a request is preempted, and later computes its prompt and tokens again; if that is the
request itself, the step continues with the next one. If no request was preempted, waiting requests join while
`max_num_seqs`, token budget and blocks for the whole sequence last.

`InFlightStep` is the step that runs while a rank forms the next one (`v1/core/sched/async_scheduler.py`). Tokens count
as computed once they are scheduled, so a decoding request is scheduled again before its last token is known. A request
whose last token is being made is in no further step, but keeps its batch place and its KV blocks until the token is
there. A preempted request still gets the token that was being made.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection
from math import inf, isnan, nan

from sim.engine.kv.blocks import BlockPool, DecodedBlockHashes, NamedBlocks
from sim.engine.kv.decode_steps import BlockPhases
from sim.engine.limits import SchedulerLimits
from sim.engine.metering import leap_s, steps_within
from sim.engine.schedulers.prompt_pacing import pacing_of
from sim.engine.schedulers.scheduler import Scheduler
from sim.engine.schedulers.waiting_queue import AdapterQueue, FcfsQueue, WaitingQueue
from sim.engine.sequence import AsyncRequestGpuTime, Sequence, add_decode, chunk_parts
from sim.native import mypyc_attr
from sim.records import Batch, Leap, ReplicaProgress, Request, StepSpan


# mypyc: users may register a subclass
@mypyc_attr(allow_interpreted_subclasses=True)
class VllmScheduler(Scheduler):
    """Scheduler of one rank under vLLM's V1 rules.

    With asynchronous scheduling, `flight` has the current steps while the next ones are formed.
    """

    __slots__ = (
        "_continues_prompts", "_latest_first", "_pacing", "_per_decode", "_phases", "_preempted_in_step",
        "_reserves_all", "_running_tokens", "_shared_answers", "_tiered", "_tokens_short", "_watermark_blocks",
        "_windowed", "flight",
    )  # fmt: skip

    def __init__(self, limits: SchedulerLimits, pool: BlockPool, waiting: WaitingQueue, ahead: bool = False) -> None:
        """Set up the rank; *ahead*: steps are formed one ahead, by `form_ahead`."""
        super().__init__(limits, pool, waiting)
        self.flight: InFlightStep | None = None
        """Current steps, whose number is final, while the next ones are formed."""
        if ahead:
            self.shares = AsyncRequestGpuTime()
        self._phases = BlockPhases(pool.block_size)
        self._shared_answers = DecodedBlockHashes(pool) if isinstance(pool, NamedBlocks) else None
        self._pacing = pacing_of(limits)
        self._preempted_in_step = False
        self._continues_prompts = False
        """True if the step being formed continues a prompt of an earlier step."""
        self._windowed = False
        """True if sequences free blocks that lie before a window."""
        self._tokens_short = 0
        """Difference between the usual tokens of decoding sequences and those that the step being formed computes."""
        self._per_decode = 1
        """Tokens that a step computes for a decoding sequence."""
        self._running_tokens = 0
        """Tokens of running requests in the step being formed."""
        self._watermark_blocks = int(limits.options.watermark * limits.num_gpu_blocks)
        self._reserves_all = limits.options.reserves_all_tokens
        self._tiered = limits.new_tiers is not None
        self._latest_first = type(self) is VllmScheduler and type(waiting) is FcfsQueue
        """True if the request admitted last is preempted first, and steps compute one token per decoding sequence."""

    def may_admit(self, sequence: Sequence) -> bool:
        """See `Scheduler.may_admit`."""
        budget = self._max_num_batched_tokens - self._decoding * self._per_decode
        if len(self.running) >= self.max_num_seqs or budget <= 0:
            return False
        if self._pacing.spaced or self._shared_answers or sequence.kv_transferred or self._tiered:
            return True
        hits = self.pool.lookup(sequence)
        if self._reserves_all and self._chunked_prefill:
            return self._missing(sequence, hits, 0) <= self.pool.free
        tokens = sequence.tokens - hits * self.pool.block_size
        chunk = super()._chunk(self._pacing.most_of_first(tokens), budget)
        return bool(chunk) and self._missing(sequence, hits, chunk) <= self.pool.free

    def _chunk(self, tokens: int, budget: int) -> int:
        return super()._chunk(self._pacing.most_now(tokens), budget)

    def _missing(self, sequence: Sequence, hits: int, chunk: int) -> int:
        tokens = hits * self.pool.block_size + chunk
        if self._reserves_all and tokens < sequence.tokens:
            tokens = sequence.tokens
        missing = self.pool.missing(sequence, hits, tokens)
        return missing + self._watermark_blocks if self.running else missing

    def reserve(self, request: Request, steps: int) -> bool:
        """Reserve blocks for the KV of *request*'s prompt and of its first token.

        Return whether enough blocks are free in step *steps* of the current ones and no request waits for blocks.
        """
        if self.waiting:
            return False
        blocks = -(-(request.prompt_tokens + 1) // self.pool.block_size)
        free = self.pool.free - self.blocks_ahead(steps)
        if blocks + (self._watermark_blocks if self.running else 0) > free:
            return False
        self.transit.reserve(request, blocks)
        return True

    def steps_with_blocks(self, steps: int) -> int:
        """Return for how many of *steps* current steps there are blocks; the first one has its own."""
        return 1 + self._phases.steps_with(self._step + 1, steps - 1, self.pool.free)

    def form(self, now: float) -> int:
        """See `Scheduler.form`."""
        while True:
            steps = self._form(now)
            if steps or not self._preempted_in_step:
                return steps
            # no decoding request is left, so prompts that waited for a later step need not wait any longer

    def form_ahead(self, now: float) -> int:
        """Form the step after the current ones in a new `batch`. Return how many such steps may pass before it changes.

        Return 0 if there is no work or, where `preempted`, if another step can be formed at once.
        """
        self.batch = Batch()
        steps = self._form(now)
        # requests that leave at the end of the current step may make room for the head of the queue
        return min(steps, 1) if self._awaits_last_tokens() and (self.waiting or self.joining) else steps

    def _awaits_last_tokens(self) -> bool:
        return self.flight is not None and bool(self.flight.leaving)

    @property
    def preempted(self) -> bool:
        """True if a request was preempted in the step formed last."""
        return self._preempted_in_step

    def _form(self, now: float) -> int:
        self._preempted_in_step = False
        self._tokens_short = 0
        if not self.running and not self.waiting and not self.joining:
            return 0
        self._chunks.clear()
        self.recomputed_in_step = self.cached_in_step = 0
        self.read_s = 0.0
        pacing = self._pacing
        if pacing.limited:
            pacing.begin_step(self._step, len(self.running) + len(self.waiting), self._any_decoding)
        self._continues_prompts = False
        excluded = self._serve_running()
        self._continues_prompts |= bool(self._chunks)
        self.blocked_by = ""
        if self._preempted_in_step:
            self.blocked_by = "kv"
        else:
            queued = bool(self.waiting) or bool(self.joining)
            if queued or self.pool.listener is not None:
                self._name_answers(True)
            if queued:
                self._running_tokens = (self._decoding - len(excluded)) * self._per_decode - self._tokens_short
                for _, chunk in self._chunks:
                    self._running_tokens += chunk
                self._admit(self._max_num_batched_tokens - self._running_tokens, now)
            if pacing.spaced:
                passed_over = len(self.waiting.passed_over) if isinstance(self.waiting, AdapterQueue) else 0
                pacing.admitted(left=len(self.waiting) > passed_over)
        self._fill_decodes()
        if excluded:
            self._drop(excluded)
        self._fill_chunks()
        if self.adapters is not None:
            self.adapters.fill(self.batch, self.running, self._chunks, excluded, self._per_decode)
        if pacing.spaced and (self._continues_prompts or any(one.tokens - one.computed > 1 for one, _ in self._chunks)):
            pacing.computes(self._step)
        if self._chunks:
            return 1
        if not self.batch.decode_seqs:
            return 0
        return 1 if self._preempted_in_step else self._steps_until_change()

    def _serve_running(self) -> list[Sequence]:
        """Give every running request its blocks, and prompts in progress their next chunks.

        Return the decoding sequences that are not in the step because prompts admitted earlier have used its whole
        budget.
        """
        need = self._phases.blocks_at(self._step)
        sequence: Sequence | None = None
        chunk = chunk_blocks = 0
        if self._prefilling and not self._pacing.wait:
            sequence = next(iter(self._prefilling))
            if sequence is not next(reversed(self.running)):
                return self._serve_one_by_one()
            left = sequence.tokens - sequence.computed
            budget = self._max_num_batched_tokens - self._decoding * self._per_decode
            chunk = min(left, self._pacing.longest_chunk, budget)
            chunk_blocks = self._blocks_for(sequence, chunk)
        if need + chunk_blocks > self.pool.free:
            return self._serve_one_by_one()
        if self._windowed:
            self._slide_all()
        if need:
            self.pool.take(need)
            self._phases.taken(self._step)
        if sequence is not None:
            if self._shared_answers and sequence.request.block_hashes:
                self._name_answers(True)  # of two blocks with one name, lookups find the older one
            self._schedule_chunk(sequence, chunk)
        return []

    def _blocks_for(self, sequence: Sequence, chunk: int) -> int:
        return -(-(sequence.computed + chunk) // self.pool.block_size) - sequence.held

    def _serve_one_by_one(self) -> list[Sequence]:
        """Serve running requests in admission order where blocks or budget may be short, with preemption."""
        pool, step, per_decode, answers = self.pool, self._step, self._per_decode, self._shared_answers
        order = list(self.running)
        served: list[int] = []  # tokens of order[:position]
        budget, position = self._max_num_batched_tokens, 0
        if self._latest_first and not answers:
            return self._serve_in_order(order)
        self._name_answers(False)
        while position < len(order) and budget > 0:
            sequence = order[position]
            if sequence.decoding:
                tokens = per_decode if per_decode < budget else budget
                need = self._need(sequence, tokens)
            elif self._pacing.wait or sequence not in self._prefilling:
                served.append(0)
                position += 1
                continue
            else:
                tokens = min(sequence.tokens - sequence.computed, self._pacing.longest_chunk, budget)
                need = self._need_for_chunk(sequence, tokens)
            while pool.free < need:
                victim = self.waiting.victim(order)
                place = len(order) - 1 if victim is order[-1] else order.index(victim)
                del order[place]
                withdrawn = 0
                if place < position:
                    withdrawn = served.pop(place)
                    position -= 1
                self._preempt(victim, withdrawn)
                budget += withdrawn
                if victim is sequence:
                    break
            else:
                if sequence.decoding:
                    if need:
                        pool.take(need)
                    self._serve(sequence, tokens)
                    if answers:
                        pool.name(sequence, self._known(sequence, sequence.base + step, 1))
                else:
                    self._schedule_chunk(sequence, tokens)
                served.append(tokens)
                budget -= tokens
                position += 1
        return self._exclude([sequence for sequence in order[position:] if sequence.decoding])

    def _serve_in_order(self, order: list[Sequence]) -> list[Sequence]:
        """Serve *order* as `_serve_one_by_one` does, where the request admitted last is preempted first.

        Requests before the one to be served are never preempted then, so only requests that need blocks are visited.
        """
        pool, step, size = self.pool, self._step, self.pool.block_size
        places = [place for place, one in enumerate(order) if not one.decoding or (one.base + step) % size == 0]
        budget, passed, end = self._max_num_batched_tokens, 0, len(order)
        for place in places:  # order[passed:place] decode without new blocks; order[end:] has been preempted
            if place >= end or budget <= place - passed:
                break
            budget -= place - passed
            passed = place + 1
            sequence, tokens, need = order[place], 1, 1
            if not sequence.decoding:
                if self._pacing.wait or sequence not in self._prefilling:
                    continue
                tokens = min(sequence.tokens - sequence.computed, self._pacing.longest_chunk, budget)
                need = self._need_for_chunk(sequence, tokens)
            while pool.free < need and end > place:
                end -= 1
                self._preempt(order[end], 0)
            if end <= place:
                break
            if sequence.decoding:
                pool.take(1)
            else:
                self._schedule_chunk(sequence, tokens)
            budget -= tokens
        return self._exclude([sequence for sequence in order[passed + budget : end] if sequence.decoding])

    def _exclude(self, decoding: list[Sequence]) -> list[Sequence]:
        """Exclude *decoding* from the step being formed: their finish steps move by one."""
        if not decoding:
            return decoding
        for sequence in decoding:
            self._leave_decoding(sequence)
        self.shares.exclude(decoding, self._step)
        for sequence in decoding:
            self._delay(sequence)
            self._enter_decoding(sequence)
        self._finishing.rebuild(sequence for sequence in self.running if sequence.decoding)
        return decoding

    def _preempt(self, sequence: Sequence, withdrawn: int) -> None:
        """Preempt *sequence*, which has *withdrawn* tokens in this step; a token being made for it still arrives."""
        flight = self.flight
        if flight is not None:
            if self._token_in_flight(sequence):
                flight.preempted = *flight.preempted, sequence
            if sequence in flight.leaving:
                self._preempt_leaving(sequence, withdrawn, flight)
                return
        self._requeue(sequence, withdrawn)

    def _preempt_leaving(self, sequence: Sequence, withdrawn: int, flight: "InFlightStep") -> None:
        """Free the blocks of *sequence*, whose last token *flight* makes."""
        known = self._known(sequence, sequence.computed, withdrawn)
        del flight.leaving[sequence], self.running[sequence]
        self.pool.release(sequence, sequence.held, False, known)
        sequence.request.preemptions += 1
        self.preemptions += 1
        self._preempted_in_step = True

    def _token_in_flight(self, sequence: Sequence) -> bool:
        """Return whether the current steps make a token for *sequence*."""
        flight = self.flight
        if flight is None:
            return False
        return sequence in flight.leaving or (sequence.decoding and sequence not in flight.excluded)

    def _requeue(self, sequence: Sequence, withdrawn: int) -> None:
        """Return *sequence* to the queue without its blocks; it has *withdrawn* tokens in this step."""
        computed = self._context(sequence, self._step) if sequence.decoding else sequence.computed
        known = self._known(sequence, computed, withdrawn)
        if sequence.decoding:
            sequence.held = self._held(sequence, withdrawn)
            sequence.made = computed + 1 - sequence.request.prompt_tokens
            self._leave_decoding(sequence)
            self._finishing.remove(sequence)
        else:
            del self._prefilling[sequence]
            if withdrawn:
                self._chunks.remove((sequence, withdrawn))
                self._continues_prompts = True
        # as in vLLM, a block is named as soon as it is scheduled to be filled
        self.pool.release(sequence, sequence.held, True, known)
        sequence.high_water = max(sequence.high_water, computed)
        sequence.tokens = sequence.request.prompt_tokens + sequence.made
        sequence.computed = sequence.held = 0
        sequence.kv_transferred = False
        sequence.request.preemptions += 1
        self.preemptions += 1
        self._preempted_in_step = True
        del self.running[sequence]
        self.waiting.put_back(sequence)

    def _known(self, sequence: Sequence, computed: int, new: int) -> int:
        """Return how many *computed* and *new* tokens of *sequence* are known, so that their blocks have names."""
        flight = self.flight
        if flight is None or not self._token_in_flight(sequence):
            return computed + new
        return computed if new or sequence in flight.chunks else computed - 1

    def _name_answers(self, served: bool) -> None:
        """Name the blocks that decoding sequences have filled; *served*: those of the step being formed, too."""
        if not self._shared_answers:
            return
        if self.flight is None:
            self._shared_answers.name(self._step + served)
        else:
            self._shared_answers.name(self._step - (not served), self.flight.excluded)

    def _any_decoding(self) -> bool:
        return self._decoding > 0 or self._awaits_last_tokens()

    def _drop(self, excluded: list[Sequence]) -> None:
        """Subtract the decoding sequences that are not in the step from the sums of `batch`."""
        batch = self.batch
        batch.decode_seqs -= len(excluded)
        batch.sampled_seqs -= len(excluded)
        window = self._windows.window if self._windows else None
        for sequence in excluded:
            add_decode(batch, self._context(sequence, self._step), window, -1)

    def _steps_until_change(self) -> int:
        """Return the steps that a decode-only batch may take until a sequence changes or a block is missing."""
        steps = self._steps_until_finish()
        if self._pacing.wait and (self.waiting or self._prefilling):
            steps = min(steps, self._pacing.steps_to_wait(self._step))
        if self._shared_answers and self.waiting and self.blocked_by not in ("seats", "adapters"):
            steps = int(min(steps, self._steps_until_found()))
        if steps > 1 and self.pool.listener is not None:
            steps = self._steps_unreported(steps)
        return self.steps_with_blocks(steps)

    def _steps_unreported(self, steps: int) -> int:
        """Return how many of *steps* steps pass before the listener of the cache is to be called.

        A step that names a block, or reallocates a named one, is formed when it starts.
        """
        steps = max(1, int(min(steps, self._steps_until_named())))
        return 1 + self._phases.steps_taking(self._step + 1, steps - 1, self.pool.nameless(self.blocks_ahead(steps)))

    def _steps_until_named(self) -> float:
        """Return the number of steps until another block of an answer is named."""
        if not self._shared_answers:
            return inf
        if self.flight is None:
            return self._shared_answers.steps_until_named(self._step + 1)
        return self._shared_answers.steps_until_named(self._step, self.flight.excluded)

    def _steps_until_found(self) -> float:
        """Return the number of steps until the head of the queue may find another block in the prefix cache."""
        named = self._step + (self.flight is None)
        return self._shared_answers.steps_until_found(self.waiting.head(), named) if self._shared_answers else inf

    def blocks_ahead(self, steps: int) -> int:
        """See `Scheduler.blocks_ahead`."""
        return self._phases.blocks_ahead(self._step + 1, steps - 1) if steps > 1 else 0

    def _blocks_of_leap(self, steps: int) -> int:
        return self._phases.blocks_of(self._step + 1, steps - 1)

    def _held(self, sequence: Sequence, served: int = 0) -> int:
        return -(-(sequence.base + self._step + served) // self.pool.block_size)

    def _need(self, sequence: Sequence, tokens: int) -> int:
        """Return the blocks that the decoding *sequence* needs for the next *tokens*."""
        return int((sequence.base + self._step) % self.pool.block_size == 0)

    def _need_for_chunk(self, sequence: Sequence, chunk: int) -> int:
        """Return the blocks that *sequence*, which computes its prompt, needs for the next *chunk*."""
        return self._blocks_for(sequence, chunk)

    def _slide_all(self) -> None:
        """Free the decoding sequences' blocks that lie before a window: none here."""

    def _serve(self, sequence: Sequence, tokens: int) -> None:
        """Record that the step being formed computes *tokens* for the decoding *sequence*."""

    def _delay(self, sequence: Sequence) -> None:
        """Delay *sequence* by one step: it is not in the step being formed."""
        sequence.base -= 1
        sequence.finish_step += 1

    def _schedule_chunk(self, sequence: Sequence, chunk: int) -> None:
        blocks = self._blocks_for(sequence, chunk)
        if blocks > 0:
            self.pool.take(blocks)
            sequence.held += blocks
        super()._schedule_chunk(sequence, chunk)

    def _enter_decoding(self, sequence: Sequence) -> None:
        super()._enter_decoding(sequence)
        self._phases.add(sequence)
        if self._shared_answers is not None and sequence.request.block_hashes:
            self._shared_answers.add(sequence)

    def _leave_decoding(self, sequence: Sequence) -> None:
        super()._leave_decoding(sequence)
        self._phases.remove(sequence)
        if self._shared_answers:
            self._shared_answers.remove(sequence)

    def _leave(self, sequence: Sequence) -> None:
        self._name_answers(False)
        super()._leave(sequence)

    def closing(self, flight: "InFlightStep") -> None:
        """Record what the steps of *flight* change beside computed tokens, just before it is closed."""

    def end_decoding(self, sequence: Sequence, flight: "InFlightStep") -> None:
        """End the decoding of *sequence*, whose last token *flight* makes: it is in no further step."""
        self._leave_decoding(sequence)

    def made_before(self, sequence: Sequence, made: int, flight: "InFlightStep") -> int:
        """Return the tokens that the preempted *sequence* had made before *flight*, which brings them to *made*."""
        return made - 1

    def progress_before_last(self, sequence: Sequence, flight: "InFlightStep", whole: int) -> ReplicaProgress:
        """Return the progress of *sequence* after *whole* steps of *flight*, which is closed."""
        to_come = 0 if sequence in flight.excluded else flight.steps - whole
        chunk = flight.chunks.get(sequence)
        tokens = to_come if chunk is None else chunk
        if sequence.decoding:
            made = sequence.output_tokens - (sequence.finish_step - self._step)
            return ReplicaProgress(sequence.base + self._step - tokens, made - to_come)
        if sequence in flight.leaving:
            return ReplicaProgress(sequence.computed - tokens, sequence.output_tokens - to_come)
        return ReplicaProgress(sequence.computed - (chunk or 0), sequence.made)

    def known_tokens_when_dropped(self, sequence: Sequence, in_step: bool) -> int:
        """Return the known tokens of the decoding *sequence*, which leaves, and set the blocks that it holds."""
        computed = sequence.base + self._step - (not in_step)
        sequence.held = -(-(computed + 1) // self.pool.block_size)
        return computed

    def forget(self, sequence: Sequence) -> None:
        """Forget *sequence*, which has left."""


class EqualSteps(ABC):
    """Consecutive equal steps, from their forming to their end."""

    __slots__ = ("closed", "leap", "start_s", "steps")

    def __init__(self, steps: int, leap: Leap) -> None:
        self.steps = steps
        self.leap = leap
        self.start_s = nan
        """Start of the first step; nan until it runs [s]."""
        self.closed = False
        """True once the number of steps is final: the step after the last one has been formed."""

    def whole(self, now: float, most: int) -> int:
        """Return the number of steps, at most *most*, completed at *now*."""
        return steps_within(self.leap, now - self.start_s, most)

    def formed(self, now: float) -> int:
        """Return the number of steps whose blocks are taken by *now*.

        These are the first step and, while the steps are not closed, the one after the current step, which is formed
        when that starts.
        """
        return 1 if self.closed or self.steps == 1 else min(2 + self.whole(now, self.steps - 1), self.steps)

    @abstractmethod
    def working(self) -> "Collection[InFlightStep]":
        """Return these steps on each rank that has tokens in them."""

    @abstractmethod
    def close(self) -> None:
        """Make the number of steps final; evicted sequences leave before the next step is formed."""

    @abstractmethod
    def finish(self, end_s: float) -> tuple[list[Request], bool]:
        """Complete the steps at *end_s*. Return the finished requests, and whether the step formed since may change."""

    @abstractmethod
    def evict(self, request: Request, whole: int) -> ReplicaProgress:
        """Evict *request* after *whole* steps. Return its progress."""


class InFlightStep(EqualSteps):
    """Current steps of one rank, and their changes while the next ones are formed."""

    __slots__ = (
        "_chunks", "_dropped", "admitted", "batch", "blocked_by", "contexts_before", "dropped_tokens", "excluded",
        "finished", "first", "leaving", "parts", "preempted", "prompts_only", "rank", "recomputed_in_step",
    )  # fmt: skip

    def __init__(self, rank: VllmScheduler, steps: int, leap: Leap) -> None:
        super().__init__(steps, leap)
        self.rank = rank
        self.batch = rank.batch
        self.blocked_by = rank.blocked_by
        self.admitted = rank.admitted
        """Number of admissions up to these steps, which is that of the last request admitted."""
        self.recomputed_in_step = rank.recomputed_in_step
        self.parts = chunk_parts(rank._chunks) if rank._chunks else []
        self._chunks: dict[Sequence, int] | None = None
        self.prompts_only = rank._decodes_wait
        """True if no decoding sequence is in the steps."""
        self.excluded: Collection[Sequence] = rank.shares.excluded(rank._step)
        """Decoding sequences that are not in the steps."""
        if self.prompts_only:
            self.excluded = {sequence: None for sequence in rank.running if sequence.decoding}
        self.first: list[Sequence] = []
        """Sequences whose prompts are complete at the end."""
        self.finished: list[Sequence] = []
        """Sequences that get their last tokens at the end."""
        self.leaving: dict[Sequence, None] = {}
        """Finished sequences that hold a batch place and KV blocks until the end."""
        self.preempted: tuple[Sequence, ...] = ()
        """Requests that were preempted while a token was being made for them."""
        self._dropped: tuple[Sequence, ...] = ()
        """Requests that were evicted: the tokens being made for them are dropped."""
        self.contexts_before: dict[Sequence, int] = {}
        """Contexts before the last step of requests that leave or were preempted in it, where a step makes drafts."""
        self.dropped_tokens = 0
        """Tokens of the last step that no request gets."""

    @property
    def chunks(self) -> dict[Sequence, int]:
        """Tokens of the prompt chunk of each sequence that has one."""
        if self._chunks is None:  # few steps need it
            self._chunks = {one: new + again + continued for one, new, again, continued in self.parts}
        return self._chunks

    def working(self) -> "tuple[InFlightStep]":
        """See `EqualSteps.working`."""
        return (self,)

    def close(self) -> None:
        """See `EqualSteps.close`."""
        rank, steps = self.rank, self.steps
        rank.closing(self)
        if steps > 1:
            rank._take_leap(steps)
        rank._step += 0 if self.prompts_only else steps
        self.closed = True
        rank.flight = self
        finishing = rank._finishing.pop_reached(rank._step)
        if finishing:
            # names the blocks now, since other requests may look them up before the last token is made
            rank._name_answers(False)
        for sequence in finishing:
            sequence.held, sequence.computed = rank._held(sequence), rank._context(sequence, rank._step)
            rank.end_decoding(sequence, self)
            self.finished.append(sequence)
        for sequence, chunk in rank._chunks:
            sequence.computed += chunk
            if sequence.computed == sequence.tokens:
                self.first.append(sequence)
                rank._end_prefill(sequence, nan, self.finished)
                if sequence.decoding and sequence in rank._evicted:  # evicted at the start of these steps
                    rank._finishing.remove(sequence)
        rank._chunks.clear()
        for sequence in self.finished:
            self.leaving[sequence] = None
        self._drop_evicted(formed=False)
        rank.settle_transit()

    def finish(self, end_s: float) -> tuple[list[Request], bool]:
        """See `EqualSteps.finish`."""
        rank, gone = self.rank, self._dropped
        for sequence in self.first:
            if isnan(sequence.request.first_token_s) and sequence not in gone:
                sequence.request.first_token_s = end_s
        if isinstance(rank.shares, AsyncRequestGpuTime):
            rank.shares.end_steps()
        left = []
        for sequence in self.finished:
            if sequence not in gone:
                if not sequence.prompt_only:
                    sequence.request.finished_s = end_s
                left.append(sequence.request)
            if sequence in self.leaving:
                del self.leaving[sequence]
                if sequence in gone and sequence.computed > sequence.tokens:
                    sequence.computed -= 1  # the KV of the last token is never read
                rank._leave(sequence)
        rank.flight = None
        changed = self._drop_evicted(formed=True) or bool(self.finished and rank.queued())
        rank.settle_transit()
        return left, changed

    def span(self, request_index: int) -> StepSpan:
        """Return the span of the current steps, with the place of request *request_index* when they were formed."""
        rank = self.rank
        prompts = {
            sequence.request.index: chunk for sequence, chunk in self.chunks.items() if not sequence.kv_transferred
        }
        goes_on = (one for one in self.chunks if one.kv_transferred)
        others = [*(one for one in rank.running if one.decoding), *self.leaving, *self.preempted, *goes_on]
        served = (one.request.index for one in others if one not in self.excluded)
        decoding = frozenset(index for index in served if index not in prompts)
        end_s = self.start_s + leap_s(self.leap, self.steps)
        later = any(one.request.index == request_index and one.admission > self.admitted for one in rank.running)
        place = "queued" if later else rank.place(request_index)
        return StepSpan(self.start_s, end_s, self.steps, self.batch, self.blocked_by, prompts, decoding, place)

    def has(self, request: Request) -> bool:
        """Return whether *request* waits or runs on this rank, or gets its last token in these steps."""
        rank = self.rank
        known = (*rank.running, *rank.joining, *self.finished)
        return rank.waiting.has(request.index) or any(one.request is request for one in known)

    def evict(self, request: Request, whole: int) -> ReplicaProgress:
        """See `EqualSteps.evict`. A running request leaves when the next step is formed."""
        rank = self.rank
        waiting = rank.waiting.remove(request)
        if waiting is not None:
            rank.pool.forget(waiting)
            self._dropped = *self._dropped, waiting
            made = waiting.made
            return ReplicaProgress(0, rank.made_before(waiting, made, self) if waiting in self.preempted else made)
        if (joining := rank.remove_waiting(request)) is not None:
            return joining
        sequence = next((one for one in rank.running if one.request is request), None)
        if sequence is None:  # preempted while its last token was being made
            sequence = next(one for one in self.finished if one.request is request)
            self._dropped = *self._dropped, sequence
            return ReplicaProgress(0, rank.made_before(sequence, sequence.output_tokens, self))
        sequence.prompt_only = False
        progress = rank.progress_before_last(sequence, self, whole) if self.closed else rank._progress(sequence, whole)
        if sequence.decoding:
            rank._finishing.remove(sequence)
        rank._evicted = *rank._evicted, sequence
        self._dropped = *self._dropped, sequence
        return progress

    def _drop_evicted(self, formed: bool) -> bool:
        """Remove the evicted sequences, before the next step is *formed* or after that.

        Return whether there were any.
        """
        rank = self.rank
        if not rank._evicted:
            return False
        for sequence in rank._evicted:
            if sequence not in rank.running:
                continue
            computed = sequence.computed + dict(rank._chunks).get(sequence, 0)
            if sequence.decoding:
                computed = rank.known_tokens_when_dropped(sequence, formed and not rank._decodes_wait)
                rank._leave_decoding(sequence)
            rank._prefilling.pop(sequence, None)
            rank._chunks = [chunk for chunk in rank._chunks if chunk[0] is not sequence]
            rank.pool.release(sequence, sequence.held, False, computed)
            del rank.running[sequence]
            self.leaving.pop(sequence, None)  # present if the sequence was waiting for its only token
            rank.forget(sequence)
        rank._evicted = ()
        return True
