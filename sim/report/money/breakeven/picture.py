"""The charts of a break-even: cost over utilisation, money paid over the months."""

from collections.abc import Mapping, Sequence

from sim.language import _
from sim.report.charts.panels import DASHES, ChartCurve, Limit, Panel, style
from sim.report.page.page import Mark
from sim.report.words.money import in_code, money_mark, money_thousands, shown
from sim.report.words.text import axis_label, percent
from sim.study.money.breakeven.cash import Month
from sim.study.money.breakeven.decision import BreakevenAnswer
from sim.study.money.breakeven.tipping import API
from sim.units import HOURS_PER_MONTH

LINES = list(DASHES.values())


def panels(answer: BreakevenAnswer) -> list[Panel]:
    """None where no fleet meets its service level."""
    if not answer.candidates:
        return []
    looks = _looks(answer)
    return [_by_utilisation(answer, looks), _by_load(answer, looks), _cash(answer, looks), _present(answer, looks)]


def key(answer: BreakevenAnswer) -> list[Mark]:
    """Colour and dash of every line."""
    looks = _looks(answer)
    return [Mark(name, looks[name][0], dash=looks[name][2]) for name in answer.months]


def _looks(answer: BreakevenAnswer) -> dict[str, tuple[str, str, object]]:
    """Colour and marker by fleet, the line by the way to pay; the API is black."""
    styles = style(list(dict.fromkeys(one.fleet for one in answer.candidates)))
    seen: dict[str, int] = {}
    looks: dict[str, tuple[str, str, object]] = {}
    for one in answer.candidates:
        way = seen[one.fleet] = seen.get(one.fleet, -1) + 1
        looks[one.name] = (*styles[one.fleet], LINES[way % len(LINES)])
    return looks | {API: ("#444444", "X", LINES[-1])}


def _by_utilisation(answer: BreakevenAnswer, looks: Mapping[str, tuple[str, str, object]]) -> Panel:
    curves = []
    for name, path in answer.curves.items():
        color, marker, dash = looks[name]
        x = tuple(u for u, _ in path)
        y = tuple(shown(cost.usd_per_million_output_tokens) for _, cost in path)
        curves.append(ChartCurve(name, color, x, y, marker, dash, good=(True,) * len(x)))
    limit = None
    if answer.api_usd_per_million is not None:
        limit = Limit(shown(answer.api_usd_per_million), API)
    return Panel(
        _("Cost of tokens over utilisation"),
        in_code(_("levelised USD per million output tokens, one unit")),
        _("offered load over capacity under the service level"),
        tuple(curves),
        x_format=percent,
        y_format=money_mark,
        y_limit=limit,
        x_ticks=(0.03, 0.1, 0.3, 1.0),
        kind="cost_vs_utilisation",
    )


def _by_load(answer: BreakevenAnswer, looks: Mapping[str, tuple[str, str, object]]) -> Panel:
    curves = []
    for name, path in answer.by_load.items():
        color, _marker, dash = looks[name]
        x, y = tuple(load for load, _usd in path), tuple(shown(usd * HOURS_PER_MONTH) for _load, usd in path)
        curves.append(ChartCurve(name, color, x, y, "", dash, good=(True,) * len(x)))
    return Panel(
        _("Cost of a load"),
        in_code(_("levelised USD a month, as many whole units as it takes")),
        axis_label(answer.axis),
        tuple(curves),
        y_format=money_mark,
        x_limit=Limit(answer.load, _("the load of the verdict"), forbids=False),
        kind="cost_vs_load",
    )


def _cash(answer: BreakevenAnswer, looks: Mapping[str, tuple[str, str, object]]) -> Panel:
    return Panel(
        _("Money paid so far"),
        in_code(_("USD, nothing discounted, nothing sold")),
        _("months"),
        tuple(_path(name, [shown(at.cash_usd) for at in path], path, looks) for name, path in answer.months.items()),
        y_format=money_thousands,
        kind="cash",
    )


def _present(answer: BreakevenAnswer, looks: Mapping[str, tuple[str, str, object]]) -> Panel:
    return Panel(
        _("Net present cost of stopping then"),
        in_code(_("USD of today, resale taken off")),
        _("months"),
        tuple(
            _path(name, [shown(at.net_present_usd) for at in path], path, looks) for name, path in answer.months.items()
        ),
        y_format=money_thousands,
        kind="net_present_cost",
    )


def _path(
    name: str, values: Sequence[float], path: Sequence[Month], looks: Mapping[str, tuple[str, str, object]]
) -> ChartCurve:
    color, _marker, dash = looks[name]
    return ChartCurve(
        name, color, tuple(float(at.months) for at in path), tuple(values), "", dash, good=(True,) * len(path)
    )
