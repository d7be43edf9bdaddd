"""vLLM's V1 scheduler for one rank, with and without asynchronous scheduling.

`Rank` follows `v1/core/sched/scheduler.py` (asynchronous scheduling off; docs/engine.md): who is in the next step, and
how many steps may pass before that changes. A step serves every running request in admission order, with blocks as it
needs them; where one finds none, a request is preempted and waits to compute prompt and tokens again; where that is
the request itself, the step goes on with the next. If nobody was preempted, waiting requests join while
`max_num_seqs`, token budget and blocks for the whole sequence last.

`AsyncRank` forms the next step while one runs (`v1/core/sched/async_scheduler.py`). Tokens count as computed once
they are scheduled, so a request that decodes is scheduled again before its last token is known. A request whose
last token is being made is in no further step, but keeps its place and its KV blocks until the token is there. A
preempted request still gets the token that was being made.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection
from math import inf, isnan, nan

from sim.engine.kv.blocks import Answers, BlockPool, NamedBlocks
from sim.engine.kv.decode_steps import BlockPhases, Slots
from sim.engine.limits import RankLimits
from sim.engine.metering import leap_s, steps_within
from sim.engine.schedulers.rank_schedule import RankSchedule
from sim.engine.schedulers.waiting_queue import AdapterQueue, WaitingQueue
from sim.engine.sequence import Sequence, chunk_parts
from sim.records import Batch, Leap, Progress, Request, Span


class Rank(RankSchedule):
    """One rank under vLLM's V1 rules."""

    __slots__ = (
        "_answers", "_interval", "_kept_free", "_left_waiting", "_long_prefill", "_longest_chunk", "_max_model_len",
        "_per_decode", "_phases", "_preempted_in_step", "_prompts_at", "_prompts_go_on", "_prompts_wait",
        "_reserves_all", "_short", "_taken", "_tiered", "_windowed",
    )  # fmt: skip

    def __init__(self, limits: RankLimits, pool: BlockPool, waiting: WaitingQueue) -> None:
        super().__init__(limits, pool, waiting)
        self._phases: BlockPhases | Slots = BlockPhases(pool.block_size)
        self._per_decode = 1
        """Tokens that a step computes for a sequence that decodes."""
        self._answers = Answers(pool) if isinstance(pool, NamedBlocks) else None
        self._preempted_in_step = False
        self._taken = 0
        """Tokens of running requests in the step being formed."""
        self._short = 0
        """Tokens by which the step being formed computes fewer than usual for those who decode."""
        self._kept_free = int(limits.options.watermark * limits.num_gpu_blocks)
        self._long_prefill = limits.options.long_prefill_token_threshold
        self._longest_chunk = limits.max_model_len
        """Most tokens of one prompt in the step being formed."""
        self._max_model_len = limits.max_model_len
        self._reserves_all = limits.options.reserves_all_tokens
        self._interval = limits.options.prefill_schedule_interval
        self._prompts_at = -self._interval
        """Counter of the last step that computed prompts; one with a single token to compute when admitted is none."""
        self._prompts_go_on = False
        """Whether the step being formed goes on with a prompt of an earlier step."""
        self._prompts_wait = False
        """The step being formed computes none, because of the interval."""
        self._windowed = False
        """Sequences give back blocks that lie before a window."""
        self._tiered = limits.new_tiers is not None
        self._left_waiting = False
        """The last step in which prompts did not wait for the interval left some in the queue that admission had not
        passed over: then none waits."""

    def may_admit(self, sequence: Sequence) -> bool:
        """See `Schedule.may_admit`."""
        budget = self._max_num_batched_tokens - self._decoding * self._per_decode
        if len(self.running) >= self.seats or budget <= 0:
            return False
        if self._interval > 1 or self._answers or sequence.brought or self._tiered:
            return True
        hits = self.pool.lookup(sequence)
        if self._reserves_all and self._chunked_prefill:
            return self._missing(sequence, hits, 0) <= self.pool.free
        tokens = sequence.tokens - hits * self.pool.block_size
        chunk = super()._chunk(min(tokens, self._long_prefill or tokens), budget)
        return bool(chunk) and self._missing(sequence, hits, chunk) <= self.pool.free

    def _chunk(self, tokens: int, budget: int) -> int:
        if self._prompts_wait and tokens > 1:
            return 0
        if tokens <= budget and tokens <= self._longest_chunk:
            return tokens
        return super()._chunk(min(tokens, self._longest_chunk), budget)

    def _missing(self, sequence: Sequence, hits: int, chunk: int) -> int:
        tokens = hits * self.pool.block_size + chunk
        if self._reserves_all and tokens < sequence.tokens:
            tokens = sequence.tokens
        missing = self.pool.missing(sequence, hits, tokens)
        return missing + self._kept_free if self.running else missing

    def reserve(self, request: Request, steps: int) -> bool:
        """Sets blocks aside for the KV of *request*'s prompt and of its first token, if enough are free in step *steps*
        of those under way and nobody waits for some; whether that was done.
        """
        if self.waiting:
            return False
        blocks = -(-(request.prompt_tokens + 1) // self.pool.block_size)
        free = self.pool.free - self.blocks_ahead(steps)
        if blocks + (self._kept_free if self.running else 0) > free:
            return False
        self.transit.reserve(request, blocks)
        return True

    def steps_with_blocks(self, steps: int) -> int:
        """How many of *steps* steps under way there are blocks for; the first has its own."""
        return 1 + self._phases.steps_with(self._step + 1, steps - 1, self.pool.free)

    def form(self, now: float) -> int:
        """See `Schedule.form`."""
        while True:
            steps = self._form(now)
            if steps or not self._preempted_in_step:
                return steps
            # nobody is left who decodes, and the prompts that waited for a later step need not wait any more

    def _form(self, now: float) -> int:
        self._preempted_in_step = False
        self._short = 0
        if not self.running and not self.waiting and not self.joining:
            return 0
        self._chunks.clear()
        self.recomputed_in_step = self.cached_in_step = 0
        self.read_s = 0.0
        if self._long_prefill or self._interval > 1:
            self._limit_prompts()
        self._prompts_go_on = False
        still = self._serve_running()
        self._prompts_go_on |= bool(self._chunks)
        self.blocked_by = ""
        if self._preempted_in_step:
            self.blocked_by = "kv"
        else:
            if self.waiting or self.joining or self.pool.listener is not None:
                self._name_answers(True)
            if self.waiting or self.joining:
                decoding = (self._decoding - len(still)) * self._per_decode - self._short
                self._taken = decoding + sum([chunk for _, chunk in self._chunks])
                self._admit(self._max_num_batched_tokens - self._taken, now)
            if self._interval > 1 and not self._prompts_wait:
                passed_over = len(self.waiting.passed_over) if isinstance(self.waiting, AdapterQueue) else 0
                self._left_waiting = len(self.waiting) > passed_over
        self._fill_decodes()
        if still:
            self._drop(still)
        self._fill_chunks()
        if self.adapters is not None:
            self.adapters.fill(self.batch, self.running, self._chunks, still, self._per_decode)
        if self._prompts_go_on or (
            self._interval > 1 and any(one.tokens - one.computed > 1 for one, _ in self._chunks)
        ):
            self._prompts_at = self._step
        if self._chunks:
            return 1
        if not self.batch.decode_seqs:
            return 0
        return 1 if self._preempted_in_step else self._steps_until_change()

    def _limit_prompts(self) -> None:
        """Whether prompts are computed in the step being formed, and how many tokens of one."""
        if self._interval > 1:
            soon = self._step - self._prompts_at < self._interval
            self._prompts_wait = soon and not self._left_waiting and self._somebody_decodes()
        if self._long_prefill:
            alone = len(self.running) + len(self.waiting) == 1
            self._longest_chunk = self._max_model_len if alone else self._long_prefill

    def _serve_running(self) -> list[Sequence]:
        """Gives every running request its block and those that compute their prompts their next chunks.

        Returns those who decode and are left out of the step: longer ago admitted prompts took its whole budget.
        """
        need = self._phases.blocks_at(self._step)
        sequence: Sequence | None = None
        chunk = chunk_blocks = 0
        if self._prefilling and not self._prompts_wait:
            sequence = next(iter(self._prefilling))
            if sequence is not next(reversed(self.running)):
                return self._serve_one_by_one()
            left = sequence.tokens - sequence.computed
            chunk = min(left, self._longest_chunk, self._max_num_batched_tokens - self._decoding * self._per_decode)
            chunk_blocks = self._blocks_for(sequence, chunk)
        if need + chunk_blocks > self.pool.free:
            return self._serve_one_by_one()
        if self._windowed:
            self._slide_all()
        if need:
            self.pool.take(need)
            self._phases.taken(self._step)
        if sequence is not None:
            if self._answers and sequence.request.block_hashes:
                self._name_answers(True)  # of two blocks with one name the older one answers
            self._schedule_chunk(sequence, chunk)
        return []

    def _blocks_for(self, sequence: Sequence, chunk: int) -> int:
        return -(-(sequence.computed + chunk) // self.pool.block_size) - sequence.held

    def _serve_one_by_one(self) -> list[Sequence]:
        """`_serve_running` where blocks or budget may be short: in admission order; victims are preempted."""
        pool, step, per_decode = self.pool, self._step, self._per_decode
        order = list(self.running)
        served: dict[Sequence, int] = {}
        budget, position = self._max_num_batched_tokens, 0
        self._name_answers(False)
        while position < len(order) and budget > 0:
            sequence = order[position]
            if sequence.decoding:
                tokens = per_decode if per_decode < budget else budget
                need = self._need(sequence, tokens)
            elif self._prompts_wait or sequence not in self._prefilling:
                position += 1
                continue
            else:
                tokens = min(sequence.tokens - sequence.computed, self._longest_chunk, budget)
                need = self._need_for_chunk(sequence, tokens)
            while pool.free < need:
                victim = self.waiting.victim(order)
                place = order.index(victim)
                del order[place]
                position -= place < position
                withdrawn = served.pop(victim, 0)
                self._preempt(victim, withdrawn)
                budget += withdrawn
                if victim is sequence:
                    break
            else:
                if sequence.decoding:
                    if need:
                        pool.take(need)
                    self._serve(sequence, tokens)
                    if self._answers:
                        pool.name(sequence, self._known(sequence, sequence.base + step, 1))
                else:
                    self._schedule_chunk(sequence, tokens)
                served[sequence] = tokens
                budget -= tokens
                position += 1
        return self._leave_out([sequence for sequence in order[position:] if sequence.decoding])

    def _leave_out(self, decoding: list[Sequence]) -> list[Sequence]:
        """*decoding* stand still in the step being formed: their dates move one step on."""
        if not decoding:
            return decoding
        for sequence in decoding:
            self._leave_decoding(sequence)
        self.shares.leave_out(decoding, self._step)
        for sequence in decoding:
            self._stand_still(sequence)
            self._enter_decoding(sequence)
        self._finishing.rebuild(sequence for sequence in self.running if sequence.decoding)
        return decoding

    def _preempt(self, sequence: Sequence, withdrawn: int) -> None:
        """Sends *sequence* back to the queue without its blocks; this step had given it *withdrawn* tokens already."""
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
                self._prompts_go_on = True
        # as in vLLM, a block has its name from the moment on that it is to be filled
        self.pool.release(sequence, sequence.held, True, known)
        sequence.high_water = max(sequence.high_water, computed)
        sequence.tokens = sequence.request.prompt_tokens + sequence.made
        sequence.computed = sequence.held = 0
        sequence.brought = False
        sequence.request.preemptions += 1
        self.preemptions += 1
        self._preempted_in_step = True
        del self.running[sequence]
        self.waiting.put_back(sequence)

    def _known(self, sequence: Sequence, computed: int, new: int) -> int:
        """How many of the *computed* and *new* tokens of *sequence* are known: their blocks have names."""
        return computed + new

    def _name_answers(self, served: bool) -> None:
        """Names what those who decode have filled, with the step being formed where they are *served* already."""
        if self._answers:
            self._answers.name(self._step + served)

    def _somebody_decodes(self) -> bool:
        return self._decoding > 0

    def _drop(self, still: list[Sequence]) -> None:
        """Takes the decoding sequences that stand still out of the sums of `batch`."""
        batch = self.batch
        batch.decode_seqs -= len(still)
        batch.sampled_seqs -= len(still)
        contexts = [self._context(sequence, self._step) for sequence in still]
        batch.kv_tokens -= sum(contexts)
        if self._windows:
            batch.windowed_kv_tokens -= sum(min(c, self._windows.window) for c in contexts)
            batch.windowed_growing_seqs -= sum(c < self._windows.window for c in contexts)

    def _steps_until_change(self) -> int:
        """Steps that a pure decode batch may take: until something about a sequence changes or a block is missing."""
        steps = self._steps_until_finish()
        if self._prompts_wait and (self.waiting or self._prefilling):
            steps = min(steps, self._prompts_at + self._interval - self._step)
        if self._answers and self.waiting and self.blocked_by not in ("seats", "adapters"):
            steps = int(min(steps, self._steps_until_found()))
        if steps > 1 and self.pool.listener is not None:
            steps = self._steps_unreported(steps)
        return self.steps_with_blocks(steps)

    def _steps_unreported(self, steps: int) -> int:
        """Return how many of *steps* steps pass before the listener of the cache is to be called: a step that names a
        block, or reallocates one with a name, is formed when it begins.
        """
        steps = max(1, int(min(steps, self._steps_until_named())))
        return 1 + self._phases.steps_taking(self._step + 1, steps - 1, self.pool.nameless(self.blocks_ahead(steps)))

    def _steps_until_named(self) -> float:
        """Steps until another block of an answer gets its name."""
        return self._answers.steps_until_named(self._step + 1) if self._answers else inf

    def _steps_until_found(self) -> float:
        """Steps until the head of the queue may find another block in the prefix cache."""
        return self._answers.steps_until_found(self.waiting.head(), self._step + 1) if self._answers else inf

    def blocks_ahead(self, steps: int) -> int:
        """See `Entrance.blocks_ahead`."""
        return self._phases.blocks_ahead(self._step + 1, steps - 1) if steps > 1 else 0

    def _blocks_of_leap(self, steps: int) -> int:
        return self._phases.blocks_of(self._step + 1, steps - 1)

    def _held(self, sequence: Sequence, served: int = 0) -> int:
        return -(-(sequence.base + self._step + served) // self.pool.block_size)

    def _need(self, sequence: Sequence, tokens: int) -> int:
        """Blocks that *sequence*, which decodes, needs for the next *tokens*."""
        return int((sequence.base + self._step) % self.pool.block_size == 0)

    def _need_for_chunk(self, sequence: Sequence, chunk: int) -> int:
        """Blocks that *sequence*, which computes its prompt, needs for the next *chunk*."""
        return self._blocks_for(sequence, chunk)

    def _slide_all(self) -> None:
        """Those who decode give back blocks that lie before a window."""

    def _serve(self, sequence: Sequence, tokens: int) -> None:
        """*sequence* decodes in the step being formed, which computes *tokens* for it."""

    def _stand_still(self, sequence: Sequence) -> None:
        """*sequence* comes no further in the step being formed."""
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
        if self._answers is not None and sequence.request.block_hashes:
            self._answers.add(sequence)

    def _leave_decoding(self, sequence: Sequence) -> None:
        super()._leave_decoding(sequence)
        self._phases.remove(sequence)
        if self._answers:
            self._answers.remove(sequence)

    def _leave(self, sequence: Sequence) -> None:
        self._name_answers(False)
        super()._leave(sequence)


class Steps(ABC):
    """Equal steps that follow each other, from their forming to their end."""

    __slots__ = ("closed", "leap", "start_s", "steps")

    def __init__(self, steps: int, leap: Leap) -> None:
        self.steps = steps
        self.leap = leap
        self.start_s = nan
        """nan until they run."""
        self.closed = False
        """The number of steps is settled: the step after the last one has been formed."""

    def whole(self, now: float, most: int) -> int:
        """Steps, at most *most*, that are over at *now*."""
        return steps_within(self.leap, now - self.start_s, most)

    def formed(self, now: float) -> int:
        """Steps whose blocks are taken by *now*: the first, or of those that are not closed the step after the one
        under way, too, which is formed when that one begins.
        """
        return 1 if self.closed or self.steps == 1 else min(2 + self.whole(now, self.steps - 1), self.steps)

    @abstractmethod
    def working(self) -> "Collection[Flight]":
        """These steps on each rank that has tokens in them."""

    @abstractmethod
    def close(self) -> None:
        """No further step is added, and those who were evicted leave before the next one is formed."""

    @abstractmethod
    def finish(self, end_s: float) -> tuple[list[Request], bool]:
        """They end at *end_s*: who leaves, and whether a step may change that has been formed since."""

    @abstractmethod
    def give_up(self, request: Request, whole: int) -> Progress:
        """See `AsyncRank.give_up`."""


class Flight(Steps):
    """The steps of one rank."""

    __slots__ = (
        "admissions", "batch", "blocked_by", "chunks", "finished", "first", "lost", "parts", "prompts_only", "rank",
        "recomputed_in_step", "standing",
    )  # fmt: skip

    def __init__(self, rank: "AsyncRank", steps: int, leap: Leap) -> None:
        super().__init__(steps, leap)
        self.rank = rank
        self.batch = rank.batch
        self.blocked_by = rank.blocked_by
        self.admissions = rank.admissions
        """Who was admitted later is not in it."""
        self.recomputed_in_step = rank.recomputed_in_step
        self.chunks = dict(chunks := rank.chunks)
        self.parts = chunk_parts(chunks) if chunks else []
        self.prompts_only = rank.prompts_only
        self.standing = rank.standing
        self.first: list[Sequence] = []
        """Whose prompts are computed at its end."""
        self.finished: list[Sequence] = []
        """Who gets its last token at its end."""
        self.lost = 0
        """Tokens of its last step that are nobody's."""

    def working(self) -> "tuple[Flight]":
        """See `Steps.working`."""
        return (self,)

    def close(self) -> None:
        """See `Steps.close`."""
        rank = self.rank
        rank.close(self)
        rank.drop_evicted(formed=False)
        rank.transit.settle()

    def finish(self, end_s: float) -> tuple[list[Request], bool]:
        """See `Steps.finish`."""
        rank = self.rank
        left = rank.finish(self, end_s)
        changed = rank.drop_evicted(formed=True) or bool(self.finished and rank.queued())
        rank.transit.settle()
        return left, changed

    def give_up(self, request: Request, whole: int) -> Progress:
        """See `Steps.give_up`."""
        return self.rank.give_up(request, self, whole)


class AsyncRank(Rank):
    """One rank whose steps are formed one ahead."""

    def __init__(self, limits: RankLimits, pool: BlockPool, waiting: WaitingQueue) -> None:
        super().__init__(limits, pool, waiting)
        self._leaving: dict[Sequence, None] = {}
        """Whose last token is being made."""
        self._runs: Flight | None = None
        """What runs while a step is formed."""
        self._clocks: list[tuple[Sequence, float | None]] = []
        """Who began to decode (None) or ceased to (its clock then) in steps whose time is not shared out yet."""
        self._coming: set[Sequence] = set()
        """Preempted while a token of theirs was being made."""
        self._gone: set[Sequence] = set()
        """Evicted while a token of theirs was being made: it is nobody's."""

    @property
    def chunks(self) -> list[tuple[Sequence, int]]:
        """Prompt chunks of the step formed last."""
        return self._chunks

    @property
    def admissions(self) -> int:
        """Number of the last admission."""
        return self._admissions

    @property
    def standing(self) -> Collection[Sequence]:
        """Who decodes and is left out of the step formed last."""
        if self.prompts_only:
            return {sequence: None for sequence in self.running if sequence.decoding}
        return self.shares.standing(self._step)

    @property
    def prompts_only(self) -> bool:
        """Whether all who decode are left out of the step formed last."""
        return self._decodes_wait

    def form(self, now: float) -> int:
        """See `Schedule.form`; `batch` is a new one."""
        self.batch = Batch()
        steps = self._form(now)
        # who leaves at the end of the step that runs may make room for the head of the queue
        return min(steps, 1) if self._leaving and (self.waiting or self.joining) else steps

    @property
    def preempted(self) -> bool:
        """Somebody was preempted in the step formed last: where it is empty, another one can be formed at once."""
        return self._preempted_in_step

    def close(self, flight: Flight) -> None:
        """The steps of *flight* are as many as it says, and the next one is to be formed."""
        steps = flight.steps
        if steps > 1:
            self._take_leap(steps)
        self._step += 0 if flight.prompts_only else steps
        flight.closed = True
        self._runs = flight
        finishing = self._finishing.pop_reached(self._step)
        if finishing:
            self._name_answers(False)  # others may ask for the blocks before the last token is there
        for sequence in finishing:
            sequence.held, sequence.computed = self._held(sequence), self._context(sequence, self._step)
            self._end_decoding(sequence)
            flight.finished.append(sequence)
        for sequence, chunk in self._chunks:
            sequence.computed += chunk
            if sequence.computed == sequence.tokens:
                flight.first.append(sequence)
                self._end_prefill(sequence, nan, flight.finished)
                if sequence.decoding and sequence in self._evicted:  # at the very begin of the flight
                    self._finishing.remove(sequence)
        self._chunks.clear()
        for sequence in flight.finished:
            self._leaving[sequence] = None

    def _end_decoding(self, sequence: Sequence) -> None:
        """*sequence* gets its last token in the step that begins: it is in no further one."""
        self._leave_decoding(sequence)

    def finish(self, flight: Flight, end_s: float) -> list[Request]:
        """*flight* ends at *end_s*: dates, and who leaves with its last token."""
        for sequence in flight.first:
            if isnan(sequence.request.first_token_s) and sequence not in self._gone:
                sequence.request.first_token_s = end_s
        self._settle_clocks()
        left = []
        for sequence in flight.finished:
            if sequence not in self._gone:
                if not sequence.prompt_only:
                    sequence.request.finished_s = end_s
                left.append(sequence.request)
            if sequence in self._leaving:
                del self._leaving[sequence]
                if sequence in self._gone and sequence.computed > sequence.tokens:
                    sequence.computed -= 1  # nobody reads the token that its last step computes
                self._leave(sequence)
        self._gone.clear()
        self._coming.clear()
        self._runs = None
        return left

    def flying(self, flight: Flight, asked: int) -> Span:
        """What runs, for whoever looks at single steps, and the place of request number *asked* when it was formed."""
        prompts = {sequence.request.index: chunk for sequence, chunk in flight.chunks.items() if not sequence.brought}
        goes_on = (one for one in flight.chunks if one.brought)
        others = [*(one for one in self.running if one.decoding), *self._leaving, *self._coming, *goes_on]
        decoding = frozenset(one.request.index for one in others if one not in flight.standing) - prompts.keys()
        end_s = flight.start_s + leap_s(flight.leap, flight.steps)
        later = any(one.request.index == asked and one.admission > flight.admissions for one in self.running)
        place = "queued" if later else self.place(asked)
        return Span(flight.start_s, end_s, flight.steps, flight.batch, flight.blocked_by, prompts, decoding, place)

    def give_up(self, request: Request, flight: Flight, whole: int) -> Progress:
        """*request* is evicted from the queue or from the batch while *flight* runs, *whole* steps of which are over;
        where it runs, it leaves with `drop_evicted`.
        """
        waiting = self.waiting.remove(request)
        if waiting is not None:
            self.pool.forget(waiting)
            self._gone.add(waiting)
            made = waiting.made
            return Progress(0, self._made_before(waiting, made) if waiting in self._coming else made)
        if (joining := self.turn_away(request)) is not None:
            return joining
        sequence = next((one for one in self.running if one.request is request), None)
        if sequence is None:  # preempted while its last token was being made
            sequence = next(one for one in flight.finished if one.request is request)
            self._gone.add(sequence)
            return Progress(0, self._made_before(sequence, sequence.output_tokens))
        sequence.prompt_only = False
        progress = self._progress_in(sequence, flight, whole)
        if sequence.decoding:
            self._finishing.remove(sequence)
        self._evicted.append(sequence)
        self._gone.add(sequence)
        return progress

    def _made_before(self, sequence: Sequence, made: int) -> int:
        """Tokens of *sequence*, which gave way, before what is under way brings them to *made*."""
        return made - 1

    def _progress_in(self, sequence: Sequence, flight: Flight, whole: int) -> Progress:
        if not flight.closed:
            return self._progress(sequence, whole)
        return self._progress_before_last(sequence, flight, whole)

    def _progress_before_last(self, sequence: Sequence, flight: Flight, whole: int) -> Progress:
        to_come = 0 if sequence in flight.standing else flight.steps - whole
        chunk = flight.chunks.get(sequence)
        tokens = to_come if chunk is None else chunk
        if sequence.decoding:
            made = sequence.output_tokens - (sequence.finish_step - self._step)
            return Progress(sequence.base + self._step - tokens, made - to_come)
        if sequence in self._leaving:
            return Progress(sequence.computed - tokens, sequence.output_tokens - to_come)
        return Progress(sequence.computed - (chunk or 0), sequence.made)

    def drop_evicted(self, formed: bool) -> bool:
        """Those who were evicted leave, before the next step is *formed* or after that; whether there were any."""
        if not self._evicted:
            return False
        for sequence in self._evicted:
            if sequence not in self.running:
                continue
            computed = sequence.computed + dict(self._chunks).get(sequence, 0)
            if sequence.decoding:
                in_step = formed and not self._decodes_wait
                computed = self._known_when_dropped(sequence, in_step)
                self._leave_decoding(sequence)
            self._prefilling.pop(sequence, None)
            self._chunks = [chunk for chunk in self._chunks if chunk[0] is not sequence]
            self.pool.release(sequence, sequence.held, False, computed)
            del self.running[sequence]
            self._leaving.pop(sequence, None)  # it was to get its only token
        self._evicted.clear()
        return True

    def _known_when_dropped(self, sequence: Sequence, in_step: bool) -> int:
        """How many tokens of *sequence*, which decodes and leaves, are known; sets the blocks that it holds."""
        computed = sequence.base + self._step - (not in_step)
        sequence.held = -(-(computed + 1) // self.pool.block_size)
        return computed

    def _preempt(self, sequence: Sequence, withdrawn: int) -> None:
        if self._token_coming(sequence):
            self._coming.add(sequence)
        if sequence not in self._leaving:
            super()._preempt(sequence, withdrawn)
            return
        # its last token comes all the same
        known = self._known(sequence, sequence.computed, withdrawn)
        del self._leaving[sequence], self.running[sequence]
        self.pool.release(sequence, sequence.held, False, known)
        sequence.request.preemptions += 1
        self.preemptions += 1
        self._preempted_in_step = True

    def _token_coming(self, sequence: Sequence) -> bool:
        """Whether the steps under way make a token for *sequence*."""
        if self._runs is None:
            return False
        return sequence in self._leaving or (sequence.decoding and sequence not in self._runs.standing)

    def _known(self, sequence: Sequence, computed: int, new: int) -> int:
        if self._runs is None or not self._token_coming(sequence):
            return computed + new
        return computed if new or sequence in self._runs.chunks else computed - 1

    def _name_answers(self, served: bool) -> None:
        if not self._answers:
            return
        if self._runs is None:
            self._answers.name(self._step + served)
        else:
            self._answers.name(self._step - (not served), self._runs.standing)

    def _steps_until_found(self) -> float:
        named = self._step + (self._runs is None)
        return self._answers.steps_until_found(self.waiting.head(), named) if self._answers else inf

    def _steps_until_named(self) -> float:
        if not self._answers:
            return inf
        runs = self._runs
        return self._answers.steps_until_named(self._step + (runs is None), runs.standing if runs else ())

    def _somebody_decodes(self) -> bool:
        return bool(self._decoding or self._leaving)

    def _start_clock(self, sequence: Sequence) -> None:
        sequence.token_s = nan
        self._clocks.append((sequence, None))

    def _stop_clock(self, sequence: Sequence) -> None:
        self._clocks.append((sequence, sequence.token_s))

    def _settle_clocks(self) -> None:
        """The time of the steps that ended is shared out."""
        now = self.shares.token_s
        for sequence, since_s in self._clocks:
            if since_s is None:
                sequence.token_s = now
            elif not isnan(since_s):  # else it began in these steps, too
                sequence.busy.decode_s += now - since_s
        self._clocks.clear()
