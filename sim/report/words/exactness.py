"""What a run did to be exact: the warm-up that was found in each case, and whether the precision was reached."""

from collections.abc import Sequence
from typing import Any

from sim.report.words.text import percent, place, plain
from sim.scenario.schema import SECTIONS, Scenario
from sim.scenario.sections.precision import Precision
from sim.study.cases.store import StoredCase
from sim.study.fleets.capacity.search import Capacity
from sim.study.metrics.precision import Held, held_to, replications_wanted

WARMUP_RULE = "MSER-5 on the number of requests that each arrival finds (closed loop: on the time to the last token)"


def statistics_told(scenario: Scenario, cases: Sequence[StoredCase]) -> dict[str, Any]:
    """Entries of manifest.json: nothing where nothing was looked for."""
    told: dict[str, Any] = {}
    ran = (case for case in cases if case.status == "ok")
    if found := [case for case in ran if case.metrics.traffic.warmup_steady is not None]:
        told["warmup"] = {
            "rule": WARMUP_RULE,
            "cases": [
                {
                    "fleet": case.fleet,
                    "axes": case.axes,
                    "replication": case.replication,
                    "warmup_s": case.metrics.traffic.warmup_s,
                    "steady": case.metrics.traffic.warmup_steady,
                }
                for case in found
            ],
        }
    if scenario.precision is not None and scenario.precision.metric is not None:
        points = [
            {"fleet": one.fleet, "axes": one.axes, "replications": one.replications, "met": one.met}
            | {"relative": None if one.relative is None else round(one.relative, 6)}
            for one in held_to(scenario, cases)
        ]
        told["precision"] = scenario.precision.model_dump() | {"points": points}
    return told


def precision_notes(scenario: Scenario, cases: Sequence[StoredCase]) -> list[str]:
    """Whether the precision was reached, and where not; nothing without one."""
    if scenario.precision is None:
        return []
    if scenario.precision.metric is None:
        return ["precision names no metric, so no replications were added; capacity, breakeven and plan hold to it."]
    wanted = f"{scenario.precision.metric} within {100 * scenario.precision.relative:g} %"
    held = held_to(scenario, cases)
    counts = sorted({one.replications for one in held if one.met is not None})
    after = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1])))) if counts else "no"
    notes = []
    if missed := [one for one in held if one.met is False]:
        most = scenario.precision.max_replications
        notes.append(f"Precision not reached with {most} replications ({wanted}): {_places(missed)}.")
    elif counts:
        notes.append(f"Precision reached with {after} replications: {wanted} at every point that has a steady value.")
    if beyond := [one for one in held if one.met is None]:
        notes.append(f"No precision can be asked for ({scenario.precision.metric}) at: {_places(beyond)}.")
    return notes


def _places(held: Sequence[Held]) -> str:
    return "; ".join(
        f"{one.fleet}{''.join(f', {place(axis, value)}' for axis, value in one.axes.items())}" for one in held
    )


def capacity_notes(found: Sequence[Capacity], precision: Precision | None) -> list[str]:
    """Capacities that are known less exactly than *precision* asks for (None: than is of use), and what to set."""
    asked = (precision or Precision()).relative
    return [_imprecise(one, asked, precision) for one in found if one.relative is not None and one.relative > asked]


def _imprecise(one: Capacity, asked: float, precision: Precision | None) -> str:
    have = len(one.found)
    if one.half_width is None:
        return f"The capacity of {one.fleet} rests on one replication and has no interval: set {_setting(asked)}."
    reached = f"within ± {percent(one.relative or 0.0)} only, after {have} replications"
    if precision is None:
        return f"The capacity of {one.fleet} is known {reached}: set {_setting(asked)}."
    needed = plain(replications_wanted(asked, one.relative, have), 2)
    what = f"set precision.max_replications to about {needed}, or a longer horizon_s"
    return f"The capacity of {one.fleet} is known {reached} ({percent(asked)} asked for): {what}."


def _setting(asked: float) -> str:
    return f"precision={{relative: {asked:g}}}, which adds replications until it is known within {percent(asked)}"


def ignored(command: str, scenario: Scenario) -> str:
    """Which sections of *scenario* a *command* that asks about the workload as it stands leaves out; empty if none."""
    by_command = [name for name, section in SECTIONS.items() if command in section.ignored_by]
    names = [name for name in ("sweep", *by_command) if getattr(scenario, name) is not None]
    if not names:
        return ""
    runs = f"{scenario.replications} replication{'s' * (scenario.replications > 1)}"
    what = f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} ignored"
    if names == ["precision"]:
        return f"{what}: every fleet is simulated with {runs}"
    more = "" if "precision" in by_command or scenario.precision is None else " or more"
    return f"{what}: this command asks about the workload as it stands, with {runs}{more}"
