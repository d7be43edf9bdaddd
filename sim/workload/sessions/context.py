"""Names of the blocks of a context that grows from request to request."""

from collections.abc import Sequence
from typing import overload

from sim.workload.shared_prefix import HASH_BLOCK_TOKENS

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
