"""vLLM's scheduler with drafted tokens (speculative decoding), with and without asynchronous scheduling.

A step computes 1 + k tokens for each decoding sequence: the next one and k tokens drafted after it. The drafts that the
model itself would have made are accepted, and one further token is made after them:

    tokens computed    | t+1 | d1 | d2 | d3 |        k = 3
    accepted           |  x  | x  | x  |    |        pace 3: t+1, d1, d2

Budget and KV blocks count all 1 + k; the blocks of rejected tokens stay with the sequence, which fills them later. A
sequence advances by the same number of tokens, its `pace`, in each of its steps.

With asynchronous scheduling each step is formed as if all drafts of the current one were accepted: its KV blocks come
after those, and surplus blocks stay with the sequence. A request is left out of the next step only if the current step
makes its last token even without an accepted draft. If accepted drafts finish it, the next step has already been formed
with it and computes it once more in vain.
"""

from math import ceil

from sim.engine.kv.blocks import BlockPool
from sim.engine.kv.decode_steps import NextBlockSteps, WindowedContexts
from sim.engine.limits import SchedulerLimits
from sim.engine.schedulers.scheduler import Scheduler
from sim.engine.schedulers.vllm import InFlightStep, VllmScheduler
from sim.engine.schedulers.waiting_queue import WaitingQueue
from sim.engine.sequence import Sequence
from sim.records import ReplicaProgress

PACE_DENOMINATOR = 1 << 16
"""Denominator of a pace [parts per token]: multiples of 1/PACE_DENOMINATOR keep contexts and their sums exact."""

NEVER = 1 << 62
"""Counter of a step that never comes."""


class DraftScheduler(VllmScheduler):
    """Scheduler of one rank whose decoding sequences advance by several tokens per step."""

    def __init__(self, limits: SchedulerLimits, pool: BlockPool, waiting: WaitingQueue, ahead: bool = False) -> None:
        super().__init__(limits, pool, waiting, ahead)
        self._drafts = limits.draft_tokens
        self._longest = limits.max_model_len
        self._accepts = limits.accepts
        self._per_decode = 1 + self._drafts
        self._shared_answers = None
        self._phases = NextBlockSteps(pool.block_size, self._reach, self._first_step)
        self._pace: dict[Sequence, float] = {}
        """Decoding sequence -> tokens per step."""
        self._base: dict[Sequence, float] = {}
        """Decoding sequence -> its context at step counter 0 [tokens]; unlike `Sequence.base`, it may be fractional."""
        if limits.window:
            self._windows = WindowedContexts(limits.window, self._base, self._pace)
        self._pace_sum, self._drafted_base_sum = 0.0, 0.0
        self._padded: list[Sequence] = []
        """Sequences whose only token in the step formed last is padded with drafts, none of which is accepted."""
        self._shortened: tuple[Sequence, float] | None = None
        """Sequence with fewer drafts in the step being formed, and the tokens by which it advances less; None if there
        is none."""

    @property
    def pace(self) -> float:
        """See `Scheduler.pace`."""
        batch = self.batch
        return (batch.decode_seqs + batch.accepted_tokens) / batch.decode_seqs if batch.decode_seqs else 1

    def _reach(self, sequence: Sequence, step: int) -> int:
        return self._context(sequence, step) + self._per_decode

    def _first_step(self, sequence: Sequence, tokens: int) -> int:
        if tokens >= sequence.request.prompt_tokens + sequence.output_tokens + self._drafts:
            return NEVER
        return ceil((tokens - self._drafts - self._base[sequence]) / self._pace[sequence])

    def _context(self, sequence: Sequence, step: int) -> int:
        most = sequence.request.prompt_tokens + sequence.output_tokens - 1
        return min(int(self._base[sequence] + self._pace[sequence] * step), most)

    def _start_decoding(self, sequence: Sequence, left: int) -> None:
        self._pace[sequence] = pace = (
            1 + ceil(self._accepts(sequence.request, left) * PACE_DENOMINATOR) / PACE_DENOMINATOR
        )
        self._base[sequence] = sequence.computed - pace * self._step
        sequence.finish_step = self._step + ceil(left / pace)

    def _serve_running(self) -> list[Sequence]:
        if self._decoding * self._per_decode > self._max_num_batched_tokens - len(self._prefilling):
            return self._serve_one_by_one()
        return super()._serve_running()

    def _form(self, now: float) -> int:
        self._forget_step()
        steps = super()._form(now)
        if self.adapters is not None and self._shortened is not None and self._shortened[0].request.adapter:
            self.batch.adapted_tokens -= self._tokens_short
        if self.adapters is not None:
            self.batch.adapted_tokens += self._drafts * sum(1 for one in self._padded if one.request.adapter)
        return min(steps, 1) if self._tokens_short or self.batch.decode_seqs < self._decoding else steps

    def _forget_step(self) -> None:
        # a separate method, since the type checker would otherwise take `_shortened` for None in the following calls
        self._shortened = None
        self._padded.clear()

    def _padding(self, sequence: Sequence, known: int) -> int:
        # vLLM pads neither beside prompts nor where all other requests join in the same step
        if sequence.tokens - known > 1 or self._continues_prompts or not (self._running_tokens or known):
            return 0
        room = min(self._max_num_batched_tokens, self._longest - known - 1)
        return self._drafts if self._per_decode <= room else 0

    def _pad(self, sequence: Sequence, padding: int) -> None:
        self._padded.append(sequence)
        blocks = self._blocks_for(sequence, 1 + padding)
        if blocks > 0:
            self.pool.take(blocks)
            sequence.held += blocks

    def _fill_chunks(self) -> None:
        super()._fill_chunks()
        self.batch.draft_tokens += len(self._padded) * self._drafts

    def _need(self, sequence: Sequence, tokens: int) -> int:
        reach = self._context(sequence, self._step) + tokens
        return max(0, -(-reach // self.pool.block_size) - sequence.held)

    def _serve(self, sequence: Sequence, tokens: int) -> None:
        blocks = self._need(sequence, tokens)
        if blocks:
            sequence.held += blocks
            self._phases.add(sequence)
        if tokens < self._per_decode:
            self._tokens_short = self._per_decode - tokens
            pace = self._pace[sequence]
            self._shortened = sequence, max(0, pace - tokens)
            left = sequence.output_tokens - self._tokens_made(sequence) - min(pace, tokens)
            sequence.finish_step = self._step + 1 + max(0, ceil(left / pace))
            self._finishing.rebuild(self._finishing.sequences())

    def _tokens_made(self, sequence: Sequence) -> int:
        return self._context(sequence, self._step) + 1 - sequence.request.prompt_tokens

    def commit(self, steps: int, end_s: float) -> list[Sequence]:
        """See `Scheduler.commit`. A sequence with fewer drafts advances less."""
        if self._shortened is not None:
            sequence, lost = self._shortened
            self._leave_decoding(sequence)
            self._base[sequence] -= lost
            self._enter_decoding(sequence)
        return super().commit(steps, end_s)

    def _preempt(self, sequence: Sequence, withdrawn: int) -> None:
        if self._shortened is not None and self._shortened[0] is sequence:
            self._shortened, self._tokens_short = None, 0
        self._end_answer(sequence)
        super()._preempt(sequence, withdrawn)
        self.forget(sequence)

    def _leave(self, sequence: Sequence) -> None:
        self._end_answer(sequence)
        super()._leave(sequence)
        self.forget(sequence)

    def forget(self, sequence: Sequence) -> None:
        """See `VllmScheduler.forget`."""
        self._pace.pop(sequence, None)
        self._base.pop(sequence, None)

    def _end_answer(self, sequence: Sequence) -> None:
        """Add to `overshoot` the tokens counted beyond the last whole token of *sequence*, which stops decoding."""
        if sequence.decoding:
            reached = self._base[sequence] + self._pace[sequence] * self._step
            self.overshoot += reached - self._context(sequence, self._step)

    def _known(self, sequence: Sequence, computed: int, new: int) -> int:
        return computed + (min(new, 1) if sequence.decoding else new)

    def _held(self, sequence: Sequence, served: int = 0) -> int:
        return sequence.held

    def _delay(self, sequence: Sequence) -> None:
        self._base[sequence] -= self._pace[sequence]
        sequence.finish_step += 1

    def _fill_decodes(self) -> None:
        super()._fill_decodes()
        batch = self.batch
        batch.kv_tokens = round(self._drafted_base_sum + self._pace_sum * self._step)
        batch.draft_tokens = self._decoding * self._drafts - self._tokens_short
        batch.accepted_tokens = self._pace_sum - self._decoding - (self._shortened[1] if self._shortened else 0)

    def _drop(self, excluded: list[Sequence]) -> None:
        super()._drop(excluded)
        self.batch.draft_tokens -= len(excluded) * self._drafts
        self.batch.accepted_tokens -= sum(self._pace[sequence] - 1 for sequence in excluded)

    def _enter_decoding(self, sequence: Sequence) -> None:
        Scheduler._enter_decoding(self, sequence)
        self._pace_sum += self._pace[sequence]
        self._drafted_base_sum += self._base[sequence]
        self._phases.add(sequence)

    def _leave_decoding(self, sequence: Sequence) -> None:
        Scheduler._leave_decoding(self, sequence)
        self._pace_sum -= self._pace[sequence]
        self._drafted_base_sum -= self._base[sequence]
        self._phases.remove(sequence)


class AsyncDraftScheduler(DraftScheduler):
    """Draft scheduler whose steps are formed one ahead."""

    def __init__(self, limits: SchedulerLimits, pool: BlockPool, waiting: WaitingQueue, ahead: bool = True) -> None:
        super().__init__(limits, pool, waiting, ahead)
        self._partial_drafts: dict[Sequence, tuple[int, int, int]] = {}
        """Sequence without all drafts in the current step -> (number of the step being formed, context before the
        current step, tokens that the KV cache holds before the step being formed)."""
        self._recomputed: list[Sequence] = []
        """Sequences that drafts finish in the current step: the step being formed computes them once more."""

    def _start(self, sequence: Sequence, step: int) -> tuple[int, int]:
        """Return the context before the current step, and the tokens that the KV cache holds before step *step*."""
        odd = self._partial_drafts.get(sequence)
        if odd is not None and odd[0] == step:
            return odd[1], odd[2]
        context = self._context(sequence, step - 1)
        return context, context + self._per_decode

    def _reach(self, sequence: Sequence, step: int) -> int:
        return self._start(sequence, step)[1] + self._per_decode

    def _first_step(self, sequence: Sequence, tokens: int) -> int:
        if tokens >= sequence.request.prompt_tokens + sequence.output_tokens - 1 + 2 * self._drafts:
            return NEVER
        step = ceil((tokens - 1 - 2 * self._drafts - self._base[sequence]) / self._pace[sequence]) + 1
        odd = self._partial_drafts.get(sequence)
        if odd is None:
            return step
        if odd[0] >= self._step and odd[2] + self._per_decode > tokens:
            return odd[0]
        return max(step, odd[0] + 1)

    def _need(self, sequence: Sequence, tokens: int) -> int:
        reach = self._start(sequence, self._step)[1] + tokens
        return max(0, -(-reach // self.pool.block_size) - sequence.held)

    def _start_decoding(self, sequence: Sequence, left: int) -> None:
        super()._start_decoding(sequence, left)
        padding = self._drafts if sequence in self._padded else 0
        self._partial_drafts[sequence] = self._step, sequence.computed, sequence.computed + padding

    def _delay(self, sequence: Sequence) -> None:
        super()._delay(sequence)
        context = self._context(sequence, self._step + 1)
        self._partial_drafts[sequence] = self._step + 1, context, context

    def form_ahead(self, now: float) -> int:
        """See `VllmScheduler.form_ahead`. Sequences computed in vain make no tokens."""
        steps = super().form_ahead(now)
        if not self._recomputed:
            return steps
        for sequence in self._recomputed:
            self.batch.sampled_seqs -= 1
            self.batch.accepted_tokens -= self._pace[sequence] - 1
            self._leave_decoding(sequence)
        self._recomputed.clear()
        return min(steps, 1)

    def _steps_until_finish(self) -> int:
        return 1 if self._recomputed else super()._steps_until_finish()

    def _serve(self, sequence: Sequence, tokens: int) -> None:
        if sequence not in self._recomputed:
            super()._serve(sequence, tokens)
            return
        sequence.held += self._need(sequence, tokens)
        self._phases.add(sequence)
        self._tokens_short = self._per_decode - tokens

    def _exclude(self, decoding: list[Sequence]) -> list[Sequence]:
        for sequence in [one for one in decoding if one in self._recomputed]:
            self._recomputed.remove(sequence)
            self._leave_decoding(sequence)
        excluded = super()._exclude([one for one in decoding if one.decoding])
        if excluded and self._recomputed:
            going_on = (one for one in self.running if one.decoding and one not in self._recomputed)
            self._finishing.rebuild(going_on)
        return excluded

    def closing(self, flight: InFlightStep) -> None:
        """See `VllmScheduler.closing`. A sequence with fewer drafts advances less."""
        if self._shortened is not None:
            sequence, lost = self._shortened
            context = self._context(sequence, self._step)
            self._leave_decoding(sequence)
            self._base[sequence] -= lost
            self._partial_drafts[sequence] = self._step + 1, context, context + self._per_decode - self._tokens_short
            self._enter_decoding(sequence)
            self._shortened = None

    def end_decoding(self, sequence: Sequence, flight: InFlightStep) -> None:
        """See `VllmScheduler.end_decoding`."""
        self._end_answer(sequence)
        flight.contexts_before[sequence] = context = self._start(sequence, self._step)[0]
        if context + 2 - sequence.request.prompt_tokens < sequence.output_tokens:
            self._recomputed.append(sequence)
        else:
            self._leave_decoding(sequence)

    def _preempt(self, sequence: Sequence, withdrawn: int) -> None:
        flight = self.flight
        if (
            flight
            and self._token_in_flight(sequence)
            and sequence not in flight.leaving
            and sequence not in flight.chunks
        ):
            flight.contexts_before[sequence] = self._start(sequence, self._step)[0]
        if sequence in self._recomputed:
            self._recomputed.remove(sequence)
            self._leave_decoding(sequence)
            self._tokens_short = 0 if 0 < withdrawn < self._per_decode else self._tokens_short
        super()._preempt(sequence, withdrawn)

    def _known(self, sequence: Sequence, computed: int, new: int) -> int:
        flight = self.flight
        if flight is None or not self._token_in_flight(sequence):
            return super()._known(sequence, computed, new)
        if sequence in flight.chunks:
            return computed
        context = (
            flight.contexts_before[sequence] if sequence in flight.leaving else self._start(sequence, self._step)[0]
        )
        return context + min(new, 1)

    def made_before(self, sequence: Sequence, made: int, flight: InFlightStep) -> int:
        """See `VllmScheduler.made_before`."""
        context = flight.contexts_before.get(sequence)
        return made - 1 if context is None else context + 1 - sequence.request.prompt_tokens

    def progress_before_last(self, sequence: Sequence, flight: InFlightStep, whole: int) -> ReplicaProgress:
        """See `VllmScheduler.progress_before_last`."""
        chunk = flight.chunks.get(sequence)
        if chunk is not None:
            made = sequence.made - (sequence.decoding or sequence in flight.leaving)
            return ReplicaProgress(sequence.computed - chunk, made)
        if not sequence.decoding and sequence not in flight.leaving:
            return ReplicaProgress(sequence.computed, sequence.made)
        context = (
            flight.contexts_before[sequence] if sequence in flight.leaving else self._start(sequence, self._step)[0]
        )
        return ReplicaProgress(context, context + 1 - sequence.request.prompt_tokens)

    def known_tokens_when_dropped(self, sequence: Sequence, in_step: bool) -> int:
        """See `VllmScheduler.known_tokens_when_dropped`."""
        self._end_answer(sequence)
        context, behind = self._start(sequence, self._step)
        return context + (in_step and behind > context)

    def forget(self, sequence: Sequence) -> None:
        """See `VllmScheduler.forget`."""
        super().forget(sequence)
        self._partial_drafts.pop(sequence, None)
