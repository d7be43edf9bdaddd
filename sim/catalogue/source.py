"""Where values come from: data/sources.yaml holds each source once."""

from typing import Annotated, Literal

from pydantic import Field

from sim.spec import Spec

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
