"""Charts over time: load, latency, queue and cost of all fleets together, and each fleet's replicas by state."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sim.language import _
from sim.report.charts.panels import ChartCurve, Limit, Panel, style
from sim.report.words.money import in_code, money_mark, shown
from sim.report.words.text import plain
from sim.report.words.units import noun
from sim.scenario.slo import Slo
from sim.study.points import FinishedCase, Sweep
from sim.study.timeline import CaseTimeline, Series, is_switched, timeline_of
from sim.units import SECONDS_PER_HOUR

MOST_FLEETS = 7
INK = "#444444"
STARTING = ("provisioning", "booting", "loading")
BROKEN = ("failed", "repairing")
LAYERS = (
    ("serving", ("serving", "draining"), "-"),
    ("starting", STARTING, (0, (5, 2))),
    ("in reserve", ("reserve",), (0, (7, 2, 2, 2))),
    ("broken down", BROKEN, (0, (2, 2))),
)
"""Groups of replica states with their line styles, stacked from below."""
HOUR_TICKS = (1, 2, 3, 6, 12, 24, 48)
MOST_TICKS = 9
LONG_S = 3 * SECONDS_PER_HOUR
"""Length from which a run is shown in hours [s]."""


def timeline_panels(sweep: Sweep, slo: Mapping[str, Any]) -> list[Panel]:
    """Return the charts of each fleet's first replication at the reference point; none where no replica is switched."""
    cases: dict[str, FinishedCase] = {}
    for line in sweep.lines:
        for point in line.points:
            if sweep.value(point) == sweep.reference and line.fleet not in cases and len(cases) < MOST_FLEETS:
                cases[line.fleet] = point.cases[0]
    switched = {name for name, case in cases.items() if is_switched(case)}
    if not switched:
        return []
    # if all requests are refused at once, the run has no duration
    found = {name: timeline_of(case) for name, case in cases.items() if case.usage().num_rows}
    colors = {name: color for name, (color, _marker) in style(sweep.fleets).items()}
    panels = [_load(found), _latency(found, colors, slo), _queue(found, colors), _cost(found, colors)]
    drawn = [panel for panel in panels if panel is not None]
    return drawn + [_replicas(name, course, colors[name]) for name, course in found.items() if name in switched]


def _load(found: Mapping[str, CaseTimeline]) -> Panel | None:
    course = next(iter(found.values()))
    if course.arrivals_rps is None:
        return None
    curve = _curve(_("load"), INK, course, course.arrivals_rps)
    return _panel(_("Load"), _("arrivals per second"), course, (curve,), y_linear=True)


def _latency(found: Mapping[str, CaseTimeline], colors: Mapping[str, str], slo: Mapping[str, Any]) -> Panel | None:
    curves = [
        _curve(name, colors[name], course, course.ttft_s) for name, course in found.items() if course.ttft_s is not None
    ]
    if not curves:
        return None
    stated = Slo.model_validate(slo).ttft_s
    limit_s = stated.get("p95") if isinstance(stated, dict) else stated
    limit = Limit(limit_s, _("limit"), forbids=False) if limit_s is not None else None
    title = _("Time to the answer") if noun() else _("Time to first token")
    text = _("p95 of the requests that arrive in each interval [s]")
    return _panel(title, text, next(iter(found.values())), tuple(curves), y_limit=limit)


def _queue(found: Mapping[str, CaseTimeline], colors: Mapping[str, str]) -> Panel | None:
    curves = [
        _curve(name, colors[name], course, course.waiting)
        for name, course in found.items()
        if course.waiting is not None
    ]
    text = _("requests waiting")
    return _panel(_("Queue"), text, next(iter(found.values())), tuple(curves), y_linear=True) if curves else None


def _cost(found: Mapping[str, CaseTimeline], colors: Mapping[str, str]) -> Panel | None:
    curves = [
        _curve(name, colors[name], course, course.usd_per_h * shown(1.0))
        for name, course in found.items()
        if course.usd_per_h is not None
    ]
    if not curves:
        return None
    text = in_code(_("USD per billed hour"))
    return _panel(_("Cost rate"), text, next(iter(found.values())), tuple(curves), y_format=money_mark, y_linear=True)


def _replicas(name: str, course: CaseTimeline, color: str) -> Panel:
    """Draw the states stacked: each line is the sum of its state and those below."""
    curves: list[ChartCurve] = []
    total = np.zeros(len(course.edges_s) - 1)
    words = {"serving": _("serving"), "starting": _("starting"), "in reserve": _("in reserve"),
             "broken down": _("broken down")}  # fmt: skip
    for layer, states, dash in LAYERS:
        present = [course.replicas[state] for state in states if state in course.replicas]
        if present:
            total = total + np.sum(present, axis=0)
            curves.append(_curve(words[layer], color, course, total, dash=dash, filled=not curves))
    if course.failed_s:
        scale = _unit_s(course)
        places = np.searchsorted(course.edges_s, course.failed_s, "right") - 1
        at = tuple(float(total[min(place, len(total) - 1)]) for place in places)
        x = tuple(at_s / scale for at_s in course.failed_s)
        good = (True,) * len(x)
        curves.append(ChartCurve(_("failure"), INK, x, at, marker="X", dash="None", good=good))
    title = _("Replicas: {name}", name=name)
    return _panel(title, _("stacked by state"), course, tuple(curves), y_linear=True)


def _curve(
    name: str, color: str, course: CaseTimeline, values: Series, dash: Any = "-", filled: bool = False
) -> ChartCurve:
    """Build a step curve: a value holds for its interval, intervals without a value are left out."""
    known = np.repeat(~np.isnan(values), 2)
    x = (np.repeat(course.edges_s, 2)[1:-1] / _unit_s(course))[known]
    y = np.repeat(values, 2)[known]
    return ChartCurve(
        name, color, tuple(x.tolist()), tuple(y.tolist()), dash=dash, filled=filled, good=(True,) * len(x)
    )


def _panel(title: str, subtitle: str, course: CaseTimeline, curves: tuple[ChartCurve, ...], **more: Any) -> Panel:
    in_hours = _unit_s(course) == SECONDS_PER_HOUR
    label = _("hours from the start") if in_hours else _("seconds from the start")
    ticks: Sequence[float] = ()
    if in_hours:
        hours = float(course.edges_s[-1]) / SECONDS_PER_HOUR
        step = next((one for one in HOUR_TICKS if hours / one <= MOST_TICKS), HOUR_TICKS[-1])
        ticks = [float(hour) for hour in range(0, int(hours) + 1, step)]
    return Panel(
        title, subtitle, label, curves, x_linear=True, x_ticks=tuple(ticks), kind="timeline", x_format=plain, **more
    )


def _unit_s(course: CaseTimeline) -> float:
    return SECONDS_PER_HOUR if float(course.edges_s[-1]) >= LONG_S else 1.0
