"""A number and where it comes from: its source, the place in the source, and the kind of statement it is.

data/sources.yaml holds each source once; values cite it by its key.
"""

from datetime import date
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from sim.spec import Spec

Kind = Literal["datasheet", "quoted", "measured", "computed", "fitted", "assumed", "recalled"]
WEAK_KINDS: frozenset[str] = frozenset({"assumed", "recalled"})


class Sourced(Spec):
    """Provenance: which source, where in it, and what kind of statement it is."""

    source: str
    """A key of data/sources.yaml."""
    where: str = ""
    """Page, table, file or rule within the source."""
    kind: Kind
    as_of: date | None = None
    """Date of the statement; prices must have one."""
    note: str = ""


class Value(Sourced):
    """A sourced number in the unit that its field's name ends in."""

    value: Annotated[float, Field(allow_inf_nan=False)]
    range: tuple[float, float] | None = None
    """Plausible lowest and highest value; `assumed` must have it."""

    @model_validator(mode="after")
    def _range_holds_value(self) -> Self:
        if self.range is not None and not self.range[0] <= self.value <= self.range[1]:
            raise ValueError(f"value {self.value:g} lies outside its range {list(self.range)}")
        if self.kind == "assumed" and self.range is None:
            raise ValueError("an assumed value needs a range")
        return self

    @property
    def weak(self) -> bool:
        """Whether a report that rests on it must say so."""
        return self.kind in WEAK_KINDS


PartialDate = Annotated[str, Field(pattern=r"^\d{4}(-\d\d(-\d\d)?)?$")]
"""A year, a month or a day, as far as it is known."""


class Source(Spec):
    """A datasheet, page, file or measurement that values cite by its key."""

    title: str
    author: str = ""
    url: str = ""
    version: str = ""
    """Release, edition or commit that was read."""
    published: PartialDate | None = None
    accessed: PartialDate
    """When it was read."""
    trust: Literal["high", "good", "fair", "weak"]
    """high: the maker's own statement or a measurement with raw files; weak: one voice."""
    note: str = ""
