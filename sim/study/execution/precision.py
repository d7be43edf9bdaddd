"""Sequential choice of the number of replications, for a scenario with a `precision`.

The next replications depend on finished results alone, a round at a time, so that any number of workers ends with the
same cases. All fleets have the same replications at a point, so that their differences stay paired.

Notes
-----
A rule that stops on its own interval covers slightly less than 95 %; starting with five replications keeps the loss
small.

References
----------
A. M. Law, Simulation Modeling and Analysis, 5th ed., section 9.4.1 (relative half-width, sequentially).

"""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from math import ceil, inf, isfinite

from sim.scenario.schema import Scenario
from sim.scenario.sections.precision import FIRST_REPLICATIONS, Precision
from sim.scenario.sweep import Case, at_point, cases, is_deterministic
from sim.study.execution.store import StoredCase
from sim.study.metrics.columns import column
from sim.study.metrics.service_level import cases_overloaded
from sim.study.metrics.statistics import LEAST_FOR_INTERVAL

Key = tuple[str, str, int]
"""Fleet, sweep point, replication."""


@dataclass(frozen=True, slots=True)
class PointPrecision:
    """Precision that one fleet attains at one sweep point."""

    fleet: str
    axes: dict[str, object]
    replications: int
    relative: float | None
    """Half-width over mean [1]; None where the metric has no steady, finite value."""
    met: bool | None
    """True if the requested precision is reached; None where no precision can be asked for."""


def key_of(case: Case | StoredCase) -> Key:
    """Return the key that distinguishes *case* from the other cases of its scenario."""
    return case.fleet, repr(case.axes), case.replication


def attained_precision(scenario: Scenario, stored: Sequence[StoredCase]) -> list[PointPrecision]:
    """Return the precision attained by every fleet at every point, in order."""
    assert scenario.precision is not None
    return [_point_precision(scenario.precision, members) for members in _by_point(stored).values()]


def next_cases(scenario: Scenario, stored: Sequence[StoredCase]) -> list[Case]:
    """Return the replications to add to the *stored* cases; none once the precision is met wherever it can be."""
    precision = scenario.precision
    if precision is None or precision.metric is None:
        return []
    groups = _by_point(stored)
    found: list[Case] = []
    for siblings in _points(scenario):
        random = [case for case in siblings if not _is_deterministic_case(scenario, case)]
        if not random:
            continue
        members = [groups[key_of(case)[:2]] for case in random]
        have = max(map(len, members))
        target = replications_next(precision, [_relative(precision, one) for one in members], have)
        found += [replace(case, replication=r) for case in random for r in range(have, target)]
    return found


def with_further(scenario: Scenario, held: Container[Key]) -> Iterator[Case]:
    """Yield the scenario's cases and, where it has a precision, the further replications that are *held*."""
    wanted = cases(scenario)
    for case, following in zip(wanted, [*wanted[1:], None], strict=True):
        yield case
        if scenario.precision is not None and (following is None or following.replication == 0):
            for replication in count(case.replication + 1):
                further = replace(case, replication=replication)
                if key_of(further) not in held:
                    break
                yield further


def _points(scenario: Scenario) -> Iterator[list[Case]]:
    """Yield the first cases of all fleets, point by point."""
    points: dict[str, list[Case]] = {}
    for case in cases(scenario):
        if case.replication == 0:
            points.setdefault(repr(case.overrides), []).append(case)
    yield from points.values()


def _is_deterministic_case(scenario: Scenario, case: Case) -> bool:
    at = at_point(scenario, case.overrides)
    return is_deterministic(at, next(fleet for fleet in at.fleets if fleet.name == case.fleet))


def _by_point(stored: Sequence[StoredCase]) -> dict[tuple[str, str], list[StoredCase]]:
    groups: dict[tuple[str, str], list[StoredCase]] = {}
    for case in stored:
        groups.setdefault(key_of(case)[:2], []).append(case)
    return groups


def _point_precision(precision: Precision, members: Sequence[StoredCase]) -> PointPrecision:
    relative = _relative(precision, members)
    met = None if relative is None else relative <= precision.relative
    return PointPrecision(members[0].fleet, members[0].axes, len(members), relative, met)


def replications_next(precision: Precision, relatives: Sequence[float | None], have: int) -> int:
    """Return the number of replications after the next round.

    Parameters
    ----------
    precision
        Target of the scenario.
    relatives
        Half-width over mean of each fleet at the point; None where precision does not apply.
    have
        Number of replications now.

    """
    wanted = max(replications_wanted(precision.relative, one, have) for one in relatives)
    return min(precision.max_replications, max(FIRST_REPLICATIONS, min(wanted, 2 * have)))


def replications_wanted(asked: float, relative: float | None, have: int) -> int:
    """Return the number of replications that make the interval narrow enough if the spread stays the same.

    Notes
    -----
    The half-width falls with the square root of the number n of replications, so n (relative / asked)^2 are needed.

    """
    if relative is None or (relative <= asked and have >= FIRST_REPLICATIONS):
        return have
    if not isfinite(relative):
        return 2 * have
    return max(have + 1, ceil(have * (relative / asked) ** 2))


def _relative(precision: Precision, members: Sequence[StoredCase]) -> float | None:
    """Return half-width over mean of the metric; inf below three runs, None where it has no steady value."""
    if any(case.status != "ok" for case in members) or cases_overloaded([case.metrics for case in members]):
        return None
    if len(members) < LEAST_FOR_INTERVAL:
        return inf
    assert precision.metric is not None
    metrics, average = [case.metrics for case in members], column(precision.metric).average
    if any(one[part] is None for one in metrics for part in average.parts(precision.metric)):
        return None
    figure = average.of(precision.metric, metrics)
    value, half = figure.value, figure.half_width
    if half is None or not isfinite(value):
        return None
    return half / abs(value) if value else inf if half else 0.0
