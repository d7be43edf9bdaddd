"""From a load profile to the hours that each point of the sweep stands for."""

from dataclasses import dataclass
from math import ceil, floor

from sim.scenario.reading.layers import place_of
from sim.scenario.schema import Scenario
from sim.scenario.sections.load_profile import CLIENTS, RATE, loads_of
from sim.scenario.sweep import as_data, axis_labels, points
from sim.units import HOURS_PER_WEEK


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
    return YearPlan(loads_of(scenario.load_profile), axis, clients, of_week)


def load_by_hour(scenario: Scenario) -> tuple[float, ...] | None:
    """The load of each hour of the day or week, where `load_profile` has it by the hour: weights for what energy costs
    over a year where one simulated load stands for all hours. None: evenly.
    """
    plan = year_plan(scenario)
    if plan is None or any(hour is None for _, _, hour in plan.loads):
        return None
    loads = tuple(load for load, _, _ in plan.loads)
    return loads if any(loads) else None
