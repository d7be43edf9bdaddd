"""Schedulers of TensorRT-LLM and llama.cpp: KV blocks are reserved for a whole request, or taken as needed.

`ReserveScheduler` follows TensorRT-LLM's capacity scheduler (GUARANTEED_NO_EVICT) with in-flight batching: a request is
admitted only if the KV blocks of its whole prompt and output are free, and holds them to its end. Every step serves all
decoding requests, then prompts in order while token budget, batch places and reserved blocks last; a prompt joins
whole, or in chunks. No sequence is ever preempted.

`OverlapScheduler` forms each step while the one before it runs. In `_torch/pyexecutor/py_executor.py`
(`_executor_loop_overlap`) a step is launched before the result of the one before it is processed, and a request whose
last token is being made is in no further step (GENERATION_TO_COMPLETE).

With MAX_UTILIZATION (`capacityScheduler.cpp`, MaxUtilizationScheduler) a request joins with the blocks of its prompt,
and where a started request finds no block for its next step, the last one started is paused: its blocks are freed, and
it later computes prompt and tokens again. The "two steps look-ahead", which keeps one more block free for decoding
requests, is not modelled.

llama.cpp's slots are `ReserveScheduler` with one block each, as large as a slot's context: `update_slots`
(`tools/server/server-context.cpp`) puts one token of each generating slot into the batch and fills it up to n_batch
with prompts. Where slots share one KV cache (`--kv-unified`), a request needs a free slot to begin and no cells
beforehand; each token uses a cell. Where there are fewer cells than tokens in a step, the server computes what fits, in
ever smaller parts, and then ends all requests in slots with an error ("Context size has been exceeded."); the cache is
empty after that, and waiting requests continue.
"""

from sim.engine.kv.blocks import BlockPool
from sim.engine.limits import SchedulerLimits
from sim.engine.schedulers.scheduler import Scheduler
from sim.engine.schedulers.vllm import VllmScheduler
from sim.engine.schedulers.waiting_queue import WaitingQueue
from sim.engine.sequence import Sequence


def whole_tokens(sequence: Sequence) -> int:
    """Return the tokens of the whole request of *sequence* that need KV: all but the last one made."""
    return sequence.request.prompt_tokens + sequence.output_tokens - 1


def hold_whole(pool: BlockPool, sequence: Sequence, hits: int) -> None:
    """Give *sequence*, which has *hits* cached blocks, the blocks of its whole request."""
    sequence.held = -(-whole_tokens(sequence) // pool.block_size)
    pool.take(sequence.held - hits)


class ReserveScheduler(Scheduler):
    """Scheduler of one rank whose requests reserve all their KV blocks at admission."""

    def may_admit(self, sequence: Sequence) -> bool:
        """See `Scheduler.may_admit`."""
        return self.has_room() and self._missing(sequence, self.pool.lookup(sequence), 0) <= self.pool.free

    def _missing(self, sequence: Sequence, hits: int, chunk: int) -> int:
        return self.pool.missing(sequence, hits, whole_tokens(sequence))

    def _hold(self, sequence: Sequence, hits: int) -> None:
        super()._hold(sequence, hits)
        hold_whole(self.pool, sequence, hits)

    def form(self, now: float) -> int:
        """See `Scheduler.form`."""
        self.blocked_by = ""
        if not self.running and not self.waiting:
            return 0
        self.recomputed_in_step = self.cached_in_step = 0
        self._admit(self._continue_prompt(self._max_num_batched_tokens - self._decoding), now)
        self._fill_decodes()
        self._fill_chunks()
        if self._chunks:
            return 1
        return self._steps_until_finish() if self._decoding else 0


class OverlapScheduler(VllmScheduler):
    """Scheduler of one rank under the rules of `ReserveScheduler` that forms each step one ahead."""

    def __init__(self, limits: SchedulerLimits, pool: BlockPool, waiting: WaitingQueue, ahead: bool = False) -> None:
        super().__init__(limits, pool, waiting, ahead)
        self._shared_answers = None

    def may_admit(self, sequence: Sequence) -> bool:
        """See `Scheduler.may_admit`."""
        return self.has_room() and self._missing(sequence, self.pool.lookup(sequence), 0) <= self.pool.free

    def _missing(self, sequence: Sequence, hits: int, chunk: int) -> int:
        return self.pool.missing(sequence, hits, whole_tokens(sequence))

    def _hold(self, sequence: Sequence, hits: int) -> None:
        super()._hold(sequence, hits)
        hold_whole(self.pool, sequence, hits)

    def _form(self, now: float) -> int:
        self.blocked_by = ""
        if not self.running and not self.waiting:
            return 0
        self._chunks.clear()
        self.recomputed_in_step = self.cached_in_step = 0
        self._admit(self._continue_prompt(self._max_num_batched_tokens - self._decoding), now)
        self._fill_decodes()
        self._fill_chunks()
        if self._chunks:
            return 1
        return self._steps_until_finish() if self._decoding else 0

    def blocks_ahead(self, steps: int) -> int:
        """See `Scheduler.blocks_ahead`."""
        return 0

    def _blocks_of_leap(self, steps: int) -> int:
        return 0

    def known_tokens_when_dropped(self, sequence: Sequence, in_step: bool) -> int:
        """See `VllmScheduler.known_tokens_when_dropped`. The blocks of the whole request are held."""
        return sequence.base + self._step - (not in_step)


class HoldingScheduler(ReserveScheduler):
    """Scheduler that can leave out of a step the prompts that it has chosen for it.

    They hold their batch places and blocks meanwhile.
    """

    def _schedule_chunk(self, sequence: Sequence, chunk: int) -> None:
        self._chunks.append((sequence, chunk))

    def _fill_chunks(self) -> None:
        for sequence, chunk in self._chunks:
            self.pool.name(sequence, sequence.computed + chunk)
        super()._fill_chunks()


class BatchWaitingScheduler(HoldingScheduler):
    """Scheduler whose prompts wait until they fill a step, or for a number of steps.

    Prompts do not wait where no request decodes. The rules are those of TensorRT-LLM's `py_executor.py`
    (`_waiting_requests`).
    """

    def __init__(self, limits: SchedulerLimits, pool: BlockPool, waiting: WaitingQueue) -> None:
        super().__init__(limits, pool, waiting)
        self._most_steps = limits.options.batch_wait_timeout_iters
        self._enough_tokens = limits.batch_wait_tokens
        self._waited = 0
        """Steps that prompts have waited for others to come."""
        self._holds = False
        """True if the step formed last leaves out prompts that could be computed."""

    def _fill_chunks(self) -> None:
        tokens = self._decoding + sum(chunk for _, chunk in self._chunks)
        self._holds = 0 < self._decoding < tokens < self._enough_tokens and self._waited < self._most_steps
        if self._holds:
            self._waited += 1
            self._chunks.clear()
        elif self._chunks and self._decoding:
            self._waited = 0
        super()._fill_chunks()

    def _steps_until_finish(self) -> int:
        return 1 if self._holds else super()._steps_until_finish()


class BalancedScheduler(HoldingScheduler):
    """Scheduler of a rank whose prompts go into a step when `PromptBalance` of its replica allows it."""

    @property
    def work(self) -> tuple[int, int]:
        """Number of prompts that could be computed in the step being formed, and of decoding requests."""
        return len(self._chunks), self._decoding

    @property
    def has_free_place(self) -> bool:
        """True if fewer requests decode than `max_num_seqs`."""
        return self._decoding < self.max_num_seqs

    def choose(self, now: float) -> None:
        """Choose the prompts and decodes of the next step."""
        self.blocked_by = ""
        self.recomputed_in_step = self.cached_in_step = 0
        self._admit(self._continue_prompt(self._max_num_batched_tokens - self._decoding), now)

    def complete(self, hold: bool) -> int:
        """Complete the step, without its prompts if these *hold*. Return the number of steps as `form` does."""
        if hold:
            self._chunks.clear()
        self._fill_decodes()
        self._fill_chunks()
        if self._chunks:
            return 1
        return self._steps_until_finish() if self._decoding else 0


class PromptBalance:
    """Rule of TensorRT-LLM's attention data parallelism for when ranks compute prompts.

    Prompts go into a step in which every rank has some, or, failing that, into every *timeout*-th step and into any
    step in which a rank has no request that decodes. With *batching_wait* they wait that many steps more for others
    once every rank has some (`_balance_adp_context_requests` in `_torch/pyexecutor/scheduler/scheduler.py`,
    `attention_dp_config` with `enable_balance`).
    """

    def __init__(self, timeout: int, batching_wait: int) -> None:
        self._timeout, self._batching_wait = timeout, batching_wait
        self._waited = 0
        """Steps since prompts last went into a step, or since the last timeout."""
        self._batched = 0
        """Steps for which prompts have waited since every rank has some."""
        self.standing_steps = 1
        """Steps for which the last decision to hold prompts applies, while no further prompt comes."""

    def holds(self, work: list[tuple[int, int]], free_places: bool) -> bool:
        """Return whether the prompts stay out of the step being formed.

        *work* has the number of prompts and of decoding requests of each rank; *free_places* states whether fewer
        requests decode on every rank than its `max_num_seqs`.
        """
        all_decode = all(decodes for _, decodes in work)
        if free_places and all(prompts for prompts, _ in work):
            self._waited, self.standing_steps = 0, 1
            wait = all_decode and self._batched < self._batching_wait
            if all_decode:
                self._batched = self._batched + 1 if wait else 0
            return wait
        self._waited += 1
        if self._waited >= self._timeout or not all_decode:
            self._waited = 0
            return False
        self.standing_steps = self._timeout - self._waited
        return True

    def pass_steps(self, steps: int) -> None:
        """Count *steps* more steps like the one formed last."""
        self._waited = (self._waited + steps) % self._timeout


class MaxUtilizationScheduler(VllmScheduler):
    """Scheduler of one rank whose requests take KV blocks as needed; answers are cached once they are complete."""

    def __init__(self, limits: SchedulerLimits, pool: BlockPool, waiting: WaitingQueue) -> None:
        super().__init__(limits, pool, waiting)
        self._shared_answers = None


class UnifiedCacheScheduler(VllmScheduler):
    """Scheduler of llama.cpp's slots over one cache; a block is a cell."""

    def __init__(self, limits: SchedulerLimits, pool: BlockPool, waiting: WaitingQueue) -> None:
        super().__init__(limits, pool, waiting)
        self._breaks = False
        """True if the step formed last has more tokens than there were cells: the requests in slots end with it."""

    def may_admit(self, sequence: Sequence) -> bool:
        """See `Scheduler.may_admit`."""
        return self.has_room()

    def _missing(self, sequence: Sequence, hits: int, chunk: int) -> int:
        return 0

    def _form(self, now: float) -> int:
        self.blocked_by = ""
        if not self.running and not self.waiting:
            return 0
        self.recomputed_in_step = self.cached_in_step = 0
        excluded = self._serve_answers()
        self._admit(self._continue_prompt(self._max_num_batched_tokens - self._decoding), now)
        self._fill_decodes()
        if excluded:
            self._drop(excluded)
        self._fill_chunks()
        return 1 if self._chunks or self._breaks else self._steps_until_change()

    def _serve_answers(self) -> list[Sequence]:
        """Give decoding requests their cells while there are any. Return those that get none."""
        cells = self.pool.free
        self._breaks = self._decoding > cells
        self.pool.take(min(self._decoding, cells))
        if not self._breaks:
            return []
        return self._exclude([one for one in self.running if one.decoding][cells:])

    def _schedule_chunk(self, sequence: Sequence, chunk: int) -> None:
        fits = min(chunk, self.pool.free)
        self._breaks = self._breaks or fits < chunk
        if fits:
            super()._schedule_chunk(sequence, fits)

    def commit(self, steps: int, end_s: float) -> list[Sequence]:
        """See `Scheduler.commit`. Requests without cells leave, too, with `rejected` set."""
        left = super().commit(steps, end_s)
        if self._breaks or not self.pool.free:
            left += self._end_all()
        return left

    def _end_all(self) -> list[Sequence]:
        self._breaks = False
        ended = list(self.running)
        for one in ended:
            self._prefilling.pop(one, None)
            if one.decoding:
                self._finishing.remove(one)
            one.request.rejected = True
            self._leave(one)
        return ended
