"""The reference engine with requests that are handed over after their prompts, or come with the KV of theirs."""

from collections import deque
from math import inf, isnan

from reference_engine import ReferenceEngine, Tracked

from sim.records import Request


class SplitReference(ReferenceEngine):
    """Runs requests of which some leave with their first token (*handed*: place in the list -> how long their blocks
    stay [s]) and some are expected with KV (*brought*: place -> how long the transfer takes once blocks are reserved).
    """

    def run_split(self, requests: list[Request], handed: dict[int, float], brought: dict[int, float]) -> list[Tracked]:
        tracked = [Tracked(r) for r in requests]
        self.transfer_s = {tracked[place]: seconds for place, seconds in brought.items()}
        self.handed = {tracked[place]: seconds for place, seconds in handed.items()}
        self.reserved: dict[Tracked, list] = {}
        self.behind: list[tuple[float, Tracked]] = []
        self.expected: deque[Tracked] = deque()
        self.joining: deque[Tracked] = deque()
        self.counters[""] = 0.0  # no tenants here
        possible = [t for t in tracked if self._possible(_prompt_of(t.request) if t in self.handed else t.request)]
        self.coming = sorted((t.request.arrived_s, t.request.index, t) for t in possible)
        now = 0.0
        while True:
            self._arrivals(now)
            self._let_go(now)
            preemptions = self.preemptions
            scheduled = self._schedule() if self.waiting or self.joining or self.running else {}
            self._reserve_in_order(now)
            if not scheduled and preemptions == self.preemptions:
                now = max(now, self._next_s())
                if now == inf:
                    break
            if not scheduled:
                continue
            end = now + self.step_s(self._batch(scheduled))
            self.steps += 1
            self._arrivals(end)
            self._update(scheduled, end)
            now = end
            self._let_go(now)
        assert not self.expected
        assert not self.reserved
        return tracked

    def _next_s(self) -> float:
        return min([at_s for at_s, *_ in self.coming] + [at_s for at_s, _ in self.behind], default=inf)

    def _arrivals(self, now: float) -> None:
        while self.coming and self.coming[0][0] <= now:
            at_s, _, one = self.coming.pop(0)
            if one in self.transfer_s and one not in self.reserved:
                self.expected.append(one)
                self._reserve_in_order(at_s)
            else:
                if one in self.reserved:
                    one.blocks = self.reserved.pop(one)
                    one.computed, one.made, one.decoding = one.request.prompt_tokens, 1, True
                    self.joining.append(one)
                else:
                    self._queue(one)

    def _let_go(self, now: float) -> None:
        for entry in sorted(self.behind, key=lambda entry: entry[0]):
            if entry[0] <= now:
                self.behind.remove(entry)
                self._release(entry[1])

    def _reserve_in_order(self, now: float) -> None:
        while self.expected and self._reserve(self.expected[0]):
            one = self.expected.popleft()
            self.coming.append((now + self.transfer_s[one], one.request.index, one))
            self.coming.sort(key=lambda entry: entry[:2])

    def _reserve(self, one: Tracked) -> bool:
        if self.waiting:
            return False
        needed = -(-(one.request.prompt_tokens + 1) // self.size)
        if needed + (self.kept_free if self.running else 0) > len(self.free):
            return False
        self.reserved[one] = [self._take() for _ in range(needed)]
        return True

    def _admit(self, scheduled: dict[Tracked, int], budget: int) -> None:
        while self.joining and budget > 0 and len(self.running) < self.seats:
            one = self.joining.popleft()
            self.running.append(one)
            self._name(one, one.computed + 1)
            scheduled[one] = 1
            budget -= 1
        super()._admit(scheduled, budget)

    def _makes_token(self, one: Tracked, now: float) -> bool:
        over = super()._makes_token(one, now)
        if over or one not in self.handed or one.made > 1:
            return over
        self.running.remove(one)
        self.behind.append((now + self.handed[one], one))
        return False


def drain_split(engine, requests: list[Request], handed: dict[int, float], brought: dict[int, float]) -> None:
    """Feeds *requests* to a fast engine as `SplitReference.run_split` does."""
    coming = sorted((r.arrived_s, r.index) for r in requests)
    expected: deque[Request] = deque()
    behind: list[tuple[float, Request]] = []
    under_way: set[int] = set()
    end = inf

    def reserve_in_order(now: float) -> None:
        while expected and (engine.reserve(expected[0], now) or expected[0].rejected):
            one = expected.popleft()
            if not one.rejected:
                under_way.add(one.index)
                coming.append((now + brought[one.index], one.index))
                coming.sort()

    while coming or end < inf or behind:
        now = min(end, coming[0][0] if coming else inf, min((at_s for at_s, _ in behind), default=inf))
        touched, planned = end <= now, True
        while coming and coming[0][0] <= now:
            _, index = coming.pop(0)
            if index in brought and index not in under_way:
                expected.append(requests[index])
                reserve_in_order(now)
                planned = False
                continue
            touched |= engine.offer(requests[index], now, prompt_only=index in handed)
        if end <= now:
            behind += [(now + handed[r.index], r) for r in engine.advance() if isnan(r.finished_s)]
        for entry in sorted(behind, key=lambda entry: entry[0]):
            if entry[0] <= now:
                behind.remove(entry)
                engine.release_kv(entry[1], now)
                touched = True
        if touched:
            engine.plan(now)
            reserve_in_order(now)
        if touched or not planned:
            end = engine.plan(now)
    assert not expected


def _prompt_of(request: Request) -> Request:
    """Return *request* as seen by a replica that only makes the first token."""
    return Request(request.index, request.arrived_s, request.prompt_tokens, 1)
