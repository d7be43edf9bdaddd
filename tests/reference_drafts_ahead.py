"""Drafted tokens with asynchronous scheduling, one step at a time.

Written from `AsyncScheduler._update_after_schedule`, `Scheduler.schedule` and `Scheduler.update_from_output` of vLLM:
drafts are placeholders of tokens when they are scheduled, and computed tokens are taken back where drafts did not hold.
"""

from dataclasses import dataclass

from reference_drafts import PaddedAdmissions
from reference_queued import InFlight, Launched, QueuedReference

from sim.records import Batch, Request


@dataclass(eq=False)
class Drafting(InFlight):
    drafts: int = 0
    """Placeholders of drafts for the next step."""
    doubtful: int = 0
    """Tokens that count as computed and will be taken back."""


class AsyncDraftReference(PaddedAdmissions, QueuedReference):
    tracked = Drafting

    def __init__(self, *args, **limits):
        super().__init__(*args, asynchronous=True, **limits)

    def _possible(self, request: Request) -> bool:
        slots = request.prompt_tokens + request.output_tokens - 1 + 2 * self.draft_tokens
        return super()._possible(request) and -(-slots // self.size) <= self.usable

    def _new_tokens(self, one: Drafting) -> int:
        most = one.request.prompt_tokens + one.request.output_tokens
        if one.placeholders and one.computed + 2 - one.placeholders >= most:
            return 0
        return one.tokens + one.drafts + one.placeholders - one.computed

    def _drafts_in(self, one: Drafting, new: int) -> int:
        return max(0, one.computed + new - one.tokens - one.placeholders)

    def _batch(self, scheduled: dict[Drafting, int]) -> Batch:
        batch = Batch()
        for one, new in scheduled.items():
            batch.draft_tokens += one.decoding * (new - 1)
            self._into(batch, one, new, one.computed - one.doubtful)
        return batch

    def _launch(self, now: float) -> Launched:
        self.calls += 1
        scheduled = self._schedule()
        launched = Launched(scheduled, end_s=now)
        launched.drafts, launched.kept = {}, {}
        if not scheduled:
            return launched
        self.steps += 1
        step_s = self.step_s(self._batch(scheduled)) + self.read_s
        launched.end_s = self.stage_free_s[0] = max(now, self.stage_free_s[0]) + step_s
        for one, new in scheduled.items():
            launched.drafts[one] = drafts = self._drafts_in(one, new)
            one.computed += new
            one.in_flight += new
            one.decoding = one.computed >= one.tokens + one.placeholders + drafts
            if one.decoding:
                launched.sampled.add(one)
                one.placeholders += 1 + drafts
                launched.kept[one] = kept = self._kept(one, drafts)
                one.doubtful += drafts - kept
                one.drafts = self.draft_tokens
        return launched

    def _preempt(self, one: Drafting) -> None:
        super()._preempt(one)
        one.drafts = one.doubtful = 0

    def _update(self, launched: Launched, now: float) -> None:
        for one, new in launched.scheduled.items():
            one.in_flight -= new
            stale = one.stale > 0
            one.stale -= new if stale else 0
            if one not in launched.sampled or one.gone:
                continue
            kept = launched.kept[one]
            lost = launched.drafts[one] - kept
            made = one.made
            done = any(self._makes_token(one, now) for _ in range(1 + kept))
            one.decoding = not stale
            if not stale:
                one.computed -= lost
                one.doubtful -= lost
                one.placeholders -= lost + one.made - made
                self._name(one, one.computed - one.placeholders)
            if done and one in self.running:
                self._remove(one)
            elif done:
                self._unqueue(one)
