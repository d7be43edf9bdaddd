"""The tables of the futures: futures.csv, draws.csv, tornado.csv, and those of report.html."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sim.csvio import write_csv
from sim.language import _
from sim.report.fleets.futures.sentences import exact, label, shown_settings, where
from sim.report.words.money import cash, in_code, twinned
from sim.report.words.text import plain
from sim.scenario.reading.distribution import CENTRAL
from sim.scenario.schema import Scenario
from sim.study.fleets.futures.draws import API, CARBON, MILLION, MONTH, FleetDraws, FutureStudy, cheapest
from sim.study.fleets.futures.inputs import HIGH, LOW, UncertainInput, inputs_of
from sim.study.fleets.futures.settings import Setting, cheapest_share, settings_of, spread_of, turned
from sim.study.fleets.run.point import Point

PERCENTILES = (5, 10, 25, 50, 75, 90, 95)
Row = dict[str, Any]
"""Column -> value, and the axes of the sweep under `axes`."""
MEASURES = (MONTH, MILLION, API, CARBON)


def write_futures(out: Path, study: FutureStudy, axes: Sequence[str]) -> None:
    """Writes futures.csv (a row per fleet and point: quantiles), draws.csv (a row per future and point) and
    tornado.csv (a row per fleet or difference, point and input).
    """
    settings = settings_of(study)
    shown = [axis for axis in axes if any(axis in one.axes for one in settings)]
    _write(
        out / "futures.csv", [_quantiles(study, setting, one) for setting, one in _each(settings, study.models)], shown
    )
    _write(out / "draws.csv", (row for setting in settings for row in _draws(study, setting)), shown)
    _write(out / "tornado.csv", (row for setting in settings for row in _tornado(study, setting)), shown)


def _each(settings: Sequence[Setting], models: Mapping[str, str]) -> Iterator[tuple[Setting, FleetDraws]]:
    return ((own, one) for setting in settings for own in setting.apart(models) for one in own.outcomes)


def _write(path: Path, rows: Any, axes: Sequence[str]) -> None:
    """Rows whose first column is followed by the axes; a column that only later rows have is empty before."""
    listed = [twinned(row) for row in rows]
    names = list(dict.fromkeys(name for row in listed for name in row if name != "axes"))
    lines = (
        [row[names[0]], *(row["axes"].get(axis) for axis in axes), *(row.get(name) for name in names[1:])]
        for row in listed
    )
    write_csv(path, [names[0], *axes, *names[1:]], lines)


def _quantiles(study: FutureStudy, setting: Setting, one: FleetDraws) -> Row:
    share = cheapest_share(setting, one.fleet, study.draws)
    row: Row = {"fleet": one.fleet, "axes": setting.axes, "draws": study.draws}
    row |= {"cheapest_share": share.value, "cheapest_share_low95": share.low, "cheapest_share_high95": share.high}
    for name in MEASURES:
        if name in one.draws:
            spread = spread_of(one, name, [percentile / 100 for percentile in PERCENTILES])
            row |= {f"{name}_central": spread.central, f"{name}_mean": spread.mean, f"{name}_sd": spread.sd}
            row |= {f"{name}_p{p}": value for p, value in zip(PERCENTILES, spread.quantiles, strict=True)}
    return row


def _draws(study: FutureStudy, setting: Setting) -> Iterator[Row]:
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


def _tornado(study: FutureStudy, setting: Setting) -> Iterator[Row]:
    for one in turned(study, setting, (MILLION, MONTH)):
        row: Row = {"of": one.of, "axes": setting.axes, **_ends(one.input)}
        for name, ends in one.measures.items():
            row |= {f"{name}_at_low": ends.low, f"{name}_at_high": ends.high, f"{name}_central": ends.central}
        yield row


def _ends(each: UncertainInput) -> Row:
    """The values that the input is moved between; of the first of its places."""
    low, high = (next(iter(world.values())) for world in each.at(LOW, HIGH))
    central = each.members[0].distribution.central
    return {"input": each.name, "input_low": low, "input_central": central, "input_high": high}


def futures_table(study: FutureStudy, points: Sequence[Point], axes: Sequence[str]) -> dict[str, Any]:
    """Costs at the settings that the report speaks of: heads and rows of (fleet, where, cells)."""
    heads = [
        _("cheapest in"),
        in_code(_("USD a month, 10 %")),
        _("median"),
        "90 %",
        _("per million output tokens, 10 %"),
        _("median"),
        "90 %",
    ]
    rows = []
    for setting in [own for one in shown_settings(study, points, axes) for own in one.apart(study.models)]:
        wins = cheapest(setting.outcomes)
        for one in setting.outcomes:
            amounts = [float(v) for name in (MONTH, MILLION) for v in np.quantile(one.draws[name], (LOW, 0.5, HIGH))]
            share = exact(wins[one.fleet] / study.draws) if len(wins) > 1 else ""
            rows.append((one.fleet, where(setting.axes).removeprefix(" at "), [share, *map(cash, amounts)]))
    return {"heads": heads, "rows": rows}


def inputs_told(scenario: Scenario) -> Iterator[str]:
    """What a run would draw, a line each; nothing where nothing is uncertain."""
    rows = inputs_table(inputs_of(scenario))
    if scenario.futures is not None and rows:
        yield _(
            "{draws:,} Monte Carlo draws of these inputs; all else uses the central values:",
            draws=scenario.futures.draws,
        )
    for path, (family, low, central, high), why in rows:
        yield _(
            "  {path}: {central}, {family}, 10 % below {low}, 10 % above {high}{why}",
            path=path,
            central=central,
            family=family,
            low=low,
            high=high,
            why=f"; {why}" if why else "",
        )


def inputs_table(inputs: Sequence[UncertainInput]) -> list[tuple[str, list[str], str]]:
    """What is drawn: (path, [family, 10 %, central, 90 %], why, and where it stands)."""
    rows = []
    for each in inputs:
        for path, one in zip(each.paths, each.members, strict=True):
            low, high = one.quantiles(LOW, HIGH)
            central = f"{plain(one.distribution.central)} ({CENTRAL[one.family]})"
            name = path if len(each.paths) == 1 else _("{path} (with {label})", path=path, label=label(each))
            why = "; ".join(part for part in (one.note, one.stated) if part)
            rows.append((name, [one.family, plain(low), central, plain(high)], why))
    return rows
