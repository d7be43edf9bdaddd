"""A request inside an engine."""

from collections.abc import Iterable
from math import isnan

from sim.records import Hop, Request


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


def most_computed(visits: Iterable[Hop]) -> int:
    """Tokens that a request had come to on the farthest of its earlier *visits*."""
    return max((visit.progress.computed_tokens for visit in visits if visit.progress is not None), default=0)
