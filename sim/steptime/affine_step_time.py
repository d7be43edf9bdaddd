"""Step time as an affine function of a step's tokens, separate from its spec so that it can be compiled."""

from sim.records import Batch, Leap, StepTime


class AffineStepTime(StepTime):
    """Affine step-time model with three coefficients.

    Notes
    -----
    step = base_s + per_token_s * new tokens + per_context_token_s * tokens computed before the step [s].

    The function is affine, so it never limits `Leap.valid_steps`.

    """

    __slots__ = ("base_s", "per_context_token_s", "per_token_s")

    def __init__(self, base_s: float, per_token_s: float, per_context_token_s: float) -> None:
        self.base_s = base_s
        """Constant time of a step [s]."""
        self.per_token_s = per_token_s
        """Time per new token in the step [s]."""
        self.per_context_token_s = per_context_token_s
        """Time per token computed before the step [s]."""

    @property
    def window(self) -> int | None:
        """Sliding window of the model; always None."""
        return None

    def leap(self, batch: Batch) -> Leap:
        """Return the durations of the next steps of *batch*."""
        first_s = (
            self.base_s
            + self.per_token_s * (batch.decode_seqs + batch.draft_tokens + batch.prefill_tokens)
            + self.per_context_token_s * (batch.kv_tokens + batch.prefill_context_tokens)
        )
        return Leap(first_s, self.per_context_token_s * batch.decode_seqs)

    def breakdown(self, batch: Batch) -> dict[str, float]:
        """Return the duration of the first step by cause [s].

        The base counts as overhead, new tokens as compute, contexts as attention.
        """
        return {
            "compute": self.per_token_s * (batch.decode_seqs + batch.draft_tokens + batch.prefill_tokens),
            "memory": 0.0,
            "attention": self.per_context_token_s * (batch.kv_tokens + batch.prefill_context_tokens),
            "link": 0.0,
            "overhead": self.base_s,
        }
