"""A request inside an engine."""

from typing import Any

from sim.records import Request


class Sequence:
    """Progress of one request on one rank.

    While prompt chunks are computed, `computed` counts the tokens with KV. While it decodes, its context at step
    counter S is `base + S`, so that a step changes nothing here.
    """

    __slots__ = (
        "admission", "base", "blocks", "computed", "decoding", "finish_step", "held", "high_water", "key", "made",
        "names", "request", "tokens",
    )  # fmt: skip

    def __init__(self, request: Request) -> None:
        self.request = request
        self.key = (request.priority, request.arrived_s, request.index)
        self.tokens = request.prompt_tokens
        """Tokens to compute before the next one is sampled: the prompt and, after a preemption, the tokens made so
        far."""
        self.made = 0
        self.computed = 0
        self.high_water = 0
        """Most tokens ever computed: what lies below is recomputed work."""
        self.decoding = False
        self.base = 0
        self.finish_step = 0
        self.admission = 0
        self.held = 0
        """KV blocks held while the prompt is computed; while decoding they follow from the context."""
        self.blocks: list[Any] = []
        """Named blocks of the prefix cache that it holds, in sequence order."""
        self.names: list[object] = []
        """Names of its leading blocks, as far as they have been worked out."""
