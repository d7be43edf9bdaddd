"""Cases of a scenario: fleets x sweep points x replications."""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Protocol, TypeVar

from sim.message import Message
from sim.routing import PowerOfTwo, Random
from sim.scenario.experiment import Experiment, Fleet
from sim.scenario.reading.layers import place_of, put, value_at
from sim.spec import Spec
from sim.validation import Place, ValidationIssue

TAKEN_LABELS = frozenset(
    {
        "fleet",
        "status",
        "reason",
        "replication",
        "replications",
        "requests",
        "completed",
        "rejected",
        "unfinished",
        "timed_out",
        "lost",
        "attempts",
        "gpus",
    }
    | {"request", "service", "pool", "replica", "priority", "server", "state", "component", "phase", "unit", "servers"}
    | {"prompt_tokens", "output_tokens", "cached_tokens", "preemptions", "start_s", "end_s", "currency", "source"}
)
"""Columns of the result tables; the label of an axis must not be one of them."""
BOOKKEEPING = frozenset({"name", "question", "base", "sweep", "replications", "requests", "fleets"})
"""Keys that cannot vary between the points of a sweep."""
LAST_SECTIONS = ("fleets", "sweep")
Said = TypeVar("Said", bound=Spec)


@dataclass(frozen=True, slots=True)
class Case:
    """Unit of running, storing and resuming: one fleet, one sweep point, one replication."""

    fleet: str
    axes: dict[str, Any]
    """Label of an axis -> its value as the tables show it."""
    overrides: dict[str, Any]
    """Dotted path -> value as the sweep states it."""
    replication: int


def points(sweep: Any) -> list[dict[str, Any]]:
    """Return the points of a sweep, each dotted path -> value; without a sweep, one empty point.

    A grid varies its last axis fastest.
    """
    if not sweep:
        return [{}]
    if isinstance(sweep, dict):
        return [dict(zip(sweep, values, strict=True)) for values in product(*sweep.values())]
    return [dict(point) for point in sweep]


def axis_labels(paths: Iterable[str]) -> dict[str, str]:
    """Return each path's shortest dotted suffix that is unique and no result column.

    >>> axis_labels(["workload.arrivals.rate_rps", "fleets.a.pools.0.replicas", "fleets.b.pools.0.replicas"])
    {'workload.arrivals.rate_rps': 'rate_rps', 'fleets.a.pools.0.replicas': 'a.pools.0.replicas', \
'fleets.b.pools.0.replicas': 'b.pools.0.replicas'}
    """
    known = list(dict.fromkeys(paths))
    return {path: shortest_label(path, [other for other in known if other != path]) for path in known}


def shortest_label(path: str, others: Sequence[str]) -> str:
    """Return the shortest dotted suffix of *path* with which none of *others* ends and that is no result column."""
    words = path.split(".")
    for start in range(len(words) - 1, 0, -1):
        suffix = ".".join(words[start:])
        if suffix in TAKEN_LABELS or words[start].isdecimal():
            continue
        if not any(other == suffix or other.endswith(f".{suffix}") for other in others):
            return suffix
    return path


class Sweeping(Protocol):
    """Scenario of any kind, with a sweep."""

    @property
    def sweep(self) -> Any:
        """Sweep of the scenario; None without one."""


def axes(scenario: Sweeping) -> list[str]:
    """Return the labels of the scenario's sweep axes, in order."""
    return list(axis_labels(path for point in points(scenario.sweep) for path in point).values())


def cases(scenario: Experiment) -> list[Case]:
    """Return all cases, fleet by fleet, point by point; a deterministic case has one replication."""
    found = points(scenario.sweep)
    labels = axis_labels(path for point in found for path in point)
    shown: list[dict[str, Any]] = []
    runs: list[list[int]] = []
    """Number of replications of each point, by fleet."""
    for point in found:  # points are handled one by one, since a scenario for each would need much memory
        at = at_point(scenario, point)
        shown.append(axes_at(labels, point, at))
        runs.append([1 if is_deterministic(at, fleet) else at.replications for fleet in at.fleets])
    return [
        Case(fleet.name, axes, point, replication)
        for position, fleet in enumerate(scenario.fleets)
        for point, axes, counts in zip(found, shown, runs, strict=True)
        for replication in range(counts[position])
    ]


def axes_at(labels: dict[str, str], point: dict[str, Any], at: Spec) -> dict[str, Any]:
    """Return the value of every axis at a point; an axis that an explicit point leaves out has the scenario's value."""
    if point.keys() == labels.keys():
        return {labels[path]: _cell(value) for path, value in point.items()}
    data = as_data(at)
    return {
        label: _cell(point[path] if path in point else value_at(data, place_of(data, path)))
        for path, label in labels.items()
    }


def fleets_at_points(scenario: Said) -> Iterator[tuple[Said, int, dict[str, Any]]]:
    """Yield the scenario at a point, the position of a fleet, and the axes' values, fleet by fleet, point by point."""
    given: Any = scenario
    found = points(given.sweep)
    labels = axis_labels(path for point in found for path in point)
    at = [at_point(scenario, point) for point in found]
    for place in range(len(given.fleets)):
        for point, here in zip(found, at, strict=True):
            yield here, place, axes_at(labels, point, here)


def _cell(value: Any) -> Any:
    """Return *value* in a form that fits into one cell of a table."""
    return json.dumps(value) if isinstance(value, dict | list | tuple) else value


def as_data(scenario: Spec) -> dict[str, Any]:
    """Return the scenario as plain data without keys that were left out; fleets and sweep come last."""
    data = scenario.model_dump(mode="json", exclude_unset=True)
    return {key: value for key, value in data.items() if key not in LAST_SECTIONS} | {
        key: data[key] for key in LAST_SECTIONS if key in data
    }


def at_point(scenario: Said, overrides: dict[str, Any]) -> Said:
    """Return the scenario at one point of its sweep, without a sweep of its own.

    Only sections that an override changes are validated again.
    """
    if not overrides:
        return scenario
    whole: dict[str, Any] = {name: getattr(scenario, name) for name in scenario.model_fields_set}
    reached = {path.partition(".")[0] for path in overrides}
    data = scenario.model_dump(mode="json", exclude_unset=True, include=reached)
    values: dict[Place, Any] = {place_of(data, path): value for path, value in overrides.items()}
    for place, value in values.items():
        put(data, place, value)
    for name, items in data.items():
        if isinstance(items, list) and (name,) not in values:
            inside = {place[1] for place in values if place[0] == name}
            data[name] = [item if i in inside else whole[name][i] for i, item in enumerate(items)]
    return type(scenario).model_validate(whole | data | {"sweep": None})


def is_deterministic(scenario: Experiment, fleet: Fleet) -> bool:
    """Return True if every replication would give the same result."""
    routed_at_random = (
        isinstance(fleet.routing, Random | PowerOfTwo) and sum(pool.most_replicas for pool in fleet.pools) > 1
    )
    return scenario.workload.deterministic and not routed_at_random


def sweep_issues(data: dict[str, Any], never: Collection[str]) -> list[ValidationIssue]:
    """Return the issues of the raw `sweep`: its form, unknown places, and sections that *never* vary."""
    sweep = data.get("sweep")
    if sweep is None:
        return []
    if isinstance(sweep, dict):
        found = [_axis_issue(("sweep", axis), values) for axis, values in sweep.items()]
        named: list[tuple[Place, Any]] = [(("sweep", axis), axis) for axis in sweep]
    elif sweep == []:
        return [ValidationIssue(("sweep",), "must not be empty")]
    elif isinstance(sweep, list):
        twice = set(repeated(sweep))
        found = [_point_issue(i, point, i in twice) for i, point in enumerate(sweep)]
        named = [
            (("sweep", i, axis), axis) for i, point in enumerate(sweep) if isinstance(point, dict) for axis in point
        ]
    else:
        return [ValidationIssue(("sweep",), "a mapping of dotted paths to lists, or a list of points, is needed")]
    found += [_path_issue(data, place, axis, never) for place, axis in named]
    return [issue for issue in found if issue is not None]


def sound_axes(sweep: Any, broken: Sequence[ValidationIssue]) -> Any:
    """Return the raw *sweep* without the axes and points that are *broken*; None if nothing is left."""
    wrong = {one.place[1:] for one in broken}
    if isinstance(sweep, dict):
        return {axis: values for axis, values in sweep.items() if (axis,) not in wrong} or None
    kept = [(i, point) for i, point in enumerate(sweep if isinstance(sweep, list) else []) if (i,) not in wrong]
    left = [{axis: value for axis, value in point.items() if (i, axis) not in wrong} for i, point in kept]
    return [point for point in left if point] or None


def _axis_issue(place: Place, values: Any) -> ValidationIssue | None:
    if not isinstance(values, list):
        return ValidationIssue(place, "a list of values is needed")
    if not values:
        return ValidationIssue(place, "must not be empty")
    twice = repeated(values)
    return ValidationIssue(place, Message("the value {values!r} is given twice", values[twice[0]])) if twice else None


def repeated(values: Sequence[Any]) -> list[int]:
    """Return the indices of *values* that repeat an earlier value.

    >>> repeated([1, [2], 1.0, {"a": [2]}, [2]])
    [2, 4]
    """
    seen: set[Any] = set()
    found = []
    for place, value in enumerate(map(_hashable, values)):
        if value in seen:
            found.append(place)
        seen.add(value)
    return found


def _hashable(value: Any) -> Any:
    if isinstance(value, dict):
        return frozenset((key, _hashable(one)) for key, one in value.items())
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def _point_issue(index: int, point: Any, stands_twice: bool) -> ValidationIssue | None:
    if not isinstance(point, dict) or not point:
        return ValidationIssue(("sweep", index), "a mapping of dotted paths to values is needed")
    return ValidationIssue(("sweep", index), "the point is given twice") if stands_twice else None


def _path_issue(data: dict[str, Any], place: Place, axis: Any, never: Collection[str]) -> ValidationIssue | None:
    if str(axis) in BOOKKEEPING or str(axis) in never:
        return ValidationIssue(place, Message("{axis} cannot be swept", axis))
    try:
        place_of(data, str(axis))
    except LookupError as error:
        return ValidationIssue(place, str(error.args[0]))
    return None
