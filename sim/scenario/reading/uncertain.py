"""Extraction of distributions from a scenario's raw data, with each mistake reported at its line.

A distribution is replaced by its central value, which all other code uses, and stored in `futures.inputs`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any

import numpy as np
from pydantic import ValidationError

from sim.message import Message
from sim.scenario.reading.distribution import FAMILIES, Uncertain
from sim.scenario.reading.layers import Layers, place_of, put, value_at, with_values
from sim.scenario.schema import TERMS, Scenario
from sim.scenario.sections.load_profile import RATE
from sim.scenario.sweep import points
from sim.validation import Place, ValidationIssue, did_you_mean, dotted, known_keys, validation_issues

PARAMETERS = frozenset({"low", "mode", "high", "mean", "sd", "cv", "min", "max", "median", "sigma", "std"})
SIMILARITY = 0.75
CHECKED_PROBABILITIES = (0.0, 0.37, 1.0)
"""Probabilities whose quantiles must be valid: both ends, and a middle value that is no whole number."""
Check = Callable[[Any], list[ValidationIssue]]


@dataclass(slots=True)
class ParsedDistributions:
    """Distributions extracted from a scenario, with the issues found."""

    inputs: dict[Place, Uncertain] = field(default_factory=dict)
    found: list[ValidationIssue] = field(default_factory=list)
    broken: list[Place] = field(default_factory=list)
    """Places of distributions that cannot be read; issues with the placeholder numbers there are ignored."""

    def is_reported(self, one: ValidationIssue) -> bool:
        """Return True if *one* lies at a distribution that was already reported."""
        return any(one.place[: len(place)] == place for place in self.broken)


def extract_distributions(layers: Layers) -> ParsedDistributions:
    """Replace distributions by their central values, and store them in `futures.inputs`."""
    parsed = ParsedDistributions()
    data = layers.data
    stored = _stored(layers, parsed)
    for place, value in list(_distribution_mappings(data, ())):
        error = layers.error(ValidationIssue(place, ""))
        stated = f"{error.path}:{error.line}" if error.line else error.path
        _extract(data, place, value, stated, parsed)
    for place, value in stored.items():
        if place not in parsed.inputs and not layers.is_option(place):
            _extract(data, place, value, str(value.get("stated", "")), parsed)
    futures = data.get("futures")
    if parsed.inputs or stored:
        names = {_path(data, place): one.model_dump(exclude_unset=True) for place, one in parsed.inputs.items()}
        if futures is None or isinstance(futures, dict):
            data["futures"] = {**(futures or {}), "inputs": names}
    elif futures is not None and not parsed.found and data.get("price_paths") is None:
        text = "has nothing to draw: no price and no term is a distribution, {triangular: [low, mode, high]}"
        parsed.found.append(ValidationIssue(("futures",), text))
    return parsed


def _stored(layers: Layers, parsed: ParsedDistributions) -> dict[Place, dict[str, Any]]:
    """Return the distributions already in `futures.inputs`, as in the scenario of a finished run."""
    inputs = value_at(layers.data, ("futures", "inputs"))
    found: dict[Place, dict[str, Any]] = {}
    for path, value in inputs.items() if isinstance(inputs, dict) else ():
        try:
            place = place_of(layers.data, str(path))
        except LookupError as error:
            parsed.found.append(ValidationIssue(("futures", "inputs", path), str(error.args[0])))
            continue
        found[place] = value if isinstance(value, dict) else {}
    return found


def _distribution_mappings(data: Any, place: Place) -> Iterator[tuple[Place, dict[str, Any]]]:
    """Yield the mappings in *data* that are meant as distributions, in file order."""
    if isinstance(data, dict) and place != ("futures",):
        if _looks_like_distribution(data, place):
            yield place, data
            return
        for key, value in data.items():
            yield from _distribution_mappings(value, (*place, key))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from _distribution_mappings(value, (*place, index))


def _looks_like_distribution(data: Mapping[Any, Any], place: Place) -> bool:
    """Return True if *data* names a family, or looks like a misspelt one."""
    names = [key for key in data if key != "note"]
    if any(isinstance(data.get(family), list | dict) for family in FAMILIES):
        return all(name in FAMILIES for name in names)
    if len(names) != 1 or not isinstance(names[0], str) or not _may_be_drawn(place):
        return False
    [name], value = names, data[names[0]]
    numbers = isinstance(value, list) and len(value) in (2, 3)
    if not numbers and not (isinstance(value, dict) and value and PARAMETERS.issuperset(value)):
        return False
    known = known_keys(Scenario, place)
    return _similarity(name) >= SIMILARITY if known is None else name not in known


def _similarity(name: str) -> float:
    return max(SequenceMatcher(None, name.lower(), family).ratio() for family in FAMILIES)


def _may_be_drawn(place: Place) -> bool:
    """Return True if a value at *place* may be a distribution."""
    if place[:1] == ("fleets",) and len(place) > 3:
        return place[2] in (*TERMS, "cost")
    if place[0] == "price_paths":
        return place[2:3] in (("decline_per_year",), ("steps",), ("by_month",))
    return place == RATE or (place[0] in TERMS and len(place) > 1)


def _extract(data: Any, place: Place, value: dict[str, Any], stated: str, parsed: ParsedDistributions) -> None:
    unknown = [key for key in value if key not in Uncertain.model_fields]
    if unknown:
        text = Message("unknown distribution {name!r}{hint}", unknown[0], did_you_mean(unknown[0], FAMILIES))
        _report(data, ValidationIssue((*place, unknown[0]), text), place, value, parsed)
        return
    try:
        one = Uncertain.model_validate({**value, "stated": stated})
    except ValidationError as error:
        for issue in validation_issues(error, Uncertain, value):
            _report(data, ValidationIssue((*place, *issue.place), issue.message), place, value, parsed)
        return
    put(data, place, one.distribution.central)
    if _may_be_drawn(place):
        parsed.inputs[place] = one
    else:
        text = Message("must be one value: only prices and terms ({terms}, cost of a fleet) and ", ", ".join(TERMS))
        parsed.found.append(ValidationIssue(place, Message("{text}{axis} may be distributions", text, dotted(RATE))))


def _report(data: Any, issue: ValidationIssue, place: Place, value: Any, parsed: ParsedDistributions) -> None:
    """Record an issue, and set a placeholder number where a number is needed."""
    parsed.found.append(issue)
    parsed.broken.append(place)
    put(data, place, next(_numbers(value), 1.0))


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _numbers(item)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value


def _path(data: Any, place: Place) -> str:
    """Return *place* as `--set` names it, with a fleet by its name."""
    if place[0] == "fleets":
        name = data["fleets"][place[1]].get("name")
        names = [fleet.get("name") for fleet in data["fleets"] if isinstance(fleet, dict)]
        if isinstance(name, str) and names.count(name) == 1:
            return dotted(("fleets", name, *place[2:]))
    return dotted(place)


def monte_carlo_issues(data: dict[str, Any], parsed: ParsedDistributions, check: Check) -> Iterator[ValidationIssue]:
    """Yield issues of the draws: values that *check* refuses, places that are swept, loads that are not simulated."""
    if not parsed.inputs:
        return
    swept = {axis: place_of(data, axis) for point in points(data.get("sweep")) for axis in point}
    standing = set(check(data))
    for place, one in parsed.inputs.items():
        axis = next((axis for axis, at in swept.items() if at[: len(place)] == place or place[: len(at)] == at), None)
        if place == RATE:
            yield from _load_issues(data, one, axis)
        elif axis is not None:
            yield ValidationIssue(
                place, Message("is swept (sweep: {axis}): its points use the swept values, so no value is drawn", axis)
            )
        yield from _draw_issues(data, place, one, standing, check)
    fleets = data.get("fleets")
    if isinstance(fleets, list) and not any(isinstance(f, dict) and f.get("cost") for f in fleets):
        yield ValidationIssue(
            next(iter(parsed.inputs)), "is a distribution, but no fleet has a cost that could depend on it"
        )


def _draw_issues(
    data: dict[str, Any], place: Place, one: Uncertain, standing: set[ValidationIssue], check: Check
) -> Iterator[ValidationIssue]:
    """Yield the first drawn value that is invalid at its place."""
    closer = "; low: and high: narrow the range" if one.family in ("normal", "lognormal") else ""
    for value in one.distribution.quantile(np.array(CHECKED_PROBABILITIES)):
        for wrong in check(with_values(data, {place: float(value)})):
            if wrong not in standing:
                where = "" if wrong.place == place else f"{dotted(wrong.place)} "
                yield ValidationIssue(
                    place,
                    Message("may be drawn as {value:g}: {where}{message}{closer}", value, where, wrong.message, closer),
                )
                return


def _load_issues(data: dict[str, Any], one: Uncertain, axis: str | None) -> Iterator[ValidationIssue]:
    """Yield an issue if a load that may be drawn lies outside the simulated loads, at any setting of the other axes."""
    low, high = one.distribution.support
    wanted = Message("{low:g} to {high:g} requests/s may be drawn", low, high)
    if axis is None:
        text = Message(
            "{wanted}, and costs are interpolated between simulated loads: sweep: {{{axis}: [{low:g}, ",
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
                "{wanted}, {low:g} to {high:g} are simulated: widen sweep.{axis}", wanted, min(rates), max(rates), axis
            )
            yield ValidationIssue(RATE, text)
            return
