"""The year: year.csv and its table in report.html."""

from collections.abc import Sequence
from math import fsum
from pathlib import Path
from typing import Any

from sim.language import _
from sim.report.fleets.run.tables import write_rows
from sim.report.words.goals import share_beside
from sim.report.words.money import cash, in_code
from sim.report.words.text import percent, plain
from sim.scenario.sections.slo import Slo
from sim.scenario.year import YearPlan
from sim.study.fleets.run.year import COLUMNS, PEAKS, FleetYear
from sim.units import HOURS_PER_YEAR


def write_year(path: Path, rows: Sequence[FleetYear], axes: Sequence[str], money: bool) -> None:
    """The rows as CSV; without any cost there are no money columns."""
    shown = [name for name in PEAKS if any(getattr(row, name) is not None for row in rows)] or PEAKS[:1]
    left_out = {*PEAKS} - {*shown} | {name for name in COLUMNS if "usd" in name and not money}
    write_rows(
        path, [row.row for row in rows], [_("fleet"), *axes, *(name for name in COLUMNS if name not in left_out)]
    )


def year_table(rows: Sequence[FleetYear], axes: Sequence[str], plan: YearPlan, slo: Slo) -> dict[str, Any]:
    """The rows for report.html: heads, cells and what must be known of them."""
    others = [axis for axis in axes if axis != plan.axis]
    money = any(row.usd_per_year is not None for row in rows)
    heads = [
        *([in_code(_("USD a year")), _("of it idle"), _("per million output tokens")] if money else []),
        _("output tokens a year"),
    ]
    peak = _("{peak:g} clients", peak=plan.peak) if plan.clients else f"{plan.peak:g}/s"
    heads += [
        _("MWh a year"),
        _("SLO at the peak of {peak}", peak=peak),
        _("hours within the SLO"),
        _("requests within it"),
    ]
    body = []
    for row in rows:
        name = _(", ").join([row.fleet, *(f"{axis} {row.axes[axis]}" for axis in others)])
        body.append((row.fleet, name, _cells(row, money, slo) if row.status == "ok" else [row.status]))
    return {"heads": heads, "rows": body, "note": _note(rows, plan)}


def _cells(row: FleetYear, money: bool, slo: Slo) -> list[str]:
    cells = []
    usd, per_million = row.usd_per_year, row.usd_per_million_output_tokens
    if money and usd is None:
        cells = ["", "", ""]
    elif money and usd is not None:
        idle = (row.idle_tax_usd_per_year or 0.0) / usd if usd else 0.0
        cells = [cash(usd), percent(idle), "" if per_million is None else cash(per_million)]
    kwh, attained, at_peak = row.kwh_per_year, row.slo_attainment, row.slo_attainment_at_peak or 0.0
    shares = [share_beside(at_peak, slo.attainment)] if slo.per_request or not slo.goals else []
    return [
        *cells,
        _(
            "{output_tokens_per_year:,.0f} million",
            output_tokens_per_year=(row.output_tokens_per_year or 0.0) / 1000000.0,
        ),
        "" if kwh is None else f"{kwh / 1e3:,.1f}",
        _(", ").join([_("met") if row.meets_slo_at_peak else _("missed"), *shares]),
        _("{good_hours:,.0f} of {hours_per_year:,.0f}", good_hours=row.good_hours, hours_per_year=HOURS_PER_YEAR),
        "" if attained is None else share_beside(attained, slo.attainment),
    ]


def _note(rows: Sequence[FleetYear], plan: YearPlan) -> str:
    parts = [_("Each hour is taken as steady at its load: no queue is carried into the next.")]
    if plan.clients:
        parts.append(_("A load is the number of clients present, all with the pauses of the workload."))
    idle = fsum(hours for load, hours, _ in plan.loads if not load)
    if idle:
        parts.append(_("In {idle} hours no requests arrive: the machines stay on and idle.", idle=plain(idle)))
    hours = max((row.interpolated_hours or 0.0 for row in rows), default=0.0)
    if hours:
        parts.append(
            _(
                "{hours} of its hours lie between simulated loads and are taken as the straight line.",
                hours=plain(hours),
            )
        )
    return " ".join(parts)
