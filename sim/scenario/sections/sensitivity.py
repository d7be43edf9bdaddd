"""Sections `sensitivity` (inputs varied one at a time) and `futures` (all at once by Monte Carlo).

The keys of `futures` are in `sim/scenario/reading/distribution.py`, which reads distributions anywhere.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import floor
from typing import Annotated, Literal

from pydantic import Field

from sim.catalogue.catalog import Catalog
from sim.message import Message
from sim.rng import largest_scale
from sim.scenario.experiment import Experiment
from sim.scenario.reading.distribution import MonteCarloDraws
from sim.scenario.reading.layers import descend, place_of
from sim.scenario.sections import Everything, Section, sections_of
from sim.scenario.sweep import BOOKKEEPING, as_data, at_point
from sim.spec import Spec
from sim.validation import Place, ValidationIssue, did_you_mean, dotted

SensitivityMetric = Literal["usd_per_million_output_tokens", "ttft_s_p95", "tpot_s_p95"]
Contradictions = Callable[[str, Place, float], Iterator[ValidationIssue]]
"""Function of (path, place to report, value) that yields the issues caused by the value."""
ALL_LOADS = "load_scale"
"""Input that scales the loads of all services in proportion to the scenario's."""
PRICE_PATHS = "price_paths"
"""Section whose paths are drawn month by month."""
NO_INPUTS = ("sweep", "seed")
"""Keys that do not affect the simulation or the bill; sections do not either."""


class RelativeRange(Spec):
    """Range around the scenario's value."""

    relative: Annotated[float, Field(gt=0, lt=1)]
    """Relative half-width; 0.3: from 70 % to 130 %."""


class Sensitivity(Spec):
    """Inputs to vary, and the result whose change is reported. All keys are optional."""

    inputs: Annotated[dict[str, tuple[float, float] | RelativeRange], Field(min_length=1)] | None = None
    """Dotted path of a number -> [low, high] or {relative: 0.3}; load_scale: the loads of all services in proportion.
    Default: prices and rates, prices of the hardware, load and lengths, each 30 % lower and higher."""
    metric: SensitivityMetric = "usd_per_million_output_tokens"
    """Result whose change is reported."""
    between: tuple[str, str] | None = None
    """Two fleets whose difference is reported, the first minus the second. Default: the first two."""


def _check(sensitivity: Sensitivity, scenario: Experiment, everything: Everything) -> Iterator[ValidationIssue]:
    """Yield issues of unknown fleets, of two equal fleets, and of the inputs and the ends of their ranges."""
    names = [fleet.name for fleet in scenario.fleets]
    for i, name in enumerate(sensitivity.between or ()):
        if name not in names:
            yield ValidationIssue(
                ("sensitivity", "between", i),
                Message("there is no fleet {name!r}{hint}", name, did_you_mean(name, names)),
            )
    if sensitivity.between and sensitivity.between[0] == sensitivity.between[1]:
        yield ValidationIssue(("sensitivity", "between"), "two different fleets are needed")
    if sensitivity.inputs:
        yield from _input_issues(scenario, sensitivity.inputs, _contradictions(scenario, everything))


def _input_issues(
    scenario: Experiment, inputs: Mapping[str, tuple[float, float] | RelativeRange], contradictions: Contradictions
) -> Iterator[ValidationIssue]:
    """Yield issues of paths that name no number, and of values that the scenario does not allow there."""
    data = as_data(scenario)
    for path, ends in inputs.items():
        place: Place = ("sensitivity", "inputs", path)
        if path == ALL_LOADS and scenario.services and scenario.service is None:
            if isinstance(ends, tuple) and not 0 < ends[0] < ends[1]:
                yield ValidationIssue(
                    place, Message("needs 0 < low < high, not {low:g} and {high:g}", ends[0], ends[1])
                )
            continue
        try:
            where = place_of(data, path)
        except LookupError as error:
            yield ValidationIssue(place, str(error.args[0]))
            continue
        depth, now = descend(data, where)
        if path in BOOKKEEPING or where[0] in (*NO_INPUTS, *sections_of(type(scenario))):
            yield ValidationIssue(place, Message("{path} is not an input", path))
        elif depth < len(where):
            known = [str(key) for key in now] if isinstance(now, dict) else []
            yield ValidationIssue(
                place, Message("the scenario does not set it{hint}", did_you_mean(where[depth], known))
            )
        elif (number := number_at(path, now)) is None:
            yield ValidationIssue(place, "is not a number in the scenario")
        elif isinstance(ends, tuple):
            yield from _range_issues(scenario, number[0], place, ends, contradictions)
        else:
            low, high = around(scenario, *number, ends.relative)
            if not allowed(scenario, number[0], (low, high)):
                yield ValidationIssue(
                    place, Message("{low:g} or {high:g} is not allowed there; give [low, high]", low, high)
                )
                continue
            for value in (low, high):
                yield from contradictions(number[0], place, value)


def number_at(path: str, value: object) -> tuple[str, float] | None:
    """Return the path and value of the number at *path*, for a quote those of its price; None if there is none.

    >>> number_at("a", 4), number_at("a", {"price": 1900.0, "unit": "each"}), number_at("a", True)
    (('a', 4), ('a.price', 1900.0), None)
    """
    if isinstance(value, dict):
        path, value = f"{path}.price", value.get("price")
    return None if isinstance(value, bool) or not isinstance(value, int | float) else (path, value)


def _contradictions(scenario: Experiment, everything: Everything) -> Contradictions:
    quiet = {"sensitivity": None, "sweep": None}
    standing = everything(scenario.model_copy(update=quiet))

    def found(path: str, place: Place, value: float) -> Iterator[ValidationIssue]:
        for one in everything(at_point(scenario, {path: value}).model_copy(update=quiet)):
            if one not in standing and isinstance(one, ValidationIssue):
                yield ValidationIssue(
                    place,
                    Message("{value:g} is not allowed: {place}: {message}", value, dotted(one.place), one.message),
                )

    return found


def _range_issues(
    scenario: Experiment, path: str, place: Place, ends: tuple[float, float], contradictions: Contradictions
) -> Iterator[ValidationIssue]:
    if ends[0] >= ends[1]:
        yield ValidationIssue(place, Message("low ({low:g}) must be below high ({high:g})", ends[0], ends[1]))
        return
    for i, value in enumerate(ends):
        try:
            at_point(scenario, {path: value})
        except ValueError:
            yield ValidationIssue((*place, i), Message("{value:g} is not allowed there", value))
        else:
            yield from contradictions(path, (*place, i), value)


def around(scenario: Experiment, path: str, now: float, relative: float) -> tuple[float, float]:
    """Return the values a fraction *relative* below and above *now*, rounded where only whole numbers are allowed."""
    low, high = now * (1 - relative), now * (1 + relative)
    if isinstance(now, int) and not allowed(scenario, path, (low, high)):
        return round(low), round(high)
    return low, high


def allowed(scenario: Experiment, path: str, values: tuple[float, float]) -> bool:
    """Return True if the scenario allows both of *values* at *path*."""
    try:
        for value in values:
            at_point(scenario, {path: value})
    except ValueError:
        return False
    return True


SENSITIVITY = Section(
    command="sensitivity",
    of_fleets=True,
    check=_check,
    example="""\
# what to vary, for `gpufleet sensitivity`; left out: prices, rates, load and lengths, by 30 % each
# sensitivity: {inputs: {site.pue: [1.1, 1.6], fleets.2x RTX 4090.cost.quotes.rtx-4090: {relative: 0.2}}}""",
)


def _check_draws(futures: MonteCarloDraws, scenario: Experiment, _: Catalog) -> Iterator[ValidationIssue]:
    """Yield issues of correlations: unknown inputs, pairs given twice, and matrices that no numbers can have."""
    data, paths = as_data(scenario), getattr(scenario, "price_paths", None)
    stated = {} if paths is None else paths.stated
    moving = {(PRICE_PATHS, name): f"{PRICE_PATHS}.{name}" for name, one in stated.items() if one.volatility}
    drawn = {place_of(data, path): path for path in futures.inputs}
    pairs: set[frozenset[Place]] = set()
    wrong = False
    for i, one in enumerate(futures.correlations):
        at: Place = ("futures", "correlations", i)
        places = [_place(data, path) for path in one.between]
        issues = [
            ValidationIssue((*at, "between", j), _not_drawn(path, [*drawn.values(), *moving.values()]), (path,))
            for j, (path, place) in enumerate(zip(one.between, places, strict=True))
            if place not in drawn and place not in moving
        ]
        if not issues and places[0] == places[1]:
            issues.append(ValidationIssue((*at, "between"), "two different inputs are needed"))
        elif not issues and len({(place in moving, place[0] == PRICE_PATHS) for place in places}) > 1:
            text = (
                "run draws prices and terms once; plan and breakeven draw price paths by month and their "
                "parameters once: correlate two inputs of the same kind"
            )
            issues.append(ValidationIssue((*at, "between"), text))
        elif not issues and frozenset(places) in pairs:
            issues.append(ValidationIssue((*at, "between"), "this pair is given twice: remove one"))
        pairs.add(frozenset(places))
        wrong = wrong or bool(issues)
        yield from issues
    if wrong or (scale := largest_scale(futures.rank_matrix([*drawn, *moving], partial(_place, data)))) == 1:
        return
    text = Message(
        "no numbers have these rank correlations together: multiply each by {scale:.2f}", floor(scale * 100) / 100
    )
    yield ValidationIssue(("futures", "correlations"), text)


def _place(data: dict[str, object], path: str) -> Place:
    try:
        return place_of(data, path)
    except LookupError:
        return (path,)


def _not_drawn(path: str, known: Sequence[str]) -> Message:
    if not known:
        return Message("{path} is not drawn: nothing is a distribution, and no price path has a volatility", path)
    return Message("{path} is neither a distribution nor a path with volatility{hint}", path, did_you_mean(path, known))


FUTURES: Section[MonteCarloDraws] = Section(
    repriced=True,
    of_fleets=True,
    check_terms=_check_draws,
    example="""\
# futures: {draws: 2000}      # any price, any term and the load may be {triangular: [low, mode, high], note: why},
#   {uniform: [low, high]}, {normal: [mean, sd]} or {lognormal: [mean, cv]} in place of a number;
#   correlations: [{between: [site.pue, site.electricity_usd_per_kwh], rank: 0.3}]""",
)
