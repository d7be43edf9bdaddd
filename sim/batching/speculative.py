"""Speculative decoding: who drafts, how much, and how much of it holds."""

from typing import Literal, Self

from pydantic import model_validator

from sim.spec import Count, Fraction, Spec, WholeNumber


class Speculative(Spec):
    """Each step computes so many drafted tokens behind the next one of every sequence that decodes."""

    num_speculative_tokens: Count
    """Tokens drafted for a sequence in a step."""
    method: Literal["ngram", "eagle", "mtp"] = "ngram"
    """ngram: drafts are looked up in the text and cost no GPU time; eagle, mtp: each drafted token is a pass through
    one more layer of the model and its LM head."""
    accepted: WholeNumber | None = None
    """Drafts that hold in every step."""
    acceptance: Fraction | tuple[Fraction, ...] | None = None
    """Probability that a draft holds where those before it do: one for all places, or one for each."""

    @property
    def rates(self) -> tuple[float, ...]:
        """Probability for each place."""
        given = self.acceptance if self.acceptance is not None else 0.0
        return given if isinstance(given, tuple) else (given,) * self.num_speculative_tokens

    @model_validator(mode="after")
    def _drafts_hold(self) -> Self:
        drafts = self.num_speculative_tokens
        if (self.accepted is None) == (self.acceptance is None):
            raise ValueError("give either accepted (drafts that hold in every step) or acceptance (a probability)")
        if self.accepted is not None and self.accepted > drafts:
            raise ValueError(f"accepted ({self.accepted}) must not exceed num_speculative_tokens ({drafts})")
        if len(self.rates) != drafts:
            raise ValueError(f"acceptance has {len(self.rates)} places, but num_speculative_tokens is {drafts}")
        return self
