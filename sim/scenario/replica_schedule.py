"""Schedules of replicas: numbers that change at fixed times of every day."""

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from sim.cost.clock import SiteClock
from sim.message import Message
from sim.spec import NonNegative, Spec, WholeNumber

MINUTES_PER_DAY = 24 * 60


def _minute(value: Any) -> int:
    """Convert a time of day to minutes since midnight; unquoted, YAML reads 20:00 as 1200, which is the same."""
    if isinstance(value, str) and (found := re.fullmatch(r"(\d{1,2}):(\d\d)", value)):
        hours, minutes = map(int, found.groups())
        if minutes < 60:
            value = 60 * hours + minutes
    if isinstance(value, str) and value.isdecimal():  # a key that went through JSON is text
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < MINUTES_PER_DAY:
        raise ValueError(Message('a time of day is needed, such as "08:30", not {value!r}', value))
    return value


TimeOfDay = Annotated[int, BeforeValidator(_minute, json_schema_input_type=str)]


class ReplicasByDay(Spec):
    """Number of replicas that changes at fixed times of every day; before the first time the last value holds."""

    replicas: Annotated[dict[TimeOfDay, WholeNumber], Field(min_length=1)]
    """Time of day -> number of replicas from then on: {"08:00": 4, "20:00": 1}. With `starts_at` it is the site's local
    time, else the day begins with simulated time 0."""

    @property
    def most(self) -> int:
        """Highest number of replicas at any time."""
        return max(self.replicas.values())

    def wanted(self, second_of_day: float) -> int:
        """Return the number of replicas at a time of day [s after midnight]."""
        times = sorted(self.replicas)
        reached = [at for at in times if 60 * at <= second_of_day]
        return self.replicas[reached[-1] if reached else times[-1]]

    def switches_s(self, clock: SiteClock, until_s: float) -> list[float]:
        """Return the simulated times in (0, *until_s*) at which the number may change [s]."""
        return [at_s for at_s in clock.times_shown_s(self.replicas, until_s) if at_s > 0]


class ReplicaSchedule(ReplicasByDay):
    """Schedule that switches replicas on and off at fixed times of every day."""

    starting_s: NonNegative | None = None
    """Time from switching a replica on to its first request: machine, engine, weights [s]. Default: computed from the
    pool's `cold_start`."""
