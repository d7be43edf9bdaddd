"""SGLang's scheduler, one step at a time and one block at a time, as changes to the reference engine.

Written from `Scheduler.get_next_batch_to_run`, `PrefillAdder`, `ScheduleBatch.retract_decode` and
`SchedulerRecvSkipper` of SGLang 0.5.9. With the overlap scheduler who has its last token under way gets no other one.
"""

from math import inf

from reference_engine import Tracked
from reference_policies import PrefillFirst
from reference_queued import Launched, QueuedReference


class Sglang(PrefillFirst):
    def __init__(
        self, *args, schedule_conservativeness=1.0, max_prefill_tokens=0, scheduler_recv_interval=1,
        enable_mixed_chunk=False, preemption_threshold=10, **limits,
    ):  # fmt: skip
        super().__init__(*args, **limits)
        self.ratio = self.first_ratio = min(0.7 * schedule_conservativeness, 1.0)
        self.decays = 0
        self.prefill_tokens = max_prefill_tokens or self.budget
        self.chunk_size = self.budget if self.chunked else inf
        self.mixed = enable_mixed_chunk
        self.looks_every = scheduler_recv_interval
        self.unread: list[Tracked] = []
        self.counter, self.weight = 0, 1
        self.batch: list[Tracked] = []
        """Decoding requests, with those that have left since the last decode step was formed."""
        self.last_prompts: list[Tracked] = []
        self.full = False
        self.threshold = preemption_threshold
        self.entered: dict[Tracked, int] = {}
        self.entries = 0
        self.extend: dict[Tracked, int] = {}
        """`extend_input_len` at the last attempt to admit a request."""

    def _enter(self, one: Tracked) -> None:
        self.entries += 1
        self.entered[one] = self.entries
        self.extend[one] = 0

    def _queue(self, one: Tracked) -> None:
        super()._queue(one)
        self._enter(one)
        self.unread.append(one)

    def _next(self, able: list[Tracked]) -> Tracked:
        if not self.priority:
            return super()._next(able)
        return min(able, key=lambda one: (one.request.priority, self.entered[one]))

    def _make_room(self, one: Tracked, offset: float) -> list[Tracked]:
        """Preempt requests as `preempt_to_schedule` does."""
        short = self.extend[one] + min(one.request.output_tokens, 4096) - (len(self.free) * self.size - offset)
        victims = []
        able = [other for other in self.batch if not other.gone and self._new_tokens(other)]
        for other in sorted(able, key=lambda other: (-other.request.priority, -self.entered[other])):
            if other.request.priority - one.request.priority <= self.threshold:
                break
            victims.append(other)
            short -= self._counted_on(other)
            if short <= 0:
                return victims
        return []

    def _counted_on(self, one: Tracked) -> float:
        return self.new_token_ratio * min(one.request.output_tokens - one.made, 4096)

    def _look(self) -> None:
        self.counter += self.weight
        if self.counter >= self.looks_every or not self.running:
            self.counter = 0
            self.unread.clear()

    def _schedule(self) -> dict[Tracked, int]:
        self._look()
        scheduled = self._next_batch()
        self.weight = 1000 if any(not one.decoding for one in scheduled) else 1
        # of those who leave together whoever decoded, and of these the one admitted first, frees its blocks first
        order = sorted(scheduled, key=lambda one: (not one.decoding, self.running.index(one)))
        return {one: scheduled[one] for one in order}

    @property
    def new_token_ratio(self) -> float:
        least = self.first_ratio * 0.14
        return max(self.ratio - (self.first_ratio - least) / 600 * self.decays, least) if self.decays else self.ratio

    def _next_batch(self) -> dict[Tracked, int]:
        kept = [one for one in self.last_prompts if not one.gone and one.decoding]
        if len(kept) < len(self.last_prompts):
            self.full = False
        self.batch += kept
        self.last_prompts = []
        if not [one for one in self.batch if one in self.running]:
            self.batch, self.full = [], False
        going = [one for one in self.batch if not one.gone and self._new_tokens(one)]
        taken = self.mixed and going and self._pages(going) <= len(self.free)
        if taken:
            for one in going:
                assert self._allocate(one, 1)
        prompts: dict[Tracked, int] = {}
        if self.priority:
            self.full = False
        if any(not one.decoding for one in self.running) or not self.full:
            self._add_prompts(prompts, len(self.batch) if taken else 0)
            going = [one for one in going if one in self.batch]
        if not prompts:
            return self._decode(bool(taken))
        self.last_prompts = list(prompts)
        if taken:
            self.last_prompts += [one for one in self.batch if not one.gone]
            self.batch = []
            prompts |= dict.fromkeys(going, 1)
        return prompts

    def _pages(self, going: list[Tracked]) -> int:
        return sum(one.computed % self.size == 0 for one in going)

    def _add_prompts(self, prompts: dict[Tracked, int], mixed: int) -> None:
        """`PrefillAdder`."""
        chunk_left, input_left = self.chunk_size - mixed, self.prefill_tokens - mixed
        offset = self.new_token_ratio * sum(
            min(one.request.output_tokens - one.made, 4096) for one in self.batch if not one.gone
        )
        for one in self.running:
            if one.decoding:
                continue
            new = int(min(one.tokens - one.computed, max(1, chunk_left)))
            assert self._allocate(one, new)
            prompts[one] = new
            chunk_left -= self._padded(new)
            input_left -= self._padded(new)
            if one.computed + new == one.tokens:
                offset += min(one.request.output_tokens, 4096)
        while True:
            able = [one for one in self.waiting if one not in self.unread and not self._skipped(one)]
            if not able or (self.full and not self.priority):
                return
            if len(prompts) >= self.seats - len(self.batch):
                self.full = True
            one = self._next(able)
            if self.full:
                victims = self._make_room(one, offset) if self.priority else []
                if not victims:
                    return
                for other in victims:
                    offset -= self._counted_on(other)
                    self.batch.remove(other)
                    self.running.remove(other)
                    self._preempt(other)
            hits = self._hits(one)
            self.extend[one] = new = one.tokens - len(hits) * self.size
            room = (len(self.free) - sum(block.users == 0 for block in hits)) * self.size - offset
            answer = min(one.request.output_tokens - one.made, 4096)
            if new + answer >= room and self.running:
                self.full = True
                return
            if chunk_left <= 0 or input_left <= 0 or (self._padded(new) >= input_left and prompts):
                return
            chunk = new if self._padded(new) <= chunk_left else int(chunk_left // self.size * self.size)
            if not chunk:
                return
            self._join(one, hits, chunk)
            prompts[one] = chunk
            chunk_left -= self._padded(chunk)
            input_left -= self._padded(chunk)
            if chunk == new:
                offset += min(one.request.output_tokens, 4096)
            if len(self.free) * self.size - offset <= 0:
                self.full = True
                return
            if self.priority and (chunk_left <= 0 or input_left <= 0):
                return

    def _padded(self, tokens: int) -> int:
        return -(-tokens // self.size) * self.size

    def _join(self, one: Tracked, hits, chunk: int) -> None:
        self._unqueue(one)
        self._count(one)
        for block in hits:
            if block.users == 0:
                self.free.remove(block)
            block.users += 1
        one.blocks = hits
        one.computed = len(hits) * self.size
        if not one.started:
            one.started, one.cached_tokens = True, one.computed
        self.running.append(one)
        assert self._allocate(one, chunk)

    def _decode(self, allocated: bool) -> dict[Tracked, int]:
        """`update_running_batch`."""
        before = len(self.batch)
        self.batch = [one for one in self.batch if not one.gone]
        going = [one for one in self.batch if self._new_tokens(one)]
        retracted = 0
        while not allocated and len(going) > 1 and self._pages(going) > len(self.free):
            order = sorted(going, key=lambda one: (one.made, -one.request.prompt_tokens), reverse=True)
            self.batch.remove(order[-1])
            going.remove(order[-1])
            self.running.remove(order[-1])
            self._preempt(order[-1])
            retracted += 1
        if retracted:
            made, most = sum(one.made for one in self.batch), sum(one.request.output_tokens for one in self.batch)
            self.ratio, self.decays = min(1.0, (made + 20 * len(self.batch)) / (most + 1)), 0
        if len(self.batch) < before:
            self.full = False
        if not allocated and self._pages(going) > len(self.free):
            return {}
        for one in going:
            assert allocated or self._allocate(one, 1)
        if going and not retracted:
            self.decays += 1
        if not self.running and not self.waiting:
            self.ratio, self.decays = self.first_ratio, 0
        return dict.fromkeys(going, 1)

    def _preempt(self, one: Tracked) -> None:
        super()._preempt(one)
        self._enter(one)
        if not (self.priority or self.fair):
            self.waiting.insert(len(self.waiting) - 1 - len(self.unread), self.waiting.pop(0))

    def _update(self, scheduled, now: float) -> None:
        super()._update(scheduled, now)
        if not self.running and not self.waiting:
            self.ratio, self.decays = self.first_ratio, 0


class Overlap(Sglang, QueuedReference):
    """SGLang's overlap scheduler: who is retracted loses the token that is being made."""

    def _update(self, scheduled: Launched, now: float) -> None:
        scheduled.sampled = {one for one in scheduled.sampled if not one.stale}
        super()._update(scheduled, now)
