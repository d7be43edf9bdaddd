"""validation.html: how far predictions are off, pair by pair, on a page that answers to the pointer."""

from collections.abc import Sequence
from pathlib import Path
from statistics import median

from sim.language import N_, _
from sim.report.charts.panels import ChartCurve, Limit, Panel, style
from sim.report.fidelity.validate.pairs import PairError
from sim.report.page.page import Mark, Table, render_page
from sim.report.terminal.fitted import FittedTable
from sim.report.words.text import percent

FAR = 1.0
"""A larger error lies at the upper edge."""
TOLERATED = 0.2
MOST_MARKED = 10
"""Pairs that each have a mark on their axis; of more the axis has round numbers."""
QUESTION = N_("How far are the predictions from what was measured?")


def write_page(folder: Path, table: str, told: Sequence[FittedTable | str], errors: Sequence[PairError]) -> None:
    """The page of a *table* of measurements: what the terminal says of it, and a point for each of *errors*."""
    lines = [*_verdict(errors), *(one for one in told if isinstance(one, str))]
    tables = [
        Table(one.title or _title(one.heads), "", one.heads, one.rows, tuple(one.worded))
        for one in told
        if isinstance(one, FittedTable)
    ]
    groups = list(dict.fromkeys(one.group for one in errors))
    looks = style(groups)
    drawn = [_panel(name, [one for one in errors if one.quantity == name], looks) for name in _quantities(errors)]
    marks = [Mark(name, color, marker) for name, (color, marker) in looks.items()]
    details = {one.key: {"title": one.name, "rows": list(one.rows())} for one in errors}
    page = render_page(
        _("validate {table}", table=table), _(QUESTION), lines, drawn, tables, [], key=marks, details=details
    )
    (folder / "validation.html").write_text(page, encoding="utf-8")


def _title(heads: Sequence[str]) -> str:
    head = _(heads[0])
    return _("Coverage by {head}", head=head) if _("covered") in heads else _("By {head}", head=head)


def _verdict(errors: Sequence[PairError]) -> list[str]:
    """The median over pairs of each quantity, in one sentence."""
    parts = []
    for name in _quantities(errors):
        mine = [one.median_error for one in errors if one.quantity == name]
        parts.append(
            _(
                "{called} {percent} ({count} pairs)",
                called=_called(name),
                percent=percent(median(mine)),
                count=len(mine),
            )
        )
    return [_("Median error over pairs of GPU and model: {parts}.", parts=_(", ").join(parts))] if parts else []


def _called(quantity: str) -> str:
    """As a heading writes it."""
    known = {"samples_s": "samples/s", "mean_latency_ms": _("mean latency")}
    return known.get(quantity, quantity.replace("tpot", "TPOT").replace("ttft", "TTFT").replace("_", " "))


def _quantities(errors: Sequence[PairError]) -> list[str]:
    return list(dict.fromkeys(one.quantity for one in errors))


def _panel(quantity: str, errors: Sequence[PairError], looks: dict[str, tuple[str, str]]) -> Panel:
    """Pairs in the order of their error."""
    ranked = sorted(errors, key=lambda one: one.median_error)
    curves = []
    for name, (color, marker) in looks.items():
        mine = [(place, one) for place, one in enumerate(ranked, start=1) if one.group == name]
        if not mine:
            continue
        near = tuple(one.median_error <= FAR for _, one in mine)
        x, y = tuple(float(place) for place, _ in mine), tuple(one.median_error for _, one in mine)
        keys, names = tuple(one.key for _, one in mine), tuple(one.name for _, one in mine)
        good = tuple(one.median_error <= TOLERATED for _, one in mine)
        curves.append(
            ChartCurve("", color, x, y, marker, "None", good=good, steady=near, fleet=name, keys=keys, names=names)
        )
    few = tuple(map(float, range(1, len(ranked) + 1))) if len(ranked) <= MOST_MARKED else ()
    return Panel(
        _called(quantity)[:1].upper() + _called(quantity)[1:],
        _("median error of each pair of GPU and model; filled: within 20 %"),
        _("pairs, by their error"),
        tuple(curves),
        y_format=percent,
        y_limit=Limit(TOLERATED, percent(TOLERATED)),
        x_ticks=few,
        x_anchored=False,
    )
