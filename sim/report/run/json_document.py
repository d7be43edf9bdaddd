"""The answer of `gpufleet run` and `price` as one JSON document."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sim.catalogue.catalog import Catalog
from sim.report.json_document import heading
from sim.report.run.verdict import verdict_of
from sim.report.words.units import verdict_in_units
from sim.scenario.schema import Scenario
from sim.scenario.sweep import axes as axes_of
from sim.study.comparison import differences
from sim.study.execution.cases import limits
from sim.study.metrics.columns import summary_columns
from sim.study.monte_carlo import stored_disputes
from sim.study.points import FinishedCase, columns_where_known, has_money, summarize


def run_document(
    scenario: Scenario, catalog: Catalog, cases: Sequence[FinishedCase], notes: Sequence[str], out: str
) -> dict[str, Any]:
    """Build the document of `run` and `price`: the verdict, the rows of summary.csv and those of paired.csv."""
    axes = axes_of(scenario)
    points = summarize(cases, axes, limits(scenario))
    wanted = summary_columns(axes, has_money(points), columns_where_known(points, axes))
    columns = [name for name in wanted if name not in axes]
    answer = verdict_of(scenario, catalog, points, disputes=stored_disputes(Path(out)))
    return {
        **heading(scenario, out),
        "axes": list(axes),
        "verdict": verdict_in_units(answer.headline, answer.findings),
        "notes": list(notes),
        "points": [{"axes": dict(point.axes)} | {name: point.row.get(name) for name in columns} for point in points],
        "paired": [
            {
                "first": one.first.fleet,
                "second": one.second.fleet,
                "axes": dict(one.first.axes),
                "metric": one.metric,
                "pairs": one.pairs,
                "first_value": one.values[0],
                "second_value": one.values[1],
                "difference": one.difference,
                "difference_ci95": one.half_width,
                "verdict": one.verdict,
                "nonstationary": one.nonstationary,
            }
            for one in differences(points)
        ],
    }
