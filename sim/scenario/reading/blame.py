"""What is to blame for a mistake: an axis of a sweep, where it is reported, or another mistake, and it is not."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from sim.scenario.reading.errors import Complaint, Place, dotted, nearest
from sim.scenario.reading.layers import value_at


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


def follows(one: Complaint, mistakes: Sequence[Complaint], data: dict[str, Any]) -> bool:
    """Whether *one*, of the plan of a scenario without its *mistakes*, is about what they took away.

    *mistakes* are those of the schema, in *data*.
    """
    unknown = [mistake.place for mistake in mistakes if mistake.message.startswith("unknown key")]
    wrong = [mistake.place for mistake in mistakes if mistake.place not in unknown]
    broken = {place[:4] for place in wrong} | {place[:3] for place in wrong if place[2:3] != ("pools",)}
    return (
        one.place[:4] in broken
        or _lacks_what_is_broken(one.place, data, broken)
        or _rests_on(one, wrong)
        or _lacks_what_is_misspelt(one, unknown)
    )


def _lacks_what_is_misspelt(one: Complaint, unknown: Iterable[Place]) -> bool:
    """Whether what would put *one* right is there under an *unknown* name."""
    beside = (one.place, one.place[:-1])
    return any(nearest(place[-1], one.lacks) for place in unknown if place[:-1] in beside)


def _rests_on(one: Complaint, wrong: Iterable[Place]) -> bool:
    """Whether what would put *one* right stands at its path, and is *wrong* in itself."""
    paths = [tuple(name.split(".")) for name in one.lacks if "." in name]
    found = [place[2:] if place[:1] == ("services",) else place for place in wrong]
    return any(place and path[: len(place)] == place[: len(path)] for path in paths for place in found)


def _lacks_what_is_broken(place: Place, data: dict[str, Any], broken: Collection[Place]) -> bool:
    """Whether a fleet lacks a section that stands at the top for all fleets, and is wrong there."""
    fleet = value_at(data, place[:2]) if place[:1] == ("fleets",) and len(place) > 2 else None
    return isinstance(fleet, dict) and place[2] not in fleet and any(one[:1] == place[2:3] for one in broken)
