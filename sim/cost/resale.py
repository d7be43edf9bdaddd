"""Resale value of hardware by age: a rate of loss, a table, or a curve of data/resale.yaml."""

from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from itertools import pairwise
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from sim import yamlio
from sim.catalogue.data_folder import UnknownId, data_root
from sim.catalogue.value import Value
from sim.message import Message
from sim.spec import Fraction, Spec

Age = Annotated[float, Field(gt=0)]
"""Age [years]; as the key of a mapping it may be read from JSON as text."""


class ResaleCurve(Spec):
    """Loss of value of one GPU, fitted to second-hand quotes: an entry of data/resale.yaml."""

    loss_per_year: Value
    """Fraction of the remaining value lost per year."""


@cache
def resale_curves() -> Mapping[str, ResaleCurve]:
    """Return the curves of data/resale.yaml by GPU; `all` has the median loss."""
    document = yamlio.read(data_root() / "resale.yaml").data
    return {name: ResaleCurve.model_validate(entry) for name, entry in document["curves"].items()}


class Resale(Spec):
    """Resale value by age, as a rate of loss, a table or a fitted curve."""

    loss_per_year: Fraction | None = None
    """Fraction of the remaining value lost per year (declining balance)."""
    by_age: Annotated[dict[Age, Fraction], Field(min_length=1)] | None = None
    """Age [years] -> fraction of the price; linear between ages, starting from 1 at age 0."""
    curve: str | None = None
    """Curve in data/resale.yaml, fitted to second-hand quotes of a GPU: rtx-3090, h100-80gb-pcie, ...; all: the median
    of these GPUs."""

    @field_validator("curve")
    @classmethod
    def _is_known(cls, curve: str | None) -> str | None:
        if curve is not None and curve not in resale_curves():
            near = tuple(get_close_matches(curve, resale_curves(), n=3, cutoff=0.5))
            raise UnknownId("resale curve", curve, near or tuple(resale_curves()))
        return curve

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if [self.loss_per_year, self.by_age, self.curve].count(None) != 2:
            raise ValueError("state one of loss_per_year, by_age and curve")
        return self

    @property
    def last_age(self) -> float:
        """Maximum age with a known value [years]."""
        return max(self.by_age) if self.by_age else float("inf")

    @property
    def fitted(self) -> Value | None:
        """Loss per year of the curve; None without one."""
        return None if self.curve is None else resale_curves()[self.curve].loss_per_year

    def fraction(self, age_years: float) -> float:
        """Return the fraction of the price that remains at *age_years*, at most `last_age`.

        Notes
        -----
        Declining balance: (1 - loss_per_year)^age, the book value of accounting textbooks.

        Examples
        --------
        >>> round(6000 * Resale(loss_per_year=0.4).fraction(3))
        1296

        """
        if self.by_age is None:
            loss = self.loss_per_year if self.fitted is None else self.fitted.value
            return float((1 - (loss or 0.0)) ** age_years)
        known = sorted({0.0: 1.0, **self.by_age}.items())
        for (before, high), (after, low) in pairwise(known):
            if age_years <= after:
                return high + (low - high) * (age_years - before) / (after - before)
        raise ValueError(Message("no resale value is known beyond {age:g} years", known[-1][0]))
