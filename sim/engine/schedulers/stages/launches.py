"""Batches in flight, and requests that decode in one batch after the other."""

from collections import deque
from itertools import pairwise

from sim.engine.sequence import Sequence
from sim.engine.shares import chunk_parts, recomputed_tokens
from sim.records import Batch, Request, Span


class Flying(Sequence):
    """A request that may be in several batches at once."""

    __slots__ = (
        "cohort",
        "eligible",
        "flying",
        "gone",
        "junction",
        "last_end_s",
        "named",
        "passed_over",
        "placeholders",
        "stale",
    )

    def __init__(self, request: Request, prompt_only: bool = False) -> None:
        super().__init__(request, prompt_only)
        self.placeholders = 0
        """Tokens of the answer that are being made, where steps are formed ahead."""
        self.flying = 0
        """Scheduled tokens whose batch has not ended."""
        self.stale = 0
        """Of these, those scheduled before a preemption."""
        self.passed_over = False
        """Whether admission went on to requests behind this one since it was last admitted."""
        self.eligible = 0
        """Call of the scheduler from which on it may decode again, where steps are formed ahead."""
        self.junction = 0
        """Tokens of its prompt behind which its state is to be kept, because others have computed as much."""
        self.named = 0
        """Tokens whose blocks have their names."""
        self.last_end_s = 0.0
        """When its last token leaves the last stage."""
        self.gone = False
        self.cohort: Cohort | None = None
        """With whom it decodes; what follows from the batches of all is not in its own fields then."""


class Launch:
    """A batch in flight."""

    __slots__ = (
        "_admissions", "batch", "blocked_by", "chunks", "cohort", "end_s", "entered_s", "load", "number", "parts",
        "ready_s", "recomputed_in_step", "sampled", "shared_s", "stage_s",
    )  # fmt: skip

    def __init__(self, chunks: dict[Flying, int], window: int, blocked_by: str) -> None:
        self.chunks = chunks
        """Of all but the cohort."""
        self.cohort: Cohort | None = None
        self.number = 0
        """Of the cohort's batches."""
        self.ready_s = 0.0
        """When the tokens that the cohort goes on from have left the last stage."""
        self._admissions: list[int] = []
        self.blocked_by = blocked_by
        self.batch = _batch(chunks, window)
        prompts = [(one, new) for one, new in chunks.items() if not one.decoding] if self.batch.prefill_seqs else []
        self.parts = chunk_parts(prompts)
        self.recomputed_in_step = sum(recomputed_tokens(one, new) for one, new in prompts)
        self.sampled: set[Flying] = set()
        """Who gets a token at its end."""
        self.entered_s = self.end_s = self.stage_s = self.load = self.shared_s = 0.0

    def board(self, cohort: "Cohort", count: int, kv_tokens: int) -> None:
        """The *count* members of *cohort* with *kv_tokens* of context are in it, too."""
        batch = self.batch
        batch.decode_seqs += count
        batch.sampled_seqs += count
        batch.kv_tokens += kv_tokens
        self.cohort, self.number = cohort, cohort.scheduled
        if count:
            self.ready_s = cohort.last_end_s
            self._admissions = [one.admission for one in self.chunks]

    def add(self, one: Flying) -> None:
        """*one*, which has left the cohort, is in it by itself."""
        self.chunks[one] = 1
        self._admissions.append(one.admission)
        self.sampled.add(one)

    def in_order(self) -> list[tuple[Flying, int]]:
        """Chunks in the order in which their requests had been admitted when it was scheduled."""
        chunks, numbers = list(self.chunks.items()), self._admissions
        if all(a < b for a, b in pairwise(numbers)):
            return chunks
        return [chunks[place] for place in sorted(range(len(chunks)), key=numbers.__getitem__)]

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


class Cohort:
    """Requests that decode together, batch after batch, as long as nobody is preempted: a batch is a few sums.

    Who joins keeps what it had then; what the cohort's batches have added is made good when it parts from it.
    """

    __slots__ = (
        "_ahead", "_due", "_ending", "_flying", "_kv_tokens", "_named_at", "eligible", "last_end_s", "members",
        "received", "scheduled",
    )  # fmt: skip

    def __init__(self, block_size: int, ahead: bool) -> None:
        self.members: dict[Flying, tuple[int, int]] = {}
        """Each with the number of its first batch here and of the first one after its last."""
        self.scheduled = self.received = 0
        """Batches that were scheduled, and of these those that have ended."""
        self.eligible = 0
        """See `Flying.eligible`."""
        self.last_end_s = 0.0
        """When the last tokens leave the last stage."""
        self._ahead = ahead
        self._named_at = 0
        """Batches that had ended when the last one was scheduled."""
        self._flying: deque[Launch] = deque()
        self._due: list[dict[Flying, None]] = [{} for _ in range(block_size)]
        """Who needs a block for the batches with this number, modulo the size of a block."""
        self._ending: dict[int, dict[Flying, None]] = {}
        """Who gets its last token in the batch before the one with this number."""
        self._kv_tokens = 0

    def may_go_on(self, calls: int) -> bool:
        """Whether call number *calls* of the scheduler may schedule it."""
        return calls >= self.eligible if self._ahead else self.received == self.scheduled

    @property
    def due(self) -> dict[Flying, None]:
        """Who needs a block for the next batch."""
        return self._due[self.scheduled % len(self._due)]

    def join(self, one: Flying, left: int) -> None:
        """*one*, which was in its last batch, decodes with it in *left* further ones."""
        end = self.scheduled + left
        self.members[one] = self.scheduled, end
        self._due[(self.scheduled - one.computed) % len(self._due)][one] = None
        self._ending.setdefault(end, {})[one] = None
        self._kv_tokens += one.computed
        one.cohort = self

    def board(self, launch: Launch, eligible: int) -> None:
        """Its next batch is *launch*, with whoever is in that already; it may go on in call *eligible*."""
        count = len(self.members)
        launch.board(self, count, self._kv_tokens)
        self._kv_tokens += count
        self._flying.append(launch)
        self.scheduled += 1
        self.eligible, self._named_at = eligible, self.received
        for one in list(self._ending.get(self.scheduled, ())):
            self.part(one)

    def land(self) -> None:
        """Its oldest batch has left the last stage."""
        self._flying.popleft()
        self.received += 1

    def dissolve(self) -> None:
        """All part."""
        for one in list(self.members):
            self.part(one)

    def part(self, one: Flying) -> None:
        """*one* goes on by itself, also in the batches that are in flight."""
        since, end = self.members.pop(one)
        del self._ending[end][one]
        if not self._ending[end]:
            del self._ending[end]
        new, made = self.scheduled - since, max(0, self.received - since)
        del self._due[(since - one.computed) % len(self._due)][one]
        one.computed += new
        one.flying += new - made
        one.tokens += made
        one.made += made
        self._kv_tokens -= one.computed
        if new:  # a batch names what is known when it is scheduled
            one.named = max(one.named, one.tokens - max(0, self.received - max(self._named_at, since - 1)))
        if self._ahead:
            one.placeholders += new - made
            one.eligible = self.eligible
            one.named = max(one.named, one.computed - one.flying) if made else one.named
        one.last_end_s = self.last_end_s
        one.cohort = None
        for launch in self._flying:
            if launch.number >= since:
                launch.add(one)


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
