"""Comparison of two finished runs: changed inputs, and differences at the points that both have."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim.catalogue.catalog import Catalog
from sim.message import Message
from sim.scenario.reading.errors import InputError, ScenarioErrors
from sim.scenario.reading.load import load
from sim.scenario.schema import Scenario
from sim.scenario.sweep import as_data, axes
from sim.study.comparison import Difference, between
from sim.study.execution.cases import limits
from sim.study.execution.durable import POINTS
from sim.study.execution.precision import key_of, with_further
from sim.study.execution.store import load_case
from sim.study.points import Point, summarize
from sim.study.reprice import SCENARIO_FILE

COMPARED = ("slo_attainment", "ttft_s_p95", "tpot_s_p95", "output_tokens_per_s", "facility_power_w_mean",
            "usd_per_million_output_tokens")  # fmt: skip
"""Columns of summary.csv that are compared."""
NAMES = ("name", "question")


@dataclass(frozen=True, slots=True)
class StoredRun:
    """Finished run read from its folder."""

    folder: Path
    scenario: Scenario
    points: list[Point]
    catalog: Catalog

    @classmethod
    def read(cls, folder: Path, catalog: Catalog) -> "StoredRun":
        """Return the run in *folder*, written by any version.

        Raises
        ------
        ScenarioErrors
            Where the folder cannot be read, or holds the answer of a command that simulates no sweep.

        """
        file = folder / SCENARIO_FILE
        if not file.is_file():
            raise ScenarioErrors(
                [InputError(str(folder), 0, "", Message("is not a finished run: it has no {file}", SCENARIO_FILE))]
            )
        scenario = load(file, catalog=catalog)
        stored = [one for path in (folder / POINTS).glob("[!.]*") if (one := load_case(path)) is not None]
        by_key = {key_of(one): one for one in stored}
        cases = [by_key[key_of(case)] for case in with_further(scenario, by_key) if key_of(case) in by_key]
        if not cases:
            text = "holds no simulation of its sweep: only answers of run and price are compared"
            raise ScenarioErrors([InputError(str(folder), 0, "", text)])
        return cls(folder, scenario, summarize(cases, axes(scenario), limits(scenario)), catalog)


@dataclass(frozen=True, slots=True)
class InputChange:
    """Input that differs between two runs."""

    path: str
    before: Any
    """Value in the first run; None where it was not given."""
    after: Any


@dataclass(frozen=True, slots=True)
class RunDifferences:
    """Differences from the first run to the second."""

    changes: list[InputChange]
    differences: list[Difference]
    """Differences (first run minus second, replications paired) at each fleet and point that both runs have."""
    alone: tuple[list[Point], list[Point]]
    """Points that only the first run has, and points that only the second run has."""


def matched(first: StoredRun, second: StoredRun) -> list[tuple[Point, Point]]:
    """Return the points that both runs have: fleets matched by name, points by their place in the sweep."""
    places = {_place(point): point for point in second.points}
    return [(point, places[_place(point)]) for point in first.points if _place(point) in places]


def compare(first: StoredRun, second: StoredRun) -> RunDifferences:
    """Return all differences, fleets matched by name and points by their place in the sweep."""
    both = matched(first, second)
    judged = any(point.row["meets_slo"] is not None for pair in both for point in pair)
    metrics = [one for one in COMPARED if judged or one != "slo_attainment"]  # without an SLO no request is within it
    found = [one for before, after in both if before.ok and after.ok for one in between(before, after, metrics)]
    shared = {id(point) for pair in both for point in pair}
    alone = [[point for point in run.points if id(point) not in shared] for run in (first, second)]
    return RunDifferences(list(changes(first.scenario, second.scenario)), found, (alone[0], alone[1]))


def changes(first: Scenario, second: Scenario) -> Iterator[InputChange]:
    """Yield the inputs that differ, with fleets and pools matched by name."""
    before, after = (dict(_leaves(_by_name(as_data(one)))) for one in (first, second))
    for path in dict.fromkeys((*before, *after)):
        if before.get(path) != after.get(path) and path not in NAMES:
            yield InputChange(path, before.get(path), after.get(path))


def _by_name(data: dict[str, Any]) -> dict[str, Any]:
    fleets = {fleet["name"]: {k: v for k, v in fleet.items() if k != "name"} for fleet in data.get("fleets", ())}
    return data | {"fleets": fleets}


def _leaves(data: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    items: Sequence[tuple[Any, Any]] = ()
    if isinstance(data, Mapping):
        items = list(data.items())
    elif isinstance(data, list | tuple) and any(isinstance(one, dict) for one in data):
        items = list(enumerate(data))
    for step, value in items:
        yield from _leaves(value, f"{path}.{step}" if path else str(step))
    if not items and path:
        yield path, list(data) if isinstance(data, tuple) else data


def _place(point: Point) -> tuple[str, str]:
    return point.fleet, repr(sorted(point.axes.items(), key=lambda item: str(item[0])))
