"""Files and terminal tables of a validation of serving benchmarks: errors per row, medians by group."""

from collections.abc import Callable, Sequence
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any

from sim.benchdata.row import METRICS
from sim.csvio import write_csv
from sim.fidelity.picture import write_picture
from sim.fidelity.scores import (
    ALL,
    SCORED,
    Coverage,
    IntervalCoverage,
    JointScore,
    PredictedRow,
    Ranking,
    Score,
    coverage,
    interval_coverage,
    joint_errors,
    joint_scores,
    ranked_servers,
    rankings,
    reasons,
    scores,
)
from sim.language import _, translate_rendered
from sim.report.charts.fonts import drawable
from sim.report.terminal_table import FittedTable

GROUPS: dict[str, tuple[tuple[str, ...], Callable[[PredictedRow], tuple[str, ...]]]] = {
    "class": (("class",), lambda one: (one.category,)),
    "pair": (("class", "gpu", "family"), lambda one: (one.category, *one.pair)),
    "engine": (("class", "engine"), lambda one: (one.category, one.prediction.engine or one.row.engine or "vLLM")),
    "link": (("class", "link", "n_gpus"), lambda one: (one.category, *_link(one))),
    "load": (("class", "load"), lambda one: (one.category, one.row.load)),
}
"""Summaries as (leading columns, function row -> group), keyed by name."""
SCORE_COLUMNS = (
    "quantity",
    "rows",
    "covered",
    "pairs",
    "median_error",
    "p90_error",
    "covered_median_error",
    "bias",
)
MOST_REASONS = 12


def write_validation(folder: Path, outcomes: Sequence[PredictedRow]) -> None:
    """Write validation.csv, summary_by_*.csv, joint.csv, coverage.csv, ranking.csv, inside.csv and validation.png."""
    columns = row_columns()
    write_csv(folder / "validation.csv", columns, ([_row(one).get(name) for name in columns] for one in outcomes))
    for name, (leading, group) in GROUPS.items():
        found = scores(outcomes, group)
        lines = ([*score.group, *(getattr(score, column) for column in SCORE_COLUMNS)] for score in found)
        write_csv(folder / f"summary_by_{name}.csv", [*leading, *SCORE_COLUMNS], lines)
    joint = joint_scores(joint_errors(outcomes))
    write_csv(folder / "joint.csv", [field.name for field in fields(JointScore)], map(astuple, joint))
    heads = ["class", "rows", "covered", "infeasible", "share", "pairs", "pairs_covered"]
    lines = ([one.category, *(getattr(one, head) for head in heads[1:])] for one in coverage(outcomes))
    write_csv(folder / "coverage.csv", heads, lines)
    heads = ["quantity", "comparisons", "row_pairs", "right_share"]
    ranked = rankings(ranked_servers(outcomes))
    write_csv(folder / "ranking.csv", heads, ([getattr(one, head) for head in heads] for one in ranked))
    heads = ["mark", "quantity", "rows", "pairs", "share"]
    lines = ([getattr(one, head) for head in heads] for one in interval_coverage(outcomes))
    write_csv(folder / "inside.csv", heads, lines)
    with drawable():
        write_picture(folder / "validation.png", outcomes)


def row_columns() -> list[str]:
    """Return the header of validation.csv."""
    leading = ["id", "status", "reason", "class", "gpu", "family", "model", "quantization", "engine", "link", "n_gpus"]
    measured = [f"{metric}{tail}" for metric in METRICS for tail in ("", "_predicted", "_error")]
    return [*leading, "load", "use", "trust", "saturated", "requests", *measured]


def _row(one: PredictedRow) -> dict[str, Any]:
    row, prediction = one.row, one.prediction
    cells: dict[str, Any] = {name: getattr(prediction, name) for name in ("model", "quantization", "link", "requests")}
    cells |= {name: getattr(row, name) for name in ("id", "n_gpus", "load", "use", "trust")}
    cells |= {"status": prediction.status, "reason": prediction.reason, "class": one.category}
    cells |= {"gpu": one.pair[0], "family": one.pair[1], "engine": prediction.engine or row.engine}
    cells["saturated"] = prediction.saturated if one.covered else None
    for metric in METRICS:
        cells[metric] = row.measured.get(metric)
        cells[f"{metric}_predicted"] = prediction.metrics.get(metric)
        cells[f"{metric}_error"] = one.error(metric)
    return cells


def _link(one: PredictedRow) -> tuple[str, str]:
    """Return the link and the number of GPUs in the simulation."""
    gpus = one.prediction.gpus or one.row.n_gpus
    return one.prediction.link or ("not covered" if gpus > 1 else "one GPU"), str(gpus)


def terminal_tables(outcomes: Sequence[PredictedRow]) -> list[FittedTable | str]:
    """Return the tables of a validation within 80 columns.

    Coverage and errors are by class; reasons, errors by engine, joint errors, rankings and intervals cover the scored
    class only.
    """
    category, engine = GROUPS["class"][1], GROUPS["engine"][1]
    scored = [one for one in outcomes if one.category == SCORED]
    by_engine = [score for score in scores(scored, engine) if score.quantity in ("throughput", "tpot", "ttft loaded")]
    parts: list[FittedTable | str] = [_coverage_table(coverage(outcomes))]
    missing = reasons(scored)
    if missing:
        listed = _("; ").join(f"{translate_rendered(reason)} ({count})" for reason, count in missing[:MOST_REASONS])
        more = len(missing) - MOST_REASONS
        parts.append(
            _(
                "no prediction: {reasons}{more}",
                reasons=listed,
                more=_("; {more} more reasons", more=more) if more > 0 else "",
            )
        )
    found = sorted(scores(outcomes, category), key=lambda score: score.group[0] != SCORED)
    parts.append(_score_table(found, "class"))
    if len({score.group for score in by_engine}) > 1:
        parts.append(_score_table([_without_class(score) for score in by_engine], "engine"))
    joint = [score for score in joint_scores(joint_errors(scored)) if score.rows > 1]
    if joint:
        parts.append(joint_table(joint))
    ranked = rankings(ranked_servers(scored))
    if ranked:
        parts.append(_ranking_table(ranked))
    within = interval_coverage(scored)
    if within:
        parts.append(_inside_table(within))
    return parts


def _without_class(score: Score) -> Score:
    return Score(score.group[1:], *(getattr(score, name) for name in SCORE_COLUMNS))


def _coverage_table(found: Sequence[Coverage]) -> FittedTable:
    heads = (_("class"), _("rows"), _("covered"), _("infeasible"), _("pairs covered"))
    rows = [
        [one.category, str(one.rows), f"{one.covered} ({one.share:.0%})", str(one.infeasible), pairs]
        for one in found
        for pairs in [_("{pairs_covered} of {pairs}", pairs_covered=one.pairs_covered, pairs=one.pairs)]
    ]
    return FittedTable(heads, rows)


def _score_table(found: Sequence[Score], group: str) -> FittedTable:
    heads = (
        group,
        _("quantity"),
        _("rows"),
        _("pairs"),
        _("median |error|"),
        _("90 % of pairs"),
        _("covered alone"),
        _("bias"),
    )
    rows, before = [], ""
    for score in found:
        name = score.group[0]
        errors = (score.median_error, score.p90_error, score.covered_median_error)
        bias = "" if score.bias is None else f"{100 * score.bias:+.0f} %"
        shown = name if name != before else ""
        rows.append([shown, _(score.quantity), str(score.rows), str(score.pairs), *map(_percent, errors), bias])
        before = name
    return FittedTable(heads, rows, frozenset({0, 1}), 2)


def joint_table(found: Sequence[JointScore]) -> FittedTable:
    """Return the table of *found*, a row per score: biases of TTFT, TPOT and whole answer where both are measured."""
    heads = [_("engine"), _("rows with"), _("rows"), "TTFT", "TPOT", _("whole answer")]
    heads += [_("TTFT short, TPOT long"), _("TTFT long, TPOT short")]
    rows, before = [], ""
    for one in found:
        part = _("all") if one.load == one.layout == ALL else one.load if one.load != ALL else one.layout
        biases = [f"{100 * bias:+.0f} %" for bias in (one.ttft_bias, one.tpot_bias, one.answer_bias)]
        crossed = [f"{100 * many / one.rows:.0f} %" for many in (one.ttft_short_tpot_long, one.ttft_long_tpot_short)]
        rows.append([one.engine if one.engine != before else "", part, str(one.rows), *biases, *crossed])
        before = one.engine
    title = _("Bias of TTFT, TPOT and TTFT + TPOT x (output - 1) in the same rows")
    return FittedTable(heads, rows, frozenset({0, 1}), 2, title=title)


def _ranking_table(found: Sequence[Ranking]) -> FittedTable:
    heads = (_("quantity"), _("comparisons"), _("pairs of rows"), _("faster one named"))
    rows = [
        [_(one.quantity), str(one.comparisons), str(one.row_pairs), f"{100 * one.right_share:.0f} %"] for one in found
    ]
    title = _("Two servers measured more than 10 % apart at the same task")
    return FittedTable(heads, rows, title=title)


def _inside_table(found: Sequence[IntervalCoverage]) -> FittedTable:
    heads = (_("prediction"), _("quantity"), _("rows"), _("pairs"), _("inside"))
    rows = [[_(one.mark), _(one.quantity), str(one.rows), str(one.pairs), f"{100 * one.share:.0f} %"] for one in found]
    return FittedTable(heads, rows, frozenset({0, 1}), 2, title=_("Measured within the interval of 80 %"))


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"
