"""Revenue of a fleet that sells its tokens: stated prices per million tokens, or the price that a margin needs."""

from dataclasses import dataclass
from typing import Annotated, Self

from pydantic import Field, model_validator

from sim.cost.token_api import TOKENS_PER_PRICE
from sim.spec import NonNegative, Spec


class Revenue(Spec):
    """Prices at which tokens are sold, or the margin for which the price of output tokens is searched."""

    input: NonNegative = 0.0
    """Price per million prompt tokens [USD]."""
    output: NonNegative | None = None
    """Price per million output tokens [USD]."""
    margin: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Profit as a fraction of revenue, in place of `output`: the price of output tokens is the answer."""

    @model_validator(mode="after")
    def _one_question(self) -> Self:
        if (self.output is None) == (self.margin is None):
            raise ValueError("exactly one of output and margin is needed: a price gives the profit, a margin the price")
        return self


@dataclass(frozen=True, slots=True)
class SoldTokens:
    """Tokens sold in a window, and what they cost.

    Notes
    -----
    With revenue r = input price * prompt tokens + output price * output tokens, the profit is r - cost, the margin
    (r - cost) / r. Prices per output token follow for r = cost (break-even) and for r = cost / (1 - margin).

    """

    prices: Revenue
    prompt_tokens: float
    """Prompt tokens, those found in the prefix cache included."""
    output_tokens: float
    cost_usd: float

    @property
    def input_usd(self) -> float:
        """Revenue from prompt tokens [USD]."""
        return self.prices.input * self.prompt_tokens / TOKENS_PER_PRICE

    @property
    def usd(self) -> float:
        """Revenue [USD]; with a margin in place of a price, the revenue that reaches it."""
        if self.prices.output is None:
            return self.cost_usd / (1 - (self.prices.margin or 0.0))
        return self.input_usd + self.prices.output * self.output_tokens / TOKENS_PER_PRICE

    @property
    def profit_usd(self) -> float:
        """Revenue minus all costs [USD]."""
        return self.usd - self.cost_usd

    @property
    def output_usd_to_break_even(self) -> float:
        """Revenue that output tokens must bring to cover all costs [USD]; negative if prompts bring more."""
        return self.cost_usd - self.input_usd

    @property
    def output_usd(self) -> float:
        """Revenue from output tokens [USD]."""
        return self.usd - self.input_usd
