"""Capacity against demand, month by month, as plain data for whoever draws it."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """One month; loads in the unit of the chart."""

    existing: float
    """Capacity that was there before the plan: a part of `owned`."""
    owned: float
    capacity: float
    """Owned and rented."""
    peak: float
    mean: float
    said: Mapping[str, str]
    """What it says under the pointer: its date first."""


@dataclass(frozen=True, slots=True)
class StepChart:
    """One fleet over the months."""

    title: str
    subtitle: str
    fleet: str
    color: str
    steps: tuple[Step, ...]
    ticks: Mapping[int, str]
    """Months that are marked -> how."""
    top: float
    """End of the axis of loads, the same for all fleets."""
    elsewhere: bool
    """What the capacity does not carry is bought from an API, not missing."""
    short: bool
    """In some months capacity is missing."""
    held: bool
    """Some capacity existed before."""
