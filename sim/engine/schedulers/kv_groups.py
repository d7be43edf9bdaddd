"""vLLM's rules for groups of KV caches that share one pool (`v1/core/kv_cache_coordinator.py`).

Each group of layers has its own blocks. A group with a sliding window frees the blocks that lie before the window of
the next token, once the steps that read them have ended, and reserves no more for a joining request than the window and
the tokens in flight take.
"""

from collections.abc import Iterable

from sim.engine.kv.decode_steps import ADMISSION, GroupPhases
from sim.engine.kv.group_cache import GroupCache
from sim.engine.kv.group_pool import GroupPool, StatePool
from sim.engine.limits import SchedulerLimits
from sim.engine.schedulers.pipeline import InFlightBatch, InFlightSequence, PipelineScheduler
from sim.engine.schedulers.scheduler import Scheduler
from sim.engine.schedulers.vllm import VllmScheduler
from sim.engine.schedulers.waiting_queue import WaitingQueue
from sim.engine.sequence import Sequence


class GroupPipelineScheduler(PipelineScheduler):
    """Scheduler of pipelined batches whose requests hold blocks in several groups."""

    USES_COHORTS = False

    def __init__(self, limits: SchedulerLimits, pool: GroupPool, waiting: WaitingQueue, ahead: int) -> None:
        super().__init__(limits, pool, waiting, ahead)
        self._groups = pool

    def _fits_held_blocks(self, one: InFlightSequence) -> bool:
        return False  # blocks may be freed in any step

    def _need(self, one: InFlightSequence, new: int) -> int:
        self._groups.give_back(one, max(0, one.computed - one.tokens_in_flight))
        return self._groups.needs(one, one.computed + new)

    def _missing(self, one: InFlightSequence, hits: int, new: int) -> int:
        groups = self._groups
        size, windows = groups.block_size, groups.windows
        first = [groups.wanted(group, hits * size + new) for group in range(len(windows))]
        joins = groups.joins(one, hits, first)
        if not self.limits.options.reserves_all_tokens:
            return joins
        whole = [self.limits.reserved_blocks(window, one.tokens) for window in windows]
        return max(joins, groups.joins(one, hits, whole))

    def _allocate(self, one: InFlightSequence, blocks: int, new: int) -> None:
        self._groups.grow(one, one.computed + new)
        self._name(one, min(one.computed + new, one.tokens))


class StatePipelineScheduler(GroupPipelineScheduler):
    """Scheduler of pipelined batches with states in the prefix cache (vLLM's `_mamba_block_aligned_split`)."""

    def __init__(self, limits: SchedulerLimits, pool: StatePool, waiting: WaitingQueue, ahead: int) -> None:
        super().__init__(limits, pool, waiting, ahead)
        self._states = pool

    def form(self, now: float) -> InFlightBatch | None:
        """See `PipelineScheduler.form`."""
        self._states.begin_step()
        return super().form(now)

    def _cut(self, one: InFlightSequence, start: int, new: int) -> int:
        """Return the length of the chunk of *one* from *start*, at most *new*, so that states can be cached.

        A chunk of a prompt ends with a whole block, unless the prompt ends there or no chunk holds a block. No chunk
        crosses the last whole block, or the end of what others have computed without leaving a state.
        """
        if one not in self.running:
            one.junction = self._states.junction(one)
        size, limits, end = self.pool.block_size, self.limits, start + new
        prefill_end = max(one.request.prompt_tokens, one.tokens - 1)
        if start >= prefill_end:
            return new
        if end < prefill_end:
            most = min(
                limits.max_num_batched_tokens, limits.options.long_prefill_token_threshold or limits.max_model_len
            )
            whole = end // size * size
            if whole > start or size <= most:
                end = whole
        stops = [one.tokens // size * size, one.junction // size * size]
        if start % size:
            stops.append((start // size + 1) * size)
        return max(0, min((stop for stop in stops if start < stop < end), default=end) - start)


class GroupScheduler(VllmScheduler):
    """Scheduler of one rank whose sequences hold blocks in several groups.

    `Sequence.held` counts places, one for all groups.
    """

    __slots__ = ("_blocks_to_admit", "_group_phases", "_grouped", "_limits", "_tokens_in_flight")

    def __init__(self, limits: SchedulerLimits, pool: GroupCache, waiting: WaitingQueue, ahead: bool = False) -> None:
        super().__init__(limits, pool, waiting, ahead)
        self._limits = limits
        self._tokens_in_flight = int(ahead)
        """Tokens of a decoding sequence whose step has not ended when the next one is formed: a window keeps what that
        step reads."""
        self._grouped = pool
        self._windowed = bool(pool.sliding)
        self._phases = self._group_phases = GroupPhases(pool, self._tokens_in_flight)
        self._blocks_to_admit = 0
        """Number of free blocks below which the head of the queue cannot join."""

    def may_admit(self, sequence: Sequence) -> bool:
        """See `Scheduler.may_admit`. While others decode, blocks become free or cached ones are lost."""
        if not self._windowed and self._reserves_all:
            return super().may_admit(sequence)
        return self.has_room()

    def _missing(self, sequence: Sequence, hits: int, chunk: int) -> int:
        pool, limits = self._grouped, self._limits
        blocks = -(-(hits * pool.block_size + chunk) // pool.block_size)
        first = {window: min(blocks, 1) if window == 0 else blocks for window in pool.windows}
        places = [first]
        if self._reserves_all:
            places.append({window: limits.reserved_blocks(window, sequence.tokens) for window in first})
        total, fewest = pool.joins(sequence, hits, *places)
        kept = self._watermark_blocks if self.running else 0
        self._blocks_to_admit = fewest + kept
        return total + kept

    def _in_flight(self, sequence: Sequence) -> int:
        """Return the tokens of *sequence* that are being computed while the next step is formed."""
        flight = self.flight
        if flight is None:
            return 0
        chunk = flight.chunks.get(sequence)
        return (sequence.decoding and sequence not in flight.excluded) if chunk is None else chunk

    def _slide_all(self) -> None:
        fresh = self._group_phases.fresh
        self._name_before_sliding(due := self._due(self._step), self._step)
        for one in due:
            self._slide_one(one, fresh)

    def _slide_one(self, one: Sequence, fresh: dict[Sequence, None]) -> None:
        tokens_in_flight = self._in_flight(one)
        self._grouped.slide(one, one.base + self._step - tokens_in_flight)
        if tokens_in_flight <= self._tokens_in_flight:
            fresh.pop(one, None)

    def _due(self, step: int) -> list[Sequence]:
        """Return the sequences that may free blocks when the step at counter *step* is formed, in admission order."""
        if self._tokens_in_flight and step == self._step and self.flight is None:
            return [one for one in self.running if one.decoding]
        phases, windows = self._group_phases, self._grouped.sliding
        if not phases.fresh and len(windows) == 1:
            ones = phases.sliding(step, windows[0])
            if len(ones) > 1:
                ones.sort(key=ADMISSION)
            return ones
        due = dict(phases.fresh)
        for window in windows:
            due.update(dict.fromkeys(phases.sliding(step, window)))
        return sorted(due, key=ADMISSION) if len(due) > 1 else list(due)

    def _name_before_sliding(self, due: Iterable[Sequence], step: int) -> None:
        """Name the blocks that leave a window, so that others can look them up."""
        if self._tokens_in_flight and self._shared_answers and step == self._step:
            self._name_answers(False)
            return
        behind, pool = self._tokens_in_flight, self._grouped
        if self._shared_answers and any(pool.unnamed(one, one.base + step - behind) for one in due):
            self._shared_answers.name(step - behind)

    def _take_leap(self, steps: int) -> None:
        pool, phases, behind = self._grouped, self._group_phases, self._tokens_in_flight
        if not self._windowed:
            super()._take_leap(steps)
            return
        end, at_once = self._step + steps, pool.only_sliding >= 0 and not self._shared_answers
        for step in range(self._step + 1, end):
            if at_once and not phases.fresh:
                phases.take_leap(step, end - step)
                return
            if due := self._due(step):
                self._name_before_sliding(due, step)
                for one in due:
                    pool.slide(one, one.base + step - behind)
                phases.fresh.clear()
            if blocks := phases.blocks_at(step):
                pool.take(blocks)

    def _steps_until_change(self) -> int:
        steps = super()._steps_until_change()
        if steps > 1 and self.blocked_by == "kv":
            short = self._blocks_to_admit - self.pool.free
            if self._windowed or short <= 0:  # without freed blocks the head can only join if it loses cached blocks
                steps = max(1, self._group_phases.steps_until_free(self._step, steps, short))
        return steps

    def _blocks_for(self, sequence: Sequence, chunk: int) -> int:
        pool = self._grouped
        places = -(-(sequence.computed + chunk) // pool.block_size)
        return (places - sequence.held) * pool.growing + (pool.states if not sequence.held else 0)

    def _need_for_chunk(self, sequence: Sequence, chunk: int) -> int:
        self._grouped.slide(sequence, sequence.computed - self._in_flight(sequence))
        return self._blocks_for(sequence, chunk)

    def _need(self, sequence: Sequence, tokens: int) -> int:
        self._slide_one(sequence, self._group_phases.fresh)
        return super()._need(sequence, tokens) * self._grouped.growing

    def _schedule_chunk(self, sequence: Sequence, chunk: int) -> None:
        blocks = self._need_for_chunk(sequence, chunk)
        if blocks > 0:
            self.pool.take(blocks)
            sequence.held = -(-(sequence.computed + chunk) // self.pool.block_size)
        Scheduler._schedule_chunk(self, sequence, chunk)
