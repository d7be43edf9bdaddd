"""vLLM's scheduler for pipeline stages: it forms batches while earlier ones are in flight.

As in `v1/core/sched/scheduler.py`, tokens count as computed once they are scheduled. The chunks of one prompt therefore
follow each other through the stages, and a decoding request is in one batch at a time, unless steps are formed ahead. A
preempted request still receives the token in flight, and is admitted again once none of its tokens is in flight.

Requests that decode in the same batches form a `DecodeCohort`. It keeps totals, so that its next batch takes the same
time to form whatever the number of members:

    batch number        7        8        9       10
    cohort           a b c    a b c    a b c    a b c d     totals only: members, KV tokens, blocks due
    by themselves      d        d                           d: prompt chunks until batch 8, then a member
"""

from collections import deque
from itertools import pairwise
from math import inf, isnan

from sim.engine.kv.blocks import BlockPool
from sim.engine.kv.decode_steps import ADMISSION
from sim.engine.limits import SchedulerLimits
from sim.engine.schedulers.prompt_pacing import pacing_of
from sim.engine.schedulers.waiting_queue import WaitingQueue
from sim.engine.sequence import Sequence, add_decode, add_prompt, chunk_parts, place, recomputed_tokens
from sim.records import Batch, Leap, Request, StepSpan


class InFlightSequence(Sequence):
    """Progress of a request that may be in several batches at once."""

    __slots__ = (
        "cohort",
        "eligible",
        "evicted",
        "junction",
        "last_end_s",
        "named",
        "passed_over",
        "placeholders",
        "stale",
        "tokens_in_flight",
    )

    def __init__(self, request: Request, prompt_only: bool = False) -> None:
        super().__init__(request, prompt_only)
        self.placeholders = 0
        """Tokens of the answer that are being made, where steps are formed ahead."""
        self.tokens_in_flight = 0
        """Scheduled tokens whose batch has not ended."""
        self.stale = 0
        """Number of in-flight tokens that were scheduled before the request was preempted."""
        self.passed_over = False
        """True if admission has skipped this request since it was last admitted."""
        self.eligible = 0
        """Number of the first scheduler call that may schedule its next token, if steps are formed ahead."""
        self.junction = 0
        """Prompt prefix after which its state is kept, because other requests share this prefix [tokens]."""
        self.named = 0
        """Number of leading tokens whose blocks have names in the prefix cache."""
        self.last_end_s = 0.0
        """End of the batch that makes its latest token [s]."""
        self.evicted = False
        self.cohort: DecodeCohort | None = None
        """Cohort that it decodes in; the progress made there is in the cohort's totals, not in the fields here."""


def pass_through(free_s: list[float], ready_s: float, leap: Leap, pieces: int = 1) -> float:
    """Send a batch through the stages and return when it leaves the last one [s].

    *free_s* are the times at which the stages become free [s], updated in place. The batch may enter the first stage at
    *ready_s*. Of several *pieces* a stage passes each on as soon as it is computed.

    Stage *i* starts the batch at `max(end of stage i - 1, free_s[i])`; the queues between stages are unbounded. Stages
    take `leap.stages_more_s` longer than the mean, and the last one `leap.last_s` longer than the others. A stage
    computes the last piece after the stage before it has.
    """
    mean_s, enters_s = leap.first_s - leap.last_s / len(free_s), ready_s
    before_s = ready_s
    for stage, stage_free_s in enumerate(free_s):
        stage_s, after_s = mean_s, 0.0
        if leap.stages_more_s:
            stage_s += leap.stages_more_s[stage]
            after_s = before_s + stage_s / pieces
        enters_s = max(enters_s, stage_free_s)
        before_s = free_s[stage] = max(enters_s + stage_s, after_s)
        enters_s += stage_s / pieces
    free_s[-1] += leap.last_s
    return free_s[-1]


class PipelineTiming:
    """Times of one batch in the stages of a pipeline."""

    __slots__ = ("end_s", "entered_s", "load", "second_load", "stage_s")

    def __init__(self) -> None:
        self.entered_s = self.stage_s = self.load = self.second_load = 0.0
        self.end_s = inf
        """Time at which the batch leaves the last stage [s]; inf while it is not in flight."""

    def enter(self, leap: Leap, free_s: list[float], ready_s: float, pieces: int = 1) -> None:
        """Set the times of a batch with step time *leap* that may enter the first stage at *ready_s* [s].

        See `pass_through` for *free_s* and *pieces*.
        """
        self.stage_s, self.load, self.second_load = leap.first_s, leap.load, leap.second_load
        self.entered_s = max(ready_s, free_s[0])
        self.end_s = pass_through(free_s, ready_s, leap, pieces)

    def busy_s(self, now: float) -> float:
        """Return how long the batch has occupied a stage by *now*, averaged over the stages [s]."""
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
        """New tokens of each request in the batch, except members of the cohort."""
        self.cohort: DecodeCohort | None = None
        self.number = 0
        """Number of this batch among the batches of the cohort."""
        self.ready_s = 0.0
        """Time at which the cohort's previous tokens have left the last stage [s]."""
        self._admissions: list[int] = []
        self.blocked_by = blocked_by
        self.batch = batch = _batch(chunks, window) if chunks else Batch()
        prompts = [(one, new) for one, new in chunks.items() if not one.decoding] if batch.prefill_seqs else []
        self.parts = chunk_parts(prompts)
        self.recomputed_in_step = sum([recomputed_tokens(one, new) for one, new in prompts])
        self.sampled: set[InFlightSequence] = set()
        """Requests, except members of the cohort, that receive a token at the end of the batch."""
        self.shared_s = 0.0

    def add_cohort(self, cohort: "DecodeCohort", count: int, kv_tokens: int) -> None:
        """Add the *count* members of *cohort*, with *kv_tokens* tokens of context in total, to the batch."""
        batch = self.batch
        batch.decode_seqs += count
        batch.sampled_seqs += count
        batch.kv_tokens += kv_tokens
        self.cohort, self.number = cohort, cohort.scheduled
        if count:
            self.ready_s = cohort.last_end_s
            self._admissions = [one.admission for one in self.chunks]

    def add_sequence(self, one: InFlightSequence) -> None:
        """Add *one*, which has just left the cohort, to `chunks`."""
        self.chunks[one] = 1
        self._admissions.append(one.admission)
        self.sampled.add(one)

    def in_order(self) -> list[tuple[InFlightSequence, int]]:
        """Return the chunks, ordered by the admission numbers that their requests had when the batch was formed."""
        chunks, numbers = list(self.chunks.items()), self._admissions
        if all(a < b for a, b in pairwise(numbers)):
            return chunks
        return [chunks[place] for place in sorted(range(len(chunks)), key=numbers.__getitem__)]

    def span(self, place: str) -> StepSpan:
        """Return the batch as a span of one step; *place* is that of the observed request (`StepSpan.place`)."""
        prompts = {sequence.request.index for sequence, *_ in self.parts}
        indices = {one.request.index: new for one, new in self.chunks.items()}
        chunks = {index: new for index, new in indices.items() if index in prompts}
        decoding = frozenset(indices) - prompts
        return StepSpan(self.entered_s, self.end_s, 1, self.batch, self.blocked_by, chunks, decoding, place)


class DecodeCohort:
    """Requests that decode in the same batches, with the totals that a batch needs.

    The fields of a member stay as they were when it was added. `remove` adds the progress that it has made in the
    cohort's batches since.
    """

    __slots__ = (
        "_ahead",
        "_alone",
        "_batches_in_flight",
        "_due",
        "_ending",
        "_kv_tokens",
        "_named_at",
        "eligible",
        "last_end_s",
        "members",
        "received",
        "scheduled",
        "served",
    )  # fmt: skip

    def __init__(self, block_size: int, ahead: bool, alone: dict[InFlightSequence, None]) -> None:
        """*alone*: running requests that are in no cohort, updated as members are added and removed."""
        self._alone = alone
        self.members: dict[InFlightSequence, tuple[int, int]] = {}
        """Numbers of the first batch and of the batch after the last one, per member."""
        self.scheduled = self.received = 0
        """Number of batches scheduled, and number of these that have ended."""
        self.served = 0
        """Number of batches that the members hold KV blocks for; the batch being formed may be among them."""
        self.eligible = 0
        """Number of the first scheduler call that may schedule the next batch, if steps are formed ahead."""
        self.last_end_s = 0.0
        """End of the latest batch [s]."""
        self._ahead = ahead
        self._named_at = 0
        """Number of batches that had ended when the latest one was scheduled."""
        self._batches_in_flight: deque[InFlightBatch] = deque()
        self._due: list[dict[InFlightSequence, None]] = [{} for _ in range(block_size)]
        """Members that need another block for batch *n*, at index *n* modulo the block size."""
        self._ending: dict[int, dict[InFlightSequence, None]] = {}
        """Members whose last batch is number *n* - 1, by *n*."""
        self._kv_tokens = 0
        """Context of all members in the next batch [tokens]."""

    def is_ready(self, calls: int) -> bool:
        """Return whether scheduler call number *calls* may schedule the next batch."""
        return calls >= self.eligible if self._ahead else self.received == self.scheduled

    @property
    def due(self) -> dict[InFlightSequence, None]:
        """Members that need another block for the next batch."""
        return self._due[self.scheduled % len(self._due)]

    def add(self, one: InFlightSequence, left: int) -> None:
        """Add *one*, which is in the latest batch by itself, for *left* further batches."""
        end = self.scheduled + left
        self.members[one] = self.scheduled, end
        self._due[(self.scheduled - one.computed) % len(self._due)][one] = None
        self._ending.setdefault(end, {})[one] = None
        self._kv_tokens += one.computed
        one.cohort = self
        del self._alone[one]

    def schedule(self, in_flight: InFlightBatch, eligible: int) -> None:
        """Add all members to the batch *in_flight*, then remove the members whose last batch it is.

        *eligible* is the number of the scheduler call from which on the following batch may be scheduled.
        """
        count = len(self.members)
        in_flight.add_cohort(self, count, self._kv_tokens)
        self._kv_tokens += count
        self._batches_in_flight.append(in_flight)
        self.scheduled += 1
        self.served = self.scheduled
        self.eligible, self._named_at = eligible, self.received
        if self.scheduled in self._ending:
            for one in list(self._ending[self.scheduled]):
                self.remove(one)

    def receive(self) -> None:
        """Record the end of the oldest batch in flight."""
        self._batches_in_flight.popleft()
        self.received += 1

    def dissolve(self) -> None:
        """Remove all members."""
        for one in list(self.members):
            self.remove(one)

    def remove(self, one: InFlightSequence) -> None:
        """Remove *one*, bring its fields up to date, and list it in the batches in flight."""
        since, end = self.members.pop(one)
        del self._ending[end][one]
        if not self._ending[end]:
            del self._ending[end]
        new, made = self.scheduled - since, max(0, self.received - since)
        size = len(self._due)
        del self._due[(since - one.computed) % size][one]
        one.held = -(-(one.computed + self.served - since) // size)
        one.computed += new
        one.tokens_in_flight += new - made
        one.tokens += made
        one.made += made
        self._kv_tokens -= one.computed
        if new:  # a batch names the blocks whose tokens are known when it is scheduled
            one.named = max(one.named, one.tokens - max(0, self.received - max(self._named_at, since - 1)))
        if self._ahead:
            one.placeholders += new - made
            one.eligible = self.eligible
            one.named = max(one.named, one.computed - one.tokens_in_flight) if made else one.named
        one.last_end_s = self.last_end_s
        one.cohort = None
        self._alone[one] = None
        for in_flight in self._batches_in_flight:
            if in_flight.number >= since:
                in_flight.add_sequence(one)


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
    """vLLM's rules for which requests are in the next batch."""

    USES_COHORTS = True
    """True if decoding requests form cohorts."""

    def __init__(self, limits: SchedulerLimits, pool: BlockPool, waiting: WaitingQueue, ahead: int) -> None:
        self.limits, self.pool, self.waiting = limits, pool, waiting
        self.running: dict[InFlightSequence, None] = {}
        """Admitted requests, in admission order."""
        self._alone: dict[InFlightSequence, None] = {}
        """Running requests that are in no cohort."""
        self.preemptions = 0
        self.blocked_by = ""
        self.cached_in_step = 0
        self._ahead = ahead
        """Scheduler calls between two tokens of a request, if steps are formed ahead; 0 if they are not."""
        self._preempted = False
        self._prompt_withdrawn = False
        """True if a prompt chunk was taken out of the batch being formed because its request was preempted."""
        self._calls = self._steps = 0
        self._kept_free = int(limits.options.watermark * limits.num_gpu_blocks)
        self._pacing = pacing_of(limits)
        self._admissions = 0
        self._together = self.USES_COHORTS and not limits.window
        self._cohorts: list[DecodeCohort] = []
        """Cohorts with at least one member."""

    def form(self, now: float) -> InFlightBatch | None:
        """Return the next batch, formed at *now* [s]; None if no request can be scheduled."""
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
        in_flight = InFlightBatch(chunks, limits.window or 0, self.blocked_by)
        if prompts or (pacing.spaced and any(not one.decoding and one.tokens - one.computed > 1 for one in chunks)):
            pacing.computes(self._steps)
        self._steps += 1
        self._count(in_flight)
        self._extend_cohort(in_flight, cohort)
        return in_flight

    def _decodes_only(self, cohort: DecodeCohort | None) -> bool:
        """Return whether the next batch can only contain *cohort*, and enough blocks are free for its members."""
        if self._alone or self._pacing.limited or (self.waiting and len(self.running) < self.limits.max_num_seqs):
            return False
        return cohort is None or len(cohort.due) <= self.pool.free

    def _form_decodes(self, cohort: DecodeCohort) -> InFlightBatch:
        """Return a batch of the members of *cohort* alone."""
        if self.waiting:
            self.blocked_by = "seats" if len(cohort.members) < self.limits.max_num_batched_tokens else "budget"
        if blocks := len(cohort.due):
            self.pool.take(blocks)
        in_flight = InFlightBatch({}, 0, self.blocked_by)
        self._steps += 1
        cohort.schedule(in_flight, self._calls + self._ahead)
        if not cohort.members:
            self._cohorts.remove(cohort)
        return in_flight

    def _any_decoding(self) -> bool:
        return any(one.decoding for one in self.running)

    def use_cohorts(self, on: bool) -> None:
        """Let decoding requests form cohorts from now on, or keep all of them by themselves."""
        self._together = self.USES_COHORTS and not self.limits.window and on
        self.dissolve()

    def dissolve(self) -> None:
        """Remove all requests from their cohorts."""
        for cohort in self._cohorts:
            cohort.dissolve()
        self._cohorts.clear()

    def _cohort(self) -> DecodeCohort | None:
        """Return the cohort of the next batch, or None.

        All cohorts are dissolved if several are ready, or if the token budget may be too small for all requests.
        """
        calls = self._calls
        ready = [one for one in self._cohorts if one.members and one.is_ready(calls)]
        if len(ready) > 1 or (self._cohorts and not self._within_budget(ready)):
            self.dissolve()
            return None
        return ready[0] if ready else None

    def _within_budget(self, ready: list[DecodeCohort]) -> bool:
        """Return whether the token budget is enough for the members of *ready* and all requests without a cohort."""
        total = sum([len(cohort.members) for cohort in ready])
        if not self._alone:
            return total <= self.limits.max_num_batched_tokens
        most, last, left = self._pacing.longest_chunk, next(reversed(self.running), None), 1
        for one in self._alone:
            new = one.tokens + one.placeholders - one.computed
            total += new if new < most else most
            if one is last and new > 1:  # the request admitted last gets the rest of the budget
                left = min(new, most)
        return total - left < self.limits.max_num_batched_tokens

    def _extend_cohort(self, in_flight: InFlightBatch, cohort: DecodeCohort | None) -> None:
        """Add the requests of *in_flight* that decode from now on to *cohort*, or to a new one."""
        if not self._together:
            return
        together = cohort if cohort is not None else DecodeCohort(self.pool.block_size, self._ahead > 0, self._alone)
        alone = list(in_flight.chunks)
        together.schedule(in_flight, self._calls + self._ahead)
        for one in alone:
            left = one.output_tokens - one.made - (one.placeholders if self._ahead else 1)
            if one.decoding and left > 0 and one.named >= one.request.shared_tokens:
                together.add(one, left)
        if cohort is None:
            self._cohorts.append(together)
        self._cohorts = [one for one in self._cohorts if one.members]

    def place(self, request_index: int) -> str:
        """Return `running` or `queued` for request number *request_index*; empty if it is not here."""
        return place(request_index, self.waiting.has(request_index), self.running)

    def _count(self, in_flight: InFlightBatch) -> None:
        """Count the new tokens of *in_flight* as computed."""
        ahead, eligible = self._ahead, self._calls + self._ahead
        for one, new in in_flight.chunks.items():
            one.computed += new
            one.tokens_in_flight += new
            one.decoding = one.computed >= one.tokens + one.placeholders
            if one.decoding:
                in_flight.sampled.add(one)
                if ahead:
                    one.placeholders += 1
                    one.eligible = eligible

    def _serve_running(self, chunks: dict[InFlightSequence, int], cohort: DecodeCohort | None) -> int:
        """Schedule *cohort*, then the other running requests in admission order; return the token budget left."""
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
            elif self._fits_held_blocks(one):
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
                    victim.cohort.remove(victim)
                self._preempt(victim)
                if victim is one:
                    break
            else:
                self._allocate(one, blocks, new)
                chunks[one] = new
                budget -= new
        return budget

    def _serve(self, cohort: DecodeCohort) -> None:
        """Allocate the blocks of the next batch of *cohort*.

        If too few may be free for all running requests, the members that need a block are removed from the cohort.
        """
        alone, size = 0, self.pool.block_size
        for one in self._alone:
            alone += (one.tokens + one.placeholders - one.computed) // size + 1
        due = cohort.due
        if len(due) + alone > self.pool.free:
            for one in list(due):
                cohort.remove(one)
        elif due:
            self.pool.take(len(due))
        cohort.served = cohort.scheduled + 1

    def _fits_held_blocks(self, one: InFlightSequence) -> bool:
        """Return whether the next token of *one*, which decodes, needs no further block; then name what it fills."""
        known = one.computed + 1
        if known > one.held * self.pool.block_size:
            return False
        if one.named < one.tokens:
            self._name(one, known if known < one.tokens else one.tokens)
        return True

    def _need(self, one: InFlightSequence, new: int) -> int:
        """Return the number of further blocks that *one* needs for its next *new* tokens."""
        size = self.pool.block_size
        beyond = one.computed + new - one.held * size
        return -(-beyond // size) if beyond > 0 else 0

    def _missing(self, one: InFlightSequence, hits: int, new: int) -> int:
        """Return the number of free blocks needed to admit *one* with *hits* cached blocks and *new* tokens."""
        tokens = one.tokens if self.limits.options.reserves_all_tokens else hits * self.pool.block_size + new
        return self.pool.missing(one, hits, tokens)

    def _allocate(self, one: InFlightSequence, blocks: int, new: int) -> None:
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
        one.stale, one.placeholders = one.tokens_in_flight, 0
        one.computed = one.held = one.named = 0
        one.decoding = False
        one.request.preemptions += 1
        self.preemptions += 1
        self._preempted = True
        del self.running[one], self._alone[one]
        self.waiting.put_back(one)

    def _admit(self, chunks: dict[InFlightSequence, int], budget: int, now: float) -> None:
        """Admit waiting requests in order; requests with tokens from before a preemption in flight are skipped."""
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
            missing = self._missing(one, hits, new) + (self._kept_free if self.running else 0)
            if not new or missing > pool.free:
                self.blocked_by = "kv" if new else "budget"
                return
            self.waiting.remove(one.request)
            self._start_running(one, hits, now)
            self._allocate(one, self._need(one, new), new)
            chunks[one] = new
            budget -= new

    @staticmethod
    def _may_join(one: InFlightSequence) -> bool:
        """Return whether *one* may be admitted: no token scheduled before its preemption is in flight."""
        one.passed_over = one.passed_over or one.stale > 0
        return not one.stale

    def _chunk(self, left: int, budget: int) -> int:
        left = self._pacing.most_now(left)
        return min(left, budget) if self.limits.chunked_prefill or left <= budget else 0

    def _cut(self, one: InFlightSequence, start: int, new: int) -> int:
        """Return how many of the *new* tokens of *one* after its first *start* tokens the batch computes."""
        return new

    def _start_running(self, one: InFlightSequence, hits: int, now: float) -> None:
        self.pool.claim(one, hits)
        one.held, one.computed, one.passed_over = hits, hits * self.pool.block_size, False
        self._admissions += 1
        self.cached_in_step += one.start_running(now, self._admissions)
        self.running[one] = self._alone[one] = None

    def update(self, in_flight: InFlightBatch, end_s: float) -> list[Request]:
        """Complete *in_flight*, which leaves the last stage at *end_s* [s]; return the requests that leave with it."""
        if in_flight.cohort is not None:
            in_flight.cohort.receive()
        if not in_flight.chunks:
            return []
        left, sampled = [], in_flight.sampled
        for one, new in in_flight.in_order():
            one.tokens_in_flight -= new
            stale = one.stale > 0
            if stale:
                one.stale -= new
            if one in sampled and not one.evicted and self._get_token(one, stale, end_s):
                left.append(one.request)
        return left

    def _get_token(self, one: InFlightSequence, stale: bool, end_s: float) -> bool:
        """Give *one* a token at *end_s*; return whether it is the last one."""
        one.made += 1
        one.tokens += 1
        if one.placeholders:
            one.placeholders -= 1
        if isnan(one.request.first_token_s):
            one.request.first_token_s = end_s
        if self._ahead and not stale:
            self._name(one, one.computed - one.tokens_in_flight)
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
        """Remove the running request *one* and free its blocks."""
        self.pool.release(one, one.held, False, one.named)
        del self.running[one], self._alone[one]
