"""Distributions in a scenario's raw data: taken out as it is read, each mistake reported at its line.

In their place stands the central value, which is all that the rest of the program sees; `futures.inputs` remembers
them.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any

import numpy as np
from pydantic import ValidationError

from sim.message import Message
from sim.scenario.reading.distribution import FAMILIES, Uncertain
from sim.scenario.reading.errors import Place, ValidationIssue, did_you_mean, dotted, known_keys, validation_issues
from sim.scenario.reading.layers import Layers, place_of, put, value_at, with_values
from sim.scenario.schema import TERMS, Scenario
from sim.scenario.sections.load_profile import RATE
from sim.scenario.sweep import points

PARAMETERS = frozenset({"low", "mode", "high", "mean", "sd", "cv", "min", "max", "median", "sigma", "std"})
ALIKE = 0.75
TRIED = (0.0, 0.37, 1.0)
"""Quantiles that must be allowed: both ends, and one between that is no whole number."""
Check = Callable[[Any], list[ValidationIssue]]


@dataclass(slots=True)
class ParsedDistributions:
    """The distributions of a scenario."""

    inputs: dict[Place, Uncertain] = field(default_factory=dict)
    found: list[ValidationIssue] = field(default_factory=list)
    broken: list[Place] = field(default_factory=list)
    """Where a distribution stood that cannot be read; mistakes of the number in its place mean nothing."""

    def told(self, one: ValidationIssue) -> bool:
        """Whether the mistake in the distribution at *one*'s place has been reported already."""
        return any(one.place[: len(place)] == place for place in self.broken)


def take_out(layers: Layers) -> ParsedDistributions:
    """Puts central values in the place of distributions, and these into `futures.inputs`."""
    taken = ParsedDistributions()
    data = layers.data
    stored = _stored(layers, taken)
    for place, value in list(_standing(data, ())):
        error = layers.error(ValidationIssue(place, ""))
        stated = f"{error.path}:{error.line}" if error.line else error.path
        _take(data, place, value, stated, taken)
    for place, value in stored.items():
        if place not in taken.inputs and not layers.is_option(place):
            _take(data, place, value, str(value.get("stated", "")), taken)
    futures = data.get("futures")
    if taken.inputs or stored:
        names = {_path(data, place): one.model_dump(exclude_unset=True) for place, one in taken.inputs.items()}
        if futures is None or isinstance(futures, dict):
            data["futures"] = {**(futures or {}), "inputs": names}
    elif futures is not None and not taken.found:
        text = "has nothing to draw: no price and no term is a distribution, {triangular: [low, mode, high]}"
        taken.found.append(ValidationIssue(("futures",), text))
    return taken


def _stored(layers: Layers, taken: ParsedDistributions) -> dict[Place, dict[str, Any]]:
    """The distributions that `futures.inputs` has already, as a finished run's scenario does."""
    inputs = value_at(layers.data, ("futures", "inputs"))
    found: dict[Place, dict[str, Any]] = {}
    for path, value in inputs.items() if isinstance(inputs, dict) else ():
        try:
            place = place_of(layers.data, str(path))
        except LookupError as error:
            taken.found.append(ValidationIssue(("futures", "inputs", path), str(error.args[0])))
            continue
        found[place] = value if isinstance(value, dict) else {}
    return found


def _standing(data: Any, place: Place) -> Iterator[tuple[Place, dict[str, Any]]]:
    """Mappings in *data* that are meant for distributions, in the order of the file."""
    if isinstance(data, dict) and place != ("futures",):
        if _is_meant(data, place):
            yield place, data
            return
        for key, value in data.items():
            yield from _standing(value, (*place, key))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from _standing(value, (*place, index))


def _is_meant(data: Mapping[Any, Any], place: Place) -> bool:
    """Whether *data* names a family, or looks as if it tried to."""
    names = [key for key in data if key != "note"]
    if any(isinstance(data.get(family), list | dict) for family in FAMILIES):
        return all(name in FAMILIES for name in names)
    if len(names) != 1 or not isinstance(names[0], str) or not _is_drawn(place):
        return False
    [name], value = names, data[names[0]]
    numbers = isinstance(value, list) and len(value) in (2, 3)
    if not numbers and not (isinstance(value, dict) and value and PARAMETERS.issuperset(value)):
        return False
    known = known_keys(Scenario, place)
    return _alike(name) >= ALIKE if known is None else name not in known


def _alike(name: str) -> float:
    return max(SequenceMatcher(None, name.lower(), family).ratio() for family in FAMILIES)


def _is_drawn(place: Place) -> bool:
    """Whether a value at *place* may be a distribution."""
    if place[:1] == ("fleets",) and len(place) > 3:
        return place[2] in (*TERMS, "cost")
    return place == RATE or (place[0] in TERMS and len(place) > 1)


def _take(data: Any, place: Place, value: dict[str, Any], stated: str, taken: ParsedDistributions) -> None:
    unknown = [key for key in value if key not in Uncertain.model_fields]
    if unknown:
        text = Message("unknown distribution {unknown!r}{did_you_mean}", unknown[0], did_you_mean(unknown[0], FAMILIES))
        _refuse(data, ValidationIssue((*place, unknown[0]), text), place, value, taken)
        return
    try:
        one = Uncertain.model_validate({**value, "stated": stated})
    except ValidationError as error:
        for told in validation_issues(error, Uncertain, value):
            _refuse(data, ValidationIssue((*place, *told.place), told.message), place, value, taken)
        return
    put(data, place, one.distribution.central)
    if _is_drawn(place):
        taken.inputs[place] = one
    else:
        text = Message("must be one value: only prices and terms ({terms}, cost of a fleet) and ", ", ".join(TERMS))
        taken.found.append(ValidationIssue(place, Message("{text}{dotted} may be distributions", text, dotted(RATE))))


def _refuse(data: Any, issue: ValidationIssue, place: Place, value: Any, taken: ParsedDistributions) -> None:
    """Tells the mistake, and puts some number where a number is needed."""
    taken.found.append(issue)
    taken.broken.append(place)
    put(data, place, next(_numbers(value), 1.0))


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _numbers(item)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value


def _path(data: Any, place: Place) -> str:
    """*place* as `--set` names it: a fleet by its name."""
    if place[0] == "fleets":
        name = data["fleets"][place[1]].get("name")
        names = [fleet.get("name") for fleet in data["fleets"] if isinstance(fleet, dict)]
        if isinstance(name, str) and names.count(name) == 1:
            return dotted(("fleets", name, *place[2:]))
    return dotted(place)


def futures_issues(data: dict[str, Any], taken: ParsedDistributions, check: Check) -> Iterator[ValidationIssue]:
    """What the distributions would do: draws that *check* does not allow, at swept places, of loads not simulated."""
    swept = {axis: place_of(data, axis) for point in points(data.get("sweep")) for axis in point}
    standing = set(check(data))
    for place, one in taken.inputs.items():
        axis = next((axis for axis, at in swept.items() if at[: len(place)] == place or place[: len(at)] == at), None)
        if place == RATE:
            yield from _load_issues(data, one, axis)
        elif axis is not None:
            yield ValidationIssue(
                place, Message("is swept (sweep: {axis}): its points have its values, so none is drawn", axis)
            )
        yield from _draw_issues(data, place, one, standing, check)
    fleets = data.get("fleets")
    if taken.inputs and isinstance(fleets, list) and not any(isinstance(f, dict) and f.get("cost") for f in fleets):
        yield ValidationIssue(
            next(iter(taken.inputs)), "is a distribution, but no fleet has a cost that could depend on it"
        )


def _draw_issues(
    data: dict[str, Any], place: Place, one: Uncertain, standing: set[ValidationIssue], check: Check
) -> Iterator[ValidationIssue]:
    """The first drawn value that is not allowed where it stands."""
    closer = "; low: and high: cut it closer" if one.family in ("normal", "lognormal") else ""
    for value in one.distribution.quantile(np.array(TRIED)):
        for wrong in check(with_values(data, {place: float(value)})):
            if wrong not in standing:
                where = "" if wrong.place == place else f"{dotted(wrong.place)} "
                yield ValidationIssue(
                    place,
                    Message("may be drawn as {value:g}: {where}{message}{closer}", value, where, wrong.message, closer),
                )
                return


def _load_issues(data: dict[str, Any], one: Uncertain, axis: str | None) -> Iterator[ValidationIssue]:
    """Whether every load that may be drawn lies between simulated ones, at every setting of the other axes."""
    low, high = one.distribution.support
    wanted = Message("{low:g} to {high:g} requests/s may be drawn", low, high)
    if axis is None:
        text = Message(
            "{wanted}, and costs are interpolated between simulated loads: sweep: {{{dotted}: [{low:g}, ",
            wanted,
            dotted(RATE),
            low,
        )
        yield ValidationIssue(RATE, Message("{text}..., {high:g}]}}", text, high))
        return
    settings: dict[str, list[float]] = {}
    for point in points(data.get("sweep")):
        others = repr([(name, value) for name, value in point.items() if name != axis])
        rate = point.get(axis, value_at(data, RATE))
        if isinstance(rate, int | float) and not isinstance(rate, bool):
            settings.setdefault(others, []).append(rate)
    for rates in settings.values():
        if not min(rates) <= low <= high <= max(rates):
            text = Message(
                "{wanted}, {min:g} to {max:g} are simulated: widen sweep.{axis}", wanted, min(rates), max(rates), axis
            )
            yield ValidationIssue(RATE, text)
            return
