"""vLLM's rules where several batches are in flight: the stages of a pipeline.

As `v1/core/sched/scheduler.py` has them: tokens count as computed once they are scheduled, so the chunks of one prompt
follow each other through the stages, and who decodes is in one batch at a time, unless steps are formed ahead. A
preempted request still gets the token that was being made, and joins again once nothing of it is in flight.
"""

from math import isnan

from sim.engine.kv.blocks import BlockPool
from sim.engine.limits import RankLimits
from sim.engine.schedulers.queues.waiting import WaitingQueue
from sim.engine.sequence import Sequence
from sim.engine.shares import chunk_parts, recomputed_tokens
from sim.records import Batch, Request, Span


class Flying(Sequence):
    """A request that may be in several batches at once."""

    __slots__ = ("eligible", "flying", "gone", "junction", "last_end_s", "named", "placeholders", "stale")

    def __init__(self, request: Request, prompt_only: bool = False) -> None:
        super().__init__(request, prompt_only)
        self.placeholders = 0
        """Tokens of the answer that are being made, where steps are formed ahead."""
        self.flying = 0
        """Scheduled tokens whose batch has not ended."""
        self.stale = 0
        """Of these, those scheduled before a preemption."""
        self.eligible = 0
        """Call of the scheduler from which on it may decode again, where steps are formed ahead."""
        self.junction = 0
        """Tokens of its prompt behind which its state is to be kept, because others have computed as much."""
        self.named = 0
        """Tokens whose blocks have their names."""
        self.last_end_s = 0.0
        """When its last token leaves the last stage."""
        self.gone = False


class Launch:
    """A batch in flight."""

    __slots__ = (
        "batch", "blocked_by", "chunks", "end_s", "entered_s", "load", "parts", "recomputed_in_step", "sampled",
        "shared_s", "stage_s",
    )  # fmt: skip

    def __init__(self, chunks: dict[Flying, int], window: int, blocked_by: str) -> None:
        self.chunks = chunks
        self.blocked_by = blocked_by
        self.batch = _batch(chunks, window)
        prompts = [(one, new) for one, new in chunks.items() if not one.decoding] if self.batch.prefill_seqs else []
        self.parts = chunk_parts(prompts)
        self.recomputed_in_step = sum(recomputed_tokens(one, new) for one, new in prompts)
        self.sampled: set[Flying] = set()
        """Who gets a token at its end."""
        self.entered_s = self.end_s = self.stage_s = self.load = self.shared_s = 0.0

    def span(self, place: str) -> Span:
        """The batch, for whoever looks at single steps, and the *place* of a request that is asked about."""
        prompts = {sequence.request.index for sequence, *_ in self.parts}
        indices = {one.request.index: new for one, new in self.chunks.items()}
        chunks = {index: new for index, new in indices.items() if index in prompts}
        decoding = frozenset(indices) - prompts
        return Span(self.entered_s, self.end_s, 1, self.batch, self.blocked_by, chunks, decoding, place)

    def flown(self, now: float) -> float:
        """The share of its flight that is over at *now*."""
        return min(1.0, max(0.0, (now - self.entered_s) / (self.end_s - self.entered_s)))


def _batch(chunks: dict[Flying, int], window: int) -> Batch:
    batch = Batch()
    sampled = kv_tokens = 0
    for one, new in chunks.items():
        context = one.computed
        sampled += context + new == one.tokens + one.placeholders
        if one.decoding:
            kv_tokens += context
            if window:
                batch.windowed_kv_tokens += min(context, window)
                batch.windowed_growing_seqs += context < window
        else:
            batch.prefill_seqs += 1
            batch.prefill_tokens += new
            batch.prefill_context_tokens += context
            batch.prefill_attention_pairs += new * context + new * (new + 1) // 2
    batch.decode_seqs, batch.sampled_seqs, batch.kv_tokens = len(chunks) - batch.prefill_seqs, sampled, kv_tokens
    return batch


class StageSchedule:
    """Who is in the next batch."""

    def __init__(self, limits: RankLimits, pool: BlockPool, waiting: WaitingQueue, ahead: int) -> None:
        self.limits, self.pool, self.waiting = limits, pool, waiting
        self.running: dict[Flying, None] = {}
        """In admission order."""
        self.preemptions = 0
        self.blocked_by = ""
        self.cached_in_step = 0
        self._ahead = ahead
        """Calls of the scheduler until who decodes may do so again, where steps are formed ahead; 0: they are not."""
        self._preempted = False
        self._calls = self._steps = 0
        self._kept_free = int(limits.watermark * limits.num_gpu_blocks)
        self._prompts_at = -limits.prefill_schedule_interval
        self._left_waiting = self._prompts_wait = False
        self._longest_chunk = limits.max_model_len

    def form(self, now: float) -> Launch | None:
        """The next batch; None if there is nothing to schedule."""
        limits = self.limits
        self._calls += 1
        self._preempted = False
        self.blocked_by = ""
        self.cached_in_step = 0
        soon = self._steps - self._prompts_at < limits.prefill_schedule_interval
        self._prompts_wait = soon and not self._left_waiting and any(one.decoding for one in self.running)
        alone = len(self.running) + len(self.waiting) == 1
        self._longest_chunk = limits.long_prefill_token_threshold or limits.max_model_len
        if alone:
            self._longest_chunk = limits.max_model_len
        chunks: dict[Flying, int] = {}
        budget = self._serve_running(chunks)
        if self._preempted:
            self.blocked_by = "kv"
        else:
            self._admit(chunks, budget, now)
            if not self._prompts_wait:
                self._left_waiting = bool(self.waiting)
        if not chunks:
            return None
        launch = Launch(chunks, limits.window or 0, self.blocked_by)
        if launch.batch.prefill_seqs:
            self._prompts_at = self._steps
        self._steps += 1
        self._count(launch)
        return launch

    def place(self, asked: int) -> str:
        """Where request number *asked* is: running, queued or nowhere (empty)."""
        if any(one.request.index == asked for one in self.running):
            return "running"
        return "queued" if self.waiting.has(asked) else ""

    def _count(self, launch: Launch) -> None:
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

    def _serve_running(self, chunks: dict[Flying, int]) -> int:
        """Schedules who runs, in admission order; the budget that is left."""
        budget, order, position, calls = self.limits.max_num_batched_tokens, list(self.running), 0, self._calls
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
                new = self._cut(one, one.computed, min(new, self._longest_chunk, budget))
                if not new or self._prompts_wait:
                    continue
            elif self._goes_on(one):
                chunks[one] = 1
                budget -= 1
                continue
            blocks = self._need(one, new)
            while self.pool.free < blocks:
                victim = self.waiting.victim(order)
                place = order.index(victim)
                del order[place]
                position -= place < position
                budget += chunks.pop(victim, 0)
                self._preempt(victim)
                if victim is one:
                    break
            else:
                self._give(one, blocks, new)
                chunks[one] = new
                budget -= new
        return budget

    def _goes_on(self, one: Flying) -> bool:
        """Whether the next token of *one*, which decodes, fits into the blocks that it holds: then it has it."""
        known = one.computed + 1
        if known > one.held * self.pool.block_size:
            return False
        if one.named < one.tokens:
            self._name(one, known if known < one.tokens else one.tokens)
        return True

    def _need(self, one: Flying, new: int) -> int:
        """Blocks that *one* needs for the next *new* tokens."""
        size = self.pool.block_size
        beyond = one.computed + new - one.held * size
        return -(-beyond // size) if beyond > 0 else 0

    def _joins(self, one: Flying, hits: int, new: int) -> int:
        """Free blocks that must be there for *one* to join with *new* tokens."""
        tokens = one.tokens if self.limits.reserve_full_isl else hits * self.pool.block_size + new
        return self.pool.missing(one, hits, tokens)

    def _give(self, one: Flying, blocks: int, new: int) -> None:
        if blocks > 0:
            self.pool.take(blocks)
            one.held += blocks
        known = one.computed + new
        self._name(one, known if known < one.tokens else one.tokens)

    def _name(self, one: Flying, tokens: int) -> None:
        if tokens > one.named:
            one.named = tokens
            self.pool.name(one, tokens)

    def _preempt(self, one: Flying) -> None:
        self.pool.release(one, one.held, True, one.named)
        one.high_water = max(one.high_water, one.computed)
        one.stale, one.placeholders = one.flying, 0
        one.computed = one.held = one.named = 0
        one.decoding = False
        one.request.preemptions += 1
        self.preemptions += 1
        self._preempted = True
        del self.running[one]
        self.waiting.put_back(one)

    def _admit(self, chunks: dict[Flying, int], budget: int, now: float) -> None:
        """Waiting requests join in order; one with tokens in flight is passed over."""
        limits, pool = self.limits, self.pool
        while self.waiting:
            if budget <= 0 or len(self.running) >= limits.max_num_seqs:
                self.blocked_by = "budget" if budget <= 0 else "seats"
                return
            one = self.waiting.first(lambda sequence: not sequence.stale)
            if one is None:
                return
            hits = pool.lookup(one)
            new = self._cut(one, hits * pool.block_size, self._chunk(one.tokens - hits * pool.block_size, budget))
            missing = self._joins(one, hits, new) + (self._kept_free if self.running else 0)
            if not new or missing > pool.free:
                self.blocked_by = "kv" if new else "budget"
                return
            self.waiting.remove(one.request)
            self._seat(one, hits, now)
            self._give(one, self._need(one, new), new)
            chunks[one] = new
            budget -= new

    def _chunk(self, left: int, budget: int) -> int:
        if self._prompts_wait and left > 1:
            return 0
        left = min(left, self._longest_chunk)
        return min(left, budget) if self.limits.chunked_prefill or left <= budget else 0

    def _cut(self, one: Flying, start: int, new: int) -> int:
        """How many of the *new* tokens of *one* behind the first *start* the step computes."""
        return new

    def _seat(self, one: Flying, hits: int, now: float) -> None:
        self.pool.claim(one, hits)
        one.held, one.computed = hits, hits * self.pool.block_size
        if isnan(one.request.started_s):
            one.request.started_s, one.request.cached_tokens = now, one.computed
        if one.computed > one.high_water:
            self.cached_in_step += min(one.computed, one.request.prompt_tokens) - one.high_water
            one.high_water = one.computed
        self.running[one] = None

    def update(self, launch: Launch, end_s: float) -> list[Request]:
        """*launch* leaves the last stage; the requests that leave with it."""
        left, sampled = [], launch.sampled
        for one, new in launch.chunks.items():
            one.flying -= new
            stale = one.stale > 0
            if stale:
                one.stale -= new
            if one in sampled and not one.gone and self._get_token(one, stale, end_s):
                left.append(one.request)
        return left

    def _get_token(self, one: Flying, stale: bool, end_s: float) -> bool:
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

    def leave(self, one: Flying) -> None:
        """*one*, which runs, leaves: seat and blocks are free again."""
        self.pool.release(one, one.held, False, one.named)
        del self.running[one]
