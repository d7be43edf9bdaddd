"""The charts of a sizing: cost of what was simulated against what it attains, and every candidate by its cost."""

from collections.abc import Callable

from sim.language import N_, _
from sim.report.charts.draw import SOFT
from sim.report.charts.panels import ChartCurve, Limit, Panel, style
from sim.report.page.page import Mark
from sim.report.words.goals import exactly, percentiles_shown
from sim.report.words.money import in_code, money_mark, shown
from sim.report.words.text import percent, plain
from sim.scenario.schema import Scenario
from sim.study.fleets.size.tried import Sizing, TriedFleet, front
from sim.units import HOURS_PER_MONTH

NO_LINE = "None"
FAR = 2.5
"""What lies beyond this multiple of a limit is left out of the chart."""
LATENCIES = {"ttft_s": (N_("time to first token"), 1.0, "s"), "tpot_s": (N_("time per output token"), 1e3, "ms")}


def panels(found: Sizing, scenario: Scenario) -> list[Panel]:
    """Charts of what was simulated, and one of all that could serve."""
    shown = [(name, *one) for name in LATENCIES for one in percentiles_shown(scenario.slo, name).items()]
    late = [_late(found, scenario)] if scenario.slo.per_request else []
    drawn = [*(_against(found, *one) for one in shown), *late]
    return [*(one for one in drawn if one.curves), *([_by_cost(found)] if _priced(found) else [])]


def key(found: Sizing) -> list[Mark]:
    """Colour and marker of every GPU, and of every mix."""
    return [Mark(gpu, color, marker) for gpu, (color, marker) in _looks(found).items()]


def _looks(found: Sizing) -> dict[str, tuple[str, str]]:
    return style(sorted({one.gpu for one in _priced(found)}))


def _priced(found: Sizing) -> list[TriedFleet]:
    return [one for one in found.tried if one.status != "impossible" and one.floor_usd_per_h]


def _per_month(one: TriedFleet) -> float:
    cost = one.usd_per_h if one.usd_per_h is not None else one.floor_usd_per_h
    return shown((cost or 0.0) * HOURS_PER_MONTH)


def _curves(
    found: Sizing, chosen: list[TriedFleet], x: Callable[[TriedFleet], float], tag: Callable[[TriedFleet], str]
) -> tuple[ChartCurve, ...]:
    """One set of points per GPU; filled where the service level is met."""
    curves = []
    for gpu, (color, marker) in _looks(found).items():
        members = [one for one in chosen if one.gpu == gpu]
        if members:
            good = tuple(one.status == "meets" for one in members)
            xs, ys = tuple(map(x, members)), tuple(map(_per_month, members))
            names = tuple(one.name for one in members)
            tags = tuple(map(tag, members))
            curves.append(
                ChartCurve("", color, xs, ys, marker, NO_LINE, good=good, tags=tags, fleet=gpu, keys=names, names=names)
            )
    return tuple(curves)


def _against(found: Sizing, name: str, part: str, limit: float | None) -> Panel:
    words, scale, unit = _(LATENCIES[name][0]), *LATENCIES[name][1:]
    column = f"{name}_{part}"

    def latency(one: TriedFleet) -> float:
        value = (one.metrics or {}).get(column)
        return float("inf") if value is None else scale * value

    far = FAR * scale * limit if limit is not None else float("inf")
    chosen = [one for one in _priced(found) if one.metrics is not None and latency(one) <= far]
    members = front(found, [column])
    names = {id(one): one.name for one in members}

    def on_front(one: TriedFleet) -> str:
        return names.get(id(one), "")

    x, y, called = tuple(map(latency, members)), tuple(map(_per_month, members)), tuple(one.name for one in members)
    line = ChartCurve("", SOFT, x, y, fleet=_("the front"), keys=called, names=called)
    return Panel(
        _("Cost against {words}", words=words),
        in_code(_("USD a month; filled: meets the SLO, hollow: misses it (least cost); line: the front")),
        f"{part} {words} [{unit}]",
        (*([line] if len(members) > 1 else []), *_curves(found, chosen, latency, on_front)),
        y_format=money_mark,
        x_limit=Limit(scale * limit, f"SLO {plain(scale * limit)} {unit}") if limit is not None else None,
        kind="cost_vs_latency",
    )


def _late(found: Sizing, scenario: Scenario) -> Panel:
    """Also shows what is too slow for the other charts."""

    def late(one: TriedFleet) -> float:
        return 1.0 - ((one.metrics or {}).get("slo_attainment") or 0.0)

    allowed = round(1.0 - scenario.slo.attainment, 9)
    return Panel(
        _("Cost against requests that come too late"),
        in_code(_("USD a month; filled: meets the SLO, hollow: misses it (least cost)")),
        _("share of the requests out of the service level"),
        _curves(found, [one for one in _priced(found) if one.metrics is not None], late, lambda one: ""),
        x_format=percent,
        y_format=money_mark,
        x_limit=Limit(allowed, _("{exactly} allowed", exactly=exactly(allowed))),
        x_ticks=(0.0, 0.001, 0.01, 0.1, 0.25, 0.5, 0.75, 1.0),
        kind="cost_vs_attainment",
    )


def _by_cost(found: Sizing) -> Panel:
    ranked = sorted(_priced(found), key=_per_month)
    places = {id(one): float(place) for place, one in enumerate(ranked, start=1)}
    return Panel(
        _("Every candidate by its cost"),
        in_code(_("USD a month; hollow: at least, as it misses or was not simulated")),
        _("rank by cost"),
        _curves(found, ranked, lambda one: places[id(one)], lambda one: ""),
        y_format=money_mark,
        kind="cost",
    )
