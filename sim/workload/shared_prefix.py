"""Blocks that prompts share: a common prefix, or the growing context of a conversation.

A common prefix is a system prompt, a document that many requests refer to, or a benchmark's few repeated prompts.
Equal block ids stand for equal text, as in a prefix cache.
"""

from collections.abc import Iterable, Sequence
from typing import overload

from sim.message import Message
from sim.spec import Count, Spec
from sim.workload.requests import Streams, uniforms

HASH_BLOCK_TOKENS = 16
"""Tokens per block id; vLLM shares whole KV blocks of this size."""

MOST_BLOCKS = 2**24
"""Upper limit of the blocks of a prompt, so that ids of different texts do not overlap."""


class SharedPrefix(Spec):
    """Prefix shared by prompts: each prompt starts with one of several texts, drawn uniformly.

    Engines benefit from it with enable_prefix_caching.
    """

    tokens: Count
    """Length of the text [tokens]; a shorter prompt is a prefix of it."""
    prefixes: Count = 1
    """Number of different texts."""

    def block_hashes(self, streams: Streams, start: int, prompt_tokens: Iterable[int]) -> list[tuple[int, ...]]:
        """Return the ids of the shared leading blocks of requests from *start* on (HASH_BLOCK_TOKENS tokens each)."""
        prompts = list(prompt_tokens)
        blocks = self.tokens // HASH_BLOCK_TOKENS
        texts = (uniforms(streams, "prefix", start, len(prompts)) * self.prefixes).astype(int).tolist()
        ids = {text: tuple(range(text * blocks, (text + 1) * blocks)) for text in set(texts)}
        return [ids[text][: tokens // HASH_BLOCK_TOKENS] for text, tokens in zip(texts, prompts, strict=True)]

    def describe(self) -> str:
        """Return a description, as a phrase."""
        texts = "the same text" if self.prefixes == 1 else Message("one of {prefixes} texts", self.prefixes)
        return Message("prompts begin with {prefixes} of {tokens} tokens", texts, self.tokens)


def own_block_hashes(start: int, prompt_tokens: Iterable[int], known: int) -> list[tuple[int, ...]]:
    """Return the ids of the leading blocks of requests from *start* on, each with a text of its own.

    Requests from number *known* on get no ids, because their prompts are never repeated.
    """
    blocks = [tokens // HASH_BLOCK_TOKENS for tokens in prompt_tokens]
    return [
        tuple(range(number * MOST_BLOCKS, number * MOST_BLOCKS + length)) if number < known else ()
        for number, length in enumerate(blocks, start)
    ]


BLOCK_BITS, CONTEXT_BITS = 24, 12
"""Bits of a block id: 2^24 blocks of 16 tokens in a context, 2^12 contexts in a session."""


class ContextBlocks(Sequence[int]):
    """Ids of the leading *count* blocks of a context: those of the system prompt, common to all contexts, then its own.

    Ids are computed, not stored, since a session of 100 turns has the same blocks 100 times::

        block      0 ... shared - 1     shared ... count - 1
        id        -1 ... -shared        own + shared ... own + count - 1
    """

    __slots__ = ("_count", "_own", "_shared")

    def __init__(self, shared: int, own: int, count: int) -> None:
        """Initialise with *shared* blocks of the system prompt; *own* is the id of the context's block 0."""
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
    """Context of a request in a session: the preceding conversation."""

    __slots__ = ("_own", "_shared", "tokens")

    def __init__(self, session: int, number: int, system_tokens: int) -> None:
        """Start context *number* of session *session* with a system prompt of *system_tokens* tokens."""
        self._own = ((session << CONTEXT_BITS) + number) << BLOCK_BITS
        self._shared = system_tokens // HASH_BLOCK_TOKENS
        self.tokens = system_tokens
        """Length of the context so far [tokens]."""

    def grown(self, tokens: int, answer: int) -> tuple[int, ContextBlocks]:
        """Append *tokens* of prompt and *answer* of response; return the prompt's length and the blocks of both."""
        prompt = self.tokens + tokens
        self.tokens = prompt + answer
        return prompt, ContextBlocks(self._shared, self._own, self.tokens // HASH_BLOCK_TOKENS)
