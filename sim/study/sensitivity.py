"""One-at-a-time sensitivity: effect of each input's low and high value on a metric of every fleet, and on a difference.

Prices change no quantity, so prices and terms are billed anew on the scenario's own simulations; inputs that change
quantities are simulated, with the same random numbers at both ends.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path

from sim.catalogue.catalog import Catalog
from sim.message import Message
from sim.scenario.reading.layers import place_of, value_at
from sim.scenario.schema import Fleet, Scenario
from sim.scenario.sections.sensitivity import ALL_LOADS, RelativeRange, Sensitivity, around, number_at
from sim.scenario.sweep import Case, as_data, at_point, is_deterministic
from sim.study.booked_inputs import INPUTS, booked_inputs, in_stated_currency, number_of
from sim.study.execution.cases import CaseJob, Progress, Workplace, do_all, jobs_of
from sim.study.execution.store import StoredCase
from sim.study.load_axis import ONLY_RAISED, LoadAxis
from sim.study.metrics.service_level import cases_overloaded
from sim.study.metrics.statistics import ratio, ratio_difference
from sim.study.rebill import Bill, Rebilling

USUAL = 0.3
"""Relative range of an input without a stated range."""
MONEY = ("site", "finance", "operations", "api", "revenue", "cost")
"""Sections, of the scenario or of a fleet, that change no quantity."""
USD = "usd_per_million_output_tokens"
LENGTHS = {"mean": "mean", "value": "", "scale": "scale of"}
"""Key of a length distribution -> its name in words."""
Cases = Sequence[tuple[Case, StoredCase]]


@dataclass(frozen=True, slots=True)
class Sample:
    """Result over replications, as a ratio of sums; for a mean all denominators are 1."""

    tops: tuple[float, ...]
    """Numerator in each replication; empty where the fleet cannot run."""
    bottoms: tuple[float, ...]
    overloaded: bool = False

    @property
    def runs(self) -> bool:
        """True if the fleet can run at all."""
        return bool(self.tops)

    @property
    def value(self) -> float:
        """Ratio of the sums; infinite where the fleet cannot run, or where nothing is answered."""
        return ratio(self.tops, self.bottoms)[0]

    @property
    def half_width(self) -> float | None:
        """Half of the 95 % interval; None below two replications."""
        return ratio(self.tops, self.bottoms)[1]


Values = dict[str, Sample]
"""Fleet -> its result."""


@dataclass(frozen=True, slots=True)
class VariedInput:
    """Input that is varied, with its range."""

    name: str
    path: str
    """Dotted path; empty for the price of a fleet's hardware."""
    now: float
    low: float
    high: float
    unit: str = ""
    fleet: str = ""
    """Fleet whose hardware price or rent is varied; empty for other inputs."""
    money: bool = True
    """True if the input changes costs only, so that nothing is simulated for it."""


@dataclass(frozen=True, slots=True)
class Swing:
    """Effect of one input on the metric of every fleet."""

    input: VariedInput
    low: Values
    high: Values


@dataclass(frozen=True, slots=True)
class Swings:
    """Effects of all inputs of one scenario."""

    metric: str
    base: Values
    swings: tuple[Swing, ...]
    unable: Mapping[str, str] = field(default_factory=dict)
    """Fleet that cannot run -> reason."""

    @property
    def reasons(self) -> tuple[str, ...]:
        """Sentences on the fleets that are left out."""
        return tuple(Message("{name} is not compared: {reason}.", name, reason) for name, reason in self.unable.items())


def why_no_sensitivity(scenario: Scenario) -> list[str]:
    """Return the reasons why the scenario has no sensitivities, each with its key; empty if it has."""
    if scenario.tenant is not None:
        return [ONLY_RAISED]
    if (scenario.sensitivity or Sensitivity()).metric != USD:
        return []
    unpriced = [(position, fleet.name) for position, fleet in enumerate(scenario.fleets) if not fleet.is_priced]
    return [
        Message("fleets.{position}.cost: is missing: the cost of {name} is compared", position, name)
        for position, name in unpriced
    ]


def swings(
    scenario: Scenario, catalog: Catalog, out: Path, workplace: Workplace, progress: Progress = lambda *_: None
) -> Swings:
    """Return the effects of all inputs; points that are not yet in *out*/points are simulated.

    Raises
    ------
    ValueError
        Where the metric is a cost and a fleet has no `cost`.

    """
    asked = scenario.sensitivity or Sensitivity()
    plain = scenario.model_copy(update={"sweep": None})
    found = [one for one in inputs(plain, catalog) if one.money <= (asked.metric == USD)]
    places = [(one.path, value) for one in found if not one.money for value in (one.low, one.high)]
    stored = _simulated(plain, catalog, out, workplace, [None, *places], progress)
    base = {name: cases for (name, place), cases in stored.items() if place is None}
    running = {name: cases for name, cases in base.items() if all(one.status == "ok" for _, one in cases)}
    billing = {key: Rebilling(plain, catalog, cases) for key, cases in stored.items()} if asked.metric == USD else {}

    def at(place: Place) -> Values:
        if asked.metric == USD:
            return {name: _cost(billing[name, place].bills(), stored[name, place]) for name in running}
        return {name: _metric(stored[name, place], asked.metric) for name in running}

    def values(one: VariedInput, value: float) -> Values:
        if not one.money:
            return at((one.path, value))
        overrides = {one.path: value} if one.path else {}
        parts = {one.fleet: value / one.now - 1} if one.fleet else {}
        return {name: _cost(billing[name, None].bills(overrides), base[name], parts.get(name, 0.0)) for name in running}

    return Swings(
        asked.metric,
        at(None),
        tuple(Swing(one, values(one, one.low), values(one, one.high)) for one in found),
        {name: cases[0][1].reason for name, cases in base.items() if name not in running},
    )


def _cost(bills: Sequence[Bill], cases: Cases, part: float = 0.0) -> Sample:
    """Return cost over millions of output tokens, with hardware and rent raised by the fraction *part*."""
    if len(bills) < len(cases):
        return Sample((), ())
    usd = tuple(
        bill.window_h * (bill.usd_per_h + part * (bill.flows.hardware_usd_per_h + bill.flows.rent_usd_per_h))
        for bill in bills
    )
    return Sample(usd, tuple(bill.output_tokens / 1e6 for bill in bills), _any_overloaded(cases))


def _metric(cases: Cases, metric: str) -> Sample:
    if any(stored.status != "ok" for _, stored in cases):
        return Sample((), ())
    values = (stored.metrics[metric] for _, stored in cases)
    return Sample(
        tuple(float("inf") if one is None else float(one) for one in values),
        (1.0,) * len(cases),
        _any_overloaded(cases),
    )


def _any_overloaded(cases: Cases) -> bool:
    return cases_overloaded([stored.metrics for _, stored in cases])


Place = tuple[str, float] | None
"""(path, value) of the input that is varied; None: no input is varied."""


def _simulated(
    scenario: Scenario,
    catalog: Catalog,
    out: Path,
    workplace: Workplace,
    places: Sequence[Place],
    progress: Progress,
) -> dict[tuple[str, Place], list[tuple[Case, StoredCase]]]:
    """Return the cases of every fleet with one input varied, read from *out* where they are finished."""
    found: dict[tuple[str, Place], list[CaseJob]] = {}
    for place in places:
        overrides = {} if place is None else _overrides(scenario, *place)
        at = at_point(scenario, overrides)
        for position, fleet in enumerate(scenario.fleets):
            count = 1 if is_deterministic(at, at.fleets[position]) else scenario.replications
            axes = {} if place is None else dict([place])
            cases = [Case(fleet.name, axes, overrides, replication) for replication in range(count)]
            found[fleet.name, place] = jobs_of(scenario, cases, catalog, out)
    do_all(workplace, [job for jobs in found.values() for job in jobs], progress)
    return {key: [(job.case, job.stored()) for job in jobs] for key, jobs in found.items()}


def _overrides(scenario: Scenario, path: str, value: float) -> dict[str, float]:
    """Return path -> value of the scenario with the input at *path* changed, which may be the loads of all services."""
    return LoadAxis.of(scenario).overrides(value) if path == ALL_LOADS else {path: value}


def inputs(scenario: Scenario, catalog: Catalog) -> list[VariedInput]:
    """Return the inputs that the scenario names, else the usual inputs that it has."""
    data = as_data(scenario)
    asked = scenario.sensitivity.inputs if scenario.sensitivity else None
    if asked is None:
        paths = [path for path in _usual_paths(scenario) if _has_positive_number(data, path)]
        return [*(_input(scenario, data, path, USUAL) for path in paths), *_usual_loads(scenario), *_hardware(scenario)]
    ranges = {path: ends.relative if isinstance(ends, RelativeRange) else ends for path, ends in asked.items()}
    return [
        _all_loads(ends) if path == ALL_LOADS else _input(scenario, data, path, ends) for path, ends in ranges.items()
    ]


def _usual_loads(scenario: Scenario) -> list[VariedInput]:
    """Return the loads of all services in proportion, where there are several and none is chosen."""
    with suppress(ValueError):  # a burst has no rate
        return [_all_loads(USUAL)] if LoadAxis.of(scenario).label == ALL_LOADS else []
    return []


def _all_loads(ends: float | tuple[float, float]) -> VariedInput:
    low, high = ends if isinstance(ends, tuple) else (1 - ends, 1 + ends)
    return VariedInput("loads of all services", ALL_LOADS, 1.0, low, high, "of the scenario's", money=False)


def _hardware(scenario: Scenario) -> list[VariedInput]:
    """Return the hardware price or rent of each fleet, relative to today's: quotes and catalogue prices alike."""
    return [
        VariedInput(f"{_way(fleet)} of {fleet.name}", "", 1.0, 1 - USUAL, 1 + USUAL, "of today's", fleet.name)
        for fleet in scenario.fleets
        if fleet.is_priced
    ]


def _way(fleet: Fleet) -> str:
    """Return the name of the fleet's machine costs: hardware price, rent or both."""
    ways = {"buy": "hardware price", "rent": "rent"}
    return " and ".join(dict.fromkeys(ways[cost.acquisition] for cost in fleet.costs if cost is not None))


def _usual_paths(scenario: Scenario) -> list[str]:
    """Return the usual paths of prices and load; some may be absent from the scenario."""
    paths = list(booked_inputs(as_data(scenario)))
    with suppress(ValueError):  # a burst has no rate
        path = LoadAxis.of(scenario).path
        paths.append(path if scenario.service is None else f"services.{scenario.service}.{path.split('.', 2)[2]}")
    workloads = [f"services.{one.name}.workload" for one in scenario.services] or ["workload"]
    return paths + [
        f"{workload}.lengths.{side}.{key}" for workload in workloads for side in ("prompt", "output") for key in LENGTHS
    ]


def _has_positive_number(data: Mapping[str, object], path: str) -> bool:
    """Return whether the scenario has a number above zero at *path*."""
    found = number_of(data, path)
    return found is not None and found[1] > 0


def _input(scenario: Scenario, data: Mapping[str, object], path: str, ends: float | tuple[float, float]) -> VariedInput:
    named = number_at(path, value_at(data, place_of(data, path)))
    assert named is not None  # the checks of the section refuse other paths
    path, now = named
    place = place_of(data, path)
    usual = path.removesuffix(".price")
    least, most = INPUTS[usual][2:] if usual in INPUTS else (-float("inf"), float("inf"))
    low, high = ends if isinstance(ends, tuple) else around(scenario, path, now, ends)
    name, unit = _name(usual if usual in INPUTS else path)
    unit = in_stated_currency(data, path, unit)
    if place[0] == "fleets":
        name = f"{place[-1]} of {scenario.fleets[int(place[1])].name}"
        if place[-1] == "price":
            held = value_at(data, place[:-1])
            name, unit = (
                Message("quote for {place} of {name}", place[-2], scenario.fleets[int(place[1])].name),
                held.get("currency", "USD"),
            )
    section = place[2] if place[0] == "fleets" and len(place) > 2 else place[0]
    return VariedInput(name, path, float(now), max(least, low), min(most, high), unit, money=section in MONEY)


def _name(path: str) -> tuple[str, str]:
    """Return the name of the input at *path*, and its unit."""
    if path in INPUTS:
        return INPUTS[path][:2]
    words = path.split(".")
    if words[0] == "services" and words[2:3] == ["workload"]:
        name, unit = _name(".".join(words[2:]))
        return f"{name} of {words[1]}", unit
    if path.startswith("workload.lengths.") and words[-1] in LENGTHS:
        side = {"prompt": "prompt length", "output": "output length"}[words[2]]
        return f"{LENGTHS[words[-1]]} {side}".strip(), "tokens" if words[-1] != "scale" else ""
    if path == "workload.arrivals.rate_rps":
        return "load", "req/s"
    return {"workload.arrivals.concurrency": "clients", "workload.trace.rate_scale": "trace speed"}.get(path, path), ""


def difference(values: Mapping[str, Sample], between: tuple[str, str]) -> tuple[float, float | None]:
    """Return the first fleet minus the second, paired, and half of its 95 % interval; nan if one is infinite."""
    first, second = (values[name] for name in between)
    if not (isfinite(first.value) and isfinite(second.value)):
        return float("nan"), None
    if len(first.tops) != len(second.tops):  # a fleet without random events has one run
        return first.value - second.value, None
    return ratio_difference((first.tops, second.tops), (first.bottoms, second.bottoms))
