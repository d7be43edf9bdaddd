"""How much of what is drafted holds, by task: data/drafters/<id>.yaml."""

from typing import Literal

from sim.catalogue.value import Value
from sim.spec import Spec

HALVINGS = 60

DraftMethod = Literal["ngram", "eagle", "mtp", "draft_model"]
"""Who drafts: a look-up in the text, heads on the model's last layer, or a model of its own."""


class Drafter(Spec):
    """A way of drafting for one model, as measured."""

    id: str
    name: str
    aliases: tuple[str, ...] = ()
    note: str = ""
    method: DraftMethod
    target: str
    """The model whose tokens are drafted."""
    num_speculative_tokens: Value
    """Drafts in a step of the measurement."""
    accepted_per_step: dict[str, Value]
    """By task: drafts that hold in a step, in the mean."""

    def acceptance(self, task: str) -> float:
        """Probability that a draft holds where those before it do, the same in every place. Raises KeyError.

        It solves p + p^2 + ... + p^k = drafts that hold in a step of k.
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
