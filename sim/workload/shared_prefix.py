"""Prompts that begin alike: a system prompt, a document many ask about, a benchmark that repeats a few prompts."""

from collections.abc import Iterable

from sim.spec import Count, Spec
from sim.workload.streams import Streams, uniforms

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
