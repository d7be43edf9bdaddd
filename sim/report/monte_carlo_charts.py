"""Charts of Monte Carlo draws: futures.png, and the section of report.html about uncertain inputs.

The charts show the distribution of costs, and the inputs that change them.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sim.language import N_, _
from sim.report.charts.fonts import drawable
from sim.report.charts.panels import ChartCurve, Panel, style
from sim.report.charts.picture import picture
from sim.report.charts.tornado import TornadoBar, side_bars
from sim.report.charts.vega_bars import bar_figure
from sim.report.charts.vega_lite import PageFigure, panel_figure
from sim.report.monte_carlo import bars, inputs_table, label, monte_carlo_table, sentences, shown_settings, where
from sim.report.words.money import in_code, money_mark, shown
from sim.report.words.text import percent, plain
from sim.study.monte_carlo import MILLION, DrawnSetting, MonteCarloStudy
from sim.study.points import Point, fleets_of

UNIT = N_("USD per million output tokens")
SHARES = np.linspace(0.0, 1.0, 201)
MOST_BARS = 9
"""Largest number of bars in a chart; tornado.csv has all inputs."""


def distribution_panel(setting: DrawnSetting, fleets: Sequence[str]) -> Panel:
    """Build the chart of the cumulative distribution of costs over the draws, a curve per fleet."""
    curves = []
    for one in setting.outcomes:
        values = one.draws[MILLION]
        values = np.sort(values[np.isfinite(values)]) * shown(1.0)
        if len(values):
            x = np.quantile(values, SHARES)
            color = style(fleets)[one.fleet][0]
            curves.append(ChartCurve(one.fleet, color, tuple(x.tolist()), tuple(SHARES.tolist())))
    return Panel(
        _("Cost per token{where}", where=where(setting.axes)),
        _("share of draws that cost less than this"),
        in_code(UNIT),
        tuple(curves),
        x_format=money_mark,
        y_format=percent,
        y_share=True,
        x_anchored=False,
    )


class Tornado:
    """Tornado chart with its titles."""

    def __init__(self, title: str, subtitle: str, base: float, found: Sequence[TornadoBar], zero: bool) -> None:
        """Keep the widest bars of *found*; *zero*: mark where the sign changes."""
        self.title, self.subtitle, self.base, self.zero = title, subtitle, base, zero
        self.bars = sorted(found, key=lambda bar: -bar.swing(base))[:MOST_BARS]
        if len(found) > MOST_BARS:
            self.subtitle += _("; the {most_bars} widest of {len}", most_bars=MOST_BARS, len=len(found))

    @property
    def figure(self) -> PageFigure:
        """Chart for report.html."""
        return bar_figure(self.title, self.subtitle, side_bars(self.base, self.bars), in_code(UNIT), self.base)


def tornadoes(study: MonteCarloStudy, setting: DrawnSetting) -> list[Tornado]:
    """Return tornado charts of the difference between the two cheapest fleets of each model, then of each fleet.

    Charts without a finite cost are left out.
    """
    between = _("each input alone, 10 % (blue) to 90 % quantile (orange)")
    found = []
    for first, second in filter(None, (own.first_two for own in setting.apart(study.models))):
        base = shown(second.central[MILLION] - first.central[MILLION])
        title = _("Difference in cost ({fleet} minus {fleet_2})", fleet=second.fleet, fleet_2=first.fleet)
        found.append(Tornado(title, between, base, bars(study, second, first), zero=True))
    found += [
        Tornado(
            _("Cost of {fleet}", fleet=one.fleet), between, shown(one.central[MILLION]), bars(study, one), zero=False
        )
        for one in setting.outcomes
    ]
    return [one for one in found if np.isfinite(one.base)]


def charts(study: MonteCarloStudy, chosen: Sequence[DrawnSetting], fleets: Sequence[str]) -> list[PageFigure]:
    """Return the charts of a page at the settings *chosen*."""
    found = []
    for setting in chosen:
        found.append(panel_figure(distribution_panel(setting, fleets)))
        found += [one.figure for one in tornadoes(study, setting)]
    return found


NOTE = N_(
    "Monte Carlo on the bills of the simulated points: each draw sets every uncertain input once for all fleets, "
    "independently of the others; quotes for one item vary together, and so do the hours of one tariff. The "
    "interval of a share covers the draws only (Wilson): traffic is not drawn again. Tables and charts elsewhere "
    "use the central values. Normal and lognormal distributions are cut at 4 standard deviations, or where the "
    "scenario says."
)
CORRELATION_NOTE = N_(" Rank correlations in place of independence: {listing}.")
OF_LOADS = N_(" A drawn load lies between simulated loads: amounts per hour are interpolated linearly.")


def monte_carlo_section(
    out: Path, study: MonteCarloStudy, points: Sequence[Point], axes: Sequence[str]
) -> dict[str, Any]:
    """Return the template's section on Monte Carlo draws, and write futures.png into the folder *out*."""
    shown, answers, fleets = shown_settings(study, points, axes), sentences(study, points, axes), fleets_of(points)
    if shown:
        with drawable():
            answer = sentences(study, points, axes)[:1]
            picture(charts(study, shown[:1], fleets), "", answer).save(out / "futures.png")
    return {
        "sentences": answers,
        "charts": charts(study, shown, fleets),
        "table": monte_carlo_table(study, points, axes),
        "inputs": inputs_table(study.inputs),
        "note": _(NOTE) + _correlations(study) + (_(OF_LOADS) if study.load_drawn else ""),
    }


def _correlations(study: MonteCarloStudy) -> str:
    """List the rank correlations of inputs; empty without any."""
    pairs = [
        _("{first} and {second} {rank}", first=label(one), second=label(other), rank=plain(rank))
        for one, other, rank in study.correlations
    ]
    return _(CORRELATION_NOTE, listing=_("; ").join(pairs)) if pairs else ""
