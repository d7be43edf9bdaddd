"""A request inside an engine: how far it has come, and the busy time that it is charged.

`Sequence` is the progress of one request on one rank. `RequestGpuTime` charges every request an even part of each step
per new token that it has in the step.
"""

from collections.abc import Iterable
from math import isnan, nan

from sim.records import Batch, ReplicaVisit, Request


class Sequence:
    """Progress of one request on one rank.

    While prompt chunks are computed, `computed` counts the tokens with KV. While it decodes, its context at step
    counter S is `base + S`, so that a step changes nothing here.
    """

    __slots__ = (
        "admission", "base", "brought", "busy", "computed", "decoding", "entered", "finish_step", "held", "high_water",
        "made", "output_tokens", "prompt_only", "request", "token_s", "tokens",
    )  # fmt: skip

    def __init__(self, request: Request, prompt_only: bool = False) -> None:
        self.request = request
        aside = request.aside
        self.busy = aside.busy
        """Of this visit: a request that has moved on takes what it gets elsewhere on another one."""
        self.prompt_only = prompt_only and request.output_tokens > 1
        """It leaves with its first token, unfinished."""
        self.output_tokens = 1 if prompt_only else request.output_tokens
        """Tokens of the answer that are made here."""
        self.tokens = request.prompt_tokens + aside.kept_tokens
        """Tokens to compute before the next one is sampled: the prompt and, after a preemption, those made."""
        self.made = aside.kept_tokens
        self.computed = 0
        self.high_water = most_computed(aside.left) if aside.left else 0
        """Most tokens ever computed, here or at a replica that it was taken from: what lies below is recomputed
        work."""
        self.brought = False
        """The KV of its prompt came over from another replica, and its answer goes on from there."""
        self.decoding = False
        self.base = 0
        self.finish_step = 0
        self.admission = 0
        self.entered = 0
        """Its number among those that have joined the queue, where the queue counts them."""
        self.held = 0
        """KV blocks held while the prompt is computed; while decoding they follow from the context."""

        self.token_s = 0.0
        """The rank's integral of time per token when it began to decode."""

    def bring(self, blocks: int) -> None:
        """It was handed over after its prompt, whose KV is in *blocks* blocks here."""
        self.brought = True
        self.made = 1
        self.computed = self.high_water = self.tokens
        self.tokens += 1
        self.held = blocks

    def seat(self, now: float, admission: int) -> int:
        """It runs from *now* on, as number *admission*, with what it has computed: the tokens that it was spared."""
        request, spared = self.request, 0
        if isnan(request.started_s):
            request.started_s, request.cached_tokens = now, self.computed
        if self.computed > self.high_water:
            spared = min(self.computed, request.prompt_tokens) - self.high_water
            self.high_water = self.computed
        self.admission = admission
        return spared

    @property
    def key(self) -> tuple[int, float, int]:
        """Its place by priority: lower first, then by arrival."""
        return self.request.priority, self.request.arrived_s, self.request.index


def most_computed(visits: Iterable[ReplicaVisit]) -> int:
    """Tokens that a request had come to on the farthest of its earlier *visits*."""
    return max((visit.progress.computed_tokens for visit in visits if visit.progress is not None), default=0)


class RequestGpuTime:
    """Running integral of the time per token on one rank.

    A sequence that decodes from one date to another takes what the integral has grown by, so a leap costs one addition
    however many decode. Prompt chunks, of which a step has few, are told their parts one by one.
    """

    __slots__ = ("_standing", "_standing_at", "shared_s", "token_s")

    def __init__(self) -> None:
        self.token_s = 0.0
        """The integral."""
        self.shared_s = 0.0
        """How much of the time of the step under way has been shared."""
        self._standing: list[Sequence] = []
        self._standing_at = -1

    def leave_out(self, sequences: list[Sequence], step: int) -> None:
        """*sequences* decode and are not in the step at counter *step*."""
        self._standing, self._standing_at = sequences, step

    def standing(self, step: int) -> list[Sequence]:
        """Who decodes and is not in the step at counter *step*, although others decode in it."""
        return self._standing if self._standing_at == step else []

    def start(self, sequence: Sequence) -> None:
        """*sequence* begins to decode: from now on it gets its part of the time per token."""
        sequence.token_s = self.token_s

    def stop(self, sequence: Sequence) -> None:
        """*sequence* decodes no further here."""
        if self.token_s:
            sequence.busy.decode_s += self.token_s - sequence.token_s

    def share(self, elapsed_s: float, batch: Batch, parts: "Iterable[Part]", standing: Iterable[Sequence]) -> None:
        """Shares the time of a step up to *elapsed_s* after its begin; *parts* are as `chunk_parts` has them.

        In a step of prompts only those who decode stand still, all of them: they take nothing.
        """
        token_s = (elapsed_s - self.shared_s) / (batch.decode_seqs + batch.prefill_tokens)
        self.shared_s = elapsed_s
        if batch.decode_seqs:
            self.token_s += token_s
            for sequence in standing:
                sequence.token_s += token_s
        for sequence, first_time, recomputed, decoded in parts:
            sequence.busy.prefill_s += token_s * first_time
            sequence.busy.recompute_s += token_s * recomputed
            sequence.busy.decode_s += token_s * decoded

    def settle(self, running: Iterable[Sequence]) -> None:
        """Gives those who decode what they have taken so far."""
        for sequence in running:
            if sequence.decoding and not isnan(sequence.token_s):
                sequence.busy.decode_s += self.token_s - sequence.token_s
                sequence.token_s = self.token_s


class AsyncRequestGpuTime(RequestGpuTime):
    """Time shares of a rank whose steps are formed one ahead.

    A sequence begins and ceases to decode when a step begins, and the time of that step is shared out at its end.
    """

    __slots__ = ("_moved",)

    def __init__(self) -> None:
        super().__init__()
        self._moved: list[tuple[Sequence, float | None]] = []
        """Sequences that began to decode (None) or ceased to (their `token_s` then) in steps that have not ended."""

    def start(self, sequence: Sequence) -> None:
        """See `RequestGpuTime.start`; it counts once the steps under way end."""
        sequence.token_s = nan
        self._moved.append((sequence, None))

    def stop(self, sequence: Sequence) -> None:
        """See `RequestGpuTime.stop`; it counts once the steps under way end."""
        self._moved.append((sequence, sequence.token_s))

    def end_steps(self) -> None:
        """Count the sequences that began and ceased to decode in the steps that end."""
        now = self.token_s
        for sequence, since_s in self._moved:
            if since_s is None:
                sequence.token_s = now
            elif not isnan(since_s):  # else it began in these steps, too
                sequence.busy.decode_s += now - since_s
        self._moved.clear()


Part = tuple[Sequence, int, int, int]
"""A chunk's sequence, its tokens computed for the first time, those computed again, and those of an answer that goes
on here with the KV that it brought."""


def chunk_parts(chunks: Iterable[tuple[Sequence, int]]) -> list[Part]:
    """Each of *chunks* in its parts."""
    return [
        (sequence, 0, 0, chunk)
        if sequence.brought
        else (sequence, chunk - (again := recomputed_tokens(sequence, chunk)), again, 0)
        for sequence, chunk in chunks
    ]


def add_decode(batch: Batch, context: int, window: int | None, sign: int = 1) -> None:
    """Add a decoding sequence with *context* tokens of KV to the KV sums of *batch*, or subtract it where *sign* is -1;
    of these tokens layers with a sliding *window* read only as many.
    """
    batch.kv_tokens += sign * context
    if window:
        batch.windowed_kv_tokens += sign * min(context, window)
        batch.windowed_growing_seqs += sign * (context < window)


def add_prompt(batch: Batch, context: int, chunk: int) -> None:
    """Add *chunk* prompt tokens behind *context* computed ones to the sums of *batch*."""
    batch.prefill_tokens += chunk
    batch.prefill_context_tokens += context
    batch.prefill_attention_pairs += chunk * context + chunk * (chunk + 1) // 2


def place(asked: int, waits: bool, running: Iterable[Sequence]) -> str:
    """Return where request number *asked* is: running, queued (it *waits*) or nowhere (empty)."""
    if any(one.request.index == asked for one in running):
        return "running"
    return "queued" if waits else ""


def recomputed_tokens(sequence: Sequence, chunk: int) -> int:
    """Tokens of the next *chunk* of *sequence* that had been computed before, or are no prompt."""
    computed = sequence.computed
    if sequence.high_water <= computed and computed + chunk <= sequence.request.prompt_tokens:
        return 0
    first_time = min(sequence.request.prompt_tokens, computed + chunk) - max(sequence.high_water, computed)
    return chunk - max(0, first_time)
