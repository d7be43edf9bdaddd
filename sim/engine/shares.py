"""What each request takes of its replica's busy time: an even part of every step per new token in it."""

from collections.abc import Iterable
from math import isnan

from sim.engine.sequence import Sequence
from sim.records import Batch


class TimeShares:
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


def recomputed_tokens(sequence: Sequence, chunk: int) -> int:
    """Tokens of the next *chunk* of *sequence* that had been computed before, or are no prompt."""
    computed = sequence.computed
    if sequence.high_water <= computed and computed + chunk <= sequence.request.prompt_tokens:
        return 0
    first_time = min(sequence.request.prompt_tokens, computed + chunk) - max(sequence.high_water, computed)
    return chunk - max(0, first_time)
