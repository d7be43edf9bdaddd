"""Charts of a run: panels of cost, latency and attainment along the main axis of its sweep, and their picture."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sim.language import N_, _
from sim.report.charts.chart import Chart
from sim.report.charts.panels import DASHES, ChartCurve, Limit, Panel, scale_colors, style
from sim.report.charts.picture import SOFT, KeyEntry, picture
from sim.report.charts.vega_lite import panel_figures
from sim.report.words.money import in_code, money_mark, shown
from sim.report.words.service_level import exactly, percentiles_shown
from sim.report.words.text import axis_label, percent, places, plain, short
from sim.report.words.units import counted, noun
from sim.scenario.slo import Slo
from sim.study.metrics.columns import ENDS
from sim.study.metrics.window_requests import latencies_s
from sim.study.points import FleetLine, Point, Sweep, has_money, sweep_of

QUANTILES = 200


LATENCIES = {
    "ttft_s": (N_("time to first token"), 1.0, "s"),
    "tpot_s": (N_("time per output token"), 1e3, "ms"),
    "e2e_s": (N_("time to last token"), 1.0, "s"),
}


def dashes(sweep: Sweep) -> dict[str, str]:
    """Assign a line style, by name, to every setting of the further axes; empty where colours tell them apart."""
    return {} if scaled(sweep) else dict(zip(map(places, sweep.settings), DASHES, strict=False))


def scaled(sweep: Sweep) -> dict[str, str]:
    """Assign a colour of the scale to every setting of the further axes, where there are more than line styles.

    Fleets then differ by marker and line style.
    """
    if len(sweep.settings) <= len(DASHES):
        return {}
    return dict(zip(map(places, sweep.settings), scale_colors(len(sweep.settings)), strict=True))


MOST_IN_KEY = 6
"""Largest number of settings that the legend of a colour scale names."""


def scale_key(sweep: Sweep) -> dict[str, str]:
    """Return the settings that the legend of the colour scale names, evenly spread, with their colours."""
    colors = scaled(sweep)
    names, count = list(colors), min(MOST_IN_KEY, len(colors))
    chosen = [names[round(index * (len(names) - 1) / max(1, count - 1))] for index in range(count)]
    return {name: colors[name] for name in chosen}


def _look(sweep: Sweep, line: FleetLine) -> tuple[str, str, Any]:
    """Return colour, marker and line style of a curve."""
    color, marker = style(sweep.fleets)[line.fleet]
    setting = places(line.setting)
    if colors := scaled(sweep):
        looks = list(DASHES.values())
        return colors[setting], marker, looks[sweep.fleets.index(line.fleet) % len(looks)]
    return color, marker, DASHES[dashes(sweep)[setting]]


def panels_of(points: Sequence[Point], axes: Sequence[str], slo: Mapping[str, Any]) -> list[Panel]:
    """Return the charts of a run: distributions for a single point, else cost and latency along the main axis."""
    sweep = sweep_of(points, axes)
    if not sweep.lines:
        return []
    level, money = Slo.model_validate(slo), has_money(points)
    names = ["ttft_s", "tpot_s"] + (["e2e_s"] if level.e2e_s is not None else [])
    if noun():
        names = ["ttft_s"] if level.ttft_s is not None and level.e2e_s is None else ["e2e_s"]
    shown = [(name, part, limit_s) for name in names for part, limit_s in percentiles_shown(level, name).items()]
    if sweep.single:
        cost = [_cost_against_latency(sweep, *shown[0])] if money else []
        distributions = (_distribution(sweep, name, level) for name in names)
        return [*cost, *(panel for panel in distributions if panel.curves)]  # empty with `requests: none`
    across = [_cost_against_latency(sweep, *one) for one in shown] if money else []
    along = [_latency_along(sweep, *one) for one in shown]
    last = _cost_along(sweep) if money else _throughput_along(sweep)
    return [*across, last, *along, *([_attainment_along(sweep, level)] if level.per_request else _by_service(sweep))]


def in_words(panel: Panel) -> Panel:
    """Return *panel* with titles worded for the shown unit of work."""
    title, subtitle, x_label = map(counted, (panel.title, panel.subtitle, panel.x_label))
    return replace(panel, title=title, subtitle=subtitle, x_label=x_label)


def _curve(
    sweep: Sweep, line: FleetLine, x: Callable[[Point], float], y: Callable[[Point], float], **more: Any
) -> ChartCurve:
    color, marker, dash = _look(sweep, line)
    return ChartCurve(
        f"{line.fleet}, {places(line.setting)}" if line.setting else line.fleet,
        color,
        tuple(map(x, line.points)),
        tuple(map(y, line.points)),
        marker,
        dash,
        good=tuple(point.good for point in line.points),
        steady=tuple(not point.row["overloaded"] for point in line.points),
        fleet=line.fleet,
        keys=tuple(map(key_of, line.points)),
        **more,
    )


def key_of(point: Point) -> str:
    """Return the key of a point: its fleet and sweep values, the same in all charts of a page."""
    return "/".join([point.fleet, *(f"{axis}={short(value)}" for axis, value in point.axes.items())])


def _getter(column: str, scale: float = 1.0) -> Callable[[Point], float]:
    """Return a getter of *column*, scaled and in the shown currency; nan where the column is empty."""

    def get(point: Point) -> float:
        value = point.number(column)
        return float("nan") if value is None else scale * _in_unit(column, value)

    return get


def _bands(line: FleetLine, column: str, scale: float) -> dict[str, Any]:
    """Return the half-widths of the intervals of *column*; for a share, their ends."""
    ends = [[point.number(f"{column}_ci95_{end}") for end in ENDS] for point in line.points]
    if any(low is not None for low, _high in ends):
        return {"ends": tuple(None if low is None or high is None else (low, high) for low, high in ends)}
    return {"half": _halves(line, column, scale)}


def _halves(line: FleetLine, column: str, scale: float = 1.0) -> tuple[float | None, ...]:
    values = [point.number(f"{column}_ci95") for point in line.points]
    return tuple(None if value is None else scale * _in_unit(column, value) for value in values)


def _in_unit(column: str, value: float) -> float:
    """Convert *value* to the shown currency if *column* is money."""
    return shown(value) if "usd" in column else value


def _axis_panel(
    sweep: Sweep, title: str, subtitle: str, column: str, scale: float = 1.0, banded: bool = False, **more: Any
) -> Panel:
    """Build the chart of *column* along the main axis; *banded*: its subtitle explains the band."""
    curves = tuple(
        _curve(sweep, line, sweep.x, _getter(column, scale), **_bands(line, column, scale)) for line in sweep.lines
    )
    names = () if sweep.numeric else tuple(map(str, sweep.values))
    ticks = tuple(map(float, sweep.values)) if sweep.numeric else tuple(map(float, range(len(sweep.values))))
    panel = Panel(
        title,
        subtitle,
        axis_label(sweep.axis),
        curves,
        x_ticks=ticks,
        x_names=names,
        x_anchored=False,
        labelled=not scaled(sweep),
        **more,
    )
    return replace(panel, subtitle=subtitle + _("; band: 95 % interval")) if banded and panel.shows_bands else panel


def _limit(name: str, limit_s: float | None, part: str = "") -> Limit | None:
    """Return the line of the service level; *part* names the percentile where the chart does not."""
    if limit_s is None:
        return None
    scale, unit = LATENCIES[name][1:]
    return Limit(scale * limit_s, f"SLO {f'{part} ' if part else ''}{plain(scale * limit_s)} {unit}")


def _latency_along(sweep: Sweep, name: str, part: str, limit_s: float | None) -> Panel:
    words, scale, unit = _(LATENCIES[name][0]), *LATENCIES[name][1:]
    limit = _limit(name, limit_s)
    entries: dict[str, Any] = {"y_limit": limit, "kind": "latency_vs_load", "banded": _has_replications(sweep)}
    entries["y_label"] = f"{part} {words} [{unit}]"
    return _axis_panel(sweep, words.capitalize(), f"{part} [{unit}]", f"{name}_{part}", scale, **entries)


def _cost_along(sweep: Sweep) -> Panel:
    return _axis_panel(
        sweep,
        _("Cost per token"),
        in_code(_("USD per million output tokens")),
        "usd_per_million_output_tokens",
        banded=_has_replications(sweep),
        y_format=money_mark,
        y_label=in_code(_("USD per million output tokens")),
        kind="cost_vs_load",
    )


def _throughput_along(sweep: Sweep) -> Panel:
    return _axis_panel(
        sweep,
        _("Throughput"),
        _("output tokens per second"),
        "output_tokens_per_s",
        y_label=_("output tokens per second"),
        kind="throughput_vs_load",
    )


def _by_service(sweep: Sweep) -> Iterator[Panel]:
    """Yield a chart of requests within the SLO for each service; none where fleets have a single service."""
    some = sweep.lines[0].points[0]
    for name in some.services:
        slo = Slo.model_validate(some.cases[0].metrics.services[name]["slo"])
        if slo.per_request:
            lines = (replace(line, points=tuple(_of_service(p, name) for p in line.points)) for line in sweep.lines)
            title = _("{service}: requests within the SLO", service=name)
            yield _attainment_along(replace(sweep, lines=tuple(lines)), slo, title)


def _of_service(point: Point, name: str) -> Point:
    return replace(point, row=point.services[name], services={})


def _attainment_along(sweep: Sweep, slo: Slo, title: str = "") -> Panel:
    limit = Limit(slo.attainment, _("target {exactly}", exactly=exactly(slo.attainment)))
    subtitle = _("share of all requests; filled points reach the target")
    title = title or _("Requests within the SLO")
    more: dict[str, Any] = {"y_limit": limit, "y_format": percent, "y_share": True}
    return _axis_panel(sweep, title, subtitle, "slo_attainment", kind="attainment_vs_load", **more)


def _cost_against_latency(sweep: Sweep, name: str, part: str, limit_s: float | None) -> Panel:
    words, scale, unit = _(LATENCIES[name][0]), *LATENCIES[name][1:]
    cost = "usd_per_million_output_tokens"
    curves = tuple(
        _curve(
            sweep,
            line,
            _getter(f"{name}_{part}", scale),
            _getter(cost),
            tags=() if scaled(sweep) else _places(sweep, line),
        )
        for line in sweep.lines
        if any(point.number(cost) is not None for point in line.points)
    )
    subtitle = in_code(_("USD per million output tokens; lower left is better"))
    numbers = "" if sweep.single else _("; numbers: {axis_label}", axis_label=axis_label(sweep.axis))
    title, label = _("Cost against {words}", words=words), f"{part} {words} [{unit}]{numbers}"
    limit = _limit(name, limit_s)
    more: dict[str, Any] = {"labelled": not scaled(sweep), "kind": "cost_vs_latency"}
    more["y_label"] = in_code(_("USD per million output tokens"))
    return Panel(title, subtitle, label, curves, y_format=money_mark, x_limit=limit, **more)


def _places(sweep: Sweep, line: FleetLine) -> tuple[str, ...]:
    return () if sweep.single else tuple(short(sweep.value(point)) for point in line.points)


def _has_replications(sweep: Sweep) -> bool:
    return any(point.row["replications"] > 1 for line in sweep.lines for point in line.points)


def _distribution(sweep: Sweep, name: str, slo: Slo) -> Panel:
    """Build the distribution of a latency: share of requests answered within a time, over all replications.

    The limit of a percentile is a pair of lines; a curve meets it if it passes left of their crossing.
    """
    words, scale, unit = _(LATENCIES[name][0]), *LATENCIES[name][1:]
    shares = np.linspace(0.0, 1.0, QUANTILES)
    curves = []
    for line in sweep.lines:
        times = np.concatenate([latencies_s(case.requests(), name) for case in line.points[0].cases])
        if len(times):
            color = style(sweep.fleets)[line.fleet][0]
            ends = np.isfinite(times).mean()
            values = scale * np.quantile(times, shares[shares <= ends], method="inverted_cdf")
            curves.append(
                ChartCurve(line.fleet, color, (*values.tolist(), np.inf), (*shares[shares <= ends].tolist(), ends))
            )
    named = [one for one in slo.percentiles if one.latency == name]
    strictest = max(named, key=lambda one: one.percent, default=None)
    limit = _limit(name, slo.per_request.get(name))
    share = None
    if strictest is not None:
        limit = _limit(name, strictest.limit_s, f"p{strictest.percent:g}")
        share = Limit(strictest.percent / 100, f"p{strictest.percent:g}")
    subtitle = _("share of requests within this time")
    return Panel(
        words.capitalize(), subtitle, f"{words} [{unit}]", tuple(curves), y_format=percent, x_limit=limit,
        y_limit=share, y_share=True, kind="latency_distribution", y_label=_("share of requests"),
    )  # fmt: skip


def curves(panels: Sequence[Panel], sweep: Sweep, question: str, answer: str, note: str = "") -> Chart:
    """Draw the *panels* of a run under the *question*, the *answer* and a *note* on the charts."""
    key = [
        KeyEntry(name, SOFT if scaled(sweep) else color, marker)
        for name, (color, marker) in style(sweep.fleets).items()
    ]
    key += [KeyEntry(name, color, dash="-", stands_for=False) for name, color in scale_key(sweep).items()]
    key.append(KeyEntry(_("misses the SLO or does not keep up"), SOFT, "o", stands_for=False))
    key.append(KeyEntry(_("off the chart"), SOFT, "^", stands_for=False))
    if len(sweep.settings) > 1:
        key += [KeyEntry(name, SOFT, dash=DASHES[look], stands_for=False) for name, look in dashes(sweep).items()]
    return picture(panel_figures(panels), question, [answer], key, note)
