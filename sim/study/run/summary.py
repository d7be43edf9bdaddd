"""summary.csv: one row per fleet and sweep point, means over replications with 95 % half-widths."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import inf, isnan
from typing import Any

from sim.scenario.sections.slo import Slo
from sim.study.metrics.service_level import standing
from sim.study.metrics.statistics import half_width, mean, ratio
from sim.study.run.point import FinishedCase, Point, group
from sim.units import HOURS_PER_MONTH, SECONDS_PER_HOUR

COUNTS = ["requests", "completed", "rejected", "unfinished"]
RATES = ["offered_rps", "requests_per_s", "output_tokens_per_s", "total_tokens_per_s", "goodput_rps", "slo_attainment"]
LATENCIES = [f"{name}_{part}" for name in ("ttft_s", "tpot_s", "e2e_s") for part in ("mean", "p50", "p95", "p99")]
LOAD = ["queue_s_p95", "batch_mean", "gpu_busy_fraction", "kv_used_peak_fraction", "preemptions"]
POWER = ["gpu_power_w_mean", "it_power_w_mean", "facility_power_w_mean", "energy_kwh"]
MARKS = ["thin_percentiles", "horizon_dependent", "intervals"]
"""Names of columns with few requests in their tail; of those that would be others with another horizon, because the
queue grows; and what the intervals rest on: `replications` or, for a single run, its `batch means`."""
UNBOUNDED = [*(name for name in LATENCIES if not name.startswith("tpot")), "queue_s_p95"]
"""What grows with the horizon where the queue does."""
UNBOUNDED_BY_SLO = ["goodput_rps", "slo_attainment", "usd_per_million_good_tokens"]
"""What does so, too, where waiting breaks the service level."""
TOKENS = {
    "usd_per_million_output_tokens": "output_tokens",
    "usd_per_million_tokens": "total_tokens",
    "usd_per_million_good_tokens": "good_output_tokens",
}
MONEY = ["capex_usd", "cost_usd_per_h", "cost_usd_per_month", *TOKENS]
API = {"api_usd_per_h": "window_h", "api_usd_per_million_output_tokens": "output_tokens"}
CARBON = {
    "kg_co2e_per_h": "window_h",
    "kg_co2e_per_million_output_tokens": "output_tokens",
    "kg_co2e_per_million_tokens": "total_tokens",
}
WASTE = {"idle_tax_usd_per_h": "idle_tax_usd", "preemption_waste_usd_per_h": "preemption_waste_usd"}
PER_REQUEST = ["usd_per_request_p50", "usd_per_request_p95", "usd_per_request_p99"]
WARMUP = ["warmup_s", "warmup_unsteady"]
"""Where the warm-up was looked for: its mean, and in how many replications no steady part was found behind it."""
ON_REQUEST = [
    *WARMUP,
    *[*WASTE, *PER_REQUEST, "currency", "usd_per_currency", *API],
    *["operational_kg_co2e", "embodied_kg_co2e", *CARBON],
]
"""Columns that only scenarios with a cost, `requests_cost`, `api`, `carbon` or an automatic warm-up have."""
CONTRACT_COLUMNS = [
    *["status", "reason", "replications", *COUNTS, *RATES, "meets_slo", "overloaded", "limited_by", *LATENCIES, *LOAD],
    *["gpus", "servers", *POWER, *MONEY],
]
MEANS = [
    *[*COUNTS, *RATES, *LATENCIES, *LOAD, "gpus", "servers", *POWER, "capex_usd"],
    *["operational_kg_co2e", "embodied_kg_co2e", *PER_REQUEST],
]
FIXED = {"gpus", "servers", "capex_usd"}
"""What a plan sets is the same in every replication and has no interval."""
WITH_INTERVAL = [name for name in CONTRACT_COLUMNS if (name in MEANS or name in MONEY) and name not in FIXED]


def summary_columns(axes: Sequence[str], money: bool, on_request: Sequence[str] = ()) -> list[str]:
    """Column names of summary.csv in order; without any cost there are no money columns."""
    shown = [*(name for name in CONTRACT_COLUMNS if money or name not in MONEY), *on_request]
    halves = (f"{name}_ci95" for name in shown if name in WITH_INTERVAL or _is_percentile(name))
    return ["fleet", *axes, *shown, *MARKS, *halves]


def named_percentiles(metrics: Iterable[str]) -> list[str]:
    """Of the names of metrics the percentiles of latencies beside the usual ones, which a service level names."""
    return sorted(name for name in metrics if _is_percentile(name) and name not in LATENCIES)


def _is_percentile(name: str) -> bool:
    return re.fullmatch(r"(ttft|tpot|e2e)_s_p[0-9.]+", name) is not None


def asked_columns(points: Sequence[Point], axes: Sequence[str]) -> list[str]:
    """Of ON_REQUEST and the percentiles that a service level names those that have a value, and are no axis."""
    named = named_percentiles({name for point in points for name in point.row})
    wanted = [*named, *ON_REQUEST]
    return [name for name in wanted if name not in axes and any(point.row.get(name) is not None for point in points)]


def summarize(cases: Sequence[FinishedCase], axes: Sequence[str], slo: Mapping[str, Any]) -> list[Point]:
    """One Point per fleet and sweep point, in order of first appearance in *cases*."""
    points = []
    for members in group(cases, axes).values():
        first = members[0]
        finished = [case for case in members if case.status == "ok"]
        places = {axis: first.axes.get(axis) for axis in axes}
        row: dict[str, Any] = {"fleet": first.fleet, **places, **_empty(first, finished)}
        if finished:
            row |= _means(finished) | _verdicts(finished, slo) | _money(finished) | _warmup(finished)
            for name, metric in WASTE.items():
                row |= _rates(finished, [metric], {name: "window_h"})
            row |= _in_currency(finished[0].metrics)
            row |= _rates(finished, ["api_usd"], API)
            row |= _rates(finished, ["operational_kg_co2e", "embodied_kg_co2e"], CARBON)
        points.append(Point(first.fleet, places, tuple(finished), row | places))
    return points


def _empty(first: FinishedCase, finished: Sequence[FinishedCase]) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys([*CONTRACT_COLUMNS, *ON_REQUEST, *MARKS])
    for name in ("gpus", "servers", "capex_usd"):
        row[name] = first.metrics.get(name)
    status = "ok" if finished else first.status
    return row | {"status": status, "reason": "" if finished else first.reason, "replications": len(finished)}


def _numbers(cases: Sequence[FinishedCase], name: str) -> list[float]:
    """The metric in every replication that has it."""
    values = [case.metrics.get(name) for case in cases]
    return [value for value in values if value is not None and not isnan(value)]


def _means(cases: Sequence[FinishedCase]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name in [*MEANS, *named_percentiles(cases[0].metrics)]:
        values = _numbers(cases, name)
        if values:
            same = all(value == values[0] for value in values)
            row[name] = values[0] if same else mean(values)
            row[f"{name}_ci95"] = half_width(values)
    if len(cases) == 1:
        row |= {f"{name}_ci95": half for name, half in (cases[0].metrics.get("batch_ci95") or {}).items()}
    return row


def _warmup(cases: Sequence[FinishedCase]) -> dict[str, Any]:
    """The warm-up that was found, empty where it was given."""
    steady = [case.metrics.get("warmup_steady") for case in cases]
    if any(one is None for one in steady):
        return {}
    return {"warmup_s": mean(_numbers(cases, "warmup_s")), "warmup_unsteady": steady.count(False)}


def _verdicts(cases: Sequence[FinishedCase], slo: Mapping[str, Any]) -> dict[str, Any]:
    # a sweep may be one of service levels: the case itself has its own
    level = Slo.model_validate(cases[0].metrics.get("slo", slo))
    found = standing(level, [case.metrics for case in cases])
    limits = Counter(case.metrics.get("limited_by") or "" for case in cases)
    thin = dict.fromkeys(name for case in cases for name in case.metrics.get("thin_percentiles") or ())
    over, named = found.overloaded, named_percentiles(cases[0].metrics)
    endless = [name for name in (*LATENCIES, *named) if any(case.metrics.get(name) == inf for case in cases)]
    endless += [name for name in named if not name.startswith("tpot")]
    waiting_counts = over and any(name in level.per_request for name in ("ttft_s", "e2e_s"))
    return {
        "meets_slo": found.met,
        "overloaded": over,
        "horizon_dependent": " ".join(dict.fromkeys([*UNBOUNDED, *endless] * over + UNBOUNDED_BY_SLO * waiting_counts)),
        "intervals": "replications" if len(cases) > 1 else "batch means" if cases[0].metrics.get("batch_ci95") else "",
        "limited_by": limits.most_common(1)[0][0],
        "thin_percentiles": " ".join(thin),
    }


def replication_costs(point: Point, tokens: str = "output_tokens") -> list[float]:
    """USD per million tokens of each replication, empty without a cost."""
    pairs = [(case.metrics.get("cost_usd"), case.metrics.get(tokens)) for case in point.cases]
    return [ratio([usd], [count / 1e6])[0] for usd, count in pairs if usd is not None and count is not None]


def _money(cases: Sequence[FinishedCase]) -> dict[str, Any]:
    if any(case.metrics.get("cost_usd") is None for case in cases):
        return {}
    usd = [float(case.metrics["cost_usd"]) for case in cases]
    hours = [float(case.metrics["window_h"]) for case in cases]
    rates = [ratio([amount], [length])[0] for amount, length in zip(usd, hours, strict=True)]
    row: dict[str, Any] = {}
    for name, factor in (("cost_usd_per_h", 1.0), ("cost_usd_per_month", HOURS_PER_MONTH)):
        values = [factor * rate for rate in rates]
        row |= {name: mean(values), f"{name}_ci95": half_width(values)}
    for name, tokens in TOKENS.items():
        millions = [case.metrics[tokens] / 1e6 for case in cases]
        row[name], row[f"{name}_ci95"] = ratio(usd, millions)
        if len(cases) == 1:
            row[f"{name}_ci95"] = _of_one_run(cases[0], row[name], tokens)
    return row


def _of_one_run(case: FinishedCase, usd_per_million: float, tokens: str) -> float | None:
    """Half of the interval of a cost per token from that of the tokens' rate, as if cost ran evenly.

    Too wide rather than too narrow: energy grows with the tokens.
    """
    half = (case.metrics.get("batch_ci95") or {}).get(f"{tokens}_per_s")
    made = case.metrics[tokens]
    return usd_per_million * half * case.metrics["window_h"] * SECONDS_PER_HOUR / made if half and made else None


def _in_currency(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The currency of the report, where it is not the dollar, and its rate, which is a plan's, not a run's."""
    return {name: metrics.get(name) for name in ("currency", "usd_per_currency")}


def _rates(cases: Sequence[FinishedCase], parts: Sequence[str], per: Mapping[str, str]) -> dict[str, Any]:
    """The sum of the metrics *parts* over each metric in *per*, tokens in millions; nothing where one is missing."""
    if any(case.metrics.get(name) is None for case in cases for name in parts):
        return {}
    amounts = [sum(float(case.metrics[name]) for name in parts) for case in cases]
    row: dict[str, Any] = {}
    for name, metric in per.items():
        units = 1.0 if metric == "window_h" else 1e6
        row[name], row[f"{name}_ci95"] = ratio(amounts, [case.metrics[metric] / units for case in cases])
    return row
