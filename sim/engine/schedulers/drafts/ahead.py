"""vLLM's rules with drafted tokens where the next step is formed while one runs.

Each step is formed as if all drafts of the one under way held: its KV blocks lie behind those, and blocks that turn out
too many stay with the sequence. A request is left out of the next step only where the one under way is sure to make its
last token, without any draft that holds; where drafts finish it, the next step computes it once more in vain.
"""

from math import ceil

from sim.engine.kv.blocks import BlockPool
from sim.engine.limits import RankLimits
from sim.engine.schedulers.ahead import AsyncRank, Flight
from sim.engine.schedulers.drafts.rank import NEVER, DraftRank
from sim.engine.schedulers.queues.waiting import WaitingQueue
from sim.engine.sequence import Sequence
from sim.records import Progress, Request


class AsyncDraftRank(DraftRank, AsyncRank):
    """One rank that drafts and whose steps are formed one ahead."""

    def __init__(self, limits: RankLimits, pool: BlockPool, waiting: WaitingQueue) -> None:
        super().__init__(limits, pool, waiting)
        self._odd: dict[Sequence, tuple[int, int, int]] = {}
        """(step, context before the step under way, tokens behind which the step's own lie) where the step under way
        does not hold all the drafts of the sequence."""
        self._again: list[Sequence] = []
        """Whom drafts finish in the step under way: the step being formed computes them once more."""
        self._before: dict[Sequence, int] = {}
        """Contexts before the step under way of those who leave or gave way in it."""

    def _start(self, sequence: Sequence, step: int) -> tuple[int, int]:
        """Context before the step under way, and tokens behind which those of the step at counter *step* lie."""
        odd = self._odd.get(sequence)
        if odd is not None and odd[0] == step:
            return odd[1], odd[2]
        context = self._context(sequence, step - 1)
        return context, context + self._per_decode

    def _reach(self, sequence: Sequence, step: int) -> int:
        return self._start(sequence, step)[1] + self._per_decode

    def _first_step(self, sequence: Sequence, tokens: int) -> int:
        if tokens >= sequence.request.prompt_tokens + sequence.output_tokens - 1 + 2 * self._drafts:
            return NEVER
        step = ceil((tokens - 1 - 2 * self._drafts - sequence.base) / self._pace[sequence]) + 1
        odd = self._odd.get(sequence)
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
        self._odd[sequence] = self._step, sequence.computed, sequence.computed + padding

    def _stand_still(self, sequence: Sequence) -> None:
        super()._stand_still(sequence)
        context = self._context(sequence, self._step + 1)
        self._odd[sequence] = self._step + 1, context, context

    def form(self, now: float) -> int:
        """See `Schedule.form`; who is computed in vain makes no tokens."""
        steps = AsyncRank.form(self, now)
        if not self._again:
            return steps
        for sequence in self._again:
            self.batch.sampled_seqs -= 1
            self.batch.accepted_tokens -= self._pace[sequence] - 1
            self._leave_decoding(sequence)
        self._again.clear()
        return min(steps, 1)

    def _steps_until_finish(self) -> int:
        return 1 if self._again else super()._steps_until_finish()

    def _serve(self, sequence: Sequence, tokens: int) -> None:
        if sequence not in self._again:
            super()._serve(sequence, tokens)
            return
        sequence.held += self._need(sequence, tokens)
        self._phases.add(sequence)
        self._short = self._per_decode - tokens

    def _leave_out(self, decoding: list[Sequence]) -> list[Sequence]:
        for sequence in [one for one in decoding if one in self._again]:
            self._again.remove(sequence)
            self._leave_decoding(sequence)
        still = super()._leave_out([one for one in decoding if one.decoding])
        if still and self._again:
            going_on = (one for one in self.running if one.decoding and one not in self._again)
            self._finishing.rebuild(going_on)
        return still

    def close(self, flight: Flight) -> None:
        """See `AsyncRank.close`; who had fewer drafts comes less far."""
        if self._cut is not None:
            sequence, lost = self._cut
            context = self._context(sequence, self._step)
            self._leave_decoding(sequence)
            sequence.base -= lost  # type: ignore[assignment]
            self._odd[sequence] = self._step + 1, context, context + self._per_decode - self._short
            self._enter_decoding(sequence)
            self._cut = None
        super().close(flight)

    def _end_decoding(self, sequence: Sequence) -> None:
        self._end_answer(sequence)
        self._before[sequence] = context = self._start(sequence, self._step)[0]
        if context + 2 - sequence.request.prompt_tokens < sequence.output_tokens:
            self._again.append(sequence)
        else:
            self._leave_decoding(sequence)

    def _preempt(self, sequence: Sequence, withdrawn: int) -> None:
        if (
            self._runs is not None
            and self._token_coming(sequence)
            and sequence not in (*self._leaving, *self._runs.chunks)
        ):
            self._before[sequence] = self._start(sequence, self._step)[0]
        if sequence in self._again:
            self._again.remove(sequence)
            self._leave_decoding(sequence)
            self._short = 0 if 0 < withdrawn < self._per_decode else self._short
        super()._preempt(sequence, withdrawn)
        self._odd.pop(sequence, None)

    def _known(self, sequence: Sequence, computed: int, new: int) -> int:
        if not self._token_coming(sequence):
            return super()._known(sequence, computed, new)
        if self._runs is not None and sequence in self._runs.chunks:
            return computed
        context = self._before[sequence] if sequence in self._leaving else self._start(sequence, self._step)[0]
        return context + min(new, 1)

    def finish(self, flight: Flight, end_s: float) -> list[Request]:
        """See `AsyncRank.finish`."""
        self._before.clear()
        return super().finish(flight, end_s)

    def _made_before(self, sequence: Sequence, made: int) -> int:
        context = self._before.get(sequence)
        return made - 1 if context is None else context + 1 - sequence.request.prompt_tokens

    def _progress_before_last(self, sequence: Sequence, flight: Flight, whole: int) -> Progress:
        chunk = flight.chunks.get(sequence)
        if chunk is not None:
            made = sequence.made - (sequence.decoding or sequence in self._leaving)
            return Progress(sequence.computed - chunk, made)
        if not sequence.decoding and sequence not in self._leaving:
            return Progress(sequence.computed, sequence.made)
        context = self._before[sequence] if sequence in self._leaving else self._start(sequence, self._step)[0]
        return Progress(context, context + 1 - sequence.request.prompt_tokens)

    def _known_when_dropped(self, sequence: Sequence, in_step: bool) -> int:
        self._end_answer(sequence)
        context, behind = self._start(sequence, self._step)
        return context + (in_step and behind > context)

    def drop_evicted(self, formed: bool) -> bool:
        """See `AsyncRank.drop_evicted`."""
        evicted = list(self._evicted)
        dropped = super().drop_evicted(formed)
        for sequence in evicted:
            self._odd.pop(sequence, None)
            self._pace.pop(sequence, None)
        return dropped

    def _leave(self, sequence: Sequence) -> None:
        super()._leave(sequence)
        self._odd.pop(sequence, None)
