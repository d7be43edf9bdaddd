"""vLLM's scheduler where several batches are in flight: the stages of a pipeline.

As `v1/core/sched/scheduler.py` has it, tokens count as computed once they are scheduled, so the chunks of one prompt
follow each other through the stages, and a request that decodes is in one batch at a time, unless steps are formed
ahead. A preempted request still gets the token that was being made, and joins again once nothing of it is in flight.
`DecodeCohort` keeps requests that decode in one batch after the other, so that a batch is a few sums.
"""

from collections import deque
from itertools import pairwise
from math import inf, isnan

from sim.engine.kv.blocks import BlockPool
from sim.engine.kv.decode_steps import ADMISSION
from sim.engine.limits import SchedulerLimits
from sim.engine.schedulers.prompt_pacing import PromptPacing
from sim.engine.schedulers.waiting_queue import WaitingQueue
from sim.engine.sequence import Sequence, add_decode, add_prompt, chunk_parts, place, recomputed_tokens
from sim.records import Batch, Leap, Request, StepSpan


class InFlightSequence(Sequence):
    """A request that may be in several batches at once."""

    __slots__ = (
        "cohort",
        "eligible",
        "flying",
        "gone",
        "junction",
        "last_end_s",
        "named",
        "passed_over",
        "placeholders",
        "stale",
    )

    def __init__(self, request: Request, prompt_only: bool = False) -> None:
        super().__init__(request, prompt_only)
        self.placeholders = 0
        """Tokens of the answer that are being made, where steps are formed ahead."""
        self.flying = 0
        """Scheduled tokens whose batch has not ended."""
        self.stale = 0
        """Of these, those scheduled before a preemption."""
        self.passed_over = False
        """Whether admission went on to requests behind this one since it was last admitted."""
        self.eligible = 0
        """Call of the scheduler from which on it may decode again, where steps are formed ahead."""
        self.junction = 0
        """Tokens of its prompt behind which its state is to be kept, because others have computed as much."""
        self.named = 0
        """Tokens whose blocks have their names."""
        self.last_end_s = 0.0
        """When its last token leaves the last stage."""
        self.gone = False
        self.cohort: DecodeCohort | None = None
        """With whom it decodes; what follows from the batches of all is not in its own fields then."""


def pass_through(free_s: list[float], ready_s: float, leap: Leap, pieces: int = 1) -> float:
    """When a batch whose step is *leap* leaves the last stage, if it may enter the first one at *ready_s* [s].

    *free_s* says when each stage is free, and does so afterwards. A batch waits for each stage, not for a place behind
    it. Of several *pieces* each is handed on as soon as a stage has it.
    """
    stage_s, enters_s = leap.first_s - leap.last_s / len(free_s), ready_s
    for stage, stage_free_s in enumerate(free_s):
        enters_s = max(enters_s, stage_free_s)
        free_s[stage] = enters_s + stage_s
        enters_s += stage_s / pieces
    free_s[-1] += leap.last_s
    return free_s[-1]


class PipelineTiming:
    """The way of one batch through the stages."""

    __slots__ = ("end_s", "entered_s", "load", "stage_s")

    def __init__(self) -> None:
        self.entered_s = self.stage_s = self.load = 0.0
        self.end_s = inf
        """When it leaves the last stage; inf while it is not in flight."""

    def enter(self, leap: Leap, free_s: list[float], ready_s: float, pieces: int = 1) -> None:
        """The batch, whose step is *leap*, may enter the first stage at *ready_s*; see `pass_through`."""
        self.stage_s, self.load = leap.first_s, leap.load
        self.entered_s = max(ready_s, free_s[0])
        self.end_s = pass_through(free_s, ready_s, leap, pieces)

    def busy_s(self, now: float) -> float:
        """Return the time for which the batch has kept a stage busy at *now* [s]."""
        return self.stage_s * min(1.0, max(0.0, (now - self.entered_s) / (self.end_s - self.entered_s)))


class InFlightBatch(PipelineTiming):
    """A batch in flight."""

    __slots__ = (
        "_admissions", "batch", "blocked_by", "chunks", "cohort", "number", "parts", "ready_s", "recomputed_in_step",
        "sampled", "shared_s",
    )  # fmt: skip

    def __init__(self, chunks: dict[InFlightSequence, int], window: int, blocked_by: str) -> None:
        super().__init__()
        self.chunks = chunks
        """Of all but the cohort."""
        self.cohort: DecodeCohort | None = None
        self.number = 0
        """Of the cohort's batches."""
        self.ready_s = 0.0
        """When the tokens that the cohort goes on from have left the last stage."""
        self._admissions: list[int] = []
        self.blocked_by = blocked_by
        self.batch = batch = _batch(chunks, window) if chunks else Batch()
        prompts = [(one, new) for one, new in chunks.items() if not one.decoding] if batch.prefill_seqs else []
        self.parts = chunk_parts(prompts)
        self.recomputed_in_step = sum([recomputed_tokens(one, new) for one, new in prompts])
        self.sampled: set[InFlightSequence] = set()
        """Who gets a token at its end."""
        self.shared_s = 0.0

    def board(self, cohort: "DecodeCohort", count: int, kv_tokens: int) -> None:
        """The *count* members of *cohort* with *kv_tokens* of context are in it, too."""
        batch = self.batch
        batch.decode_seqs += count
        batch.sampled_seqs += count
        batch.kv_tokens += kv_tokens
        self.cohort, self.number = cohort, cohort.scheduled
        if count:
            self.ready_s = cohort.last_end_s
            self._admissions = [one.admission for one in self.chunks]

    def add(self, one: InFlightSequence) -> None:
        """*one*, which has left the cohort, is in it by itself."""
        self.chunks[one] = 1
        self._admissions.append(one.admission)
        self.sampled.add(one)

    def in_order(self) -> list[tuple[InFlightSequence, int]]:
        """Chunks in the order in which their requests had been admitted when it was scheduled."""
        chunks, numbers = list(self.chunks.items()), self._admissions
        if all(a < b for a, b in pairwise(numbers)):
            return chunks
        return [chunks[place] for place in sorted(range(len(chunks)), key=numbers.__getitem__)]

    def span(self, place: str) -> StepSpan:
        """The batch, for whoever looks at single steps, and the *place* of request number *request_index*."""
        prompts = {sequence.request.index for sequence, *_ in self.parts}
        indices = {one.request.index: new for one, new in self.chunks.items()}
        chunks = {index: new for index, new in indices.items() if index in prompts}
        decoding = frozenset(indices) - prompts
        return StepSpan(self.entered_s, self.end_s, 1, self.batch, self.blocked_by, chunks, decoding, place)


class DecodeCohort:
    """Requests that decode together, batch after batch, as long as nobody is preempted: a batch is a few sums.

    Who joins keeps what it had then; what the cohort's batches have added is made good when it parts from it.
    """

    __slots__ = (
        "_ahead", "_alone", "_due", "_ending", "_flying", "_kv_tokens", "_named_at", "eligible", "last_end_s",
        "members", "received", "scheduled", "served",
    )  # fmt: skip

    def __init__(self, block_size: int, ahead: bool, alone: dict[InFlightSequence, None]) -> None:
        """*alone* has the running requests that are in no cohort: members are taken out of it, and return to it."""
        self._alone = alone
        self.members: dict[InFlightSequence, tuple[int, int]] = {}
        """Each with the number of its first batch here and of the first one after its last."""
        self.scheduled = self.received = 0
        """Batches that were scheduled, and of these those that have ended."""
        self.served = 0
        """Batches that the members hold KV blocks for: those that were scheduled, and the one being formed."""
        self.eligible = 0
        """See `InFlightSequence.eligible`."""
        self.last_end_s = 0.0
        """When the last tokens leave the last stage."""
        self._ahead = ahead
        self._named_at = 0
        """Batches that had ended when the last one was scheduled."""
        self._flying: deque[InFlightBatch] = deque()
        self._due: list[dict[InFlightSequence, None]] = [{} for _ in range(block_size)]
        """Who needs a block for the batches with this number, modulo the size of a block."""
        self._ending: dict[int, dict[InFlightSequence, None]] = {}
        """Who gets its last token in the batch before the one with this number."""
        self._kv_tokens = 0

    def may_go_on(self, calls: int) -> bool:
        """Whether call number *calls* of the scheduler may schedule it."""
        return calls >= self.eligible if self._ahead else self.received == self.scheduled

    @property
    def due(self) -> dict[InFlightSequence, None]:
        """Who needs a block for the next batch."""
        return self._due[self.scheduled % len(self._due)]

    def join(self, one: InFlightSequence, left: int) -> None:
        """*one*, which was in its last batch, decodes with it in *left* further ones."""
        end = self.scheduled + left
        self.members[one] = self.scheduled, end
        self._due[(self.scheduled - one.computed) % len(self._due)][one] = None
        self._ending.setdefault(end, {})[one] = None
        self._kv_tokens += one.computed
        one.cohort = self
        del self._alone[one]

    def board(self, launch: InFlightBatch, eligible: int) -> None:
        """Its next batch is *launch*, with whoever is in that already; it may go on in call *eligible*."""
        count = len(self.members)
        launch.board(self, count, self._kv_tokens)
        self._kv_tokens += count
        self._flying.append(launch)
        self.scheduled += 1
        self.served = self.scheduled
        self.eligible, self._named_at = eligible, self.received
        if self.scheduled in self._ending:
            for one in list(self._ending[self.scheduled]):
                self.part(one)

    def land(self) -> None:
        """Its oldest batch has left the last stage."""
        self._flying.popleft()
        self.received += 1

    def dissolve(self) -> None:
        """All part."""
        for one in list(self.members):
            self.part(one)

    def part(self, one: InFlightSequence) -> None:
        """*one* goes on by itself, also in the batches that are in flight."""
        since, end = self.members.pop(one)
        del self._ending[end][one]
        if not self._ending[end]:
            del self._ending[end]
        new, made = self.scheduled - since, max(0, self.received - since)
        size = len(self._due)
        del self._due[(since - one.computed) % size][one]
        one.held = -(-(one.computed + self.served - since) // size)
        one.computed += new
        one.flying += new - made
        one.tokens += made
        one.made += made
        self._kv_tokens -= one.computed
        if new:  # a batch names what is known when it is scheduled
            one.named = max(one.named, one.tokens - max(0, self.received - max(self._named_at, since - 1)))
        if self._ahead:
            one.placeholders += new - made
            one.eligible = self.eligible
            one.named = max(one.named, one.computed - one.flying) if made else one.named
        one.last_end_s = self.last_end_s
        one.cohort = None
        self._alone[one] = None
        for launch in self._flying:
            if launch.number >= since:
                launch.add(one)


def _batch(chunks: dict[InFlightSequence, int], window: int) -> Batch:
    batch = Batch()
    sampled = 0
    for one, new in chunks.items():
        context = one.computed
        sampled += context + new == one.tokens + one.placeholders
        if one.decoding:
            add_decode(batch, context, window)
        else:
            batch.prefill_seqs += 1
            add_prompt(batch, context, new)
    batch.decode_seqs, batch.sampled_seqs = len(chunks) - batch.prefill_seqs, sampled
    return batch


class PipelineScheduler:
    """Who is in the next batch."""

    TOGETHER = True
    """Whether who decodes does so in cohorts."""

    def __init__(self, limits: SchedulerLimits, pool: BlockPool, waiting: WaitingQueue, ahead: int) -> None:
        self.limits, self.pool, self.waiting = limits, pool, waiting
        self.running: dict[InFlightSequence, None] = {}
        """In admission order."""
        self._alone: dict[InFlightSequence, None] = {}
        """Running requests that are in no cohort."""
        self.preemptions = 0
        self.blocked_by = ""
        self.cached_in_step = 0
        self._ahead = ahead
        """Calls of the scheduler until who decodes may do so again, where steps are formed ahead; 0: they are not."""
        self._preempted = False
        self._prompt_withdrawn = False
        """Whether the batch being formed contained a prompt chunk of a request that it preempted later."""
        self._calls = self._steps = 0
        self._kept_free = int(limits.options.watermark * limits.num_gpu_blocks)
        self._pacing = PromptPacing(limits)
        self._admissions = 0
        self._together = self.TOGETHER and not limits.window
        self._cohorts: list[DecodeCohort] = []
        """Each with members."""

    def form(self, now: float) -> InFlightBatch | None:
        """The next batch; None if there is nothing to schedule."""
        limits = self.limits
        self._calls += 1
        self._preempted = self._prompt_withdrawn = False
        self.blocked_by = ""
        self.cached_in_step = 0
        pacing = self._pacing
        if pacing.limited:
            pacing.begin_step(self._steps, len(self.running) + len(self.waiting), self._any_decoding)
        cohort = self._cohort()
        if self._decodes_only(cohort):
            return None if cohort is None else self._form_decodes(cohort)
        chunks: dict[InFlightSequence, int] = {}
        budget = self._serve_running(chunks, cohort)
        prompts = pacing.spaced and (self._prompt_withdrawn or any(not one.decoding for one in chunks))
        if self._preempted:
            self.blocked_by = "kv"
        else:
            self._admit(chunks, budget, now)
            if pacing.spaced:
                pacing.admitted(left=self.waiting.first(lambda one: not one.passed_over) is not None)
        if not chunks and (cohort is None or not cohort.members):
            return None
        launch = InFlightBatch(chunks, limits.window or 0, self.blocked_by)
        if prompts or (pacing.spaced and any(not one.decoding and one.tokens - one.computed > 1 for one in chunks)):
            pacing.computes(self._steps)
        self._steps += 1
        self._count(launch)
        self._gather(launch, cohort)
        return launch

    def _decodes_only(self, cohort: DecodeCohort | None) -> bool:
        """Return whether nothing but *cohort* can be in the next batch, and its members find the blocks they need."""
        if self._alone or self._pacing.limited or (self.waiting and len(self.running) < self.limits.max_num_seqs):
            return False
        return cohort is None or len(cohort.due) <= self.pool.free

    def _form_decodes(self, cohort: DecodeCohort) -> InFlightBatch:
        """Form a batch of the members of *cohort* alone."""
        if self.waiting:
            self.blocked_by = "seats" if len(cohort.members) < self.limits.max_num_batched_tokens else "budget"
        if blocks := len(cohort.due):
            self.pool.take(blocks)
        launch = InFlightBatch({}, 0, self.blocked_by)
        self._steps += 1
        cohort.board(launch, self._calls + self._ahead)
        if not cohort.members:
            self._cohorts.remove(cohort)
        return launch

    def _any_decoding(self) -> bool:
        return any(one.decoding for one in self.running)

    def by_itself(self, on: bool) -> None:
        """Whether from now on each request is looked at by itself."""
        self._together = self.TOGETHER and not self.limits.window and not on
        self.dissolve()

    def dissolve(self) -> None:
        """Everybody goes on by itself."""
        for cohort in self._cohorts:
            cohort.dissolve()
        self._cohorts.clear()

    def _cohort(self) -> DecodeCohort | None:
        """The one that decodes in this batch. Where there are several, or the budget may not last, everybody goes on
        by itself.
        """
        calls = self._calls
        ready = [one for one in self._cohorts if one.members and one.may_go_on(calls)]
        if len(ready) > 1 or (self._cohorts and not self._within_budget(ready)):
            self.dissolve()
            return None
        return ready[0] if ready else None

    def _within_budget(self, ready: list[DecodeCohort]) -> bool:
        """Whether the budget lasts for all who run, those of the cohorts that are not *ready* apart."""
        total = sum([len(cohort.members) for cohort in ready])
        if not self._alone:
            return total <= self.limits.max_num_batched_tokens
        most, last, left = self._pacing.longest_chunk, next(reversed(self.running), None), 1
        for one in self._alone:
            new = one.tokens + one.placeholders - one.computed
            total += new if new < most else most
            if one is last and new > 1:  # it computes what the others leave
                left = min(new, most)
        return total - left < self.limits.max_num_batched_tokens

    def _gather(self, launch: InFlightBatch, cohort: DecodeCohort | None) -> None:
        """Those of *launch* who decode from now on do so together."""
        if not self._together:
            return
        together = cohort if cohort is not None else DecodeCohort(self.pool.block_size, self._ahead > 0, self._alone)
        alone = list(launch.chunks)
        together.board(launch, self._calls + self._ahead)
        for one in alone:
            left = one.output_tokens - one.made - (one.placeholders if self._ahead else 1)
            if one.decoding and left > 0 and one.named >= one.request.shared_tokens:
                together.join(one, left)
        if cohort is None:
            self._cohorts.append(together)
        self._cohorts = [one for one in self._cohorts if one.members]

    def place(self, request_index: int) -> str:
        """Where request number *request_index* is: running, queued or nowhere (empty)."""
        return place(request_index, self.waiting.has(request_index), self.running)

    def _count(self, launch: InFlightBatch) -> None:
        """The new tokens of *launch* count as computed."""
        ahead, eligible = self._ahead, self._calls + self._ahead
        for one, new in launch.chunks.items():
            one.computed += new
            one.flying += new
            one.decoding = one.computed >= one.tokens + one.placeholders
            if one.decoding:
                launch.sampled.add(one)
                if ahead:
                    one.placeholders += 1
                    one.eligible = eligible

    def _serve_running(self, chunks: dict[InFlightSequence, int], cohort: DecodeCohort | None) -> int:
        """Schedules who runs, in admission order; the budget that is left."""
        budget, position, calls = self.limits.max_num_batched_tokens, 0, self._calls
        if cohort is not None:
            self._serve(cohort)
            budget -= len(cohort.members)
        order = sorted(self._alone, key=ADMISSION) if self._cohorts else list(self.running)
        while position < len(order) and budget > 0:
            one = order[position]
            position += 1
            if calls < one.eligible:
                continue
            coming = one.placeholders
            new = one.tokens + coming - one.computed
            if not new or (coming and one.made + coming >= one.output_tokens):
                continue
            if not one.decoding:
                new = self._cut(one, one.computed, min(new, self._pacing.longest_chunk, budget))
                if not new or self._pacing.wait:
                    continue
            elif self._goes_on(one):
                chunks[one] = 1
                budget -= 1
                continue
            blocks = self._need(one, new)
            while self.pool.free < blocks:
                victim = self.waiting.victim(list(self.running))
                if victim.cohort is None:
                    place = order.index(victim)
                    del order[place]
                    position -= place < position
                    withdrawn = chunks.pop(victim, 0)
                    budget += withdrawn
                    self._prompt_withdrawn |= withdrawn > 0 and not victim.decoding
                else:
                    budget += victim.cohort is cohort
                    victim.cohort.part(victim)
                self._preempt(victim)
                if victim is one:
                    break
            else:
                self._give(one, blocks, new)
                chunks[one] = new
                budget -= new
        return budget

    def _serve(self, cohort: DecodeCohort) -> None:
        """The members of *cohort* have the blocks for its next batch; where there may be too few for all who run, those
        who need one part from it.
        """
        alone, size = 0, self.pool.block_size
        for one in self._alone:
            alone += (one.tokens + one.placeholders - one.computed) // size + 1
        due = cohort.due
        if len(due) + alone > self.pool.free:
            for one in list(due):
                cohort.part(one)
        elif due:
            self.pool.take(len(due))
        cohort.served = cohort.scheduled + 1

    def _goes_on(self, one: InFlightSequence) -> bool:
        """Whether the next token of *one*, which decodes, fits into the blocks that it holds: then it has it."""
        known = one.computed + 1
        if known > one.held * self.pool.block_size:
            return False
        if one.named < one.tokens:
            self._name(one, known if known < one.tokens else one.tokens)
        return True

    def _need(self, one: InFlightSequence, new: int) -> int:
        """Blocks that *one* needs for the next *new* tokens."""
        size = self.pool.block_size
        beyond = one.computed + new - one.held * size
        return -(-beyond // size) if beyond > 0 else 0

    def _joins(self, one: InFlightSequence, hits: int, new: int) -> int:
        """Free blocks that must be there for *one* to join with *new* tokens."""
        tokens = one.tokens if self.limits.options.reserves_all_tokens else hits * self.pool.block_size + new
        return self.pool.missing(one, hits, tokens)

    def _give(self, one: InFlightSequence, blocks: int, new: int) -> None:
        if blocks > 0:
            self.pool.take(blocks)
            one.held += blocks
        known = one.computed + new
        self._name(one, known if known < one.tokens else one.tokens)

    def _name(self, one: InFlightSequence, tokens: int) -> None:
        if tokens > one.named:
            one.named = tokens
            self.pool.name(one, tokens)

    def _preempt(self, one: InFlightSequence) -> None:
        self.pool.release(one, one.held, True, one.named)
        one.high_water = max(one.high_water, one.computed)
        one.stale, one.placeholders = one.flying, 0
        one.computed = one.held = one.named = 0
        one.decoding = False
        one.request.preemptions += 1
        self.preemptions += 1
        self._preempted = True
        del self.running[one], self._alone[one]
        self.waiting.put_back(one)

    def _admit(self, chunks: dict[InFlightSequence, int], budget: int, now: float) -> None:
        """Waiting requests join in order; one with tokens in flight is passed over."""
        limits, pool = self.limits, self.pool
        while self.waiting:
            if budget <= 0 or len(self.running) >= limits.max_num_seqs:
                self.blocked_by = "budget" if budget <= 0 else "seats"
                return
            one = self.waiting.first(self._may_join)
            if one is None:
                return
            hits = pool.lookup(one)
            new = self._cut(one, hits * pool.block_size, self._chunk(one.tokens - hits * pool.block_size, budget))
            missing = self._joins(one, hits, new) + (self._kept_free if self.running else 0)
            if not new or missing > pool.free:
                self.blocked_by = "kv" if new else "budget"
                return
            self.waiting.remove(one.request)
            self._start_running(one, hits, now)
            self._give(one, self._need(one, new), new)
            chunks[one] = new
            budget -= new

    @staticmethod
    def _may_join(one: InFlightSequence) -> bool:
        """Return whether no token of *one* that was scheduled before a preemption is in flight."""
        one.passed_over = one.passed_over or one.stale > 0
        return not one.stale

    def _chunk(self, left: int, budget: int) -> int:
        if self._pacing.wait and left > 1:
            return 0
        left = min(left, self._pacing.longest_chunk)
        return min(left, budget) if self.limits.chunked_prefill or left <= budget else 0

    def _cut(self, one: InFlightSequence, start: int, new: int) -> int:
        """How many of the *new* tokens of *one* behind the first *start* the step computes."""
        return new

    def _start_running(self, one: InFlightSequence, hits: int, now: float) -> None:
        self.pool.claim(one, hits)
        one.held, one.computed, one.passed_over = hits, hits * self.pool.block_size, False
        self._admissions += 1
        self.cached_in_step += one.start_running(now, self._admissions)
        self.running[one] = self._alone[one] = None

    def update(self, launch: InFlightBatch, end_s: float) -> list[Request]:
        """*launch* leaves the last stage; the requests that leave with it."""
        if launch.cohort is not None:
            launch.cohort.land()
        if not launch.chunks:
            return []
        left, sampled = [], launch.sampled
        for one, new in launch.in_order():
            one.flying -= new
            stale = one.stale > 0
            if stale:
                one.stale -= new
            if one in sampled and not one.gone and self._get_token(one, stale, end_s):
                left.append(one.request)
        return left

    def _get_token(self, one: InFlightSequence, stale: bool, end_s: float) -> bool:
        """Whether it was the last one."""
        one.made += 1
        one.tokens += 1
        if one.placeholders:
            one.placeholders -= 1
        if isnan(one.request.first_token_s):
            one.request.first_token_s = end_s
        if self._ahead and not stale:
            self._name(one, one.computed - one.flying)
        if one.made < one.output_tokens:
            return False
        if not one.prompt_only:
            one.request.finished_s = end_s
        if one in self.running:
            self.leave(one)
        else:
            self.waiting.remove(one.request)
        return True

    def leave(self, one: InFlightSequence) -> None:
        """*one*, which runs, leaves: seat and blocks are free again."""
        self.pool.release(one, one.held, False, one.named)
        del self.running[one], self._alone[one]
