"""Speculative decoding: who drafts, how much, and how much of it holds."""

from typing import Self

from pydantic import model_validator

from sim.catalogue.entries.drafter import DraftMethod
from sim.spec import Count, Fraction, Spec, WholeNumber


class Speculative(Spec):
    """Each step computes so many drafted tokens behind the next one of every sequence that decodes."""

    num_speculative_tokens: Count
    """Tokens drafted for a sequence in a step."""
    method: DraftMethod = "ngram"
    """ngram: drafts are looked up in the text and cost no GPU time; eagle, mtp: each drafted token is a pass through
    one more layer of the model and its LM head; draft_model: through `draft_model`."""
    draft_model: str | None = None
    """The model that drafts, an id as under `model`: on the same GPUs, in its own dtype."""
    accepted: WholeNumber | None = None
    """Drafts that hold in every step."""
    acceptance: Fraction | tuple[Fraction, ...] | str | None = None
    """Probability that a draft holds where those before it do: one for all places, one for each, or as measured: a
    drafter and a task of the catalogue (qwen3-8b-eagle3/gsm8k)."""

    @property
    def rates(self) -> tuple[float, ...]:
        """Probability for each place."""
        given = 0.0 if self.acceptance is None or isinstance(self.acceptance, str) else self.acceptance
        return given if isinstance(given, tuple) else (given,) * self.num_speculative_tokens

    @model_validator(mode="after")
    def _drafts_hold(self) -> Self:
        drafts = self.num_speculative_tokens
        if (self.accepted is None) == (self.acceptance is None):
            raise ValueError("give either accepted (drafts that hold in every step) or acceptance (a probability)")
        if (self.method == "draft_model") == (self.draft_model is None):
            raise ValueError("draft_model (a model's id) and method: draft_model belong together")
        if self.accepted is not None and self.accepted > drafts:
            raise ValueError(f"accepted ({self.accepted}) must not exceed num_speculative_tokens ({drafts})")
        if len(self.rates) != drafts:
            raise ValueError(f"acceptance has {len(self.rates)} places, but num_speculative_tokens is {drafts}")
        return self
