"""Fleet less fleet at every sweep point: request i is the same request in both, so that what they share cancels out."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import isnan
from pathlib import Path
from typing import Any

from sim.report.page.goals import latency_columns
from sim.report.page.money import in_code, shown, twin
from sim.report.page.text import plain, steady
from sim.report.run.cases import FinishedCase, Point, fleets_of
from sim.report.run.figures import OVER, PER_MILLION, axis_cells, axis_heads
from sim.report.run.summary import TOKENS, named_percentiles
from sim.report.run.tables import cell
from sim.scenario.sections.slo import Slo
from sim.study.metrics.statistics import mean, paired_difference, ratio, ratio_difference

METRICS = [
    *["slo_attainment", "ttft_s_mean", "ttft_s_p50", "ttft_s_p95", "ttft_s_p99", "tpot_s_mean", "tpot_s_p95"],
    *["e2e_s_mean", "e2e_s_p95", "goodput_rps", "output_tokens_per_s", "gpu_busy_fraction", "facility_power_w_mean"],
    *["usd_per_million_output_tokens", "usd_per_million_good_tokens"],
]
MOST_IN_TERMINAL, MOST_BLOCKS = 12, 10
"""Points of one pair in the terminal, pairs in the report."""
UNSURE = "?"
NOTE = f"± half of the 95 % interval, each on its own; {UNSURE} cannot tell: zero is within it, or there is none"
MILLION = "usd_per_million_output_tokens"


@dataclass(frozen=True, slots=True)
class Difference:
    """One metric of the first fleet less that of the second, at one point."""

    first: Point
    second: Point
    metric: str
    pairs: int
    """Replications that both fleets have."""
    values: tuple[float, float]
    difference: float
    """nan where both are infinite."""
    half_width: float | None
    """Of the 95 % interval; None for one pair, or where a value is infinite."""

    @property
    def horizon_dependent(self) -> bool:
        """Whether a fleet is overloaded there, so that a longer run would give another difference."""
        listed = (str(point.row["horizon_dependent"] or "").split() for point in (self.first, self.second))
        return any(self.metric in names for names in listed)

    @property
    def verdict(self) -> str:
        """`differs`, `cannot tell` or, without any difference in any pair, `same`; empty for a single pair."""
        if self.pairs < 2:
            return ""
        if self.half_width is None:
            return "cannot tell"
        if self.difference == 0 == self.half_width:
            return "same"
        return "differs" if abs(self.difference) > self.half_width else "cannot tell"


def differences(points: Sequence[Point], metrics: Sequence[str] = METRICS) -> list[Difference]:
    """Every pair of fleets (in their order) at every point where both could run, every metric that both have, and the
    percentiles that the service level names.
    """
    places: dict[str, dict[str, Point]] = {}
    for point in points:
        if point.ok:
            places.setdefault(repr(dict(point.axes)), {})[point.fleet] = point
    found: list[Difference] = []
    named = named_percentiles({name for point in points for name in point.row})
    for pair in combinations(fleets_of(points), 2):
        for there in places.values():
            if all(fleet in there for fleet in pair):
                found += _at(there[pair[0]], there[pair[1]], [*metrics, *named])
    return found


def _at(first: Point, second: Point, metrics: Sequence[str]) -> Iterator[Difference]:
    others = {case.replication: case for case in second.cases}
    both = [(case, others[case.replication]) for case in first.cases if case.replication in others]
    for metric in metrics if both else ():
        compared = _ratios(both, metric) if metric in TOKENS else _means(both, metric)
        if compared is not None:
            values, difference, half = compared
            yield Difference(first, second, metric, len(both), values, difference, half)


Compared = tuple[tuple[float, float], float, float | None]
Pairs = Sequence[tuple[FinishedCase, FinishedCase]]


def _means(both: Pairs, metric: str) -> Compared | None:
    columns = [[case.metrics.get(metric) for case in side] for side in zip(*both, strict=True)]
    if any(value is None or isnan(value) for column in columns for value in column):
        return None
    difference, half = paired_difference(*columns)
    return (mean(columns[0]), mean(columns[1])), difference, half


def _ratios(both: Pairs, metric: str) -> Compared | None:
    sides = list(zip(*both, strict=True))
    usd = [[case.metrics.get("cost_usd") for case in side] for side in sides]
    if any(amount is None for column in usd for amount in column):
        return None
    millions = [[case.metrics[TOKENS[metric]] / 1e6 for case in side] for side in sides]
    values = [ratio(top, bottom)[0] for top, bottom in zip(usd, millions, strict=True)]
    difference, half = ratio_difference((usd[0], usd[1]), (millions[0], millions[1]))
    return (values[0], values[1]), difference, half


def write_paired(path: Path, found: Sequence[Difference], axes: Sequence[str]) -> None:
    """paired.csv, one row per pair of fleets, point and metric; base units."""
    head = ["first", "second", *axes, "metric", "pairs", "first_value", "second_value", "difference"]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(map(cell, [*head, "difference_ci95", "verdict", "horizon_dependent"]))
        for one in found:
            places = [one.first.axes.get(axis) for axis in axes]
            for name, rate in _units(one.metric):
                half = None if one.half_width is None else rate * one.half_width
                amounts = [*(rate * value for value in one.values), rate * one.difference, half]
                row = [one.first.fleet, one.second.fleet, *places, name, one.pairs, *amounts, one.verdict]
                writer.writerow([cell(value) for value in (*row, one.horizon_dependent)])


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
        result.append(Block(f"{first} less {second}", heads, lines))
    return result


def _shown_metrics(slo: Slo) -> dict[str, str]:
    """Metric -> heading."""
    share = {"slo_attainment": "within SLO [pp]"} if slo.per_request else {}
    latencies = {name: f"{head} [{'ms' if _in_ms(name) else 's'}]" for name, head in latency_columns(slo).items()}
    return share | latencies | {MILLION: PER_MILLION}


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
    text += OVER if one.horizon_dependent else ""
    return f"{text} {UNSURE}" if one.verdict == "cannot tell" else text
