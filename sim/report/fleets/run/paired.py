"""The paired differences of fleets: paired.csv, and blocks for the terminal and the report."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any

from sim.csvio import write_csv
from sim.language import N_, _
from sim.report.fleets.run.figures import OVER, UNSURE, axis_cells, axis_heads, runs_to_add
from sim.report.words.goals import latency_columns
from sim.report.words.money import in_code, shown, twin
from sim.report.words.text import plain, steady
from sim.scenario.sections.slo import Slo
from sim.study.fleets.run.paired import Difference
from sim.study.metrics.columns import column
from sim.study.metrics.statistics import FEWEST

MOST_IN_TERMINAL = 12
"""Points of one pair."""
NOTE = N_("± half of the 95 % interval, each on its own; ? cannot tell: zero is within it, or there is none")
MILLION = "usd_per_million_output_tokens"


def write_paired(path: Path, found: Sequence[Difference], axes: Sequence[str]) -> None:
    """paired.csv, one row per pair of fleets, point and metric; base units."""
    head = ["first", "second", *axes, "metric", "pairs", "first_value", "second_value", "difference"]
    lines = (_line(one, axes, name, rate) for one in found for name, rate in _units(one.metric))
    write_csv(path, [*head, "difference_ci95", "verdict", "horizon_dependent"], lines)


def _line(one: Difference, axes: Sequence[str], name: str, rate: float) -> list[Any]:
    """Return the row of *one* for the metric *name*, its amounts times *rate*."""
    places = [one.first.axes.get(axis) for axis in axes]
    half = None if one.half_width is None else rate * one.half_width
    amounts = [*(rate * value for value in one.values), rate * one.difference, half]
    return [one.first.fleet, one.second.fleet, *places, name, one.pairs, *amounts, one.verdict, one.horizon_dependent]


def _units(metric: str) -> Iterator[tuple[str, float]]:
    """The metric, and the same in the shown currency under its own name: (name, value of one unit of the metric)."""
    yield metric, 1.0
    if other := twin(metric):
        yield other, shown(1.0)


@dataclass(frozen=True, slots=True)
class Block:
    """The differences of one pair of fleets, ready to be shown."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def blocks(found: Sequence[Difference], axes: Sequence[str], slo: Mapping[str, Any]) -> list[Block]:
    """One block per pair of fleets, a row per point, the main metrics: latencies by the percentiles of *slo*."""
    pairs: dict[tuple[str, str], dict[str, dict[str, Difference]]] = {}
    for one in found:
        place = repr(dict(one.first.axes))
        pairs.setdefault((one.first.fleet, one.second.fleet), {}).setdefault(place, {})[one.metric] = one
    shown_ones = _shown_metrics(Slo.model_validate(slo))
    result = []
    for (first, second), rows in pairs.items():
        metrics = [name for name in shown_ones if any(name in row for row in rows.values())]
        heads = (*axis_heads(axes), *(in_code(shown_ones[name]) for name in metrics))
        lines = tuple(
            (*axis_cells(next(iter(row.values())).first, axes), *(_shown(row.get(name)) for name in metrics))
            for row in rows.values()
            if row
        )
        result.append(Block(_("Difference ({first} minus {second})", first=first, second=second), heads, lines))
    return result


@dataclass(frozen=True, slots=True)
class Table:
    """Differences as the report shows them: each row has what it is of, and its cells."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]


def tables(found: Sequence[Block]) -> list[Table]:
    """One table of all pairs where each has one row of the same columns, else one for each pair."""
    if len({block.heads for block in found}) == 1 and all(len(block.rows) == 1 for block in found):
        return [Table("", found[0].heads, tuple((block.title, block.rows[0]) for block in found))]
    return [Table(block.title, block.heads, tuple(("", row) for row in block.rows)) for block in found]


def _shown_metrics(slo: Slo) -> dict[str, str]:
    """Metric -> heading."""
    share = {"slo_attainment": _("within SLO [pp]")} if slo.per_request else {}
    latencies = {name: f"{head} [{'ms' if _in_ms(name) else 's'}]" for name, head in latency_columns(slo).items()}
    return share | latencies | {MILLION: _(column(MILLION).brief)}


def _in_ms(metric: str) -> bool:
    return metric.startswith("tpot")


def _scale(metric: str) -> float:
    """From base units to those shown."""
    if metric == MILLION:
        return shown(1.0)
    return {"slo_attainment": 100.0}.get(metric, 1e3 if _in_ms(metric) else 1.0)


def _shown(one: Difference | None) -> str:
    """`-0.31 ± 0.04`, with a mark where zero is within."""
    if one is None or isnan(one.difference):
        return ""
    scale = _scale(one.metric)
    value = scale * one.difference
    text = ("+" if value > 0 else "") + (steady(value) if value else "0")
    if one.half_width:
        text += f" ± {plain(scale * one.half_width, 2)}"
    text += OVER if one.horizon_dependent else f" ({wanted})" if (wanted := _wanted(one)) else ""
    return f"{text} {UNSURE}" if one.verdict == "cannot tell" else text


def _wanted(one: Difference) -> str:
    """How many replications a difference without an interval lacks."""
    chance = one.first.row["intervals"] or one.second.row["intervals"]
    return runs_to_add(FEWEST - one.pairs) if chance and one.half_width is None else ""
