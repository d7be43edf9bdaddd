"""Which axis of a sweep is to blame for a mistake at one of its points, and where that is reported."""

from typing import Any

from sim.scenario.reading.errors import Complaint, Place, dotted


def suspects_of(one: Complaint, values: dict[str, Place], standing: bool) -> list[str]:
    """The axes that may be to blame for *one*: the one that sets its place, else those that set one inside or beside.

    What is *standing* without the sweep is no axis's doing.
    """
    own = [axis for axis, place in values.items() if one.place[: len(place)] == place]
    if own or standing:
        return own[:1]
    return [
        axis for axis, place in values.items() if place[: len(one.place)] == one.place or place[:-1] == one.place[:-1]
    ]


def told_at_sweep(one: Complaint, sweep: Any, index: int, point: dict[str, Any], axis: str, always: bool) -> Complaint:
    """*one*, reported at the value of the sweep that causes it, or at the axis if it *always* does."""
    if isinstance(sweep, list):
        place: Place = ("sweep", index, axis)
    elif always and (len(sweep[axis]) > 1 or one.message.startswith("unknown key")):
        place = ("sweep", axis)
    else:
        place = ("sweep", axis, sweep[axis].index(point[axis]))
    where = dotted(one.place)
    return Complaint(place, one.message if axis.endswith(str(one.place[-1])) else f"{where}: {one.message}")
