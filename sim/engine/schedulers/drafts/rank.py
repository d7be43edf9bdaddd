"""vLLM's rules with drafted tokens (speculative decoding).

A step computes 1 + k tokens for each sequence that decodes: the next one and k that were drafted behind it. Those of
them that the model itself would have made are kept, and the next one after them. Budget and KV blocks count all 1 + k;
the blocks of those that do not hold stay with the sequence, which fills them later. A sequence comes `pace` tokens
further in a step, the same in all of them.
"""

from math import ceil

from sim.engine.kv.blocks import BlockPool
from sim.engine.kv.slots import Slots
from sim.engine.kv.windows import WindowedContexts
from sim.engine.limits import RankLimits
from sim.engine.schedulers.queues.waiting import WaitingQueue
from sim.engine.schedulers.rank import Rank
from sim.engine.schedulers.rank_schedule import RankSchedule
from sim.engine.sequence import Sequence

PARTS = 1 << 16
"""A pace is a multiple of this part of a token: then contexts and their sums are exact."""

NEVER = 1 << 62
"""A step that does not come."""


class DraftRank(Rank):
    """One rank whose decoding sequences come several tokens further in a step."""

    def __init__(self, limits: RankLimits, pool: BlockPool, waiting: WaitingQueue) -> None:
        super().__init__(limits, pool, waiting)
        self._drafts = limits.draft_tokens
        self._accepts = limits.accepts
        self._per_decode = 1 + self._drafts
        self._answers = None
        self._phases = Slots(pool.block_size, self._reach, self._first_step)
        self._pace: dict[Sequence, float] = {}
        """Tokens per step of those who decode."""
        if limits.window:
            self._windows = WindowedContexts(limits.window, self._pace)
        self._pace_sum: float = 0
        self._padded: list[Sequence] = []
        """Sequences whose only token in the step formed last is padded with drafts, none of which holds."""
        self._cut: tuple[Sequence, float] | None = None
        """Who has fewer drafts in the step being formed, and how many tokens it comes less far."""

    @property
    def pace(self) -> float:
        """See `RankSchedule.pace`."""
        batch = self.batch
        return (batch.decode_seqs + batch.accepted_tokens) / batch.decode_seqs if batch.decode_seqs else 1

    def _reach(self, sequence: Sequence, step: int) -> int:
        return self._context(sequence, step) + self._per_decode

    def _first_step(self, sequence: Sequence, tokens: int) -> int:
        if tokens >= sequence.request.prompt_tokens + sequence.output_tokens + self._drafts:
            return NEVER
        return ceil((tokens - self._drafts - sequence.base) / self._pace[sequence])

    def _context(self, sequence: Sequence, step: int) -> int:
        most = sequence.request.prompt_tokens + sequence.output_tokens - 1
        return min(int(sequence.base + self._pace[sequence] * step), most)

    def _start_decoding(self, sequence: Sequence, left: int) -> None:
        self._pace[sequence] = pace = 1 + ceil(self._accepts(sequence.request, left) * PARTS) / PARTS
        sequence.base = sequence.computed - pace * self._step  # type: ignore[assignment]  # no whole number
        sequence.finish_step = self._step + ceil(left / pace)

    def _serve_running(self) -> list[Sequence]:
        if self._decoding * self._per_decode > self._max_num_batched_tokens - len(self._prefilling):
            return self._serve_one_by_one()
        return super()._serve_running()

    def _form(self, now: float) -> int:
        self._cut = None
        self._padded.clear()
        steps = super()._form(now)
        if self.adapters is not None and self._cut is not None and self._cut[0].request.adapter:
            self.batch.adapted_tokens -= self._short
        if self.adapters is not None:
            self.batch.adapted_tokens += self._drafts * sum(1 for one in self._padded if one.request.adapter)
        return min(steps, 1) if self._short or self.batch.decode_seqs < self._decoding else steps

    def _padding(self, sequence: Sequence, known: int) -> int:
        # as in vLLM, not next to prompts, nor where all else in the step joins it, too
        if sequence.tokens - known > 1 or self._prompts_go_on or not (self._taken or known):
            return 0
        room = min(self._max_num_batched_tokens, self._max_model_len - known - 1)
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
            self._short = self._per_decode - tokens
            pace = self._pace[sequence]
            self._cut = sequence, max(0, pace - tokens)
            left = sequence.output_tokens - self._made(sequence) - min(pace, tokens)
            sequence.finish_step = self._step + 1 + max(0, ceil(left / pace))
            self._finishing.rebuild(self._finishing.sequences())

    def _made(self, sequence: Sequence) -> int:
        return self._context(sequence, self._step) + 1 - sequence.request.prompt_tokens

    def commit(self, steps: int, end_s: float) -> list[Sequence]:
        """See `Schedule.commit`; who had fewer drafts comes less far."""
        if self._cut is not None:
            sequence, lost = self._cut
            self._leave_decoding(sequence)
            sequence.base -= lost  # type: ignore[assignment]
            self._enter_decoding(sequence)
        return super().commit(steps, end_s)

    def _preempt(self, sequence: Sequence, withdrawn: int) -> None:
        if self._cut is not None and self._cut[0] is sequence:
            self._cut, self._short = None, 0
        self._end_answer(sequence)
        super()._preempt(sequence, withdrawn)
        self._pace.pop(sequence, None)

    def _leave(self, sequence: Sequence) -> None:
        self._end_answer(sequence)
        super()._leave(sequence)
        self._pace.pop(sequence, None)

    def _end_answer(self, sequence: Sequence) -> None:
        """*sequence* decodes no further here: parts of tokens beyond the last whole one are nobody's."""
        if sequence.decoding:
            reached = sequence.base + self._pace[sequence] * self._step
            self.overshoot += reached - self._context(sequence, self._step)

    def _known(self, sequence: Sequence, computed: int, new: int) -> int:
        return computed + (min(new, 1) if sequence.decoding else new)

    def _held(self, sequence: Sequence, served: int = 0) -> int:
        return sequence.held

    def _stand_still(self, sequence: Sequence) -> None:
        sequence.base -= self._pace[sequence]  # type: ignore[assignment]
        sequence.finish_step += 1

    def _fill_decodes(self) -> None:
        super()._fill_decodes()
        batch = self.batch
        batch.kv_tokens = round(self._base_sum + self._pace_sum * self._step)
        batch.draft_tokens = self._decoding * self._drafts - self._short
        batch.accepted_tokens = self._pace_sum - self._decoding - (self._cut[1] if self._cut else 0)

    def _drop(self, still: list[Sequence]) -> None:
        super()._drop(still)
        self.batch.draft_tokens -= len(still) * self._drafts
        self.batch.accepted_tokens -= sum(self._pace[sequence] - 1 for sequence in still)

    def _enter_decoding(self, sequence: Sequence) -> None:
        RankSchedule._enter_decoding(self, sequence)
        self._pace_sum += self._pace[sequence]
        self._phases.add(sequence)

    def _leave_decoding(self, sequence: Sequence) -> None:
        RankSchedule._leave_decoding(self, sequence)
        self._pace_sum -= self._pace[sequence]
        self._phases.remove(sequence)
