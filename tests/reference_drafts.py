"""Drafted tokens, one step at a time: a step computes some behind the last known one and keeps those that hold."""

from reference_engine import ReferenceEngine, Tracked

from sim.records import Batch, Request


class DraftReference(ReferenceEngine):
    def __init__(self, *args, draft_tokens, accepted, **limits):
        super().__init__(*args, **limits)
        self.draft_tokens, self.accepted = draft_tokens, accepted

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
        batch.draft_tokens = sum(new - 1 for one, new in scheduled.items() if one.decoding)
        batch.sampled_seqs = sum(one.decoding or one.computed + new == one.tokens for one, new in scheduled.items())
        return batch

    def _update(self, scheduled: dict[Tracked, int], now: float) -> None:
        for one, new in scheduled.items():
            drafts = new - 1 if one.decoding else 0
            kept = min(self.accepted, drafts)
            one.computed += new - drafts + kept
            if one.computed < one.tokens or one.evicted:
                continue
            done = any(self._makes_token(one, now) for _ in range(1 + kept))
            one.computed = min(one.computed, one.tokens - 1)
            self._name(one, one.computed)
            if done:
                self._remove(one)
