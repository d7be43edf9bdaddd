"""A step time given as three coefficients."""

from typing import Literal, Self

from pydantic import model_validator

from sim.records import Batch, Leap
from sim.spec import NonNegative, Spec


class Affine(Spec):
    """step = base + per_token * new tokens + per_context_token * tokens computed before the step [s].

    It needs no model and no GPU, and it is exactly affine: a leap never ends on its account. How hard the
    GPUs work is unknown: busy ones draw their power limit.
    """

    model: Literal["affine"]
    base_s: NonNegative
    """Time of a step however small."""
    per_token_s: NonNegative
    """Per new token in the step, prompt or output."""
    per_context_token_s: NonNegative
    """Per token that the step's sequences have computed before (cached ones included)."""

    @model_validator(mode="after")
    def _time_passes(self) -> Self:
        if self.base_s == self.per_token_s == self.per_context_token_s == 0:
            raise ValueError("all coefficients are 0: steps would take no time")
        return self

    @property
    def window(self) -> int | None:
        """No sliding window."""
        return None

    def leap(self, batch: Batch) -> Leap:
        """Duration of the next steps of *batch*."""
        first_s = (
            self.base_s
            + self.per_token_s * (batch.decode_seqs + batch.draft_tokens + batch.prefill_tokens)
            + self.per_context_token_s * (batch.kv_tokens + batch.prefill_context_tokens)
        )
        return Leap(first_s, self.per_context_token_s * batch.decode_seqs)

    def breakdown(self, batch: Batch) -> dict[str, float]:
        """The first step's seconds by cause: the base is overhead, new tokens are compute, contexts are attention."""
        return {
            "compute": self.per_token_s * (batch.decode_seqs + batch.draft_tokens + batch.prefill_tokens),
            "memory": 0.0,
            "attention": self.per_context_token_s * (batch.kv_tokens + batch.prefill_context_tokens),
            "link": 0.0,
            "overhead": self.base_s,
        }
