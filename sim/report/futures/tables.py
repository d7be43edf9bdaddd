"""The tables of the futures: futures.csv, draws.csv, tornado.csv, and those of report.html."""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sim.report.futures.sentences import Setting, exact, label, settings_of, shown_settings
from sim.report.page.money import cash, in_code, twinned
from sim.report.page.text import plain
from sim.report.run.tables import cell
from sim.scenario.reading.distribution import CENTRAL
from sim.scenario.schema import Scenario
from sim.study.futures.draws import API, CARBON, MILLION, MONTH, FleetDraws, FutureStudy, cheapest
from sim.study.futures.inputs import HIGH, LOW, UncertainInput, inputs_of
from sim.study.metrics.statistics import wilson
from sim.study.run.point import Point

PERCENTILES = (5, 10, 25, 50, 75, 90, 95)
MEASURES = (MONTH, MILLION, API, CARBON)


def write_futures(out: Path, study: FutureStudy, axes: Sequence[str]) -> None:
    """Writes futures.csv (a row per fleet and point: quantiles), draws.csv (a row per future and point) and
    tornado.csv (a row per fleet or difference, point and input).
    """
    settings = settings_of(study)
    shown = [axis for axis in axes if any(axis in one.axes for one in settings)]
    _write(out / "futures.csv", [_quantiles(study, setting, one) for setting, one in _each(settings)], shown)
    _write(out / "draws.csv", (row for setting in settings for row in _draws(study, setting)), shown)
    _write(out / "tornado.csv", (row for setting in settings for row in _tornado(study, setting)), shown)


def _each(settings: Sequence[Setting]) -> Iterator[tuple[Setting, FleetDraws]]:
    return ((setting, one) for setting in settings for one in setting.outcomes)


def _write(path: Path, rows: Any, axes: Sequence[str]) -> None:
    """Rows whose first column is followed by the axes; a column that only later rows have is empty before."""
    listed = [twinned(row) for row in rows]
    names = list(dict.fromkeys(name for row in listed for name in row if name != "axes"))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(map(cell, [names[0], *axes, *names[1:]]))
        for row in listed:
            places = [cell(row["axes"].get(axis)) for axis in axes]
            writer.writerow([cell(row[names[0]]), *places, *(cell(row.get(name)) for name in names[1:])])


def _quantiles(study: FutureStudy, setting: Setting, one: FleetDraws) -> dict[str, Any]:
    wins = cheapest(setting.outcomes)[one.fleet]
    low, high = wilson(wins, study.draws)
    row: dict[str, Any] = {"fleet": one.fleet, "axes": setting.axes, "draws": study.draws}
    row |= {"cheapest_share": wins / study.draws, "cheapest_share_low95": low, "cheapest_share_high95": high}
    for name in MEASURES:
        if name in one.draws:
            values = one.draws[name]
            row |= {f"{name}_central": one.central[name], f"{name}_mean": float(values.mean())}
            row[f"{name}_sd"] = float(values.std()) if np.isfinite(values).all() else None
            found = np.quantile(values, [percentile / 100 for percentile in PERCENTILES])
            row |= {f"{name}_p{p}": float(value) for p, value in zip(PERCENTILES, found, strict=True)}
    return row


def _draws(study: FutureStudy, setting: Setting) -> Iterator[dict[str, Any]]:
    inputs = {
        path: study.drawn[place].tolist()
        for one in study.inputs
        for path, place in zip(one.paths, one.places, strict=True)
    }
    costs = {
        f"{one.fleet} {name}": one.draws[name].tolist()
        for one in setting.outcomes
        for name in MEASURES
        if name in one.draws
    }
    columns = inputs | costs
    for draw in range(study.draws):
        yield {"draw": draw, "axes": setting.axes, **{name: values[draw] for name, values in columns.items()}}


def _tornado(study: FutureStudy, setting: Setting) -> Iterator[dict[str, Any]]:
    pairs: list[tuple[str, FleetDraws, FleetDraws | None]] = [(one.fleet, one, None) for one in setting.outcomes]
    if setting.first_two is not None:
        first, second = setting.first_two
        pairs.insert(0, (f"{second.fleet} less {first.fleet}", second, first))
    for name, one, less in pairs:
        for index, each in enumerate(study.inputs):
            yield {"of": name, "axes": setting.axes, **_ends(each), **_moved(index, one, less)}


def _ends(each: UncertainInput) -> dict[str, Any]:
    """The values that the input is moved between; of the first of its places."""
    low, high = (next(iter(world.values())) for world in each.at(LOW, HIGH))
    central = each.members[0].distribution.central
    return {"input": each.name, "input_low": low, "input_central": central, "input_high": high}


def _moved(index: int, one: FleetDraws, less: FleetDraws | None) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name in (MILLION, MONTH):
        for part, table in (("at_low", one.low), ("at_high", one.high)):
            taken = 0.0 if less is None else float((less.low if part == "at_low" else less.high)[name][index])
            row[f"{name}_{part}"] = float(table[name][index]) - taken
        row[f"{name}_central"] = one.central[name] - (0.0 if less is None else less.central[name])
    return row


def futures_table(study: FutureStudy, points: Sequence[Point], axes: Sequence[str]) -> dict[str, Any]:
    """Costs at the settings that the report speaks of: heads and rows of (fleet, where, cells)."""
    heads = [
        "cheapest in",
        in_code("USD a month, 10 %"),
        "median",
        "90 %",
        "per million output tokens, 10 %",
        "median",
        "90 %",
    ]
    rows = []
    for setting in shown_settings(study, points, axes):
        wins = cheapest(setting.outcomes)
        for one in setting.outcomes:
            amounts = [float(v) for name in (MONTH, MILLION) for v in np.quantile(one.draws[name], (LOW, 0.5, HIGH))]
            share = exact(wins[one.fleet] / study.draws) if len(wins) > 1 else ""
            rows.append((one.fleet, setting.where.removeprefix(" at "), [share, *map(cash, amounts)]))
    return {"heads": heads, "rows": rows}


def inputs_told(scenario: Scenario) -> Iterator[str]:
    """What a run would draw, a line each; nothing where nothing is uncertain."""
    rows = inputs_table(inputs_of(scenario))
    if scenario.futures is not None and rows:
        yield f"{scenario.futures.draws:,} Monte Carlo draws of these inputs; all else uses the central values:"
    for path, (family, low, central, high), why in rows:
        yield f"  {path}: {central}, {family}, 10 % below {low}, 10 % above {high}{f'; {why}' if why else ''}"


def inputs_table(inputs: Sequence[UncertainInput]) -> list[tuple[str, list[str], str]]:
    """What is drawn: (path, [family, 10 %, central, 90 %], why, and where it stands)."""
    rows = []
    for each in inputs:
        for path, one in zip(each.paths, each.members, strict=True):
            low, high = one.quantiles(LOW, HIGH)
            central = f"{plain(one.distribution.central)} ({CENTRAL[one.family]})"
            name = path if len(each.paths) == 1 else f"{path} (with {label(each)})"
            why = "; ".join(part for part in (one.note, one.stated) if part)
            rows.append((name, [one.family, plain(low), central, plain(high)], why))
    return rows
