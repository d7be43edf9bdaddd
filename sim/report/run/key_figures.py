"""Key figures of every point and paired differences of fleets, for the terminal, report.html and paired.csv."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite, isnan
from pathlib import Path
from typing import Any

from sim.csvio import write_csv
from sim.language import N_, _, ngettext
from sim.report.words.money import cash, converted_column, in_code, shown
from sim.report.words.service_level import (
    latency_columns,
    number_beside,
    percentiles_shown,
    share_beside,
    unanswered_by_fleet,
)
from sim.report.words.text import LIMITS, axis_label, percent, plain, ranged, short, spread, steady
from sim.report.words.units import noun
from sim.scenario.slo import Slo
from sim.study.comparison import Difference
from sim.study.metrics.columns import ENDS, IN_REPORT, OF_SCALING, column
from sim.study.metrics.metric import Format, MetricColumn
from sim.study.metrics.requests import BATCH_MEANS, REPLICATIONS
from sim.study.metrics.statistics import LEAST_FOR_INTERVAL
from sim.study.points import Point

THIN, OVER, UNSURE = "†", "▲", "?"
NOTES = {
    THIN: N_("percentile with fewer than 20 requests in its tail"),
    OVER: N_("overloaded: the queue grows as long as requests arrive, and marked values depend on how long that is"),
    UNSURE: N_("inconclusive: the 95 % interval contains the target; more replications narrow it"),
}
QUEUE_GROWS = N_("inconclusive: the queue seems to grow; a longer horizon_s shows whether it does")
UNSTEADY = N_("no steady part (fewer than 100 requests, or more than half to cut: half was cut) in replications of")
INTERVALS = {
    REPLICATIONS: N_("± half of the 95 % interval over replications; for a share: its ends"),
    BATCH_MEANS: N_(
        "± half of the 95 % interval by batch means (the parts of a run stand for runs); for a share: its ends"
    ),
}


@dataclass(frozen=True, slots=True)
class KeyFigure:
    """Figure of the tables: its heading, its column of summary.csv, and the format of its values (without unit)."""

    head: str
    unit: str
    name: str
    show: Callable[[float], str]
    scale: float = 1.0
    """Factor from base units to shown units, for the interval."""
    brief: str = ""
    """Heading in the terminal; empty: not shown there."""
    named: bool = False
    """True if the service level names this percentile."""

    @classmethod
    def of(cls, column: MetricColumn) -> "KeyFigure":
        """Build the figure of a declared column."""
        unit, scale, _style = column.format
        return cls(_(column.head), unit, column.name, _show(column.format), scale, _(column.brief))


def _count(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else steady(value)


def _show(shown: Format) -> Callable[[float], str]:
    """Return the formatter of values in base units; their unit is left out."""
    if shown.style in ("percent", "money"):
        return percent if shown.style == "percent" else cash
    style = {"plain": plain, "steady": steady, "count": _count}[shown.style]
    return lambda value: style(shown.scale * value)


WITH_INTERVAL = {"slo_attainment", "ttft_s_p95", "tpot_s_p95", "usd_per_million_output_tokens"}


def _of_service(columns: Iterable[KeyFigure], level: Slo) -> list[KeyFigure]:
    """Return *columns*; for one-pass services, which have one latency and no KV cache, those that apply."""
    if not noun():
        return list(columns)
    latency = "ttft_s" if level.ttft_s is not None and level.e2e_s is None else "e2e_s"
    other = tuple({"ttft_s", "tpot_s", "e2e_s", "kv_"} - {latency})
    return [
        replace(column, brief=_("latency p95 [s]")) if column.name == f"{latency}_p95" else column
        for column in columns
        if not column.name.startswith(other)
    ]


def columns_for(points: Sequence[Point], slo: Mapping[str, Any], brief: bool = False) -> list[KeyFigure]:
    """Return the columns that hold values in this run."""
    level = Slo.model_validate(slo)
    wanted = [
        _beside_target(column, level)
        for column in _of_service(_with_named(level, brief), level)
        if column.brief or not brief
    ]
    several = [point for point in points if point.services or "service" in point.row]
    if not level.per_request and all(point.row["meets_slo"] is None for point in several):
        wanted = [column for column in wanted if column.name not in ("slo_attainment", "usd_per_million_good_tokens")]
    if not any(scales(point) for point in points):
        wanted = [column for column in wanted if column.name not in OF_SCALING]
    return [column for column in wanted if any(point.number(column.name) is not None for point in points)]


def scales(point: Point) -> bool:
    """Return whether replicas are started and stopped while the fleet runs."""
    return any(case.metrics["scaled"] for case in point.cases)


def _with_named(slo: Slo, brief: bool) -> list[KeyFigure]:
    """Return the columns with the percentiles that *slo* names; if *brief*, these replace the 95th."""
    found = [KeyFigure.of(column(name)) for name in IN_REPORT]
    for latency in dict.fromkeys(one.latency for one in slo.percentiles):
        usual = KeyFigure.of(column(f"{latency}_p95"))
        named = [_percentile(usual, part) for part in percentiles_shown(slo, latency)]
        replaced = {column.name for column in named} | ({usual.name} if brief else set())
        others = [column for column in found if column.name not in replaced]
        group = [*named, *(column for column in others if column.name.startswith(f"{latency}_p"))]
        at = next(place for place, column in enumerate(found) if column.name.startswith(f"{latency}_p"))
        rest = [column for column in others if column not in group]
        found = [*rest[:at], *sorted(group, key=lambda one: float(one.name.rpartition("_p")[2])), *rest[at:]]
    return found


def _percentile(usual: KeyFigure, part: str) -> KeyFigure:
    """Derive the column of percentile *part* from *usual*, the column of the 95th."""
    word = usual.head.split()[0]
    head = f"{word} {part}"
    return replace(usual, head=head, name=usual.name.replace("p95", part), brief=f"{head} [{usual.unit}]", named=True)


def _beside_target(column: KeyFigure, slo: Slo) -> KeyFigure:
    """Return *column*, formatted with enough digits to distinguish attainment from target."""
    if column.name == "slo_attainment":
        return replace(column, show=lambda share: share_beside(share, slo.attainment))
    limit_s = next((one.limit_s for one in slo.percentiles if one.column == column.name), None)
    if limit_s is None:
        return column
    return replace(column, show=lambda value: number_beside(column.scale * value, column.scale * limit_s))


def figure(point: Point, column: KeyFigure) -> str:
    """Format the value, with marks for low-sample and nonstationary figures; empty where the point has no value."""
    value = point.number(column.name)
    return "" if value is None else column.show(value) + _marks(point, column.name)


def _marks(point: Point, name: str) -> str:
    listed = {THIN: "low_sample_percentiles", OVER: "nonstationary_columns"}
    return "".join(mark for mark, row in listed.items() if name in str(point.row[row] or "").split())


def interval(point: Point, column: KeyFigure) -> str:
    """Format the interval of a figure that differs between replications.

    A share shows the ends of its interval, any other figure `± half-width`; where there is no interval, the cell names
    the replications to add. Only percentiles that the service level names and the figures in WITH_INTERVAL have one.
    """
    value, half = point.number(column.name), point.number(f"{column.name}_ci95")
    if not (column.named or column.name in WITH_INTERVAL) or value is None:
        return ""
    if half is None:
        known = not point.row["intervals"] or _marks(point, column.name).endswith(OVER) or not isfinite(value)
        return "" if known else runs_to_add(LEAST_FOR_INTERVAL - int(point.row["replications"]))
    ends = [point.number(f"{column.name}_ci95_{end}") for end in ENDS]
    if ends[0] is not None and ends[1] is not None:
        return _ends(ends[0], ends[1]) if half else ""
    scale = column.scale * (shown(1.0) if column.show is cash else 1.0)
    text = spread(scale * half, scale * value)
    return f"± {text}" if text else ""


def runs_to_add(count: int) -> str:
    """Return the request for *count* more runs, for a cell without an interval; empty where there are enough."""
    return ngettext("add {count} run", "add {count} runs", count) if count > 0 else ""


def _ends(low: float, high: float) -> str:
    """Format the ends of the interval of a share in percent, without the unit."""
    texts = [percent(end).removesuffix("\u00a0%") for end in (low, high)]
    return texts[0] if texts[0] == texts[1] else "–".join(texts)


def standing(point: Point) -> str:
    """Return whether the point meets the SLO (yes, no, ? or, without an SLO, empty), with the mark of overload."""
    met = point.row["meets_slo"]
    text = UNSURE if point.inconclusive else "" if met is None else _("yes") if met else _("no")
    return text + (OVER if point.row["overloaded"] else "")


def limited_by(point: Point) -> str:
    """Describe the bottleneck of the fleet."""
    name = str(point.row["limited_by"] or "")
    return _(LIMITS.get(name, name.replace("_", " ")))


def axis_heads(axes: Sequence[str]) -> list[str]:
    """Return the headings of the sweep axes."""
    return [axis_label(axis) for axis in axes]


def axis_cells(point: Point, axes: Sequence[str]) -> list[str]:
    """Return the values of the sweep axes at *point*."""
    return ["" if point.axes.get(axis) is None else short(point.axes[axis]) for axis in axes]


def notes_for(points: Sequence[Point]) -> list[str]:
    """Explain the marks that occur in the table of *points*, and give the range of the warm-up if it was estimated."""
    kinds = [_(text) for kind, text in INTERVALS.items() if any(point.row["intervals"] == kind for point in points)]
    return [*mark_notes(points), *kinds, *_warmup_notes(points)]


def mark_notes(points: Sequence[Point]) -> list[str]:
    """Explain the marks that occur in the table of *points*."""
    marks = []
    if any(point.row["low_sample_percentiles"] for point in points):
        marks.append(f"{THIN} {_(NOTES[THIN])}")
    if any(point.row["overloaded"] for point in points):
        marks.append(f"{OVER} {_(NOTES[OVER])}")
    if any(point.inconclusive and not point.growing for point in points):
        marks.append(f"{UNSURE} {_(NOTES[UNSURE])}")
    if any(point.growing for point in points):
        marks.append(f"{UNSURE} {_(QUEUE_GROWS)}")
    if lines := unanswered_by_fleet(points):
        marks.append(
            _("requests without an answer, whose times count as infinite: {fleets}", fleets=_("; ").join(lines))
        )
    return marks


def _warmup_notes(points: Sequence[Point]) -> list[str]:
    """Return the range of the warm-up, and the points without a steady part."""
    found = [point for point in points if point.row.get("warmup_s") is not None]
    if not found:
        return []
    ends = [f"{point.row['warmup_s']:.0f}" for point in sorted(found, key=lambda point: point.row["warmup_s"])]
    notes = [_("warm-up by MSER-5, mean over replications: {range} s", range=ranged(ends[0], ends[-1]))]
    if restless := [point for point in found if point.row["warmup_unsteady"]]:
        places = (
            _(
                "{place} ({unsteady} of {replications})",
                place=" at ".join([point.fleet, *map(short, point.axes.values())]),
                unsteady=point.row["warmup_unsteady"],
                replications=point.row["replications"],
            )
            for point in restless
        )
        notes.append(f"{_(UNSTEADY)}: {_('; ').join(places)}")
    return notes


MOST_IN_TERMINAL = 12
"""Largest number of points shown per pair of fleets in the terminal."""
NOTE = N_("± half of the 95 % interval; ? not significant: the interval contains zero or is missing")
MILLION = "usd_per_million_output_tokens"


def write_paired(path: Path, found: Sequence[Difference], axes: Sequence[str]) -> None:
    """Write paired.csv, one row per pair of fleets, point and metric; base units."""
    head = ["first", "second", *axes, "metric", "pairs", "first_value", "second_value", "difference"]
    lines = (_line(one, axes, name, rate) for one in found for name, rate in _units(one.metric))
    write_csv(path, [*head, "difference_ci95", "verdict", "nonstationary"], lines)


def _line(one: Difference, axes: Sequence[str], name: str, rate: float) -> list[Any]:
    """Return the row of *one* for the metric *name*, its amounts times *rate*."""
    places = [one.first.axes.get(axis) for axis in axes]
    half = None if one.half_width is None else rate * one.half_width
    amounts = [*(rate * value for value in one.values), rate * one.difference, half]
    return [one.first.fleet, one.second.fleet, *places, name, one.pairs, *amounts, one.verdict, one.nonstationary]


def _units(metric: str) -> Iterator[tuple[str, float]]:
    """Yield (column, value of a unit of the metric): the metric and, for money, its column in the shown currency."""
    yield metric, 1.0
    if other := converted_column(metric):
        yield other, shown(1.0)


@dataclass(frozen=True, slots=True)
class PairDifferences:
    """Formatted differences of a pair of fleets, a row per point."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def blocks(found: Sequence[Difference], axes: Sequence[str], slo: Mapping[str, Any]) -> list[PairDifferences]:
    """Return the differences of each pair of fleets: a row per point, the main metrics and latencies of *slo*."""
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
        result.append(
            PairDifferences(_("Difference ({first} minus {second})", first=first, second=second), heads, lines)
        )
    return result


@dataclass(frozen=True, slots=True)
class DifferenceTable:
    """Table of the differences of all pairs of fleets; a row has its pair, named in the pair's first row, and cells."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]


def difference_table(found: Sequence[PairDifferences]) -> DifferenceTable | None:
    """Return one table of all pairs; a column that a pair does not have is empty there. None without a pair."""
    heads = tuple(dict.fromkeys(head for block in found for head in block.heads))
    rows = []
    for block in found:
        for index, row in enumerate(block.rows):
            cells = dict(zip(block.heads, row, strict=True))
            rows.append(("" if index else block.title, tuple(cells.get(head, "") for head in heads)))
    return DifferenceTable(heads, tuple(rows)) if rows else None


def _shown_metrics(slo: Slo) -> dict[str, str]:
    """Return the headings of the metrics in the tables of differences, by metric."""
    share = {"slo_attainment": _("within SLO [pp]")} if slo.per_request else {}
    latencies = {name: f"{head} [{column(name).format.unit}]" for name, head in latency_columns(slo).items()}
    return share | latencies | {MILLION: _(column(MILLION).brief)}


def _shown(one: Difference | None) -> str:
    """Format a difference, `-0.31 ± 0.04`, with a mark where its interval contains zero."""
    if one is None or isnan(one.difference):
        return ""
    scale = shown(1.0) if one.metric == MILLION else column(one.metric).format.scale
    value = scale * one.difference
    text = ("+" if value > 0 else "") + (steady(value) if value else "0")
    if one.half_width:
        text += f" ± {plain(scale * one.half_width, 2)}"
    text += OVER if one.nonstationary else f" ({wanted})" if (wanted := _wanted(one)) else ""
    return f"{text} {UNSURE}" if one.verdict == "cannot tell" else text


def _wanted(one: Difference) -> str:
    """Return the number of replications that a difference without an interval lacks, as text."""
    chance = one.first.row["intervals"] or one.second.row["intervals"]
    return runs_to_add(LEAST_FOR_INTERVAL - one.pairs) if chance and one.half_width is None else ""


def brief_limit(name: str | None) -> str:
    """Describe the bottleneck *name* (as summary.csv has it) in a word or two."""
    words = {"seats": _("full batches") if noun() else _("sequences"), "kv": _("KV memory")}
    return words.get(name or "", _(name or ""))
