"""Panels drawn with matplotlib, which takes 0.4 s to import and is imported only where something is drawn."""

from collections.abc import Callable, Sequence
from math import floor, inf, isfinite, log10
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.report.charts.labels import Room
from sim.report.charts.panels import ChartCurve, Limit, Panel

INK, SOFT, FAINT = "#222222", "#666666", "#e3e3e3"
SMALL, NORMAL, HEAD = 8.0, 9.0, 10.5
DECADE = 10.0
PLATE: dict[str, Any] = {"bbox": {"facecolor": "white", "alpha": 0.8, "linewidth": 0, "pad": 0.5}}
"""Behind a text that may cover a limit's line."""


class Scale:
    """The range of one axis: logarithmic where it spans more than a decade, else from zero (if *anchored*)."""

    def __init__(self, values: Sequence[float], anchored: bool, share: bool = False) -> None:
        low, high = (min(values), max(values)) if values else (0.0, 1.0)
        self.most = 1.0 if share else inf
        self.log = not share and low > 0 and high > DECADE * low
        if share:
            self.low, self.high = 0.0, 1.04
        elif self.log:
            margin = high / low
            self.low, self.high = low / margin**0.1, high * margin**0.06
        elif anchored or high == low:
            self.low, self.high = min(0.0, low), 1.1 * high if high > 0 else 1.0
        else:
            margin = 0.06 * (high - low)
            self.low, self.high = low - margin, high + margin

    def ticks(self) -> list[float]:
        """Round numbers within the range: 1, 2, 5 of every decade, or even steps."""
        if self.log:
            decades = range(floor(log10(self.low)), floor(log10(self.high)) + 1)
            fine = [m * 10.0**d for d in decades for m in (1, 2, 5) if self.low <= m * 10.0**d <= self.high]
            coarse = [10.0**d for d in decades if self.low <= 10.0**d <= self.high]
            return fine if len(fine) <= 8 or len(coarse) < 2 else coarse
        step = 10.0 ** floor(log10((self.high - self.low) / 4))
        step *= next(m for m in (1, 2, 2.5, 5, 10) if (self.high - self.low) / (m * step) <= 6)
        first = int(np.ceil(self.low / step - 1e-9))
        return [round(k * step, 12) for k in range(first, int(np.floor(self.high / step + 1e-9)) + 1)]


def draw(axes: Any, panel: Panel) -> None:
    """Draw *panel* into matplotlib *axes*, direct labels included."""
    x_scale = Scale(_core(panel, "x", panel.x_limit), panel.x_anchored)
    y_scale = Scale(_core(panel, "y", panel.y_limit), True, panel.y_share)
    _frame(axes, panel, x_scale, y_scale)
    to_points = _projection(axes)
    width, height = to_points(np.array([[x_scale.high, y_scale.high]]))[0]
    room = Room(float(width), float(height))
    ends = [_line(axes, curve, x_scale, y_scale, room, to_points) for curve in panel.curves]
    for curve, places in zip(panel.curves, ends, strict=True):
        _tags(axes, curve, places, panel, (x_scale.high, y_scale.high), True, room)
    for limit, upright in ((panel.x_limit, True), (panel.y_limit, False)):
        if limit is not None:
            _limit(axes, limit, upright, x_scale, y_scale, room, to_points)
    for curve, places in zip(panel.curves, ends, strict=True):
        _tags(axes, curve, places, panel, (x_scale.high, y_scale.high), False, room)
    for curve, places in zip(panel.curves, ends, strict=True):
        _name(axes, curve, places, room)


def _core(panel: Panel, which: str, limit: Limit | None) -> list[float]:
    """The values that set a range: the limit and all that are finite and steady; failing those, all that are finite."""
    steady, finite = [], []
    for curve in panel.curves:
        values = getattr(curve, which)
        flags = curve.steady or (True,) * len(values)
        finite += [value for value in values if isfinite(value)]
        steady += [value for value, flag in zip(values, flags, strict=True) if isfinite(value) and flag]
        if which == "x" and panel.x_ticks:
            steady += [value for value in values if isfinite(value)]
    return (steady or finite) + ([limit.at] if limit is not None else [])


def _frame(axes: Any, panel: Panel, x_scale: Scale, y_scale: Scale) -> None:
    for scale, setter, bounds in ((x_scale, axes.set_xscale, axes.set_xlim), (y_scale, axes.set_yscale, axes.set_ylim)):
        setter("log" if scale.log else "linear")
        bounds(scale.low, scale.high)
    wanted = [tick for tick in panel.x_ticks if x_scale.low <= tick <= x_scale.high] or x_scale.ticks()
    names = dict(zip(panel.x_ticks, panel.x_names, strict=False))
    ticks = _spaced(axes, wanted)
    axes.set_xticks(ticks, [names.get(tick) or panel.x_format(tick) for tick in ticks])
    axes.set_yticks(y_scale.ticks(), list(map(panel.y_format, y_scale.ticks())))
    axes.minorticks_off()
    axes.tick_params(length=3, width=0.6, color=SOFT, labelcolor=SOFT, labelsize=SMALL)
    axes.grid(axis="y", color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set(color=SOFT, linewidth=0.6)
    axes.set_xlabel(panel.x_label, fontsize=SMALL, color=SOFT, loc="left")
    above = {"xycoords": "axes fraction", "textcoords": "offset points", "va": "bottom"}
    axes.annotate(panel.title, (0, 1), (-26, 24), fontsize=HEAD, color=INK, fontweight="bold", **above)
    axes.annotate(panel.subtitle, (0, 1), (-26, 11), fontsize=SMALL, color=SOFT, **above)


def _spaced(axes: Any, ticks: Sequence[float]) -> list[float]:
    """Ticks with room for their numbers, the last one always kept."""
    project = _projection(axes)
    kept: list[float] = []
    edge = inf
    for tick in reversed(ticks):
        place = float(project(np.array([[tick, axes.get_ylim()[0]]]))[0, 0])
        if edge - place >= 24:
            kept.append(tick)
            edge = place
    return kept[::-1]


def _projection(axes: Any) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    """From data to points, counted from the lower left corner of the plot area."""
    points_per_dot = 72.0 / axes.figure.dpi

    def project(data: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray((axes.transData.transform(data) - axes.bbox.p0) * points_per_dot)

    return project


def _limit(axes: Any, limit: Limit, upright: bool, x: Scale, y: Scale, room: Room, project: Any) -> None:
    style = {"color": INK, "linewidth": 0.9, "linestyle": (0, (4, 3)), "zorder": 1.5}
    if upright:
        axes.axvline(limit.at, **style)
        if limit.at < x.high:
            axes.axvspan(limit.at, x.high, color="#000000", alpha=0.035, linewidth=0)
        ends = np.array([[limit.at, y.low], [limit.at, y.high]])
        anchors = [(float(project(ends)[0, 0]), share * room.height - 8) for share in (1.0, 0.5, 0.25, 0.75)]
    else:
        axes.axhline(limit.at, **style)
        ends = np.array([[x.low, limit.at], [x.high, limit.at]])
        anchors = [(share * room.width, float(project(ends)[0, 1])) for share in (0.0, 1.0, 0.5, 0.25, 0.75)]
    room.take_path(project(ends))
    place = room.fit(limit.text, SMALL, anchors, 3.0)
    if place is not None:
        _write(axes, limit.text, place.x, place.y, SMALL, INK)


def _line(axes: Any, curve: ChartCurve, x: Scale, y: Scale, room: Room, project: Any) -> NDArray[np.float64]:
    """Draw one curve and return where its points lie [points]; those off the chart lie on its edge."""
    inside = np.array([[min(a, x.high), min(b, y.high)] for a, b in zip(curve.x, curve.y, strict=True)])
    known = ~np.isnan(inside).any(axis=1)
    steady = np.array(curve.steady or (True,) * len(inside)) & known
    path = inside[known]
    if not len(path):
        return np.empty((0, 2))
    axes.plot(*_steady_part(inside, steady), color=curve.color, linewidth=1.8, linestyle=curve.dash, zorder=3)
    axes.plot(*_unsteady_part(path, steady[known]), color=curve.color, linewidth=1.0, linestyle=(0, (1, 2)), zorder=2.5)
    if any(curve.half):
        _band(axes, curve, steady, y)
    if curve.marker:
        _markers(axes, curve, inside, x, y)
        room.take_dots(project(path), 4.0)
    places = np.asarray(project(inside))
    room.take_path(places[known])
    return places


def _steady_part(inside: NDArray[np.float64], steady: NDArray[np.bool_]) -> NDArray[np.float64]:
    return np.asarray(np.where(steady[:, None], inside, np.nan).T)


def _unsteady_part(path: NDArray[np.float64], steady: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The stretches to or from an overloaded point, kept apart by nan."""
    gap = np.full(2, np.nan)
    ends = zip(path, path[1:], steady, steady[1:], strict=False)
    stretches = [point for a, b, first, second in ends if not (first and second) for point in (a, b, gap)]
    return np.array(stretches).reshape(-1, 2).T


def _band(axes: Any, curve: ChartCurve, steady: NDArray[np.bool_], y: Scale) -> None:
    middle = np.array(curve.y)
    half = np.array([np.nan if value is None else value for value in curve.half])
    shown = steady & np.isfinite(middle) & np.isfinite(half)
    low, high = np.maximum(middle - half, y.low)[shown], np.minimum(middle + half, y.most)[shown]
    axes.fill_between(np.array(curve.x)[shown], low, high, color=curve.color, alpha=0.18, linewidth=0)


def _markers(axes: Any, curve: ChartCurve, inside: NDArray[np.float64], x: Scale, y: Scale) -> None:
    """Filled where the SLO is met, hollow where not, an arrowhead at the edge where off the chart."""
    kinds: dict[tuple[str, bool], list[int]] = {}
    for index, (a, b) in enumerate(zip(curve.x, curve.y, strict=True)):
        kind = "^" if b > y.high else ">" if a > x.high else curve.marker
        kinds.setdefault((kind, curve.good[index]), []).append(index)
    for (kind, good), members in kinds.items():
        face = curve.color if good else "white"
        look = {"markerfacecolor": face, "markeredgecolor": curve.color, "markeredgewidth": 1.3, "clip_on": False}
        axes.plot(*inside[members].T, linestyle="", marker=kind, markersize=6.0, zorder=4, **look)


def _name(axes: Any, curve: ChartCurve, places: NDArray[np.float64], room: Room) -> None:
    known = [(float(x), float(y)) for x, y in places if np.isfinite(x)]
    if not curve.marker:
        known = known[len(known) // 2 :: 8] + known[: len(known) // 2 : 8]
    place = room.fit(curve.name, NORMAL, known[::-1] if curve.marker else known, 6.0, bold=True)
    if place is not None:
        _write(axes, curve.name, place.x, place.y, NORMAL, curve.color, fontweight="bold")


def _tags(
    axes: Any,
    curve: ChartCurve,
    places: NDArray[np.float64],
    panel: Panel,
    edge: tuple[float, float],
    beyond: bool,
    room: Room,
) -> None:
    """The text beside the points off the chart (*beyond* its *edge*), which says their value, or beside the others."""
    for index, (left, bottom) in enumerate(places if curve.marker else ()):
        x, y = curve.x[index], curve.y[index]
        values = [panel.y_format(y)] * (y > edge[1]) + [panel.x_format(x)] * (x > edge[0])
        if bool(values) == beyond and np.isfinite(left):
            text = ": ".join([*curve.tags[index : index + 1], *values[:1]])
            place = room.fit(text, SMALL, [(float(left), float(bottom))], 5.5) if text else None
            if place is not None:
                _write(axes, text, place.x, place.y, SMALL, curve.color, **(PLATE if beyond else {}))


def _write(axes: Any, text: str, x: float, y: float, size: float, color: str, **more: Any) -> None:
    axes.annotate(text, (x, y), xycoords="axes points", fontsize=size, color=color, va="bottom", zorder=5, **more)
