"""Monte Carlo analysis over uncertain inputs: the cost of a run's finished points under many draws of its inputs.

Prices, terms and load are drawn, and the ledger of the finished points is priced anew; nothing is simulated again. All
fleets have the same draws (common random numbers, one named stream per input), which removes the common noise from
their differences. Values in several places that describe one quantity are one input and vary together: the price of a
card that two fleets are quoted, the hours of one tariff. Other inputs are independent, except for the rank correlations
that `futures.correlations` states.

A draw changes no metered quantity. A point's meters are summed once; a bill is then flat charges by the hour plus
metered sums times prices, which takes a tenth of a millisecond. As these sums are rounded differently from the
ledger's, the bill of a draw is

    ledger's total + (float bill of the draw - float bill of the central values)

so that a draw of the central values equals the ledger's total to the last digit.

References
----------
A. M. Law, "Simulation Modeling and Analysis", 5th ed., section 11.2 (common random numbers).

"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from math import fsum
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.catalogue.catalog import Catalog
from sim.cost.carbon import GRAMS_PER_KG, CarbonPlan
from sim.cost.charge import amount_usd
from sim.cost.cost_plan import CostPlan
from sim.cost.metering import ONE_HOUR, MeteredWindow, combined_window
from sim.cost.revenue import SoldTokens
from sim.infile import opened
from sim.message import Message
from sim.records import Interval
from sim.rng import correlated, stream
from sim.scenario.reading.distribution import Uncertain
from sim.scenario.reading.layers import place_of
from sim.scenario.resolving.case import resolve
from sim.scenario.resolving.resolve import resolve_fleet
from sim.scenario.resolving.resolved import CasePlan
from sim.scenario.resolving.terms import FleetTerms, Machines, place_in_terms
from sim.scenario.schema import Scenario
from sim.scenario.sections.comparison import models_of
from sim.scenario.sections.load_profile import RATE
from sim.scenario.sections.sensitivity import PRICE_PATHS
from sim.scenario.sweep import Case, as_data, at_point, axis_labels, cases, points
from sim.study.execution.durable import MANIFEST
from sim.study.execution.precision import key_of
from sim.study.execution.store import StoredCase
from sim.study.metrics.statistics import wilson
from sim.study.points import Point
from sim.study.rebill import summed_intervals, window_s
from sim.units import HOURS_PER_MONTH
from sim.validation import Place, dotted

Draw = Mapping[Place, float]
"""Draw: the value at every uncertain place."""
LOW, HIGH = 0.1, 0.9
"""Quantiles between which a tornado chart varies each input."""


@dataclass(frozen=True, slots=True)
class UncertainInput:
    """Uncertain input, with all places of the scenario that vary together."""

    name: str
    """Dotted path within the scenario; for a quote, the price or the rent of its item."""
    paths: tuple[str, ...]
    places: tuple[Place, ...]
    members: tuple[Uncertain, ...]

    def at(self, *shares: float) -> list[dict[Place, float]]:
        """Return the input's values at the quantiles *shares* (0 to 1), for each of its places."""
        values = [one.quantiles(*shares) for one in self.members]
        return [dict(zip(self.places, row, strict=True)) for row in zip(*values, strict=True)]

    def drawn(self, u: NDArray[np.float64]) -> dict[Place, NDArray[np.float64]]:
        """Return the values at the quantiles *u*, for each of the input's places."""
        return {place: one.distribution.quantile(u) for place, one in zip(self.places, self.members, strict=True)}


def inputs_of(scenario: Scenario, of_paths: bool = False) -> tuple[UncertainInput, ...]:
    """Return the uncertain inputs of *scenario*, in the order of its file; with *of_paths* those of `price_paths`."""
    data = as_data(scenario)
    found: dict[str, list[tuple[str, Place, Uncertain]]] = {}
    for path, one in (scenario.futures.inputs if scenario.futures else {}).items():
        place = place_of(data, path)
        if (place[0] == PRICE_PATHS) is not of_paths:
            continue
        found.setdefault(_input_name(place, scenario), []).append((path, place, one))
    return tuple(_input(name, members) for name, members in found.items())


def drawn_inputs(scenario: Scenario, inputs: Sequence[UncertainInput]) -> dict[Place, NDArray[np.float64]]:
    """Return the draws of *inputs* by place; a larger number of draws extends a smaller one, except by Iman-Conover.

    Inputs in no correlation have the same draws as without correlations.
    """
    futures, data = scenario.futures, as_data(scenario)
    assert futures is not None
    shares = [stream(scenario.seed, 0, f"futures {one.name}").random(futures.draws) for one in inputs]
    holders = {place: one.name for one in inputs for place in one.places}
    names = [one.name for one in inputs]
    ranks = futures.rank_matrix(names, lambda path: holders.get(place_of(data, path)))
    tied = np.flatnonzero((ranks != np.eye(len(ranks))).any(axis=0))
    if len(tied):
        linked = correlated(np.array([shares[i] for i in tied]).T, ranks[np.ix_(tied, tied)], futures.dependence)
        for i, share in zip(tied, linked.T, strict=True):
            shares[i] = share
    return {place: values for one, u in zip(inputs, shares, strict=True) for place, values in one.drawn(u).items()}


def _input(name: str, members: list[tuple[str, Place, Uncertain]]) -> UncertainInput:
    paths, places, distributions = zip(*members, strict=True)
    return UncertainInput(name, paths, places, distributions)


def _input_name(place: Place, scenario: Scenario) -> str:
    """Return the name of the input that the value at *place* belongs to."""
    if place[0] == "fleets":
        fleet = scenario.fleets[int(place[1])]
        if place[2:4] == ("cost", "quotes") and fleet.cost is not None:
            return f"{'price' if fleet.cost.acquisition == 'buy' else 'rent'} of {place[4]}"
        return f"{fleet.name}: {dotted(tuple(_without_items(place[2:])))}"
    return dotted(tuple(_without_items(place)))


def _without_items(place: Place) -> Iterator[str | int]:
    """Yield the steps of *place* up to the first list index; a tariff is one input with all its seasons."""
    for step in place:
        if isinstance(step, int):
            return
        yield step
        if step == "electricity":
            return


def central_draw(inputs: tuple[UncertainInput, ...]) -> dict[Place, float]:
    """Return the central value of every input, by place."""
    return {
        place: one.distribution.central for each in inputs for place, one in zip(each.places, each.members, strict=True)
    }


AMOUNTS = ("usd", "api_usd", "kg_co2e", "revenue_usd")


@dataclass(frozen=True, slots=True)
class DrawnAmounts:
    """Totals of all replications of a point in one draw; None where an amount does not apply."""

    usd: float
    api_usd: float | None
    kg_co2e: float | None
    revenue_usd: float | None = None


@dataclass(frozen=True, slots=True)
class MeterReading:
    """Meter readings of one fleet at one point, all replications together."""

    window: MeteredWindow
    """Readings with one interval per pool, state and, where electricity is priced by it, hour of the clock."""
    kwh_by_hour: tuple[float, ...]
    """Energy at the servers' plugs by the hour of the grid's intensity [kWh]; empty without `carbon` or known power."""

    @classmethod
    def of(cls, cases: Sequence[StoredCase], plan: CasePlan) -> "MeterReading":
        """Return the readings of the replications *cases*, which share *plan* except for its warm-up."""
        windows = []
        for case in cases:
            rows = [Interval(**row) for row in case.usage().to_pylist()]
            windows.append(MeteredWindow.of(rows, *window_s(replace(plan, warmup_s=case.metrics["warmup_s"]), rows)))
        metered = [row for window in windows for rows in window.intervals.values() for row in rows]
        whole = combined_window(windows)
        merged = {
            pool: summed_intervals((_of_pool(row) for row in rows), plan.clock)
            for pool, rows in whole.intervals.items()
        }
        return cls(replace(whole, intervals=merged), tuple(_kwh_by_hour(metered, plan)))

    @property
    def window_h(self) -> float:
        """Total length of the windows [h]."""
        return self.window.hours

    def total(self, name: str) -> int:
        """Return the sum of the meter *name*."""
        return sum(getattr(interval, name) for rows in self.window.intervals.values() for interval in rows)

    def amounts(self, priced: "PricedTerms") -> DrawnAmounts:
        """Return the totals under *priced*, in float arithmetic."""
        usd = priced.flat_usd_per_h * self.window_h
        usd += fsum(amount_usd(charge, self.window) for charge in priced.metered)
        tokens = [self.total(name) for name in ("prompt_tokens", "cached_tokens", "output_tokens")]
        api_usd = None if priced.costs.api is None else priced.costs.api.usd(*tokens)
        prices, revenue_usd = priced.costs.revenue, None
        if prices is not None:
            revenue_usd = SoldTokens(prices, tokens[0] + tokens[1], tokens[2], usd).usd
        return DrawnAmounts(usd, api_usd, self._kg_co2e(priced.carbon), revenue_usd)

    def _kg_co2e(self, carbon: CarbonPlan | None) -> float | None:
        if carbon is None or not self.kwh_by_hour:
            return None
        grams = fsum(kwh * grid for kwh, grid in zip(self.kwh_by_hour, carbon.grid_g_per_kwh, strict=True))
        rows = [row for inside in self.window.intervals.values() for row in inside]
        return carbon.pue * grams / GRAMS_PER_KG + carbon.embodied_kg(rows, self.window_h)


def _of_pool(row: Interval) -> Interval:
    """Return *row* without the fields that distinguish the replicas of a pool."""
    return Interval(**{f.name: getattr(row, f.name) for f in fields(Interval)} | _ALIKE)


_ALIKE: dict[str, Any] = {"service": "", "server": "", "replica": 0}


def _kwh_by_hour(inside: Iterable[Interval], plan: CasePlan) -> Iterable[float]:
    """Yield the energy that is multiplied by each of the grid's intensities [kWh]."""
    if plan.carbon is None or any(pool.power is None for pool in plan.pools):
        return
    rows, count = list(inside), len(plan.carbon.grid_g_per_kwh)
    for hour in range(count):
        only = tuple(GRAMS_PER_KG if index == hour else 0.0 for index in range(count))
        yield replace(plan.carbon, grid_g_per_kwh=only, pue=1.0).operational_kg(rows)


@dataclass(frozen=True, slots=True)
class PricedTerms:
    """Terms of one draw, priced for one fleet's machines."""

    costs: CostPlan
    carbon: CarbonPlan | None
    flat_usd_per_h: float
    metered: tuple[Any, ...]
    """Charges that follow a meter."""

    @classmethod
    def of(cls, terms: FleetTerms, machines: Machines, catalog: Catalog) -> "PricedTerms":
        """Return *terms* priced for *machines*; raises CostError only for a scenario that `load` has not checked."""
        costs = terms.costs(machines, catalog)
        assert costs is not None  # `Biller` refuses fleets without costs
        flat = [charge for charge in costs.charges if charge.paid.by_the_clock]
        metered = tuple(charge for charge in costs.charges if not charge.paid.by_the_clock)
        return cls(
            costs,
            terms.carbon_plan(machines, catalog),
            fsum(amount_usd(charge, ONE_HOUR) for charge in flat),
            metered,
        )


class Biller:
    """Biller of one fleet at one point of the sweep, under any draw.

    Parameters
    ----------
    scenario, case
        Scenario and its case at the point.
    cases
        Finished replications of *case*.
    catalog
        Catalogue of the scenario.

    Raises
    ------
    ValueError
        Where the fleet has no cost.

    """

    def __init__(self, scenario: Scenario, case: Case, cases: Sequence[StoredCase], catalog: Catalog) -> None:
        at = at_point(scenario, case.overrides)
        position = [fleet.name for fleet in scenario.fleets].index(case.fleet)
        fleet, self._catalog = at.fleets[position], catalog
        self.terms, self.machines = FleetTerms.of(at, fleet), resolve_fleet(at, fleet, catalog).machines
        if not self.terms.is_priced:
            raise ValueError(Message("fleet {fleet} has no cost", case.fleet))
        self.reading = MeterReading.of(cases, resolve(scenario, case, catalog))
        self.stored = DrawnAmounts(
            fsum(one.metrics["cost_usd"] for one in cases),
            _sum(cases, "api_usd"),
            _sum(cases, "operational_kg_co2e", "embodied_kg_co2e"),
            _sum(cases, "revenue_usd"),
        )
        self._data = self.terms.data()
        self._fleet, self._position = fleet, position

    def same_terms(self, other: "Biller") -> bool:
        """Return whether every draw has the same prices for both billers."""
        mine, its = ((one._position, one.terms, one.machines) for one in (self, other))
        return mine == its

    def values(self, draw: Draw) -> dict[Place, float]:
        """Return the values of *draw* that appear in this fleet's terms."""
        found = ((place_in_terms(place, self._position, self._fleet), value) for place, value in draw.items())
        return {place: value for place, value in found if place is not None}

    def priced(self, values: Mapping[Place, float]) -> PricedTerms:
        """Return the terms with *values*, priced."""
        terms = self.terms.with_values(self._data, values) if values else self.terms
        return PricedTerms.of(terms, self.machines, self._catalog)

    def amounts(self, priced: PricedTerms, central: DrawnAmounts) -> DrawnAmounts:
        """Return the stored bill plus the change from *central*, the float bill of the central values, to *priced*."""
        now = self.reading.amounts(priced)
        return DrawnAmounts(
            self.stored.usd + (now.usd - central.usd),
            _shifted(self.stored.api_usd, now.api_usd, central.api_usd),
            _shifted(self.stored.kg_co2e, now.kg_co2e, central.kg_co2e),
            _shifted(self.stored.revenue_usd, now.revenue_usd, central.revenue_usd),
        )


def _shifted(stored: float | None, now: float | None, central: float | None) -> float | None:
    if stored is None or now is None or central is None:
        return None
    return stored + (now - central)


def _sum(cases: Sequence[StoredCase], *names: str) -> float | None:
    values = [case.metrics[name] for case in cases for name in names]
    return None if any(value is None for value in values) else fsum(value for value in values if value is not None)


Numbers = NDArray[np.float64]
MONTH, MILLION = "usd_per_month", "usd_per_million_output_tokens"
PROFIT = "profit_usd_per_month"
"""Measure of revenue minus cost, where the scenario states a revenue."""
API, CARBON = "api_usd_per_million_output_tokens", "kg_co2e_per_million_output_tokens"


@dataclass(frozen=True, slots=True)
class FleetDraws:
    """Draws of one fleet at one point of the sweep; over all loads where the load is drawn."""

    fleet: str
    axes: dict[str, Any]
    """Label of the axis -> value, without the axis of a drawn load."""
    central: Mapping[str, float]
    """Measure -> value with every input at its central value."""
    draws: Mapping[str, Numbers]
    """Measure -> value in each draw."""
    low: Mapping[str, Numbers]
    """Measure -> value for each input at its 10 % quantile, the others central."""
    high: Mapping[str, Numbers]
    """Measure -> value for each input at its 90 % quantile, the others central."""


@dataclass(frozen=True, slots=True)
class MonteCarloStudy:
    """Drawn inputs, and the outcomes of all fleets."""

    inputs: tuple[UncertainInput, ...]
    drawn: Mapping[Place, Numbers]
    outcomes: tuple[FleetDraws, ...]
    """Outcomes by fleet and point, without fleets that have no cost or cannot run."""
    load_drawn: bool
    models: Mapping[str, str] = field(default_factory=dict)
    """Fleet -> model, where fleets that serve different models are ranked separately."""
    correlations: tuple[tuple[UncertainInput, UncertainInput, float], ...] = ()
    """Pairs of inputs with their rank correlations."""

    @property
    def draws(self) -> int:
        """Number of draws."""
        return len(next(iter(self.drawn.values())))


def monte_carlo_study(scenario: Scenario, catalog: Catalog, stored: Sequence[StoredCase]) -> MonteCarloStudy | None:
    """Return the Monte Carlo study of a finished run with the cases *stored*; None where nothing is uncertain."""
    inputs = inputs_of(scenario)
    if scenario.futures is None or not inputs:
        return None
    drawn = drawn_inputs(scenario, inputs)
    central = central_draw(inputs)
    moved = [central | draw for share in (LOW, HIGH) for one in inputs for draw in one.at(share)]
    rows = zip(*(values.tolist() for values in drawn.values()), strict=True)
    input_draws: list[Draw] = [central, *moved, *(dict(zip(drawn, row, strict=True)) for row in rows)]
    outcomes = _outcomes(_billers(scenario, catalog, stored), input_draws, len(inputs), _load_axis(scenario, inputs))
    models = models_of(scenario, scenario.compare)
    return MonteCarloStudy(inputs, drawn, tuple(outcomes), RATE in central, models, tuple(_pairs(scenario, inputs)))


def _pairs(
    scenario: Scenario, inputs: Sequence[UncertainInput]
) -> Iterator[tuple[UncertainInput, UncertainInput, float]]:
    """Yield the pairs of *inputs* that are correlated, with their rank correlations."""
    data, holders = as_data(scenario), {place: one for one in inputs for place in one.places}
    for one in scenario.futures.correlations if scenario.futures is not None else ():
        first, second = (holders.get(place_of(data, path)) for path in one.between)
        if first is not None and second is not None:
            yield first, second, one.rank


def _billers(scenario: Scenario, catalog: Catalog, stored: Sequence[StoredCase]) -> list[tuple[Case, Biller]]:
    """Return the biller of every fleet at every point where it ran and has a cost."""
    finished: dict[tuple[str, str], list[StoredCase]] = {}
    for one in stored:
        if one.status == "ok" and one.metrics["cost_usd"] is not None:
            finished.setdefault(key_of(one)[:2], []).append(one)
    first = (case for case in cases(scenario) if case.replication == 0)
    return [
        (case, Biller(scenario, case, finished[key], catalog))
        for case in first
        if (key := key_of(case)[:2]) in finished
    ]


def _load_axis(scenario: Scenario, inputs: Sequence[UncertainInput]) -> str | None:
    """Return the label of the axis along which a drawn load is interpolated; None where the load is not drawn."""
    if not any(RATE in one.places for one in inputs):
        return None
    data = as_data(scenario)
    labels = axis_labels(path for point in points(scenario.sweep) for path in point)
    return next(label for path, label in labels.items() if place_of(data, path) == RATE)


def _outcomes(
    billers: Sequence[tuple[Case, Biller]], input_draws: Sequence[Draw], inputs: int, axis: str | None
) -> list[FleetDraws]:
    groups: dict[tuple[str, str], list[tuple[Case, Biller]]] = {}
    for case, biller in billers:
        others = {name: value for name, value in case.axes.items() if name != axis}
        groups.setdefault((case.fleet, repr(others)), []).append((case, biller))
    rates = np.array([draw.get(RATE, 0.0) for draw in input_draws])
    totals = _totals(billers, input_draws)
    found = []
    for members in groups.values():
        case = members[0][0]
        if axis is not None:
            members.sort(key=lambda member: float(member[0].axes[axis]))
        tables = [totals[id(biller)] for _, biller in members]
        if axis is not None:
            tables = [{name: values / table["hours"] for name, values in table.items()} for table in tables]
        known = np.array([float(case.axes[axis]) if axis is not None else 0.0 for case, _ in members])
        measures = _measures(
            {name: _interpolated(known, [table[name] for table in tables], rates) for name in tables[0]}
        )
        parts = (slice(1), slice(1, 1 + inputs), slice(1 + inputs, 1 + 2 * inputs), slice(1 + 2 * inputs, None))
        central, low, high, draws = ({name: values[part] for name, values in measures.items()} for part in parts)
        others = {name: value for name, value in case.axes.items() if name != axis}
        found.append(
            FleetDraws(case.fleet, others, {name: float(value[0]) for name, value in central.items()}, draws, low, high)
        )
    return found


def _totals(billers: Sequence[tuple[Case, Biller]], input_draws: Sequence[Draw]) -> dict[int, dict[str, Numbers]]:
    """Return the totals of every biller in every draw; the first draw holds the central values.

    Terms that several billers share are priced once.
    """
    kinds: list[list[Biller]] = []
    for _, biller in billers:
        kind = next((kind for kind in kinds if kind[0].same_terms(biller)), None)
        kinds.append([biller]) if kind is None else kind.append(biller)
    tables: dict[int, dict[str, Numbers]] = {}
    for kind in kinds:
        values = [kind[0].values(draw) for draw in input_draws]
        priced = kind[0].priced(values[0])
        central = [biller.reading.amounts(priced) for biller in kind]
        rows: list[list[DrawnAmounts]] = [[] for _ in kind]
        for index, wanted in enumerate(values):
            if index and wanted != values[index - 1]:
                priced = kind[0].priced(wanted)
            for biller, base, row in zip(kind, central, rows, strict=True):
                row.append(biller.amounts(priced, base))
        for biller, row in zip(kind, rows, strict=True):
            tables[id(biller)] = _table(biller, row)
    return tables


def _table(biller: Biller, row: Sequence[DrawnAmounts]) -> dict[str, Numbers]:
    reading = biller.reading
    found = {
        "hours": np.full(len(row), reading.window_h),
        "output_tokens": np.full(len(row), float(reading.total("output_tokens"))),
    }
    for name in AMOUNTS:
        values = [getattr(amounts, name) for amounts in row]
        if None not in values:
            found[name] = np.array(values)
    return found


def _interpolated(known: Numbers, columns: Sequence[Numbers], rates: Numbers) -> Numbers:
    """Return, for each draw, the linear interpolation between the two *known* loads around its own."""
    if len(known) == 1:
        return columns[0]
    table = np.array(columns)
    left = np.clip(np.searchsorted(known, rates, side="right") - 1, 0, len(known) - 2)
    share = (rates - known[left]) / (known[left + 1] - known[left])
    input_draws = np.arange(len(rates))
    return np.asarray((1 - share) * table[left, input_draws] + share * table[left + 1, input_draws])


def _measures(amounts: Mapping[str, Numbers]) -> dict[str, Numbers]:
    """Return the printed measures of amounts over a number of hours."""
    millions = amounts["output_tokens"] / 1e6
    found = {MONTH: HOURS_PER_MONTH * (amounts["usd"] / amounts["hours"])}
    if "revenue_usd" in amounts:
        found[PROFIT] = HOURS_PER_MONTH * ((amounts["revenue_usd"] - amounts["usd"]) / amounts["hours"])
    for name, amount in ((MILLION, "usd"), (API, "api_usd"), (CARBON, "kg_co2e")):
        if amount in amounts:
            with np.errstate(divide="ignore"):
                found[name] = amounts[amount] / millions
    return found


def cheapest(outcomes: Sequence[FleetDraws], measure: str = MILLION) -> dict[str, int]:
    """Return fleet -> number of draws in which it alone is the cheapest; draws with equal costs count for none."""
    table = np.array([one.draws[measure] for one in outcomes])
    least = table == table.min(axis=0)
    alone = least & (least.sum(axis=0) == 1)
    return {one.fleet: int(count) for one, count in zip(outcomes, alone.sum(axis=1), strict=True)}


DISPUTES = "disputes"
"""Key of the manifest: settings where draws and central values favour different fleets."""


@dataclass(frozen=True, slots=True)
class DrawnSetting:
    """Outcomes of all fleets at one point of the sweep."""

    axes: Mapping[str, Any]
    """Label of the axis -> value; empty where nothing is swept."""
    outcomes: tuple[FleetDraws, ...]
    model: str = ""
    """Model that these fleets serve, where other fleets serve another; empty: all fleets of the run."""

    def apart(self, models: Mapping[str, str]) -> list["DrawnSetting"]:
        """Return one setting per model, where *models* (fleet -> model) has several; else this setting."""
        groups: dict[str, list[FleetDraws]] = {}
        for one in self.outcomes:
            groups.setdefault(models.get(one.fleet, ""), []).append(one)
        return [replace(self, outcomes=tuple(own), model=model) for model, own in groups.items()]

    @property
    def first_two(self) -> tuple[FleetDraws, FleetDraws] | None:
        """Cheapest fleet and the second with all inputs central; None for fewer than two fleets."""
        ranked = sorted(self.outcomes, key=lambda one: one.central[MILLION])
        return (ranked[0], ranked[1]) if len(ranked) > 1 else None


def settings_of(study: MonteCarloStudy) -> list[DrawnSetting]:
    """Return the outcomes grouped by point, in the order of the sweep."""
    groups: dict[str, list[FleetDraws]] = {}
    for one in study.outcomes:
        groups.setdefault(repr(one.axes), []).append(one)
    return [DrawnSetting(found[0].axes, tuple(found)) for found in groups.values()]


@dataclass(frozen=True, slots=True)
class DisputedSetting:
    """Setting at which the draws favour another fleet than the central values, which decide the verdict."""

    axes: dict[str, Any]
    """Label of the axis -> value."""
    model: str
    """Model of the fleets that are compared; empty where all are."""
    fleets: int
    """Number of fleets that are compared."""
    central: str
    """Fleet with the least cost per output token at central values."""
    drawn: str
    """Fleet that is the cheapest in more draws than any other."""
    share: float
    """Fraction of the draws in which *drawn* alone is the cheapest [1]."""
    draws: int
    """Number of draws."""


def disputes_of(study: MonteCarloStudy, points: Sequence[Point]) -> list[DisputedSetting]:
    """Return the settings where draws and central values favour different fleets, among those that meet the SLO.

    Only fleets that certainly meet the SLO are compared, as in a verdict.
    """
    found = []
    for setting in settings_of(study):
        here = [point for point in points if setting.axes.items() <= point.axes.items()]
        certain = {point.fleet for point in here if point.certainly_good}
        for rivals in setting.apart(study.models):
            fit = [one for one in rivals.outcomes if one.fleet in certain]
            if len(fit) > 1 and (dispute := _dispute(replace(rivals, outcomes=tuple(fit)), study.draws)) is not None:
                found.append(dispute)
    return found


def _dispute(rivals: DrawnSetting, draws: int) -> DisputedSetting | None:
    wins, cost = cheapest(rivals.outcomes), {one.fleet: one.central[MILLION] for one in rivals.outcomes}
    drawn, central = max(wins, key=lambda fleet: wins[fleet]), min(cost, key=lambda fleet: cost[fleet])
    if wins[drawn] == wins[central] or cost[drawn] == cost[central]:
        return None
    return DisputedSetting(dict(rivals.axes), rivals.model, len(wins), central, drawn, wins[drawn] / draws, draws)


def stored_disputes(folder: Path) -> list[DisputedSetting]:
    """Return the disputes of the finished run in *folder*, from its manifest; empty where nothing was drawn."""
    try:
        with opened(folder / MANIFEST, "r", hidden=True, encoding="utf-8") as file:
            return [DisputedSetting(**one) for one in json.load(file).get(DISPUTES, [])]
    except (OSError, ValueError, TypeError):
        return []


@dataclass(frozen=True, slots=True)
class CheapestShare:
    """Share of the draws in which a fleet is the cheapest [1], with the 95 % interval of the draws."""

    value: float
    low: float
    high: float


def cheapest_share(setting: DrawnSetting, fleet: str, draws: int) -> CheapestShare:
    """Return the share of the draws in which *fleet* is the cheapest of *setting*."""
    wins = cheapest(setting.outcomes)[fleet]
    return CheapestShare(wins / draws, *wilson(wins, draws))


@dataclass(frozen=True, slots=True)
class MeasureQuantiles:
    """Statistics of one measure of one fleet over the draws."""

    central: float
    mean: float
    sd: float | None
    """Standard deviation; None where a draw is infinite."""
    quantiles: tuple[float, ...]


def spread_of(one: FleetDraws, measure: str, shares: Sequence[float]) -> MeasureQuantiles:
    """Return the statistics of *measure* for a fleet, with its quantiles at *shares*."""
    values = one.draws[measure]
    sd = float(values.std()) if np.isfinite(values).all() else None
    quantiles = tuple(float(value) for value in np.quantile(values, shares))
    return MeasureQuantiles(one.central[measure], float(values.mean()), sd, quantiles)


@dataclass(frozen=True, slots=True)
class QuantileEffect:
    """Measure with one input at its 10 % and at its 90 % quantile, the others central, and with all central."""

    low: float
    high: float
    central: float


@dataclass(frozen=True, slots=True)
class InputEffect:
    """Effect of one input alone, on one fleet or on the difference of two."""

    of: str
    input: UncertainInput
    measures: Mapping[str, QuantileEffect]


def input_effects(study: MonteCarloStudy, setting: DrawnSetting, measures: Sequence[str]) -> Iterator[InputEffect]:
    """Yield the effect of each input on the difference of the first two fleets of each model, then on every fleet."""
    ranked = [own.first_two for own in setting.apart(study.models)]
    pairs: list[tuple[str, FleetDraws, FleetDraws | None]] = [
        (f"{two[1].fleet} minus {two[0].fleet}", two[1], two[0]) for two in ranked if two is not None
    ]
    pairs += [(one.fleet, one, None) for one in setting.outcomes]
    for name, one, less in pairs:
        for index, each in enumerate(study.inputs):
            yield InputEffect(name, each, {measure: _ends(index, measure, one, less) for measure in measures})


def _ends(index: int, measure: str, one: FleetDraws, less: FleetDraws | None) -> QuantileEffect:
    found = [float(one.low[measure][index]), float(one.high[measure][index]), one.central[measure]]
    taken = [0.0] * 3
    if less is not None:
        taken = [float(less.low[measure][index]), float(less.high[measure][index]), less.central[measure]]
    return QuantileEffect(*(value - other for value, other in zip(found, taken, strict=True)))
