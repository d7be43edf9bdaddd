"""Sequences: requests inside an engine, with their progress and the busy time attributed to them.

`Sequence` is the progress of one request on one rank. `RequestGpuTime` attributes the time of each step evenly to its
new tokens.
"""

from collections.abc import Iterable
from math import isnan, nan

from sim.native import mypyc_attr
from sim.records import Batch, ReplicaVisit, Request


@mypyc_attr(acyclic=True)
class Sequence:
    """Progress of one request on one rank.

    While prompt chunks are computed, `computed` counts the tokens with KV. While the sequence decodes, its context at
    step counter S is `base + S`, so that a step changes nothing here.
    """

    __slots__ = (
        "admission",
        "base",
        "busy",
        "computed",
        "decoding",
        "entered",
        "finish_step",
        "held",
        "high_water",
        "kv_transferred",
        "made",
        "output_tokens",
        "prompt_only",
        "request",
        "token_s",
        "tokens",
    )  # fmt: skip

    def __init__(self, request: Request, prompt_only: bool = False) -> None:
        # compiled, fields lie in this order: those read when a sequence joins others or leaves come first
        options = request.options
        self.request = request
        self.finish_step = 0
        self.admission = 0
        self.base = 0
        self.held = 0
        """KV blocks held while the prompt is computed; while decoding the number follows from the context."""
        self.decoding = False
        self.prompt_only = prompt_only and request.output_tokens > 1
        """True if the request leaves with its first token, unfinished."""
        self.kv_transferred = False
        """True if the KV of its prompt came from another replica, and its answer continues from there."""
        self.busy = options.busy
        """Busy time of this visit; a request that moves to another replica gets a new one there."""
        self.computed = 0
        self.output_tokens = 1 if prompt_only else request.output_tokens
        """Number of tokens of the answer that are made here."""
        self.tokens = request.prompt_tokens + options.kept_tokens
        """Number of tokens to compute before the next one is sampled: the prompt and, after a preemption, the tokens
        made."""
        self.made = options.kept_tokens
        self.high_water = most_computed(options.left) if options.left else 0
        """Most tokens ever computed, here or at earlier replicas; tokens below this count are recomputed work."""
        self.entered = 0
        """Number among the sequences that have joined the queue, where the queue counts them."""
        self.token_s = 0.0
        """Value of the rank's integral of time per token when it began to decode [s]."""

    def receive_kv(self, blocks: int) -> None:
        """Continue with the prompt's KV, which came from another replica into *blocks* blocks here."""
        self.kv_transferred = True
        self.made = 1
        self.computed = self.high_water = self.tokens
        self.tokens += 1
        self.held = blocks

    def start_running(self, now: float, admission: int) -> int:
        """Start running at *now*, as admission number *admission*. Return the prompt tokens found in the cache."""
        request, cached = self.request, 0
        if isnan(request.started_s):
            request.started_s, request.cached_tokens = now, self.computed
        if self.computed > self.high_water:
            cached = min(self.computed, request.prompt_tokens) - self.high_water
            self.high_water = self.computed
        self.admission = admission
        return cached

    def chunk_part(self) -> "Sequence":
        """Return a sequence with the request and the progress of this one, for a chunk that it leaves in a batch."""
        part = Sequence(self.request)
        part.busy, part.tokens, part.computed, part.high_water = self.busy, self.tokens, self.computed, self.high_water
        return part

    @property
    def key(self) -> tuple[int, float, int]:
        """Sort key by priority: lower first, then by arrival."""
        return self.request.priority, self.request.arrived_s, self.request.index


def most_computed(visits: Iterable[ReplicaVisit]) -> int:
    """Return the most tokens that a request had computed in any of its earlier *visits*."""
    return max((visit.progress.computed_tokens for visit in visits if visit.progress is not None), default=0)


class RequestGpuTime:
    """Attribution of a rank's time to requests, by the running integral of the time per token.

    A sequence that decodes from one time to another gets the growth of the integral, so a leap costs one addition
    however many sequences decode. Prompt chunks, of which a step has few, get their shares one by one.
    """

    __slots__ = ("_excluded", "_excluded_at", "shared_s", "token_s")

    def __init__(self) -> None:
        self.token_s = 0.0
        """Integral of the time per token [s]."""
        self.shared_s = 0.0
        """Part of the current step's time that has been attributed [s]."""
        self._excluded: list[Sequence] = []
        self._excluded_at = -1

    def exclude(self, sequences: list[Sequence], step: int) -> None:
        """Exclude *sequences*, which decode, from the step at counter *step*."""
        self._excluded, self._excluded_at = sequences, step

    def excluded(self, step: int) -> list[Sequence]:
        """Return the decoding sequences excluded from the step at counter *step*, although others decode in it."""
        return self._excluded if self._excluded_at == step else []

    def start(self, sequence: Sequence) -> None:
        """Start to attribute decode time to *sequence*."""
        sequence.token_s = self.token_s

    def stop(self, sequence: Sequence) -> None:
        """Stop attributing decode time to *sequence*, and add its part to the sequence's busy time."""
        if self.token_s:
            sequence.busy.decode_s += self.token_s - sequence.token_s

    def share(self, elapsed_s: float, batch: Batch, parts: "Iterable[Part]", excluded: Iterable[Sequence]) -> None:
        """Attribute the time of a step up to *elapsed_s* after its start.

        *parts* come from `chunk_parts`; *excluded* sequences decode and are not in the step. In a step with prompts
        only, all decoding sequences are left out and get no time.
        """
        token_s = (elapsed_s - self.shared_s) / (batch.decode_seqs + batch.prefill_tokens)
        self.shared_s = elapsed_s
        if batch.decode_seqs:
            self.token_s += token_s
            for sequence in excluded:
                sequence.token_s += token_s
        for sequence, first_time, recomputed, decoded in parts:
            sequence.busy.prefill_s += token_s * first_time
            sequence.busy.recompute_s += token_s * recomputed
            sequence.busy.decode_s += token_s * decoded

    def settle(self, running: Iterable[Sequence]) -> None:
        """Add the decode time attributed so far to the decoding sequences of *running*."""
        for sequence in running:
            if sequence.decoding and not isnan(sequence.token_s):
                sequence.busy.decode_s += self.token_s - sequence.token_s
                sequence.token_s = self.token_s


class AsyncRequestGpuTime(RequestGpuTime):
    """Time attribution on a rank whose steps are formed one ahead.

    A sequence starts and stops decoding when a step starts, and the time of that step is attributed at its end.
    """

    __slots__ = ("_moved",)

    def __init__(self) -> None:
        super().__init__()
        self._moved: list[tuple[Sequence, float | None]] = []
        """Sequences that started (None) or stopped decoding (their `token_s` then) in steps that have not ended."""

    def start(self, sequence: Sequence) -> None:
        """See `RequestGpuTime.start`. The change takes effect when the current steps end."""
        sequence.token_s = nan
        self._moved.append((sequence, None))

    def stop(self, sequence: Sequence) -> None:
        """See `RequestGpuTime.stop`. The change takes effect when the current steps end."""
        self._moved.append((sequence, sequence.token_s))

    def end_steps(self) -> None:
        """Count the sequences that started and stopped decoding in the steps that end."""
        now = self.token_s
        for sequence, since_s in self._moved:
            if since_s is None:
                sequence.token_s = now
            elif not isnan(since_s):  # nan: the sequence also started in these steps
                sequence.busy.decode_s += now - since_s
        self._moved.clear()


Part = tuple[Sequence, int, int, int]
"""Chunk of a sequence: tokens computed for the first time, tokens computed again, and tokens of an answer that
continues here with transferred KV."""


def chunk_parts(chunks: Iterable[tuple[Sequence, int]]) -> list[Part]:
    """Split each of *chunks* into its `Part`."""
    return [
        (sequence, 0, 0, chunk)
        if sequence.kv_transferred
        else (sequence, chunk - (again := recomputed_tokens(sequence, chunk)), again, 0)
        for sequence, chunk in chunks
    ]


def add_decode(batch: Batch, context: int, window: int | None, sign: int = 1) -> None:
    """Add a decoding sequence with *context* tokens of KV to the KV sums of *batch*, or subtract it if *sign* is -1.

    Layers with a sliding *window* read at most that many of the tokens.
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


def place(request_index: int, waits: bool, running: Iterable[Sequence]) -> str:
    """Return the place of request number *request_index*: running, queued (it *waits*) or empty."""
    if any(one.request.index == request_index for one in running):
        return "running"
    return "queued" if waits else ""


def recomputed_tokens(sequence: Sequence, chunk: int) -> int:
    """Return how many tokens of the next *chunk* of *sequence* were computed before, or are not of the prompt."""
    computed = sequence.computed
    if sequence.high_water <= computed and computed + chunk <= sequence.request.prompt_tokens:
        return 0
    first_time = min(sequence.request.prompt_tokens, computed + chunk) - max(sequence.high_water, computed)
    return chunk - max(0, first_time)
