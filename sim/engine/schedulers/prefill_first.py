"""Prompts before tokens: the schedulers of vLLM V0 and of SGLang.

`PrefillFirstScheduler` follows vLLM's V0 `core/scheduler.py` (`_schedule_default`): as long as a waiting request can be
admitted, a step computes prompts and no request decodes. A prompt step takes waiting requests in order while token
budget, `max_num_seqs` and blocks last: whole prompts, or the last one cut at the budget and continued in the next step.
A watermark of the blocks stays free, so that a joining request does not preempt itself. Without a prompt to compute all
others decode one token; where one cannot get a KV block, the newest request is preempted and later computes prompt and
tokens again. An answer is found in the prefix cache once it is complete (SGLang's `cache_finished_req`).

`SglangScheduler` follows SGLang 0.5.9 (`managers/scheduler.py` and `schedule_policy.py`). A request joins where blocks
for its prompt and for the most that its answer may be are free, beside a fraction of what the running requests may
still make (`PrefillAdder.add_one_req`). Once that fails, or `max_num_seqs` is reached, no request is tried again before
a decode step begins with fewer requests than the last one (`batch_is_full`). Where the next tokens find no blocks, the
requests with the shortest answers so far are retracted (`retract_decode`): they join the end of the queue. The last
request of a pipeline lane whose blocks are held by other lanes is aborted (0.5.16; the server of 0.5.9 stops there).

`NewTokenRatio` is that fraction (`NewTokenRatioTracker`). It begins at 0.7 times `schedule_conservativeness`, falls in
600 decode steps to 14 % of that, and is reset where the server is idle. When KV blocks have run out, it becomes the
fraction that the remaining requests have made of their answers so far, plus 20 tokens for each.

`SchedulerInbox` has arrivals that the server has not read yet: SGLang's receive interval
(`managers/scheduler_recv_skipper.py`). The scheduler looks for new requests before it forms a step: where it is idle,
after each step with prompts, and otherwise every `interval` decode steps. In between a request waits unread, whatever
is free.

`SglangScheduler` with `ahead` is SGLang's overlap scheduler. In `managers/scheduler.py` (`event_loop_overlap`) a step
is launched before the result of the one before it is processed, so it is formed when that one starts: a request that
arrives meanwhile waits one step more, and the KV blocks of a finished one are free one step later. SGLang computes a
finished request once more in the step formed meanwhile; that row is left out here. A retracted request then loses the
token that is being made.
"""

from math import inf

from sim.engine.kv.blocks import BlockPool, PrefixCache
from sim.engine.limits import SchedulerLimits
from sim.engine.schedulers.vllm import InFlightStep, VllmScheduler
from sim.engine.schedulers.waiting_queue import PrefixQueue, WaitingQueue
from sim.engine.sequence import Sequence
from sim.records import ReplicaProgress, Request

LONGEST_SORTED = 128
"""Longest queue that is sorted; longer ones are first come first served."""
SHORT_PREFIX = 32
"""Prefix length [tokens]: a request with no longer cached prefix is compared with other waiting requests, and goes last
if it shares at least this prefix with one of them."""


class PrefillFirstScheduler(VllmScheduler):
    """Scheduler of one rank on which prompts go first."""

    def __init__(self, limits: SchedulerLimits, pool: BlockPool, waiting: WaitingQueue, ahead: bool = False) -> None:
        super().__init__(limits, pool, waiting, ahead)
        self._watermark_blocks = int(limits.options.watermark * pool.usable)
        self._shared_answers = None
        self._sorted = limits.options.schedule_policy == "lpm"

    def may_admit(self, sequence: Sequence) -> bool:
        """See `Scheduler.may_admit`. Decodes use no part of the budget."""
        hits = self.pool.lookup(sequence)
        return (
            len(self.running) < self.max_num_seqs and self._missing(sequence, hits, sequence.tokens) <= self.pool.free
        )

    def _hold(self, sequence: Sequence, hits: int) -> None:
        """Give *sequence* the blocks of all its tokens at once, so that a prompt that is cut keeps them."""
        super()._hold(sequence, hits)
        sequence.held = -(-sequence.tokens // self.pool.block_size)
        self.pool.take(sequence.held - hits)

    def _order(self) -> None:
        """Sort the waiting requests by the longest cached prefix (SGLang's `SchedulePolicy`, lpm).

        Of several requests that share a prefix which is not cached yet, the first keeps its place and the others go
        last: they will find it cached. A long queue is not sorted.
        """
        waiting, pool = self.waiting, self.pool
        if not self._sorted or not isinstance(waiting, PrefixQueue) or not isinstance(pool, PrefixCache):
            return
        if not 1 < len(waiting) <= LONGEST_SORTED:
            return
        coming: set[object] = set()
        places: dict[Sequence, float] = {}
        for sequence in waiting:
            hits = pool.lookup(sequence)
            places[sequence] = -hits
            if hits * pool.block_size <= SHORT_PREFIX:
                names = [pool.name_of(sequence, block) for block in range(sequence.tokens // pool.block_size)]
                shared = next((place for place, name in enumerate(names) if name not in coming), len(names))
                if shared * pool.block_size >= SHORT_PREFIX:
                    places[sequence] = inf
                else:
                    coming.update(names)
        waiting.sort(places)

    def _form(self, now: float) -> int:
        self._begin_step()
        if not self.running and not self.waiting:
            return 0
        self._order()
        self._compute_prompts(now)
        self._decodes_wait = bool(self._chunks)
        if self._chunks:
            self._fill_no_decodes()
            self._fill_chunks()
            return 1
        return self._decode()

    def _begin_step(self) -> None:
        self._preempted_in_step = False
        self.blocked_by = ""
        self._chunks.clear()
        self.recomputed_in_step = self.cached_in_step = 0

    def _compute_prompts(self, now: float) -> None:
        """Schedule the prompts that go first in the step being formed."""
        self._admit(self._continue_prompt(self._max_num_batched_tokens), now)

    def _decode(self) -> int:
        """Form a step without prompts. Return how many such steps may follow."""
        self._serve_running()
        return self._end_decode_step()

    def _end_decode_step(self) -> int:
        """Complete a step with tokens for all decoding requests. Return how many such steps may follow."""
        self._fill_decodes()
        self._fill_chunks()
        if self._preempted_in_step:
            self.blocked_by = "kv"
        if not self.batch.decode_seqs:
            return 0
        return 1 if self._preempted_in_step else self._steps_until_change()


INITIAL, LEAST, DECAY_STEPS, RETRACT_STEPS = 0.7, 0.14, 600, 20
"""Defaults of SGLANG_INIT_NEW_TOKEN_RATIO, SGLANG_MIN_NEW_TOKEN_RATIO_FACTOR, SGLANG_NEW_TOKEN_RATIO_DECAY_STEPS and
SGLANG_RETRACT_DECODE_STEPS."""


class NewTokenRatio:
    """Fraction of the rest of running answers that admission reserves; it decays with decode steps."""

    def __init__(self, conservativeness: float) -> None:
        self._initial = self._from = min(INITIAL * conservativeness, 1.0)
        self._least = self._initial * LEAST
        self._steps = 0
        """Decode steps since the ratio was set."""

    @property
    def value(self) -> float:
        """Current fraction of the rest of all answers that admission reserves."""
        if not self._steps:
            return self._from
        return max(self._from - (self._initial - self._least) / DECAY_STEPS * self._steps, self._least)

    def decay(self, steps: int) -> None:
        """Count *steps* more decode steps."""
        self._steps += steps

    def idle(self) -> None:
        """Reset the ratio: no requests run or wait."""
        self._from, self._steps = self._initial, 0

    def retracted(self, made: int, at_most: int, running: int) -> None:
        """Set the ratio after a retraction: *running* requests stay, which have made *made* tokens of *at_most*."""
        self._from, self._steps = min(1.0, (made + RETRACT_STEPS * running) / (at_most + 1)), 0


class SchedulerInbox:
    """Requests between their arrival and the scheduler's next read."""

    def __init__(self, interval: int) -> None:
        self.interval = interval
        """Decode steps between two reads."""
        self.unread: list[Sequence] = []
        self._steps = 0
        """Decode steps since the last read, modulo the interval."""

    def __len__(self) -> int:
        return len(self.unread)

    def passed(self, steps: int, prompts: bool) -> None:
        """Count *steps* more decode steps; a step with *prompts* restarts the count."""
        self._steps = 0 if prompts else (self._steps + steps) % self.interval

    def read(self, idle: bool) -> list[Sequence]:
        """Return the requests that the scheduler reads when it forms a step, or where it is *idle*."""
        if idle:
            self._steps = 0
        if self._steps:
            return []
        seen, self.unread = self.unread, []
        return seen

    def steps_until_read(self, steps: int) -> int:
        """Return the number of decode steps, at least *steps*, after which the scheduler reads again."""
        return steps + -(self._steps + steps) % self.interval

    def has(self, request_index: int) -> bool:
        """Return whether request number *request_index* is unread."""
        return any(one.request.index == request_index for one in self.unread)

    def remove(self, request: Request) -> bool:
        """Remove *request*. Return whether it was unread."""
        found = next((sequence for sequence in self.unread if sequence.request is request), None)
        if found is None:
            return False
        self.unread.remove(found)
        return True


LONGEST_ANSWER = 4096
"""Most tokens of an answer that admission reserves (SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION)."""


class SglangScheduler(PrefillFirstScheduler):
    """Scheduler of one rank under SGLang's rules."""

    def __init__(self, limits: SchedulerLimits, pool: BlockPool, waiting: WaitingQueue, ahead: bool = False) -> None:
        super().__init__(limits, pool, waiting, ahead)
        self._overlaps_chunks = True  # the micro-batches of a pipeline share `chunked_req`
        self._inbox = SchedulerInbox(limits.options.scheduler_recv_interval)
        self._ratio = NewTokenRatio(limits.options.schedule_conservativeness or 0.0)
        self._max_prefill_tokens = limits.options.max_num_batched_tokens or limits.max_num_batched_tokens
        whole_blocks = max(pool.block_size, limits.max_num_batched_tokens // pool.block_size * pool.block_size)
        self._chunk_size = whole_blocks if limits.chunked_prefill else inf
        self._mixes = limits.options.enable_mixed_chunk
        self._full_reason = ""
        """Reason why no request is admitted before the batch has shrunk: seats or kv; empty if it is not full."""
        self._batch_size = 0
        """Number of requests in the batch, as of the last step that checked which have left."""
        self._no_decode = False
        """True if no request can decode before those leave whose last tokens are being made."""
        self._in_prompt_step: list[Sequence] = []
        """Sequences in the last step, if it computed prompts."""
        self._preempts = limits.scheduling == "priority"
        self._threshold = limits.options.priority_scheduling_preemption_threshold
        self._tried_tokens: dict[Sequence, int] = {}
        """Waiting sequence -> tokens it had to compute when its admission was last tried, where requests may preempt
        others."""
        self._tries_again = False
        """True if the next step tries to admit the head of the queue, whether the batch is full or not."""

    def enqueue(self, sequence: Sequence) -> bool:
        """See `Scheduler.enqueue`. Where the scheduler polls, the request arrives unread."""
        if self._inbox.interval == 1:
            return super().enqueue(sequence)
        self._inbox.unread.append(sequence)
        return True

    def queued(self) -> int:
        """See `Scheduler.queued`."""
        return super().queued() + len(self._inbox)

    def steps_until_read(self, steps: int) -> int:
        """See `Scheduler.steps_until_read`."""
        return self._inbox.steps_until_read(steps)

    def place(self, request_index: int) -> str:
        """See `Scheduler.place`."""
        return "unread" if self._inbox.has(request_index) else super().place(request_index)

    def remove_waiting(self, request: Request) -> ReplicaProgress | None:
        """See `Scheduler.remove_waiting`."""
        return ReplicaProgress(0, 0) if self._inbox.remove(request) else super().remove_waiting(request)

    def may_admit(self, sequence: Sequence) -> bool:
        """See `Scheduler.may_admit`. An unread request may join once it is read."""
        return self._inbox.interval > 1 or not self._full_reason or self._preempts

    def has_room(self) -> bool:
        """See `Scheduler.has_room`. A prompt that was cut continues in the next batch, however full its lane is."""
        return True

    def _form(self, now: float) -> int:
        for sequence in self._inbox.read(not self.running):
            super().enqueue(sequence)
        if not self.running and not self.waiting:
            self._ratio.idle()
        self._no_decode = False
        self._merge()
        if not self._mixes or not self._decoding or self._phases.blocks_at(self._step) > self.pool.free:
            return super()._form(now)
        return self._mix(now)

    def _merge(self) -> None:
        """Add the requests whose prompts are computed to the batch."""
        if self._in_prompt_step:
            merged = [one for one in self._in_prompt_step if one in self.running and one not in self._prefilling]
            if len(merged) < len(self._in_prompt_step):
                self._full_reason = ""
            self._batch_size += len(merged)
            self._in_prompt_step = []
        if len(self.running) == len(self._prefilling):
            self._full_reason, self._batch_size = "", 0

    def _mix(self, now: float) -> int:
        """Form a step with tokens for decoding requests, and with prompts in the rest of its budget."""
        self._begin_step()
        self._decodes_wait = False
        self.pool.take(self._phases.blocks_at(self._step))
        self._order()
        self._compute_prompts(now, self._batch_size)
        if not self._chunks:
            return self._end_decode_step()
        self._in_prompt_step, self._batch_size = list(self.running), 0
        self._fill_decodes()
        self._fill_chunks()
        return 1

    def _compute_prompts(self, now: float, mixed: int = 0) -> None:
        """See `PrefillFirstScheduler._compute_prompts`. *mixed* tokens of the step belong to decoding requests."""
        if self._preempts:
            self._full_reason = ""
        if not self._prefilling and (self._full_reason or not self.waiting):
            self.blocked_by = self._full_reason if self.waiting else ""
            return
        size = self.pool.block_size
        chunk_left, input_left = self._chunk_size - mixed, self._max_prefill_tokens - mixed
        taken = self._ratio.value * self._reserved_tokens()
        for one in self._prefilling:  # there is at most one cut prompt
            chunk = int(min(one.tokens - one.computed, max(1, chunk_left)))
            self._schedule_chunk(one, chunk)
            chunk_left -= -(-chunk // size) * size
            input_left -= -(-chunk // size) * size
            if one.computed + chunk == one.tokens:
                taken += min(one.output_tokens, LONGEST_ANSWER)
        while self.waiting and (self._preempts or not self._full_reason):
            head = self.waiting.head()
            assert head is not None  # the head is always set: requests need no adapter slots here
            one = head
            if len(self._chunks) >= self.max_num_seqs - self._batch_size:
                self._full_reason = "seats"
            if self._full_reason:
                freed = self._preempt_for(one, taken, mixed) if self._preempts else None
                if freed is None:
                    break
                taken -= freed
            hits = self.pool.lookup(one)
            self._tried_tokens[one] = new = one.tokens - hits * size  # the entry is removed at admission
            padded = -(-new // size) * size
            missing = self.pool.missing(one, hits, one.tokens)
            room = (self.pool.free - (missing - padded // size)) * size - taken
            # a request that runs alone may use all blocks; lanes of a pipeline share them
            short = new + min(one.output_tokens - one.made, LONGEST_ANSWER) >= room
            if (short and self.running) or missing > self.pool.free:
                self._full_reason = "kv"
                break
            if chunk_left <= 0 or input_left <= 0 or (padded >= input_left and self._chunks):
                self.blocked_by = "budget"
                break
            chunk = new if padded <= chunk_left else int(chunk_left) // size * size
            if not chunk:
                self.blocked_by = "budget"
                break
            del self._tried_tokens[one]
            self._start_running(self.waiting.pop(), hits, now)
            self._schedule_chunk(one, chunk)
            chunk_left -= -(-chunk // size) * size
            input_left -= -(-chunk // size) * size
            if chunk == new:
                taken += min(one.output_tokens, LONGEST_ANSWER)
            if self.pool.free * size - taken <= 0:
                self._full_reason = "kv"
            if self._full_reason == "kv" or (self._preempts and min(chunk_left, input_left) <= 0):
                break
        if self._preempts:
            self._tries_again = self._full_reason != "seats" or bool(
                self.waiting and (head := self.waiting.head()) is not None and self._lower_priority(head)
            )
        if self._full_reason:
            self.blocked_by = self._full_reason if self.waiting else ""
        self._in_prompt_step = [one for one, _ in self._chunks]

    def _preempt_for(self, waiting: Sequence, taken: float, mixed: int) -> float | None:
        """Preempt running requests of lower priority for *waiting*: the lowest first, of equals the last admitted.

        Return the part of *taken* [tokens] that was reserved for them; None if no request is preempted
        (`preempt_to_schedule`).
        """
        free = self.pool.free * self.pool.block_size - taken
        short = self._tried_tokens.get(waiting, 0) + min(waiting.output_tokens, LONGEST_ANSWER) - free
        freed = 0.0
        victims: list[Sequence] = []
        for one in self._lower_priority(waiting):
            victims.append(one)
            freed += self._ratio.value * min(self._tokens_left(one), LONGEST_ANSWER)
            if freed >= short:
                break
        if not victims or freed < short:
            return None
        for one in victims:
            self._preempt(one, int(mixed > 0))
        self._preempted_in_step = False
        self._batch_size -= len(victims)
        return freed

    def _lower_priority(self, waiting: Sequence) -> list[Sequence]:
        """Return the decoding requests whose priority is lower than that of *waiting* by more than the threshold."""
        least = waiting.request.priority + self._threshold
        below = [one for one in self.running if one.decoding and one.request.priority > least]
        return sorted(below, key=lambda one: (-one.request.priority, -one.entered))

    def _batch(self) -> list[Sequence]:
        """Return the running requests whose prompts are computed."""
        return [one for one in self.running if one not in self._prefilling]

    def _reserved_tokens(self) -> int:
        """Return the known number of tokens that the batch has yet to make, as far as admission reserves them."""
        flight, step = self.flight, self._step
        if flight is None:
            return self._finishing.steps_left(step, LONGEST_ANSWER)
        if not flight.prompts_only:  # the current step makes one more token for each
            return self._finishing.steps_left(step - 1, LONGEST_ANSWER) + len(flight.leaving)
        coming = sum(one.decoding and one.finish_step - step < LONGEST_ANSWER for one in flight.first)
        return self._finishing.steps_left(step, LONGEST_ANSWER) + coming + len(flight.leaving)

    def _tokens_left(self, one: Sequence) -> int:
        """Return the known number of tokens that the sequence *one* of the batch has yet to make."""
        if self.flight is not None and one in self.flight.leaving:
            return 1
        return one.finish_step - self._step + self._token_in_flight(one)

    def _tokens_made(self, one: Sequence) -> int:
        return one.output_tokens - self._tokens_left(one)

    def _end_decode_step(self) -> int:
        if len(self.running) < self._batch_size:
            self._full_reason = ""
        self._batch_size = len(self.running)
        return super()._end_decode_step()

    def _fill_decodes(self) -> None:
        if self._no_decode:
            self._fill_no_decodes()
        else:
            super()._fill_decodes()

    def _steps_until_change(self) -> int:
        if self.waiting and (self._tries_again or not self._full_reason):
            return 1
        steps = super()._steps_until_change()
        return min(steps, self._inbox.steps_until_read(1)) if self._inbox else steps

    def _serve_one_by_one(self) -> list[Sequence]:
        """Retract requests until the next tokens of the others find blocks: at least one, and never the last."""
        able = [one for one in self.running if one.decoding]
        able.sort(key=lambda one: (self._tokens_made(one), -one.request.prompt_tokens), reverse=True)
        while len(able) > 1 and (not self._preempted_in_step or self._phases.blocks_at(self._step) > self.pool.free):
            self._preempt(able.pop(), 0)
        if self._preempted_in_step:
            left = self._batch()
            made, at_most = sum(map(self._tokens_made, left)), sum(one.output_tokens for one in left)
            self._ratio.retracted(made, at_most, len(left))
        need = self._phases.blocks_at(self._step)
        self._no_decode = need > self.pool.free
        if not self._no_decode:
            self.pool.take(need)
        return []

    def abort_without_blocks(self) -> Request | None:
        """See `Scheduler.abort_without_blocks`: `retract_decode` aborts it, as other lanes hold the blocks."""
        if not self._no_decode:
            return None
        one = next(one for one in self.running if one.decoding)
        self._finishing.remove(one)
        self._leave(one)
        self._no_decode = False
        return one.request

    def _count_steps(self, steps: int, prompts: bool, decodes: bool) -> None:
        """Count *steps* more steps: with *prompts*, with tokens of running requests (*decodes*), or with both."""
        self._inbox.passed(steps, prompts)
        if decodes and not prompts:
            self._ratio.decay(steps - self._preempted_in_step)

    def commit(self, steps: int, end_s: float) -> list[Sequence]:
        """See `Scheduler.commit`."""
        self._count_steps(steps, bool(self._chunks), not self._decodes_wait)
        return super().commit(steps, end_s)

    def form_ahead(self, now: float) -> int:
        """See `VllmScheduler.form_ahead`.

        The step after a last token is formed when the finished requests are known.
        """
        steps = super().form_ahead(now)
        return min(steps, 1) if self._awaits_last_tokens() else steps

    def closing(self, flight: InFlightStep) -> None:
        """See `VllmScheduler.closing`."""
        self._count_steps(flight.steps, bool(flight.parts), not flight.prompts_only)

    def _preempt(self, sequence: Sequence, withdrawn: int) -> None:
        """Preempt *sequence*; a token being made for it is lost."""
        lost = self._token_in_flight(sequence)
        self._requeue(sequence, withdrawn)
        if lost and self.flight is not None:
            sequence.made -= 1
            sequence.tokens -= 1
            self.flight.dropped_tokens += 1
            if sequence in self.flight.first:
                self.flight.first.remove(sequence)

    def _known(self, sequence: Sequence, computed: int, new: int) -> int:
        return computed if self.flight is not None else computed + new
