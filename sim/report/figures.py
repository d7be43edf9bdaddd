"""The key figures of every point, as the terminal and report.html show them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sim.report.cases import Point
from sim.report.summary import slo_limits
from sim.report.text import LIMITS, axis_label, percent, short, spread, steady, usd

THIN, OVER = "†", "▲"
NOTES = {
    THIN: f"{THIN} percentile with fewer than 20 requests in its tail",
    OVER: f"{OVER} overloaded: the queue grows through the whole run, and what is marked depends on the horizon",
}
UNSTEADY = "no steady part (fewer than 100 requests, or more than half to cut, of which half was) in replications of"
INTERVALS = {
    "replications": "± half of the 95 % interval over replications",
    "batch means": "± half of the 95 % interval by batch means: the parts of a single run stand for runs",
}


@dataclass(frozen=True, slots=True)
class Column:
    """One figure: its heading, the column of summary.csv, and how a value is shown (without unit)."""

    head: str
    unit: str
    name: str
    show: Callable[[float], str]
    scale: float = 1.0
    """From base units to those shown, for the interval."""
    brief: str = ""
    """Heading in the terminal; empty: not shown there."""


def _ms(value: float) -> str:
    return steady(1e3 * value)


def _kw(value: float) -> str:
    return steady(1e-3 * value)


def _tokens(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else steady(value)


COLUMNS = [
    Column("within SLO", "", "slo_attainment", percent, 100.0, brief="in\nSLO %"),
    Column("TTFT p50", "s", "ttft_s_p50", steady),
    Column("TTFT p95", "s", "ttft_s_p95", steady, brief="p95 s\nTTFT"),
    Column("TTFT p99", "s", "ttft_s_p99", steady),
    Column("TPOT p50", "ms", "tpot_s_p50", _ms),
    Column("TPOT p95", "ms", "tpot_s_p95", _ms, 1e3, brief="p95ms\nTPOT"),
    Column("E2E p95", "s", "e2e_s_p95", steady),
    Column("output tokens", "1/s", "output_tokens_per_s", _tokens, brief="out\ntok/s"),
    Column("KV peak", "", "kv_used_peak_fraction", percent, brief="KV\npk %"),
    Column("GPU busy", "", "gpu_busy_fraction", percent),
    Column("power", "kW", "facility_power_w_mean", _kw, brief="power\nkW"),
    Column("cost per hour", "", "cost_usd_per_h", usd, brief="USD\n/h"),
    Column("per million output tokens", "", "usd_per_million_output_tokens", usd, brief="USD/M\nout"),
    Column("per million good tokens", "", "usd_per_million_good_tokens", usd),
    Column("the same tokens by API", "", "api_usd_per_million_output_tokens", usd, brief="API/M\nout"),
    Column("CO2e per million output tokens", "kg", "kg_co2e_per_million_output_tokens", steady, brief="kg/M\nCO2e"),
]
WITH_INTERVAL = {"slo_attainment", "ttft_s_p95", "tpot_s_p95", "usd_per_million_output_tokens"}


def columns_for(points: Sequence[Point], slo: Mapping[str, Any], brief: bool = False) -> list[Column]:
    """The columns that hold something in this run."""
    wanted = [column for column in COLUMNS if column.brief or not brief]
    if not slo_limits(slo):
        wanted = [column for column in wanted if column.name not in ("slo_attainment", "usd_per_million_good_tokens")]
    return [column for column in wanted if any(point.number(column.name) is not None for point in points)]


def figure(point: Point, column: Column) -> str:
    """The value with the marks of a thin percentile and of one that depends on the horizon; empty without one."""
    value = point.number(column.name)
    return "" if value is None else column.show(value) + _marks(point, column.name)


def _marks(point: Point, name: str) -> str:
    listed = {THIN: "thin_percentiles", OVER: "horizon_dependent"}
    return "".join(mark for mark, row in listed.items() if name in str(point.row[row] or "").split())


def interval(point: Point, column: Column) -> str:
    """`± half-width`, for the figures that differ most between replications."""
    value, half = point.number(column.name), point.number(f"{column.name}_ci95")
    if column.name not in WITH_INTERVAL or value is None or not half:
        return ""
    text = spread(column.scale * half, column.scale * value)
    return f"± {text}" if text else ""


def standing(point: Point) -> str:
    """yes, no or nothing (without an SLO), with the mark of an overloaded point."""
    met = point.row["meets_slo"]
    return ("" if met is None else "yes" if met else "no") + (OVER if point.row["overloaded"] else "")


def limited_by(point: Point) -> str:
    """What holds the fleet back, in words."""
    name = str(point.row["limited_by"] or "")
    return LIMITS.get(name, name.replace("_", " "))


def axis_heads(axes: Sequence[str]) -> list[str]:
    """Headings of the sweep axes."""
    return [axis_label(axis) for axis in axes]


def axis_cells(point: Point, axes: Sequence[str]) -> list[str]:
    """The point's place in the sweep."""
    return ["" if point.axes.get(axis) is None else short(point.axes[axis]) for axis in axes]


def notes_for(points: Sequence[Point]) -> list[str]:
    """What the marks in the table mean, for the marks that occur; and how long the warm-up is if it was looked for."""
    marks = []
    if any(point.row["thin_percentiles"] for point in points):
        marks.append(NOTES[THIN])
    if any(point.row["overloaded"] for point in points):
        marks.append(NOTES[OVER])
    kinds = [text for kind, text in INTERVALS.items() if any(point.row["intervals"] == kind for point in points)]
    return [*marks, *kinds, *_warmup_notes(points)]


def _warmup_notes(points: Sequence[Point]) -> list[str]:
    """The range of the warm-up that was found, and the points that never settle."""
    found = [point for point in points if point.row.get("warmup_s") is not None]
    if not found:
        return []
    ends = [f"{point.row['warmup_s']:.0f}" for point in sorted(found, key=lambda point: point.row["warmup_s"])]
    notes = [f"warm-up by MSER-5, mean over replications: {' to '.join(dict.fromkeys((ends[0], ends[-1])))} s"]
    if restless := [point for point in found if point.row["warmup_unsteady"]]:
        places = (
            f"{' at '.join([point.fleet, *map(short, point.axes.values())])} "
            f"({point.row['warmup_unsteady']} of {point.row['replications']})"
            for point in restless
        )
        notes.append(f"{UNSTEADY}: {'; '.join(places)}")
    return notes
