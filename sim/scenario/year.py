"""From a load profile to the hours that each point of the sweep stands for."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from sim.scenario.errors import Complaint, Place
from sim.scenario.layers import place_of, value_at
from sim.scenario.load_profile import LoadProfile
from sim.scenario.schema import Scenario
from sim.scenario.sweep import as_data, axis_labels, points
from sim.units import HOURS_PER_YEAR

RATE: Place = ("workload", "arrivals", "rate_rps")
DAYS_PER_YEAR = HOURS_PER_YEAR / 24


@dataclass(frozen=True, slots=True)
class YearPlan:
    """What the year table is made of."""

    rates: tuple[tuple[float, float, int | None], ...]
    """(requests per second, hours per year, hour of the day or None where it is not said)."""
    axis: str | None
    """Label of the swept rate; None where one rate stands for all."""

    @property
    def peak_rps(self) -> float:
        """The highest load with any hours."""
        return max(rate for rate, hours, _ in self.rates if hours)


def year_plan(scenario: Scenario) -> YearPlan | None:
    """The plan of a scenario's year; None without a load profile."""
    if scenario.load_profile is None:
        return None
    data = as_data(scenario)
    labels = axis_labels(path for point in points(scenario.sweep) for path in point)
    axis = next((label for path, label in labels.items() if place_of(data, path) == RATE), None)
    return YearPlan(_rates(scenario.load_profile), axis)


def _rates(profile: LoadProfile) -> tuple[tuple[float, float, int | None], ...]:
    if isinstance(profile, dict):
        return tuple((rate, hours, None) for rate, hours in sorted(profile.items()))
    return tuple((rate, DAYS_PER_YEAR, hour) for hour, rate in enumerate(profile))


def profile_complaints(data: dict[str, Any]) -> Iterator[Complaint]:
    """Whether the loads of the raw `load_profile` lie within those that the sweep simulates."""
    if data.get("load_profile") is None:
        return
    try:
        profile: Any = TypeAdapter(LoadProfile).validate_python(data["load_profile"])
    except ValidationError:
        return  # the schema's complaint is told
    simulated = [_rate_at(data, point) for point in points(data.get("sweep"))]
    known = [rate for rate in simulated if isinstance(rate, int | float) and not isinstance(rate, bool)]
    if len(known) < len(simulated):
        text = "weights the loads of workload.arrivals.rate_rps, which these arrivals do not have"
        yield Complaint(("load_profile",), text)
        return
    rates = [rate for rate, hours, _ in _rates(profile) if hours]
    outside = [f"{rate:g}" for rate in sorted(set(rates)) if not min(known) <= rate <= max(known)]
    if outside:
        text = f"{', '.join(outside)} requests/s lie outside what is simulated ({min(known):g} to {max(known):g}): "
        yield Complaint(("load_profile",), text + "add them to sweep: {workload.arrivals.rate_rps: [...]}")


def _rate_at(data: dict[str, Any], point: dict[str, Any]) -> Any:
    for path, value in point.items():
        if place_of(data, path) == RATE:
            return value
    return value_at(data, RATE)
