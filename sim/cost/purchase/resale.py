"""What used hardware fetches: its resale value falls with age, fastest at first."""

from itertools import pairwise
from typing import Annotated, Self

from pydantic import Field, model_validator

from sim.spec import Fraction, Spec

Age = Annotated[float, Field(gt=0)]
"""Years; as the key of a mapping it may come back from JSON as text."""


class Resale(Spec):
    """Resale value by age, either as a rate of loss or as a table."""

    loss_per_year: Fraction | None = None
    """Share of the remaining value that every year takes (declining balance)."""
    by_age: Annotated[dict[Age, Fraction], Field(min_length=1)] | None = None
    """Age in years -> share of the price; between two ages, and from 1 when new, along straight lines."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.loss_per_year is None) == (self.by_age is None):
            raise ValueError("either loss_per_year or by_age is needed")
        return self

    @property
    def last_age(self) -> float:
        """Oldest age that has a value [years]."""
        return max(self.by_age) if self.by_age else float("inf")

    def fraction(self, age_years: float) -> float:
        """Share of the price that is left at *age_years*, at most `last_age`.

        Declining balance is (1 - loss)^age, the book value of accounting textbooks.

        >>> round(6000 * Resale(loss_per_year=0.4).fraction(3))
        1296
        """
        if self.by_age is None:
            return float((1 - (self.loss_per_year or 0.0)) ** age_years)
        known = sorted({0.0: 1.0, **self.by_age}.items())
        for (before, high), (after, low) in pairwise(known):
            if age_years <= after:
                return high + (low - high) * (age_years - before) / (after - before)
        raise ValueError(f"no resale value is known beyond {known[-1][0]:g} years")
