"""Section `load_profile`: the hours of a year at each load, which weight the loads of a sweep."""

from collections.abc import Iterator
from math import fsum, isclose, isfinite
from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator

from sim.cost.rental import Rent
from sim.message import Message
from sim.scenario.experiment import Experiment
from sim.scenario.reading.layers import place_of, value_at
from sim.scenario.sections import Everything, Section
from sim.scenario.sweep import points
from sim.units import HOURS_PER_DAY, HOURS_PER_WEEK, HOURS_PER_YEAR
from sim.validation import Place, ValidationIssue, dotted

PROCESS: Place = ("workload", "arrivals", "process")
RATE: Place = ("workload", "arrivals", "rate_rps")
CLIENTS: Place = ("workload", "arrivals", "concurrency")


def _profile(value: Any) -> dict[float, float] | tuple[float, ...]:
    if isinstance(value, dict) and value:
        hours = {_number(load, "a load"): _number(part, "hours per year") for load, part in value.items()}
        if max(hours) == 0:
            raise ValueError("no hour has any load")
        total = fsum(hours.values())
        if not isclose(total, HOURS_PER_YEAR, abs_tol=0.5):
            raise ValueError(
                Message("the hours add up to {total:g}; a year has {hours_per_year:g}", total, HOURS_PER_YEAR)
            )
        return hours
    if isinstance(value, list | tuple) and len(value) in (HOURS_PER_DAY, HOURS_PER_WEEK):
        day = tuple(_number(load, "a load") for load in value)
        if max(day) == 0:
            raise ValueError("no hour has any load")
        return day
    text = "{load: hours per year} is needed, or a list of 24 loads, one an hour of the day, or 168, from Monday on"
    raise ValueError(Message("{text}; a load is requests per second, or clients of a closed loop", text))


def _number(value: Any, what: str) -> float:
    """Return *value* as a number of 0 or more; a key that went through JSON is text."""
    try:
        number = float("nan" if isinstance(value, bool | None) else value)
    except (TypeError, ValueError):
        number = float("nan")
    if not isfinite(number) or number < 0:
        raise ValueError(Message("{name} must be a number of 0 or more, not {value!r}", what, value))
    return number


LoadProfile = Annotated[
    dict[float, float] | tuple[float, ...],
    PlainValidator(_profile, json_schema_input_type=dict[float, float] | list[float]),
    PlainSerializer(lambda profile: profile, return_type=Any),
]


def loads_of(profile: LoadProfile) -> tuple[tuple[float, float, int | None], ...]:
    """Return (load, hours per year, hour of the day or week, None if unknown) for every part of the year."""
    if isinstance(profile, dict):
        return tuple((load, hours, None) for load, hours in sorted(profile.items()))
    return tuple((load, HOURS_PER_YEAR / len(profile), hour) for hour, load in enumerate(profile))


def _check(profile: LoadProfile, scenario: Experiment, _: Everything) -> Iterator[ValidationIssue]:
    """Yield an issue for a load profile beside a schedule of replicas, which follows the time of day."""
    if any(pool.schedule for fleet in scenario.fleets for pool in fleet.pools):
        text = "weights steady loads, and a schedule follows the day: simulate whole days of arrivals"
        yield ValidationIssue(("load_profile",), Message("{text}: {{process: profile}}", text))
    for index, fleet in enumerate(scenario.fleets):
        switched = any(pool.autoscaling or pool.failures for pool in fleet.pools)
        if switched and isinstance(fleet.cost, Rent) and fleet.cost.take_or_pay is not None:
            text = "is a minimum of the month, and load_profile bills each load apart: remove one of them"
            yield ValidationIssue(("fleets", index, "cost", "take_or_pay"), text)


def _check_sweep(profile: LoadProfile, data: dict[str, Any], swept: bool) -> Iterator[ValidationIssue]:
    """Check that there is a load to weight and, where the sweep is simulated, that it covers the profile's loads."""
    clients = value_at(data, PROCESS) == "closed_loop"
    place, unit = (CLIENTS, "clients") if clients else (RATE, "requests/s")
    simulated = [_load_at(data, point, place) for point in points(data.get("sweep"))]
    known = [load for load in simulated if isinstance(load, int | float) and not isinstance(load, bool)]
    if len(known) < len(simulated):
        text = Message("weights the loads of {axis}, which these arrivals do not have", dotted(place))
        yield ValidationIssue(("load_profile",), text)
        return
    if not swept:
        return  # the command simulates the profile's loads, or loads of its own choice
    # hours without load need no simulation of requests: the bill of idle machines is computed
    loads = [load for load, hours, _ in loads_of(profile) if hours and load]
    outside = [f"{load:g}" for load in sorted(set(loads)) if not min(known) <= load <= max(known)]
    if outside:
        text = Message(
            "{loads} {unit} lie outside what is simulated ({low:g} to {high:g}): ",
            ", ".join(outside),
            unit,
            min(known),
            max(known),
        )
        yield ValidationIssue(("load_profile",), text + Message("add them to sweep: {{{axis}: [...]}}", dotted(place)))


def _load_at(data: dict[str, Any], point: dict[str, Any], load: Place) -> Any:
    for path, value in point.items():
        if place_of(data, path) == load:
            return value
    return value_at(data, load)


LOAD_PROFILE = Section(
    repriced=True,
    check=_check,
    check_sweep=_check_sweep,
    example="""\
load_profile: {8: 2920, 1: 5840}   # for year.csv: hours of a year at each load, 0 too; or 24 loads, one an hour""",
)
