"""Notes and manifest entries on warm-up and precision."""

from collections.abc import Sequence
from math import isfinite
from typing import Any

from sim.language import N_, _, ngettext
from sim.report.words.text import listing, percent, place, plain, ranged
from sim.scenario.reading.layers import place_of
from sim.scenario.schema import SECTIONS, Scenario
from sim.scenario.sections.load_profile import CLIENTS, RATE
from sim.scenario.sections.precision import Precision
from sim.scenario.sweep import as_data, points
from sim.study.capacity import FleetCapacity
from sim.study.execution.precision import PointPrecision, attained_precision, replications_wanted
from sim.study.execution.store import StoredCase

WARMUP_RULE = "MSER-5 on the number of requests that each arrival finds (closed loop: on the time to the last token)"


def statistics_entries(scenario: Scenario, cases: Sequence[StoredCase]) -> dict[str, Any]:
    """Return the entries of manifest.json on warm-up and precision; empty where neither was computed."""
    entries: dict[str, Any] = {}
    ran = (case for case in cases if case.status == "ok")
    if found := [case for case in ran if case.metrics["warmup_steady"] is not None]:
        entries["warmup"] = {
            "rule": WARMUP_RULE,
            "cases": [
                {
                    "fleet": case.fleet,
                    "axes": case.axes,
                    "replication": case.replication,
                    "warmup_s": case.metrics["warmup_s"],
                    "steady": case.metrics["warmup_steady"],
                }
                for case in found
            ],
        }
    if scenario.precision is not None and scenario.precision.metric is not None:
        points = [
            {"fleet": one.fleet, "axes": one.axes, "replications": one.replications, "met": one.met}
            | {"relative": None if one.relative is None else round(one.relative, 6)}
            for one in attained_precision(scenario, cases)
        ]
        entries["precision"] = scenario.precision.model_dump() | {"points": points}
    return entries


def precision_notes(scenario: Scenario, cases: Sequence[StoredCase]) -> list[str]:
    """Return notes on whether the wanted precision was reached, and where it was not; none without a precision."""
    if scenario.precision is None:
        return []
    if scenario.precision.metric is None:
        return [_("precision names no metric, so no replications were added; capacity, breakeven and plan use it.")]
    wanted = _(
        "{metric} within {relative:g} %", metric=scenario.precision.metric, relative=100 * scenario.precision.relative
    )
    attained = attained_precision(scenario, cases)
    counts = sorted({one.replications for one in attained if one.met is not None})
    after = ranged(str(counts[0]), str(counts[-1])) if counts else _("no")
    notes = []
    if missed := [one for one in attained if one.met is False]:
        most = scenario.precision.max_replications
        notes.append(
            _(
                "Precision not reached with {most} replications ({wanted}): {places}.",
                most=most,
                wanted=wanted,
                places=_places(missed),
            )
        )
    elif counts:
        notes.append(
            _(
                "Precision reached with {after} replications: {wanted} at every point that has a steady value.",
                after=after,
                wanted=wanted,
            )
        )
    if beyond := [one for one in attained if one.met is None]:
        notes.append(
            _(
                "Precision targets do not apply ({metric}) at: {places}.",
                metric=scenario.precision.metric,
                places=_places(beyond),
            )
        )
    return notes


def _places(attained: Sequence[PointPrecision]) -> str:
    return _("; ").join(
        f"{one.fleet}{''.join(f', {place(axis, value)}' for axis, value in one.axes.items())}" for one in attained
    )


def unsteady_capacity_notes(found: Sequence[FleetCapacity]) -> list[str]:
    """Return the warning about capacities that a longer horizon would change, with that horizon; or none."""
    short = [(one.fleet, one.check) for one in found if one.check is not None and not one.check.accepted]
    if not short:
        return []
    worst = max((check for _fleet, check in short), key=lambda check: check.needed_s)
    return [
        _(
            "Capacity is not steady yet and probably too high ({fleets}): runs of {horizon} s change it by {change} "
            "(steady: at most {allowed}); set precision.max_horizon_s to about {needed}.",
            fleets=listing([fleet for fleet, _check in short]),
            horizon=plain(worst.horizon_s),
            change=percent(worst.change) if isfinite(worst.change) else _("an unknown share"),
            allowed=percent(worst.allowed),
            needed=plain(worst.needed_s),
        )
    ]


def capacity_notes(found: Sequence[FleetCapacity], precision: Precision | None, stated: bool = True) -> list[str]:
    """Return notes on capacities whose relative interval exceeds *precision*, with the setting that narrows it.

    Parameters
    ----------
    found
        Capacities of all fleets. `unsteady_capacity_notes` reports those that are not final.
    precision
        Wanted precision. None: the default one.
    stated
        Whether the scenario states *precision*.

    """
    target = (precision or Precision()).relative
    steady = [one for one in found if one.accepted and one.relative is not None and one.relative > target]
    bare: dict[int, list[str]] = {}
    for one in steady:
        if one.half_width is None:
            bare.setdefault(len(one.found), []).append(one.fleet)
    lines = [_without_interval(fleets, have, target) for have, fleets in bare.items()]
    return lines + [_imprecise(one, target, precision, stated) for one in steady if one.half_width is not None]


def _without_interval(fleets: Sequence[str], have: int, target: float) -> str:
    return ngettext(
        "Capacities from one replication have no interval ({fleets}): set {setting}.",
        "Capacities from {count} replications have no interval ({fleets}): set {setting}.",
        have,
        fleets=listing(fleets),
        setting=_setting(target),
    )


def _imprecise(one: FleetCapacity, target: float, precision: Precision | None, stated: bool) -> str:
    have = len(one.found)
    reached = _("within ± {percent} only, after {have} replications", percent=percent(one.relative or 0.0), have=have)
    if precision is None:
        return _(
            "The capacity of {fleet} is known {reached}: set {setting}.",
            fleet=one.fleet,
            reached=reached,
            setting=_setting(target),
        )
    needed = plain(replications_wanted(target, one.relative, have), 2)
    what = _("set precision.max_replications to about {needed}, or a longer horizon_s", needed=needed)
    template = N_("The capacity of {fleet} is known {reached} ({percent} asked for): {what}.")
    if not stated:
        template = N_("The capacity of {fleet} is known {reached} ({percent} is usual): {what}.")
    return _(
        template,
        fleet=one.fleet,
        reached=reached,
        percent=percent(target),
        what=what,
    )


def _setting(target: float) -> str:
    return _(
        "precision={{relative: {asked:g}}}, which adds replications until the capacity is known within {percent}",
        asked=target,
        percent=percent(target),
    )


def central_value_notes(uncertain: bool) -> list[str]:
    """Return the note that central values decide, where inputs are *uncertain* and the command draws none of them."""
    if not uncertain:
        return []
    return [_("The ranking uses central values; gpufleet run draws the uncertain inputs (Monte Carlo).")]


def _has_more_than_its_year(scenario: Scenario) -> bool:
    """Return whether the sweep has axes other than the loads of a `load_profile`."""
    if scenario.sweep is None or scenario.load_profile is None:
        return scenario.sweep is not None
    data = as_data(scenario)
    return any(place_of(data, path) not in (RATE, CLIENTS) for point in points(scenario.sweep) for path in point)


def ignored(command: str, scenario: Scenario, yearly: bool) -> str:
    """Return the note on the sections of *scenario* that *command* ignores; empty if there are none.

    Such a command asks about the workload of the scenario itself. A *yearly* command also simulates the loads of a
    `load_profile`, so that they do not count as a sweep.
    """
    by_command = [name for name, section in SECTIONS.items() if command in section.ignored_by]
    swept = _has_more_than_its_year(scenario) if yearly else scenario.sweep is not None
    left_out = ["sweep"] if swept else []
    names = [*left_out, *(name for name in by_command if getattr(scenario, name) is not None)]
    if not names:
        return ""
    runs = ngettext("{count} replication", "{count} replications", scenario.replications)
    what = ngettext("{names} is ignored", "{names} are ignored", len(names), names=_(" and ").join(names))
    if names == ["precision"]:
        return _("{what}: every fleet is simulated with {runs}", what=what, runs=runs)
    more = "" if "precision" in by_command or scenario.precision is None else _(" or more")
    return _(
        "{what}: this command uses the scenario's own workload, with {runs}{more}", what=what, runs=runs, more=more
    )
