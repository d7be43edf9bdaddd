"""From a load profile to the hours that each point of the sweep stands for."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, floor
from typing import Any

from pydantic import TypeAdapter, ValidationError

from sim.scenario.reading.errors import Complaint, Place, dotted
from sim.scenario.reading.layers import place_of, value_at
from sim.scenario.schema import Scenario
from sim.scenario.sections.load_profile import LoadProfile
from sim.scenario.sweep import as_data, axis_labels, points
from sim.units import HOURS_PER_WEEK, HOURS_PER_YEAR

PROCESS: Place = ("workload", "arrivals", "process")
RATE: Place = ("workload", "arrivals", "rate_rps")
CLIENTS: Place = ("workload", "arrivals", "concurrency")


@dataclass(frozen=True, slots=True)
class YearPlan:
    """What the year table is made of."""

    loads: tuple[tuple[float, float, int | None], ...]
    """(load, hours per year, hour of the day or of the week or None where it is not said); a load is requests per
    second, or clients of a closed loop."""
    axis: str | None
    """Label of the swept load; None where one load stands for all."""
    clients: bool = False
    """Loads are clients of a closed loop."""
    of_week: bool = False
    """Hours are those of the week, from Monday on, and not of the day."""

    @property
    def peak(self) -> float:
        """The highest load with any hours."""
        return max(load for load, hours, _ in self.loads if hours)

    @property
    def simulated(self) -> list[float]:
        """Loads to simulate for it; clients come in whole numbers."""
        loads = sorted({load for load, hours, _ in self.loads if hours and load})
        if not self.clients:
            return loads
        return sorted({max(1, side(load)) for load in loads for side in (floor, ceil)})

    @property
    def has_idle_hours(self) -> bool:
        """Whether no requests arrive in some hours."""
        return any(hours and not load for load, hours, _ in self.loads)


def year_plan(scenario: Scenario) -> YearPlan | None:
    """The plan of a scenario's year; None without a load profile."""
    if scenario.load_profile is None:
        return None
    data = as_data(scenario)
    labels = axis_labels(path for point in points(scenario.sweep) for path in point)
    clients = scenario.workload.closed_loop() is not None
    place = CLIENTS if clients else RATE
    axis = next((label for path, label in labels.items() if place_of(data, path) == place), None)
    of_week = len(scenario.load_profile) == HOURS_PER_WEEK and not isinstance(scenario.load_profile, dict)
    return YearPlan(_loads(scenario.load_profile), axis, clients, of_week)


def _loads(profile: LoadProfile) -> tuple[tuple[float, float, int | None], ...]:
    if isinstance(profile, dict):
        return tuple((load, hours, None) for load, hours in sorted(profile.items()))
    return tuple((load, HOURS_PER_YEAR / len(profile), hour) for hour, load in enumerate(profile))


def load_by_hour(scenario: Scenario) -> tuple[float, ...] | None:
    """The load of each hour of the day or week, where `load_profile` has it by the hour: weights for what energy costs
    over a year where one simulated load stands for all hours. None: evenly.
    """
    plan = year_plan(scenario)
    if plan is None or any(hour is None for _, _, hour in plan.loads):
        return None
    loads = tuple(load for load, _, _ in plan.loads)
    return loads if any(loads) else None


def profile_complaints(data: dict[str, Any]) -> Iterator[Complaint]:
    """Whether the loads of the raw `load_profile` lie within those that the sweep simulates."""
    if data.get("load_profile") is None:
        return
    try:
        profile: Any = TypeAdapter(LoadProfile).validate_python(data["load_profile"])
    except ValidationError:
        return  # the schema's complaint is told
    clients = value_at(data, PROCESS) == "closed_loop"
    place, unit = (CLIENTS, "clients") if clients else (RATE, "requests/s")
    simulated = [_load_at(data, point, place) for point in points(data.get("sweep"))]
    known = [load for load in simulated if isinstance(load, int | float) and not isinstance(load, bool)]
    if len(known) < len(simulated):
        text = f"weights the loads of {dotted(place)}, which these arrivals do not have"
        yield Complaint(("load_profile",), text)
        return
    # hours without any load need no simulated load: idle machines have one bill
    loads = [load for load, hours, _ in _loads(profile) if hours and load]
    outside = [f"{load:g}" for load in sorted(set(loads)) if not min(known) <= load <= max(known)]
    if outside:
        text = f"{', '.join(outside)} {unit} lie outside what is simulated ({min(known):g} to {max(known):g}): "
        yield Complaint(("load_profile",), text + f"add them to sweep: {{{dotted(place)}: [...]}}")


def _load_at(data: dict[str, Any], point: dict[str, Any], load: Place) -> Any:
    for path, value in point.items():
        if place_of(data, path) == load:
            return value
    return value_at(data, load)
