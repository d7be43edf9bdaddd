"""The answer to "how much load does it take": a table for the terminal, and capacity.csv."""

import csv
from collections import Counter
from collections.abc import Sequence
from math import isinf
from pathlib import Path
from typing import Any

from rich.table import Table

from sim.catalog.catalog import Catalog
from sim.report.deliver import write_manifest
from sim.report.tables import cell
from sim.scenario.schema import Scenario
from sim.study.capacity import Capacity, LoadAxis, capacities
from sim.study.statistics import mean, ratio
from sim.study.store import StoredCase

AT_CAPACITY = ["ttft_s_p95", "tpot_s_p95", "e2e_s_p95", "output_tokens_per_s", "gpu_busy_fraction"]


def deliver_capacity(scenario: Scenario, catalog: Catalog, out: Path, workers: int, relative: float) -> list[Capacity]:
    """Searches, and leaves capacity.csv and the simulated points in *out*."""
    out.mkdir(parents=True, exist_ok=True)
    write_manifest(
        out, {"program": "gpufleet", "scenario": scenario.name, "command": "capacity", "seed": scenario.seed}
    )
    found = list(capacities(scenario, catalog, out, workers, relative))
    write_capacity(out / "capacity.csv", capacity_rows(found, LoadAxis.of(scenario)))
    return found


def capacity_rows(found: Sequence[Capacity], axis: LoadAxis) -> list[dict[str, Any]]:
    """One row per fleet: capacity with its interval, and what the fleet does and costs there."""
    return [_row(one, axis) for one in found]


def _row(one: Capacity, axis: LoadAxis) -> dict[str, Any]:
    cases = [found.at for found in one.found if found.at is not None and found.at.status == "ok"]
    row: dict[str, Any] = {
        "fleet": one.fleet,
        axis.label: one.mean,
        f"{axis.label}_ci95": one.half_width,
        "replications": len(one.found),
        "reason": one.reason,
        "limited_by": _usual(cases),
    }
    row |= {name: _mean(cases, name) for name in AT_CAPACITY}
    return row | _money(cases)


def _usual(cases: Sequence[StoredCase]) -> str:
    """What limits most of the replications."""
    counted = Counter(str(case.metrics["limited_by"]) for case in cases)
    return counted.most_common(1)[0][0] if counted else ""


def _mean(cases: Sequence[StoredCase], name: str) -> float | None:
    values = [case.metrics[name] for case in cases if case.metrics[name] is not None]
    return mean(values) if values else None


def _money(cases: Sequence[StoredCase]) -> dict[str, float | None]:
    """Cost per hour and per million good output tokens, sums over replications; empty without a cost."""
    if not cases or cases[0].metrics["cost_usd"] is None:
        return {"cost_usd_per_h": None, "usd_per_million_good_tokens": None}
    usd = [case.metrics["cost_usd"] for case in cases]
    good_millions = [case.metrics["good_output_tokens"] / 1e6 for case in cases]
    hours = [case.metrics["window_h"] for case in cases]
    return {
        "cost_usd_per_h": sum(usd) / sum(hours),
        "usd_per_million_good_tokens": ratio(usd, good_millions)[0],
    }


def write_capacity(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """capacity.csv."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(rows[0])
        writer.writerows([cell(value) for value in row.values()] for row in rows)


def capacity_table(rows: Sequence[dict[str, Any]], axis: LoadAxis) -> Table:
    """The rows for a terminal."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    heads = (
        "fleet",
        f"{axis.label}",
        "95 %",
        "limited by",
        "p95 TTFT s",
        "p95 TPOT ms",
        "out tok/s",
        "USD/h",
        "USD/M good",
    )
    for head in heads:
        table.add_column(head, justify="left" if head in ("fleet", "limited by") else "right")
    for row in rows:
        if row["reason"]:
            table.add_row(row["fleet"], "none", "", row["reason"])
            continue
        tpot_s = row["tpot_s_p95"]
        table.add_row(
            row["fleet"],
            "beyond the search" if isinf(row[axis.label]) else f"{row[axis.label]:.3g}",
            "" if row[f"{axis.label}_ci95"] is None else f"± {row[f'{axis.label}_ci95']:.2g}",
            row["limited_by"],
            _short(row["ttft_s_p95"]),
            _short(None if tpot_s is None else 1e3 * tpot_s),
            _short(row["output_tokens_per_s"]),
            _short(row["cost_usd_per_h"]),
            _short(row["usd_per_million_good_tokens"]),
        )
    return table


def _short(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"
