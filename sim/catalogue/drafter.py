"""Measured acceptance of drafted tokens in speculative decoding, by task: data/drafters/<id>.yaml."""

from typing import Literal

from sim.catalogue.value import Value
from sim.spec import Spec

HALVINGS = 60

DraftMethod = Literal["ngram", "eagle", "mtp", "draft_model"]
"""Source of draft tokens: n-gram look-up in the text, EAGLE or MTP heads on the model's last layer, or a draft model.
"""


class Drafter(Spec):
    """Drafting method for one target model, with its measured acceptance."""

    id: str
    name: str
    aliases: tuple[str, ...] = ()
    note: str = ""
    method: DraftMethod
    target: str
    """Model whose tokens are drafted."""
    num_speculative_tokens: Value
    """Drafted tokens per step in the measurement."""
    accepted_per_step: dict[str, Value]
    """Mean number of accepted drafts per step, by task."""

    def acceptance(self, task: str) -> float:
        """Return the probability that a draft is accepted, given that all drafts before it were. Raises KeyError.

        Notes
        -----
        The probability p is taken as equal at every position. It solves p + p^2 + ... + p^k = a for the mean number a
        of accepted drafts in a step of k drafts.

        """
        accepted, drafts = self.accepted_per_step[task].value, round(self.num_speculative_tokens.value)
        low, high = 0.0, 1.0
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            if sum(middle**place for place in range(1, drafts + 1)) < accepted:
                low = middle
            else:
                high = middle
        return low
