"""How a year's hours fall on the loads of a sweep, as a scenario says it."""

from math import fsum, isclose, isfinite
from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator

from sim.units import HOURS_PER_DAY, HOURS_PER_WEEK, HOURS_PER_YEAR


def _profile(value: Any) -> dict[float, float] | tuple[float, ...]:
    if isinstance(value, dict) and value:
        hours = {_number(load, "a load"): _number(part, "hours per year") for load, part in value.items()}
        if max(hours) == 0:
            raise ValueError("no hour has any load")
        total = fsum(hours.values())
        if not isclose(total, HOURS_PER_YEAR, abs_tol=0.5):
            raise ValueError(f"the hours add up to {total:g}; a year has {HOURS_PER_YEAR:g}")
        return hours
    if isinstance(value, list | tuple) and len(value) in (HOURS_PER_DAY, HOURS_PER_WEEK):
        day = tuple(_number(load, "a load") for load in value)
        if max(day) == 0:
            raise ValueError("no hour has any load")
        return day
    text = "{load: hours per year} is needed, or a list of 24 loads, one an hour of the day, or 168, from Monday on"
    raise ValueError(f"{text}; a load is requests per second, or clients of a closed loop")


def _number(value: Any, what: str) -> float:
    """What went through JSON as a key is text."""
    try:
        number = float("nan" if isinstance(value, bool | None) else value)
    except (TypeError, ValueError):
        number = float("nan")
    if not isfinite(number) or number < 0:
        raise ValueError(f"{what} must be a number of 0 or more, not {value!r}")
    return number


LoadProfile = Annotated[
    dict[float, float] | tuple[float, ...],
    PlainValidator(_profile, json_schema_input_type=dict[float, float] | list[float]),
    PlainSerializer(lambda profile: profile, return_type=Any),
]
