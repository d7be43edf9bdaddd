"""Drafted tokens, one step at a time: a step computes some behind the last known one and keeps those that hold."""

from reference_engine import ReferenceEngine, Tracked

from sim.records import Batch, Request


class PaddedAdmissions(ReferenceEngine):
    """A request that joins with a single token is padded with drafts, none of which holds, as `Scheduler.schedule` does
    (`pad_spec_decode`).
    """

    def __init__(self, *args, draft_tokens, accepted, **limits):
        super().__init__(*args, **limits)
        self.draft_tokens, self.accepted = draft_tokens, accepted
        self.padded: set[Tracked] = set()

    def _schedule(self) -> dict[Tracked, int]:
        self.padded = set()
        return super()._schedule()

    def _new_to_join(self, one: Tracked, known: int, budget: int, scheduled: dict[Tracked, int]) -> int:
        new = super()._new_to_join(one, known, budget, scheduled)
        padded = 1 + self.draft_tokens
        if one.tokens - known > 1 or self.went_on or not (self.served or known):
            return new
        if known + padded + 1 > self.max_model_len:
            return new
        self.padded.add(one)
        return padded if padded <= budget else 0

    def _kept(self, one: Tracked, drafts: int) -> int:
        return 0 if one in self.padded else min(self.accepted, drafts)

    def _into(self, batch: Batch, one: Tracked, new: int, context: int) -> None:
        if one in self.padded:
            batch.draft_tokens += new - 1
            batch.adapted_tokens += (new - 1) * (one.request.adapter != "")
            new = 1
        super()._into(batch, one, new, context)


class DraftReference(PaddedAdmissions):
    def _possible(self, request: Request) -> bool:
        slots = request.prompt_tokens + request.output_tokens - 1 + self.draft_tokens
        return super()._possible(request) and -(-slots // self.size) <= self.usable

    def _new_tokens(self, one: Tracked) -> int:
        if not one.decoding:
            return one.tokens - one.computed
        return min(1 + self.draft_tokens, self.max_model_len - one.computed - 1)

    def _name(self, one: Tracked, tokens: int) -> None:
        super()._name(one, min(tokens, one.tokens))

    def _batch(self, scheduled: dict[Tracked, int]) -> Batch:
        batch = super()._batch(scheduled)
        batch.draft_tokens += sum(new - 1 for one, new in scheduled.items() if one.decoding)
        batch.sampled_seqs = sum(one.decoding or one.computed + new >= one.tokens for one, new in scheduled.items())
        return batch

    def _update(self, scheduled: dict[Tracked, int], now: float) -> None:
        for one, new in scheduled.items():
            drafts = new - 1 if one.decoding or one in self.padded else 0
            kept = self._kept(one, drafts)
            one.computed += new - drafts + kept
            if one.computed < one.tokens or one.evicted:
                continue
            done = any(self._makes_token(one, now) for _ in range(1 + kept))
            one.computed = min(one.computed, one.tokens - 1)
            self._name(one, one.computed)
            if done:
                self._remove(one)
