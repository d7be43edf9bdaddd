"""Futures: what the finished points of a run cost under many draws of all that is uncertain, and which input matters.

Monte Carlo over prices, terms and load on the ledger of the finished points; nothing is simulated again. All fleets
meet the same draws (common random numbers), so that their differences are not blurred by luck: A. M. Law, "Simulation
Modeling and Analysis", 5th ed., section 11.2.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.catalogue.catalog import Catalog
from sim.scenario.reading.errors import Place
from sim.scenario.reading.layers import place_of
from sim.scenario.schema import Scenario
from sim.scenario.sections.compare import models_of
from sim.scenario.sections.load_profile import RATE
from sim.scenario.sweep import Case, as_data, axis_labels, cases, points
from sim.study.cases.store import StoredCase
from sim.study.fleets.futures.bill import AMOUNTS, Amounts, Biller
from sim.study.fleets.futures.inputs import HIGH, LOW, UncertainInput, World, central_world, inputs_of
from sim.study.metrics.precision import key_of
from sim.units import HOURS_PER_MONTH

Numbers = NDArray[np.float64]
MONTH, MILLION = "usd_per_month", "usd_per_million_output_tokens"
API, CARBON = "api_usd_per_million_output_tokens", "kg_co2e_per_million_output_tokens"


@dataclass(frozen=True, slots=True)
class FleetDraws:
    """One fleet at one point of the sweep; where the load is drawn, over all loads."""

    fleet: str
    axes: dict[str, Any]
    """Label of the axis -> value, without that of a drawn load."""
    central: Mapping[str, float]
    """Measure -> value where every input is at its central value."""
    draws: Mapping[str, Numbers]
    """Measure -> value in each future."""
    low: Mapping[str, Numbers]
    """Measure -> value where one input after the other is at its 10 % quantile, the others central."""
    high: Mapping[str, Numbers]
    """Measure -> value where one input after the other is at its 90 % quantile, the others central."""


@dataclass(frozen=True, slots=True)
class FutureStudy:
    """All that was drawn, and what it came to."""

    inputs: tuple[UncertainInput, ...]
    drawn: Mapping[Place, Numbers]
    outcomes: tuple[FleetDraws, ...]
    """Fleet by fleet, point by point; fleets without a cost and those that cannot run are left out."""
    load_drawn: bool
    models: Mapping[str, str] = field(default_factory=dict)
    """Fleet -> model, where fleets that serve different models are ranked apart."""

    @property
    def draws(self) -> int:
        """How many futures."""
        return len(next(iter(self.drawn.values())))


def futures_of(scenario: Scenario, catalog: Catalog, stored: Sequence[StoredCase]) -> FutureStudy | None:
    """The futures of a finished run with the cases *stored*; None where nothing is uncertain."""
    inputs = inputs_of(scenario)
    if scenario.futures is None or not inputs:
        return None
    drawn: dict[Place, Numbers] = {}
    for one in inputs:
        drawn |= one.drawn(scenario.seed, scenario.futures.draws)
    central = central_world(inputs)
    moved = [central | world for share in (LOW, HIGH) for one in inputs for world in one.at(share)]
    rows = zip(*(values.tolist() for values in drawn.values()), strict=True)
    worlds: list[World] = [central, *moved, *(dict(zip(drawn, row, strict=True)) for row in rows)]
    outcomes = _outcomes(_billers(scenario, catalog, stored), worlds, len(inputs), _load_axis(scenario, inputs))
    models = models_of(scenario, scenario.compare)
    return FutureStudy(inputs, drawn, tuple(outcomes), RATE in central, models)


def _billers(scenario: Scenario, catalog: Catalog, stored: Sequence[StoredCase]) -> list[tuple[Case, Biller]]:
    """Every fleet at every point where it ran and has a cost."""
    finished: dict[tuple[str, str], list[StoredCase]] = {}
    for one in stored:
        if one.status == "ok" and one.metrics.money is not None:
            finished.setdefault(key_of(one)[:2], []).append(one)
    first = (case for case in cases(scenario) if case.replication == 0)
    return [
        (case, Biller(scenario, case, finished[key], catalog))
        for case in first
        if (key := key_of(case)[:2]) in finished
    ]


def _load_axis(scenario: Scenario, inputs: Sequence[UncertainInput]) -> str | None:
    """Label of the axis between whose points a drawn load lies; None where the load is not drawn."""
    if not any(RATE in one.places for one in inputs):
        return None
    data = as_data(scenario)
    labels = axis_labels(path for point in points(scenario.sweep) for path in point)
    return next(label for path, label in labels.items() if place_of(data, path) == RATE)


def _outcomes(
    billers: Sequence[tuple[Case, Biller]], worlds: Sequence[World], inputs: int, axis: str | None
) -> list[FleetDraws]:
    groups: dict[tuple[str, str], list[tuple[Case, Biller]]] = {}
    for case, biller in billers:
        others = {name: value for name, value in case.axes.items() if name != axis}
        groups.setdefault((case.fleet, repr(others)), []).append((case, biller))
    rates = np.array([world.get(RATE, 0.0) for world in worlds])
    totals = _totals(billers, worlds)
    found = []
    for members in groups.values():
        case = members[0][0]
        if axis is not None:
            members.sort(key=lambda member: float(member[0].axes[axis]))
        tables = [totals[id(biller)] for _, biller in members]
        if axis is not None:
            tables = [{name: values / table["hours"] for name, values in table.items()} for table in tables]
        known = np.array([float(case.axes[axis]) if axis is not None else 0.0 for case, _ in members])
        measures = _measures({name: _between(known, [table[name] for table in tables], rates) for name in tables[0]})
        parts = (slice(1), slice(1, 1 + inputs), slice(1 + inputs, 1 + 2 * inputs), slice(1 + 2 * inputs, None))
        central, low, high, draws = ({name: values[part] for name, values in measures.items()} for part in parts)
        others = {name: value for name, value in case.axes.items() if name != axis}
        found.append(
            FleetDraws(case.fleet, others, {name: float(value[0]) for name, value in central.items()}, draws, low, high)
        )
    return found


def _totals(billers: Sequence[tuple[Case, Biller]], worlds: Sequence[World]) -> dict[int, dict[str, Numbers]]:
    """What every biller's windows come to in every world, the first of which is the central one.

    Terms that several billers share are priced once.
    """
    kinds: list[list[Biller]] = []
    for _, biller in billers:
        kind = next((kind for kind in kinds if kind[0].same_terms(biller)), None)
        kinds.append([biller]) if kind is None else kind.append(biller)
    tables: dict[int, dict[str, Numbers]] = {}
    for kind in kinds:
        values = [kind[0].values(world) for world in worlds]
        priced = kind[0].priced(values[0])
        central = [biller.reading.amounts(priced) for biller in kind]
        rows: list[list[Amounts]] = [[] for _ in kind]
        for index, wanted in enumerate(values):
            if index and wanted != values[index - 1]:
                priced = kind[0].priced(wanted)
            for biller, base, row in zip(kind, central, rows, strict=True):
                row.append(biller.amounts(priced, base))
        for biller, row in zip(kind, rows, strict=True):
            tables[id(biller)] = _table(biller, row)
    return tables


def _table(biller: Biller, row: Sequence[Amounts]) -> dict[str, Numbers]:
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


def _between(known: Numbers, columns: Sequence[Numbers], rates: Numbers) -> Numbers:
    """In each world the straight line between the two of the *known* loads around its own."""
    if len(known) == 1:
        return columns[0]
    table = np.array(columns)
    left = np.clip(np.searchsorted(known, rates, side="right") - 1, 0, len(known) - 2)
    share = (rates - known[left]) / (known[left + 1] - known[left])
    worlds = np.arange(len(rates))
    return np.asarray((1 - share) * table[left, worlds] + share * table[left + 1, worlds])


def _measures(amounts: Mapping[str, Numbers]) -> dict[str, Numbers]:
    """What is printed about amounts over a number of hours."""
    millions = amounts["output_tokens"] / 1e6
    found = {MONTH: HOURS_PER_MONTH * (amounts["usd"] / amounts["hours"])}
    for name, amount in ((MILLION, "usd"), (API, "api_usd"), (CARBON, "kg_co2e")):
        if amount in amounts:
            with np.errstate(divide="ignore"):
                found[name] = amounts[amount] / millions
    return found


def cheapest(outcomes: Sequence[FleetDraws], measure: str = MILLION) -> dict[str, int]:
    """Fleet -> number of futures in which it alone is the cheapest; the rest are draws between equals."""
    table = np.array([one.draws[measure] for one in outcomes])
    least = table == table.min(axis=0)
    alone = least & (least.sum(axis=0) == 1)
    return {one.fleet: int(count) for one, count in zip(outcomes, alone.sum(axis=1), strict=True)}
