"""Which charts a run gets, as plain data: titles, curves, limits. Drawing is in draw.py."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

import numpy as np

from sim.language import N_, _
from sim.report.words.money import in_code, money_mark, shown
from sim.report.words.service_level import exactly, percentiles_shown
from sim.report.words.text import axis_label, percent, places, plain, short
from sim.report.words.units import counted, noun
from sim.scenario.slo import Slo
from sim.study.metrics.cohort import latencies_s
from sim.study.metrics.columns import ENDS
from sim.study.points import Line, Point, Sweep, has_money, sweep_of

COLORS = ["#0072B2", "#D55E00", "#009E73", "#CE6BA3", "#6F5A00", "#1A94FE", "#000000"]
"""After Okabe and Ito, Color Universal Design (2008): distinct with every common colour blindness; pink, orange and sky
blue are darker, so that each has 3:1 against white.
"""
MARKERS = ["o", "s", "^", "D", "v", "P", "X"]
GLYPHS = {"o": "●", "s": "■", "^": "▲", "D": "◆", "v": "▼", "P": "✚", "X": "✖"}
"""The markers as characters."""
DASHES: dict[str, Any] = {
    "solid": "-",
    "dashed": (0, (5, 2)),
    "dash-dotted": (0, (7, 2, 2, 2)),
    "fine dashes": (0, (2, 2)),
}
"""Line styles of the settings of further axes."""
QUANTILES = 200
LATENCIES = {
    "ttft_s": (N_("time to first token"), 1.0, "s"),
    "tpot_s": (N_("time per output token"), 1e3, "ms"),
    "e2e_s": (N_("time to last token"), 1.0, "s"),
}


@dataclass(frozen=True, slots=True)
class ChartCurve:
    """One line of a chart; an infinite place is off the chart and shown at its edge."""

    name: str
    color: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    marker: str = ""
    """Empty: a line without points."""
    dash: Any = "-"
    half: tuple[float | None, ...] = ()
    """Half-width of the 95 % interval of y."""
    ends: tuple[tuple[float, float] | None, ...] = ()
    """Ends of the intervals that y is not the middle of (shares), in place of half-widths."""
    filled: bool = False
    """The area below it is shaded."""
    good: tuple[bool, ...] = ()
    """Points that meet the SLO are filled, the others hollow."""
    steady: tuple[bool, ...] = ()
    """Points that are not overloaded: they set the range of the chart."""
    tags: tuple[str, ...] = ()
    """Text beside each point."""
    fleet: str = ""
    """What is shown alone when it is picked; empty: the curve itself."""
    keys: tuple[str, ...] = ()
    """What each point is a figure of: points of several charts with the same key are one."""
    names: tuple[str, ...] = ()
    """What each point is called, where its curve has no name for all."""
    marks: tuple[str, ...] = ()
    """How near each point is to what was measured (`sim.study.confidence`); empty where that is not known."""

    @property
    def bands(self) -> list[tuple[float, float] | None]:
        """Ends of the 95 % interval at each point, None where there is none to draw; empty for a curve without any."""
        if self.ends:
            return list(self.ends)
        if not any(self.half):
            return []
        spans = zip(self.y, self.half, strict=True)
        return [(y - half, y + half) if half is not None and isfinite(half) else None for y, half in spans]


@dataclass(frozen=True, slots=True)
class Limit:
    """A line across the chart."""

    at: float
    text: str
    forbids: bool = True
    """What lies right of an upright one misses it, and is shaded."""


@dataclass(frozen=True, slots=True)
class Span:
    """A value of x that stands for a whole fleet, with its interval."""

    at: float
    half: float
    """Half-width of the 95 % interval; 0 without one."""
    text: str
    color: str
    fleet: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart."""

    title: str
    subtitle: str
    x_label: str
    curves: tuple[ChartCurve, ...]
    x_format: Callable[[float], str] = plain
    y_format: Callable[[float], str] = plain
    x_limit: Limit | None = None
    y_limit: Limit | None = None
    spans: tuple[Span, ...] = ()
    x_ticks: tuple[float, ...] = ()
    """Where the axis is marked; empty: at round numbers."""
    x_names: tuple[str, ...] = ()
    """What stands at x_ticks; empty: the numbers."""
    y_share: bool = False
    """y runs from 0 to 1."""
    x_linear: bool = False
    """x runs evenly, however far."""
    y_linear: bool = False
    """y runs from zero, however far."""
    x_anchored: bool = True
    """A linear x axis begins at zero."""
    kind: str = ""
    """What Python calls it: `run.plot("cost_vs_latency")` draws all panels of that kind."""


def style(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Colour and marker of every fleet; beyond seven fleets colours come back with other markers."""
    kinds = len(COLORS)
    return {name: (COLORS[i % kinds], MARKERS[(i + i // kinds) % kinds]) for i, name in enumerate(names)}


def dashes(sweep: Sweep) -> dict[str, str]:
    """Name of the line style of every setting."""
    names = list(DASHES)
    return {places(setting): names[i % len(names)] for i, setting in enumerate(sweep.settings)}


def panels_of(points: Sequence[Point], axes: Sequence[str], slo: Mapping[str, Any]) -> list[Panel]:
    """The charts of a run: distributions for a single point, else cost and latency over the main axis."""
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
        return [*cost, *(panel for panel in distributions if panel.curves)]  # requests: none leaves nothing to show
    across = [_cost_against_latency(sweep, *one) for one in shown] if money else []
    along = [_latency_along(sweep, *one) for one in shown]
    last = _cost_along(sweep) if money else _throughput_along(sweep)
    return [*across, last, *along, *([_attainment_along(sweep, level)] if level.per_request else _by_service(sweep))]


def in_words(panel: Panel) -> Panel:
    """*panel* with what services are counted in."""
    title, subtitle, x_label = map(counted, (panel.title, panel.subtitle, panel.x_label))
    return replace(panel, title=title, subtitle=subtitle, x_label=x_label)


def _curve(
    sweep: Sweep, line: Line, x: Callable[[Point], float], y: Callable[[Point], float], **more: Any
) -> ChartCurve:
    color, marker = style(sweep.fleets)[line.fleet]
    return ChartCurve(
        f"{line.fleet}, {places(line.setting)}" if line.setting else line.fleet,
        color,
        tuple(map(x, line.points)),
        tuple(map(y, line.points)),
        marker,
        DASHES[dashes(sweep)[places(line.setting)]],
        good=tuple(point.good for point in line.points),
        steady=tuple(not point.row["overloaded"] for point in line.points),
        fleet=line.fleet,
        keys=tuple(map(key_of, line.points)),
        **more,
    )


def key_of(point: Point) -> str:
    """A fleet at a place of the sweep: the same in all charts of a page."""
    return "/".join([point.fleet, *(f"{axis}={short(value)}" for axis, value in point.axes.items())])


def _getter(column: str, scale: float = 1.0) -> Callable[[Point], float]:
    """The column, scaled; nan where it is empty."""

    def get(point: Point) -> float:
        value = point.number(column)
        return float("nan") if value is None else scale * _in_unit(column, value)

    return get


def _bands(line: Line, column: str, scale: float) -> dict[str, Any]:
    """Half-widths of the intervals of *column*; of a share their ends."""
    ends = [[point.number(f"{column}_ci95_{end}") for end in ENDS] for point in line.points]
    if any(low is not None for low, _high in ends):
        return {"ends": tuple(None if low is None or high is None else (low, high) for low, high in ends)}
    return {"half": _halves(line, column, scale)}


def _halves(line: Line, column: str, scale: float = 1.0) -> tuple[float | None, ...]:
    values = [point.number(f"{column}_ci95") for point in line.points]
    return tuple(None if value is None else scale * _in_unit(column, value) for value in values)


def _in_unit(column: str, value: float) -> float:
    """Money in the shown currency, all else as it is."""
    return shown(value) if "usd" in column else value


def _along(sweep: Sweep, title: str, subtitle: str, column: str, scale: float = 1.0, **more: Any) -> Panel:
    curves = tuple(
        _curve(sweep, line, sweep.x, _getter(column, scale), **_bands(line, column, scale)) for line in sweep.lines
    )
    names = () if sweep.numeric else tuple(map(str, sweep.values))
    ticks = tuple(map(float, sweep.values)) if sweep.numeric else tuple(map(float, range(len(sweep.values))))
    return Panel(
        title, subtitle, axis_label(sweep.axis), curves, x_ticks=ticks, x_names=names, x_anchored=False, **more
    )


def _limit(name: str, limit_s: float | None, part: str = "") -> Limit | None:
    """The line of the service level; *part* names the percentile where the chart does not."""
    if limit_s is None:
        return None
    scale, unit = LATENCIES[name][1:]
    return Limit(scale * limit_s, f"SLO {f'{part} ' if part else ''}{plain(scale * limit_s)} {unit}")


def _latency_along(sweep: Sweep, name: str, part: str, limit_s: float | None) -> Panel:
    words, scale, unit = _(LATENCIES[name][0]), *LATENCIES[name][1:]
    limit = _limit(name, limit_s)
    band = _("; band: 95 % interval") if _repeated(sweep) else ""
    told: dict[str, Any] = {"y_limit": limit, "kind": "latency_vs_load"}
    return _along(sweep, words.capitalize(), f"{part} [{unit}]{band}", f"{name}_{part}", scale, **told)


def _cost_along(sweep: Sweep) -> Panel:
    return _along(
        sweep,
        _("Cost per token"),
        in_code(_("USD per million output tokens")),
        "usd_per_million_output_tokens",
        y_format=money_mark,
        kind="cost_vs_load",
    )


def _throughput_along(sweep: Sweep) -> Panel:
    return _along(
        sweep, _("Throughput"), _("output tokens per second"), "output_tokens_per_s", kind="throughput_vs_load"
    )


def _by_service(sweep: Sweep) -> Iterator[Panel]:
    """How many requests of each service are within its own limits; none where fleets have a single service."""
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
    return _along(sweep, title, subtitle, "slo_attainment", kind="attainment_vs_load", **more)


def _cost_against_latency(sweep: Sweep, name: str, part: str, limit_s: float | None) -> Panel:
    words, scale, unit = _(LATENCIES[name][0]), *LATENCIES[name][1:]
    cost = "usd_per_million_output_tokens"
    curves = tuple(
        _curve(
            sweep,
            line,
            _getter(f"{name}_{part}", scale),
            _getter(cost),
            tags=_places(sweep, line),
        )
        for line in sweep.lines
        if any(point.number(cost) is not None for point in line.points)
    )
    subtitle = in_code(_("USD per million output tokens; lower left is better"))
    numbers = "" if sweep.single else _("; numbers: {axis_label}", axis_label=axis_label(sweep.axis))
    title, label = _("Cost against {words}", words=words), f"{part} {words} [{unit}]{numbers}"
    limit = _limit(name, limit_s)
    return Panel(title, subtitle, label, curves, y_format=money_mark, x_limit=limit, kind="cost_vs_latency")


def _places(sweep: Sweep, line: Line) -> tuple[str, ...]:
    return () if sweep.single else tuple(short(sweep.value(point)) for point in line.points)


def _repeated(sweep: Sweep) -> bool:
    return any(point.row["replications"] > 1 for line in sweep.lines for point in line.points)


def _distribution(sweep: Sweep, name: str, slo: Slo) -> Panel:
    """Share of requests answered within a time, all replications together; where the two lines of a percentile's limit
    cross, the curves must be on the left of.
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
        y_limit=share, y_share=True, kind="latency_distribution",
    )  # fmt: skip
