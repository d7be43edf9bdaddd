"""What the `sensitivity` section cannot see by itself: whether its paths are numbers and its fleets are there."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from sim.scenario.reading.errors import Complaint, Place, did_you_mean, dotted
from sim.scenario.reading.layers import descend, place_of
from sim.scenario.schema import Scenario
from sim.scenario.sections.sensitivity import Relative
from sim.scenario.sweep import NOT_SWEPT, as_data, at_point

Check = Callable[[Scenario], Sequence[object]]
"""What is wrong with a scenario: Complaints, and errors of files."""
Contradictions = Callable[[str, Place, float], Iterator[Complaint]]
"""Of (path, place to tell it at, value): what is wrong with the scenario at that value and not without."""
NO_INPUTS = ("sensitivity", "sweep", "seed", "breakeven", "plan", "futures", "load_profile")
"""Sections that say nothing of what is simulated and billed."""


def sensitivity_complaints(scenario: Scenario, check: Check) -> Iterator[Complaint]:
    """Unknown fleets, one named twice; then the inputs, at whose ends *check* tells what contradicts what."""
    asked = scenario.sensitivity
    if asked is None:
        return
    names = [fleet.name for fleet in scenario.fleets]
    for i, name in enumerate(asked.between or ()):
        if name not in names:
            yield Complaint(("sensitivity", "between", i), f"there is no fleet {name!r}{did_you_mean(name, names)}")
    if asked.between and asked.between[0] == asked.between[1]:
        yield Complaint(("sensitivity", "between"), "two different fleets are needed")
    if asked.inputs:
        yield from _input_complaints(scenario, asked.inputs, _contradictions(scenario, check))


def _input_complaints(
    scenario: Scenario, inputs: Mapping[str, tuple[float, float] | Relative], contradictions: Contradictions
) -> Iterator[Complaint]:
    """Paths of nothing or of no number, and values that the scenario does not allow there."""
    data = as_data(scenario)
    for path, ends in inputs.items():
        place: Place = ("sensitivity", "inputs", path)
        try:
            where = place_of(data, path)
        except LookupError as error:
            yield Complaint(place, str(error.args[0]))
            continue
        depth, now = descend(data, where)
        if path in NOT_SWEPT or where[0] in NO_INPUTS:
            yield Complaint(place, f"{path} is no input")
        elif depth < len(where):
            known = [str(key) for key in now] if isinstance(now, dict) else []
            yield Complaint(place, f"the scenario does not say it{did_you_mean(where[depth], known)}")
        elif (number := number_at(path, now)) is None:
            yield Complaint(place, "is no number in the scenario")
        elif isinstance(ends, tuple):
            yield from _range_complaints(scenario, number[0], place, ends, contradictions)
        else:
            low, high = around(scenario, *number, ends.relative)
            if not allowed(scenario, number[0], (low, high)):
                yield Complaint(place, f"{low:g} or {high:g} is not allowed there; give [low, high]")
                continue
            for value in (low, high):
                yield from contradictions(number[0], place, value)


def number_at(path: str, value: object) -> tuple[str, float] | None:
    """The number at *path* and its own path, which of a quote is that of its price; None where there is none.

    >>> number_at("a", 4), number_at("a", {"price": 1900.0, "unit": "each"}), number_at("a", True)
    (('a', 4), ('a.price', 1900.0), None)
    """
    if isinstance(value, dict):
        path, value = f"{path}.price", value.get("price")
    return None if isinstance(value, bool) or not isinstance(value, int | float) else (path, value)


def _contradictions(scenario: Scenario, check: Check) -> Contradictions:
    quiet = {"sensitivity": None, "sweep": None}
    standing = check(scenario.model_copy(update=quiet))

    def found(path: str, place: Place, value: float) -> Iterator[Complaint]:
        for one in check(at_point(scenario, {path: value}).model_copy(update=quiet)):
            if one not in standing and isinstance(one, Complaint):
                yield Complaint(place, f"{value:g} is not allowed: {dotted(one.place)}: {one.message}")

    return found


def _range_complaints(
    scenario: Scenario, path: str, place: Place, ends: tuple[float, float], contradictions: Contradictions
) -> Iterator[Complaint]:
    if ends[0] >= ends[1]:
        yield Complaint(place, f"low ({ends[0]:g}) must be below high ({ends[1]:g})")
        return
    for i, value in enumerate(ends):
        try:
            at_point(scenario, {path: value})
        except ValueError:
            yield Complaint((*place, i), f"{value:g} is not allowed there")
        else:
            yield from contradictions(path, (*place, i), value)


def around(scenario: Scenario, path: str, now: float, relative: float) -> tuple[float, float]:
    """So much less and more than *now*; whole numbers where nothing else is allowed."""
    low, high = now * (1 - relative), now * (1 + relative)
    if isinstance(now, int) and not allowed(scenario, path, (low, high)):
        return round(low), round(high)
    return low, high


def allowed(scenario: Scenario, path: str, values: tuple[float, float]) -> bool:
    """Whether the scenario may say either of *values* at *path*."""
    try:
        for value in values:
            at_point(scenario, {path: value})
    except ValueError:
        return False
    return True
