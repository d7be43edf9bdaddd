"""What each request takes of its replica's busy time: an even part of every step per new token in it."""

from collections.abc import Iterable

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

    def left_out(self, sequence: Sequence, step: int) -> bool:
        """Whether *sequence* decodes and is not in the step at counter *step*."""
        return self._standing_at == step and sequence in self._standing

    def share(self, elapsed_s: float, batch: Batch, chunks: Iterable[tuple[Sequence, int]], step: int) -> None:
        """Shares the time of the step at counter *step* up to *elapsed_s* after its begin.

        In a step of prompts only those who decode stand still, all of them: they take nothing.
        """
        token_s = (elapsed_s - self.shared_s) / (batch.decode_seqs + batch.prefill_tokens)
        self.shared_s = elapsed_s
        if batch.decode_seqs:
            self.token_s += token_s
            if self._standing_at == step:
                for sequence in self._standing:
                    sequence.token_s += token_s
        for sequence, chunk in chunks:
            request, recomputed = sequence.request, recomputed_tokens(sequence, chunk)
            request.prefill_s += token_s * (chunk - recomputed)
            request.recompute_s += token_s * recomputed

    def settle(self, running: Iterable[Sequence]) -> None:
        """Gives those who decode what they have taken so far."""
        for sequence in running:
            if sequence.decoding:
                sequence.request.decode_s += self.token_s - sequence.token_s
                sequence.token_s = self.token_s


def recomputed_tokens(sequence: Sequence, chunk: int) -> int:
    """Tokens of the next *chunk* of *sequence* that had been computed before, or are no prompt."""
    computed = sequence.computed
    first_time = min(sequence.request.prompt_tokens, computed + chunk) - max(sequence.high_water, computed)
    return chunk - max(0, first_time)
