"""Numbers with their provenance: the source, the place in the source, and the kind of statement.

data/sources.yaml lists each source; values cite it by its key.
"""

from datetime import date
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from sim.message import Message
from sim.spec import Spec

Kind = Literal["datasheet", "quoted", "measured", "computed", "fitted", "assumed", "recalled"]
WEAK_KINDS: frozenset[str] = frozenset({"assumed", "recalled"})


class Sourced(Spec):
    """Provenance of a number: the source, the place in the source, and the kind of statement."""

    source: str
    """Key of the source in data/sources.yaml."""
    where: str = ""
    """Page, table, file or rule within the source."""
    kind: Kind
    as_of: date | None = None
    """Date of the statement; required for prices."""
    note: str = ""


class Value(Sourced):
    """Sourced number; its unit is the suffix of its field's name."""

    value: Annotated[float, Field(allow_inf_nan=False)]
    range: tuple[float, float] | None = None
    """Plausible lowest and highest value; required where `kind` is `assumed`."""

    @model_validator(mode="after")
    def _range_holds_value(self) -> Self:
        if self.range is not None and not self.range[0] <= self.value <= self.range[1]:
            raise ValueError(Message("value {value:g} lies outside its range {range}", self.value, list(self.range)))
        if self.kind == "assumed" and self.range is None:
            raise ValueError("an assumed value needs a range")
        return self

    @property
    def weak(self) -> bool:
        """True if reports must flag results that use this value (assumed or recalled)."""
        return self.kind in WEAK_KINDS


PartialDate = Annotated[str, Field(pattern=r"^\d{4}(-\d\d(-\d\d)?)?$")]
"""Date given as a year, a month or a day."""


class Source(Spec):
    """Datasheet, page, file or measurement that values cite by its key."""

    title: str
    author: str = ""
    url: str = ""
    version: str = ""
    """Release, edition or commit of the source that was used."""
    published: PartialDate | None = None
    accessed: PartialDate
    """Date of access."""
    trust: Literal["high", "good", "fair", "weak"]
    """Reliability: high is the maker's own statement or a measurement with raw files, weak a single unconfirmed report.
    """
    note: str = ""
