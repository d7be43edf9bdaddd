"""Which blocks prompts share: a common beginning, or the context of a conversation that grows by each request.

A common beginning is a system prompt, a document many ask about, or a benchmark that repeats a few prompts. Equal
ids of blocks stand for equal text, as prefix caches look at it.
"""

from collections.abc import Iterable, Sequence
from typing import overload

from sim.spec import Count, Spec
from sim.workload.requests import Streams, uniforms

HASH_BLOCK_TOKENS = 16
"""Tokens that one id of a shared block stands for; vLLM shares whole KV blocks of this size."""

MOST_BLOCKS = 2**24
"""More blocks than any prompt has: ids of one text lie apart from those of the next."""


class SharedPrefix(Spec):
    """Each prompt begins with one of a few texts, drawn evenly. An engine gains by it with enable_prefix_caching."""

    tokens: Count
    """Length of the text; a shorter prompt is the beginning of it."""
    prefixes: Count = 1
    """How many different texts there are."""

    def block_hashes(self, streams: Streams, start: int, prompt_tokens: Iterable[int]) -> list[tuple[int, ...]]:
        """Ids of the shared leading blocks of requests *start*, *start* + 1, ..., HASH_BLOCK_TOKENS tokens each."""
        prompts = list(prompt_tokens)
        blocks = self.tokens // HASH_BLOCK_TOKENS
        texts = (uniforms(streams, "prefix", start, len(prompts)) * self.prefixes).astype(int).tolist()
        ids = {text: tuple(range(text * blocks, (text + 1) * blocks)) for text in set(texts)}
        return [ids[text][: tokens // HASH_BLOCK_TOKENS] for text, tokens in zip(texts, prompts, strict=True)]

    def describe(self) -> str:
        """A phrase."""
        texts = "the same text" if self.prefixes == 1 else f"one of {self.prefixes} texts"
        return f"prompts begin with {texts} of {self.tokens} tokens"


def own_block_hashes(start: int, prompt_tokens: Iterable[int], known: int) -> list[tuple[int, ...]]:
    """Ids of the leading blocks of requests *start*, *start* + 1, ..., each with a text of its own; none from number
    *known* on, for whose texts nobody asks a second time.
    """
    blocks = [tokens // HASH_BLOCK_TOKENS for tokens in prompt_tokens]
    return [
        tuple(range(number * MOST_BLOCKS, number * MOST_BLOCKS + length)) if number < known else ()
        for number, length in enumerate(blocks, start)
    ]


BLOCK_BITS, CONTEXT_BITS = 24, 12
"""Room in a name: 2^24 blocks of 16 tokens in a context, 2^12 contexts in a session."""


class ContextBlocks(Sequence[int]):
    """Ids of the leading *count* blocks of a context: first those of the system prompt, which all contexts have in
    common, then its own. Nothing is stored per block: a session of 100 turns has the same blocks 100 times.
    """

    __slots__ = ("_count", "_own", "_shared")

    def __init__(self, shared: int, own: int, count: int) -> None:
        """*shared* blocks are the system prompt's; *own* is the id of what would be the first block of its own."""
        self._shared, self._own, self._count = shared, own, count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[int, ...]: ...
    def __getitem__(self, place: int | slice) -> int | tuple[int, ...]:
        if isinstance(place, slice):
            chosen = range(*place.indices(self._count))
            return tuple(-1 - i if i < self._shared else self._own + i for i in chosen)
        if place < 0:
            place += self._count
        if not 0 <= place < self._count:
            raise IndexError("no such block")
        return -1 - place if place < self._shared else self._own + place


class Context:
    """The text that a request of a session begins with: what was said before."""

    __slots__ = ("_own", "_shared", "tokens")

    def __init__(self, session: int, number: int, system_tokens: int) -> None:
        """Context *number* of session *session*, which begins with a system prompt."""
        self._own = ((session << CONTEXT_BITS) + number) << BLOCK_BITS
        self._shared = system_tokens // HASH_BLOCK_TOKENS
        self.tokens = system_tokens
        """Its length so far."""

    def grown(self, tokens: int, answer: int) -> tuple[int, ContextBlocks]:
        """It goes on by *tokens* and their *answer*: the length of the prompt, and the blocks of both."""
        prompt = self.tokens + tokens
        self.tokens = prompt + answer
        return prompt, ContextBlocks(self._shared, self._own, self.tokens // HASH_BLOCK_TOKENS)
