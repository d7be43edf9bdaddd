"""The other batching policies, one step at a time and one block at a time, as changes to the reference engine."""

from itertools import takewhile
from math import inf

from reference_engine import ReferenceEngine, Tracked

from sim.records import Batch


class _Whole(ReferenceEngine):
    """Prompts joined whole where the policy does not cut them."""

    def _chunk(self, left: int, budget: int, scheduled: dict[Tracked, int]) -> int:
        if left <= budget:
            return left
        if self.chunked:
            return budget
        alone = not any(not one.decoding for one in scheduled)
        return left if left > self.budget and alone else 0

    def _name(self, one: Tracked, tokens: int) -> None:
        # an answer is found once it is complete
        if not one.decoding:
            super()._name(one, tokens)

    def _release(self, one: Tracked) -> None:
        super()._name(one, one.computed)
        super()._release(one)


class PrefillFirst(_Whole):
    def __init__(self, *args, watermark=0.0, **limits):
        super().__init__(*args, **limits)
        self.kept_free = int(watermark * self.usable)

    def _schedule(self) -> dict[Tracked, int]:
        scheduled: dict[Tracked, int] = {}
        budget = self.budget
        for one in self.running:
            if not one.decoding:
                new = min(one.tokens - one.computed, budget)
                assert self._allocate(one, new)
                scheduled[one] = new
                budget -= new
        self._admit(scheduled, budget)
        if not scheduled:
            self._serve_running(scheduled, self.budget)
        return scheduled

    def _hold(self, one: Tracked, tokens: int) -> bool:
        # a prompt has the blocks of all its tokens from its first chunk on
        return super()._hold(one, tokens if one.decoding else one.tokens)


class LongestPrefixFirst(PrefillFirst):
    """SGLang's lpm; a preempted request joins the end of the queue."""

    short = 32

    def _schedule(self) -> dict[Tracked, int]:
        if self.caching and 1 < len(self.waiting) <= 128:
            last, tree = set(), []
            for one in self.waiting:
                if len(self._hits(one)) * self.size > self.short:
                    continue
                names = [one.name_of(block, self.size) for block in range(one.tokens // self.size)]
                common = [sum(1 for _ in takewhile(lambda p: p[0] == p[1], zip(names, t))) for t in tree]  # noqa: B905
                if max(common, default=0) * self.size >= self.short:
                    last.add(one)
                else:
                    tree.append(names)
            self.waiting.sort(key=lambda one: inf if one in last else -len(self._hits(one)))
        return super()._schedule()

    def _preempt(self, one: Tracked) -> None:
        super()._preempt(one)
        self.waiting.append(self.waiting.pop(0))


class Reserve(_Whole):
    def _blocks_to_join(self, one: Tracked, tokens: int) -> int:
        return -(-(one.request.prompt_tokens + one.request.output_tokens - 1) // self.size)

    def _hold(self, one: Tracked, tokens: int) -> bool:
        # the first chunk takes the blocks of the whole request
        return super()._hold(one, one.request.prompt_tokens + one.request.output_tokens - 1)


class Holding(Reserve):
    """Prompts that could be computed are left out of a step until they and the decodes have enough tokens."""

    def __init__(self, *args, batch_wait_steps=0, batch_wait_tokens=0.0, **limits):
        super().__init__(*args, **limits)
        self.most, self.enough, self.waited = batch_wait_steps, batch_wait_tokens, 0

    def _schedule(self) -> dict[Tracked, int]:
        scheduled = super()._schedule()
        decodes = {one: new for one, new in scheduled.items() if one.decoding}
        if not decodes or len(decodes) == len(scheduled):
            return scheduled
        if self.waited >= self.most or sum(scheduled.values()) >= self.enough:
            self.waited = 0
            return scheduled
        self.waited += 1
        return decodes


class MaxUtilization(_Whole):
    """Blocks on demand, and an answer is found once it is complete."""


class Static(ReferenceEngine):
    def __init__(self, *args, **limits):
        super().__init__(*args, **limits)
        self.batch: list[Tracked] = []

    def _schedule(self) -> dict[Tracked, int]:
        if not self.batch:
            self._gather()
        scheduled: dict[Tracked, int] = {}
        budget = self.budget
        for one in self.batch:
            if not one.decoding and budget:
                scheduled[one] = min(one.tokens - one.computed, budget)
                budget -= scheduled[one]
        return scheduled or dict.fromkeys(self.batch, 1)

    def _gather(self) -> None:
        while self.waiting and len(self.batch) < self.seats:
            one = min(self.waiting, key=lambda t: t.key) if self.priority else self.waiting[0]
            together = [t.request for t in (*self.batch, one)]
            longest = max(request.output_tokens for request in together)
            if sum(-(-(r.prompt_tokens + longest - 1) // self.size) for r in together) > self.usable:
                break
            self.waiting.remove(one)
            self.batch.append(one)
            self.running.append(one)

    def _batch(self, scheduled: dict[Tracked, int]) -> Batch:
        batch = super()._batch(scheduled)
        done = sum(one.gone and one.computed + 1 == one.tokens for one in scheduled)
        batch.sampled_seqs -= done
        return batch

    def _update(self, scheduled: dict[Tracked, int], now: float) -> None:
        for one, new in scheduled.items():
            one.computed += new
            if one.computed >= one.tokens and not one.gone:
                self._makes_token(one, now)
        self._end_batch()

    def _end_batch(self) -> None:
        if all(one.gone for one in self.batch):
            self.batch, self.running = [], []

    def _remove(self, one: Tracked) -> None:
        # who decodes is computed along to the end of the batch; a prompt that is not done leaves it
        if one in self.batch and not one.decoding:
            self.batch.remove(one)
            self.running.remove(one)
        self._end_batch()


class Unified(_Whole):
    """llama.cpp's slots over one cache of single cells: a step without enough of them is the last one of its slots."""

    def __init__(self, *args, **limits):
        super().__init__(*args, **limits)
        self.broken: list[Tracked] = []
        self.breaks = False

    def _blocks_to_join(self, one: Tracked, tokens: int) -> int:
        return 0

    def _schedule(self) -> dict[Tracked, int]:
        scheduled: dict[Tracked, int] = {}
        self.breaks = False
        budget = self.budget
        for one in sorted(self.running, key=lambda one: not one.decoding):
            budget = self._compute(one, scheduled, budget)
        while budget > 0 and self.waiting and len(self.running) < self.seats:
            self.running.append(self.waiting.pop(0))
            budget = self._compute(self.running[-1], scheduled, budget)
        return scheduled

    def _compute(self, one: Tracked, scheduled: dict[Tracked, int], budget: int) -> int:
        new = min(one.tokens - one.computed, budget)
        fits = min(new, len(self.free))
        self.breaks |= fits < new
        if fits:
            assert self._allocate(one, fits)
            scheduled[one] = fits
        return budget - new

    def _update(self, scheduled: dict[Tracked, int], now: float) -> None:
        super()._update(scheduled, now)
        for one in [one for one in self.running if one.evicted]:
            self._remove(one)
        if self.breaks or not self.free:
            for one in list(self.running):
                one.evicted = self._progress(one)
                self.broken.append(one)
                self._remove(one)

    def _remove(self, one: Tracked) -> None:
        if one in self.running:  # else it was evicted in this step
            super()._remove(one)
