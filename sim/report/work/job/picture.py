"""The charts of a job: time and cost over the numbers of GPUs, else over the first axis, else fleet by fleet."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from sim.language import _
from sim.report.charts.panels import ChartCurve, Panel, style
from sim.report.page.page import Mark
from sim.report.words.money import in_code, money_mark, shown
from sim.report.words.text import axis_label, plain
from sim.study.work.job.columns import JobRow
from sim.units import HOURS_PER_DAY


class _Across(NamedTuple):
    """What charts run over."""

    label: str
    place: Callable[[JobRow], float]
    ticks: tuple[float, ...] = ()
    names: tuple[str, ...] = ()


def panels(rows: Sequence[JobRow]) -> list[Panel]:
    """Time and, where there is one, cost; none where nothing can be done."""
    able = [row for row in rows if row.ok]
    if not able:
        return []
    across, days = _across(able), max(row.cells["makespan_h"] for row in able) >= 3 * HOURS_PER_DAY
    hours = HOURS_PER_DAY if days else 1.0
    unit = _("days") if days else _("hours")
    found = [
        _panel(_("Time"), _("{unit} from the first step to the last, failures included", unit=unit),
               able, across, "time",
               lambda row: row.cells["makespan_h"] / hours, plain)
    ]  # fmt: skip
    priced = [row for row in able if row.cells.get("cost_usd") is not None]
    if priced:
        cost = in_code(_("USD for the whole job"))
        found.append(
            _panel(_("Cost"), cost, priced, across, "cost", lambda row: shown(row.cells["cost_usd"]), money_mark)
        )
    return found


def key(rows: Sequence[JobRow]) -> list[Mark]:
    """Colour and marker of every fleet."""
    looks = style(list(dict.fromkeys(row.fleet for row in rows)))
    return [Mark(name, *look) for name, look in looks.items()]


def _across(rows: Sequence[JobRow]) -> _Across:
    fleets = list(dict.fromkeys(row.fleet for row in rows))
    by_fleet = [{row.cells["gpus"] for row in rows if row.fleet == fleet} for fleet in fleets]
    if any(len(one) > 1 for one in by_fleet):
        return _Across("GPUs", lambda row: float(row.cells["gpus"]))
    axes: Mapping[str, Any] = rows[0].outcome.plan.axes
    for axis in axes:
        values = [row.outcome.plan.axes[axis] for row in rows]
        numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
        if numbers and len(set(values)) > 1:
            return _Across(axis_label(axis), lambda row, axis=axis: float(row.outcome.plan.axes[axis]))  # type: ignore[misc]
    ticks = tuple(float(i) for i in range(len(fleets)))
    return _Across("", lambda row: float(fleets.index(row.fleet)), ticks, tuple(fleets))


def _panel(
    title: str,
    subtitle: str,
    rows: Sequence[JobRow],
    across: _Across,
    kind: str,
    y: Callable[[JobRow], float],
    y_format: Callable[[float], str],
) -> Panel:
    looks = style(list(dict.fromkeys(row.fleet for row in rows)))
    curves = []
    for fleet, (color, marker) in looks.items():
        mine = sorted((row for row in rows if row.fleet == fleet), key=across.place)
        curves.append(
            ChartCurve(
                fleet,
                color,
                tuple(map(across.place, mine)),
                tuple(map(y, mine)),
                marker,
                good=(True,) * len(mine),
            )
        )
    return Panel(
        title,
        subtitle,
        across.label,
        tuple(curves),
        y_format=y_format,
        x_ticks=across.ticks,
        x_names=across.names,
        x_anchored=False,
        kind=kind,
    )
