"""Revenue of a fleet that sells its tokens: stated prices per million tokens, or the price that a margin needs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Self

from pydantic import Field, model_validator

from sim.cost.token_api import TOKENS_PER_PRICE
from sim.spec import NonNegative, Spec


class ServicePrice(Spec):
    """Prices of the tokens of one service; a price left out is that of all services."""

    input: NonNegative | None = None
    """Price per million prompt tokens [USD]."""
    output: NonNegative | None = None
    """Price per million output tokens [USD]."""


class Revenue(Spec):
    """Prices at which tokens are sold, or the margin for which the price of output tokens is searched."""

    input: NonNegative = 0.0
    """Price per million prompt tokens [USD]."""
    output: NonNegative | None = None
    """Price per million output tokens [USD]."""
    margin: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Profit as a fraction of revenue, in place of `output`: the price of output tokens is the answer."""

    services: dict[str, ServicePrice] = Field(default_factory=dict)
    """Service -> prices of its tokens, where they differ from those of all services."""

    def of(self, service: str) -> "Revenue":
        """Return the prices of the tokens of *service*."""
        own = self.services.get(service)
        changed = {} if own is None else own.model_dump(exclude_none=True)
        return self.model_copy(update={**changed, "services": {}})

    def blended(self, tokens: Mapping[str, tuple[float, float]]) -> "Revenue":
        """Return the mean prices of *tokens*, service -> (prompt tokens, output tokens), weighted by these.

        >>> Revenue(output=2, services={"a": {"output": 4}}).blended({"a": (9, 10), "b": (9, 30)}).output
        2.5
        """
        if not self.services:
            return self
        prices = [(self.of(name), *counts) for name, counts in tokens.items()]
        prompts, outputs = (sum(counts) for counts in zip(*tokens.values(), strict=True))
        found = {"input": sum(one.input * prompt for one, prompt, _ in prices) / prompts if prompts else self.input}
        if self.output is not None and outputs:
            found["output"] = sum((one.output or 0.0) * output for one, _, output in prices) / outputs
        return self.model_copy(update={**found, "services": {}})

    @model_validator(mode="after")
    def _one_question(self) -> Self:
        if self.margin is not None and any(one.output is not None for one in self.services.values()):
            raise ValueError("margin finds one price of output tokens: leave output out of services")
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


def sold_usd(prices: Revenue | None, prompt_tokens: float, output_tokens: float) -> float | None:
    """Return the revenue of tokens [USD]; None without a price of output tokens."""
    if prices is None or prices.output is None:
        return None
    return SoldTokens(prices, prompt_tokens, output_tokens, 0.0).usd
