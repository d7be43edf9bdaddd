"""Interactive page validation.html: prediction errors of each pair of GPU and model."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from sim.fidelity.scores import PredictedRow, scores
from sim.fidelity.services import ServiceOutcome, service_scores
from sim.fidelity.tables import GROUPS
from sim.fidelity.training import GROUPS as TRAINING_GROUPS
from sim.fidelity.training import PredictedTraining
from sim.fidelity.training import scores as training_scores
from sim.language import N_, _
from sim.report.charts.panels import ChartCurve, Limit, Panel, style
from sim.report.charts.picture import KeyEntry
from sim.report.page.page import PageTable, render_page
from sim.report.terminal_table import FittedTable
from sim.report.words.text import percent


@dataclass(frozen=True, slots=True)
class PairError:
    """Error of one quantity of one pair of GPU and model."""

    group: str
    """Group with a common colour: a class of rows or a benchmark."""
    quantity: str
    name: str
    """GPU and model."""
    median_error: float
    bias: float | None
    count: int
    """Number of rows."""

    @property
    def key(self) -> str:
        """Key of the pair in its group."""
        return f"{self.group}/{self.quantity}/{self.name}"

    def rows(self) -> Iterator[tuple[str, str]]:
        """Yield the rows of the tooltip."""
        yield _("group"), self.group
        yield _("median error, {quantity}", quantity=self.quantity), percent(self.median_error)
        if self.bias is not None:
            yield _("median signed error"), f"{100 * self.bias:+.0f} %"
        yield _("rows"), str(self.count)


def serving_pairs(outcomes: Sequence[PredictedRow]) -> list[PairError]:
    """Return the errors of operating points of serving engines that have a prediction."""
    found = scores([one for one in outcomes if one.covered], GROUPS["pair"][1])
    return [
        PairError(one.group[0], one.quantity, ", ".join(one.group[1:]), one.median_error, one.bias, one.rows)
        for one in found
    ]


def service_pairs(outcomes: Sequence[ServiceOutcome]) -> list[PairError]:
    """Return the errors of one-pass services by benchmark."""
    found = service_scores(outcomes, lambda one: f"{one.row.benchmark}: {one.gpu}")
    return [
        PairError(one.group.partition(": ")[0], one.metric, one.group, one.median_error, one.bias, one.rows)
        for one in found
    ]


def training_pairs(runs: Sequence[PredictedTraining]) -> list[PairError]:
    """Return the errors of training runs."""
    return [
        PairError(one.group[0], one.quantity, ", ".join(one.group[1:]), one.median_error, one.bias, one.rows)
        for one in training_scores(runs, TRAINING_GROUPS["pair"][1])
        if one.median_error is not None
    ]


FAR = 1.0
"""Largest error drawn to scale; larger errors are drawn at the upper edge."""
TOLERATED_ERROR = 0.2
MOST_MARKED = 10
"""Largest number of pairs with individual axis ticks; with more, the axis has round numbers."""
QUESTION = N_("How far are the predictions from what was measured?")


def write_page(folder: Path, table: str, output: Sequence[FittedTable | str], errors: Sequence[PairError]) -> None:
    """Write the page of a *table* of measurements: the terminal output *output*, and a point for each of *errors*."""
    lines = [*_verdict(errors), *(one for one in output if isinstance(one, str))]
    tables = [
        PageTable(one.title or _title(one.heads), "", one.heads, one.rows, tuple(one.worded))
        for one in output
        if isinstance(one, FittedTable)
    ]
    groups = list(dict.fromkeys(one.group for one in errors))
    looks = style(groups)
    drawn = [_panel(name, [one for one in errors if one.quantity == name], looks) for name in _quantities(errors)]
    legend = [KeyEntry(name, color, marker) for name, (color, marker) in looks.items()]
    details = {one.key: {"title": one.name, "rows": list(one.rows())} for one in errors}
    page = render_page(
        _("validate {table}", table=table), _(QUESTION), lines, drawn, tables, [], key=legend, details=details
    )
    (folder / "validation.html").write_text(page, encoding="utf-8")


def _title(heads: Sequence[str]) -> str:
    head = _(heads[0])
    return _("Coverage by {head}", head=head) if _("covered") in heads else _("By {head}", head=head)


def _verdict(errors: Sequence[PairError]) -> list[str]:
    """Return the median over pairs of each quantity in one sentence."""
    parts = []
    for name in _quantities(errors):
        mine = [one.median_error for one in errors if one.quantity == name]
        parts.append(
            _(
                "{called} {percent} ({count} pairs)",
                called=_heading(name),
                percent=percent(median(mine)),
                count=len(mine),
            )
        )
    return [_("Median error over pairs of GPU and model: {parts}.", parts=_(", ").join(parts))] if parts else []


def _heading(quantity: str) -> str:
    """Return the name of *quantity* in headings."""
    known = {"samples_s": "samples/s", "mean_latency_ms": _("mean latency")}
    return known.get(quantity, quantity.replace("tpot", "TPOT").replace("ttft", "TTFT").replace("_", " "))


def _quantities(errors: Sequence[PairError]) -> list[str]:
    return list(dict.fromkeys(one.quantity for one in errors))


def _panel(quantity: str, errors: Sequence[PairError], looks: dict[str, tuple[str, str]]) -> Panel:
    """Return the chart of *quantity*, with pairs ordered by error."""
    ranked = sorted(errors, key=lambda one: one.median_error)
    curves = []
    for name, (color, marker) in looks.items():
        mine = [(place, one) for place, one in enumerate(ranked, start=1) if one.group == name]
        if not mine:
            continue
        near = tuple(one.median_error <= FAR for _, one in mine)
        x, y = tuple(float(place) for place, _ in mine), tuple(one.median_error for _, one in mine)
        keys, names = tuple(one.key for _, one in mine), tuple(one.name for _, one in mine)
        good = tuple(one.median_error <= TOLERATED_ERROR for _, one in mine)
        curves.append(
            ChartCurve("", color, x, y, marker, "None", good=good, steady=near, fleet=name, keys=keys, names=names)
        )
    few = tuple(map(float, range(1, len(ranked) + 1))) if len(ranked) <= MOST_MARKED else ()
    return Panel(
        _heading(quantity)[:1].upper() + _heading(quantity)[1:],
        _("median error of each pair of GPU and model; filled: within 20 %"),
        _("pairs, by their error"),
        tuple(curves),
        y_format=percent,
        y_limit=Limit(TOLERATED_ERROR, percent(TOLERATED_ERROR)),
        x_ticks=few,
        x_anchored=False,
    )
