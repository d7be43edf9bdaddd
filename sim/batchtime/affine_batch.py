"""A batch time given as two coefficients."""

from typing import Literal, Self

from pydantic import model_validator

from sim.records import Batch, Leap
from sim.spec import NonNegative, Spec


class AffineBatch(Spec):
    """batch = base + per_item * items [s]. It needs no model and no GPU; a GPU at work draws its power limit."""

    model: Literal["affine_batch"]
    base_s: NonNegative
    """Time of a batch however small."""
    per_item_s: NonNegative
    """Per request in the batch."""

    @model_validator(mode="after")
    def _time_passes(self) -> Self:
        if self.base_s == self.per_item_s == 0:
            raise ValueError("both coefficients are 0: batches would take no time")
        return self

    @property
    def window(self) -> int | None:
        """No sliding window."""
        return None

    def leap(self, batch: Batch) -> Leap:
        """Duration of *batch*, whose sequences are the items."""
        return Leap(self.base_s + self.per_item_s * batch.decode_seqs)

    def breakdown(self, batch: Batch) -> dict[str, float]:
        """The seconds of *batch* by cause: the base is overhead, items are compute."""
        items_s = self.per_item_s * batch.decode_seqs
        return {"compute": items_s, "memory": 0.0, "attention": 0.0, "link": 0.0, "overhead": self.base_s}
