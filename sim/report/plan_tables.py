"""Tables of `gpufleet plan`: plan.csv by fleet and month, summary.csv by fleet, and the terminal's table."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sim.cost.multi_year import MultiYear
from sim.language import _
from sim.report.financing_tables import PREPAID_USD, WORKING_USD, revenue_cells, revenue_columns, revenue_heads
from sim.report.run.tables import write_rows
from sim.report.terminal_table import FittedTable
from sim.report.words.money import bare, heading_mark, shown
from sim.report.words.text import plain
from sim.study.plan import FleetPlanOutlook
from sim.study.plan_cash import PlanMonth

FRONT = (
    *("fleet", "month", "date", "demand", "peak_demand", "units_needed", "ordered", "on_order"),
    *("owned_in_service", "rented_in_service", "retired", "capacity", "utilisation", "meets_slo", "shortfall"),
)
BACK = (
    *("capex_usd", "resale_usd", "decommissioning_usd", "opex_usd", "rental_usd", "net_cost_usd"),
    *("cumulative_cost_usd", "present_cost_usd", "prompt_tokens", "output_tokens"),
)
EXISTING = ("existing_in_service", "existing_sold", "existing_resale_usd", "disposal_gain_usd")
"""Columns of plans with existing units."""
API_LOAD = "api_load"
OWED = "owed_usd"
REAL_LEVELISED = "real_levelised_usd_per_million_output_tokens"
"""Column of summary.csv with general inflation: levelised cost in today's money."""
"""Column of plans whose rental contracts outlast them: in the closing row, and in the totals."""
END = "end"


def month_rows(outlook: FleetPlanOutlook, plan: MultiYear) -> list[dict[str, Any]]:
    """Return the rows of plan.csv of a fleet; the closing row lacks the columns of load and capacity."""
    result = []
    moves, prepays = (any(getattr(row, name) for row in outlook.rows) for name in ("working_usd", "prepaid_usd"))
    for row, cumulative_usd in zip(outlook.rows, outlook.cumulative_usd, strict=True):
        closing = row.month == plan.months
        cells: dict[str, Any] = {
            "fleet": outlook.fleet,
            "month": END if closing else row.month + 1,
            "date": plan.date(row.month),
            **({} if closing else _load(row, outlook.api)),
            "ordered": row.ordered,
            "on_order": row.on_order,
            "owned_in_service": row.owned,
            "rented_in_service": row.rented,
            "retired": row.retired,
            "capex_usd": row.capital_usd,
            "resale_usd": row.resale_usd,
            "decommissioning_usd": row.decommissioning_usd,
            "opex_usd": row.running_usd,
            "rental_usd": row.rental_usd,
            "net_cost_usd": row.net_usd,
            "cumulative_cost_usd": cumulative_usd,
            "present_cost_usd": row.present_usd,
            "prompt_tokens": row.prompt_tokens,
            "output_tokens": row.output_tokens,
            **(_existing(row) if outlook.held else {}),
            **({API_LOAD: row.elsewhere} if outlook.api and not closing else {}),
            **({OWED: outlook.owed_usd} if closing else {}),
            **({WORKING_USD: row.working_usd} if moves else {}),
            **({PREPAID_USD: row.prepaid_usd} if prepays else {}),
        }
        result.append(cells | {f"{name}_usd": amount for name, amount in {**row.capex_usd, **row.opex_usd}.items()})
    return result


def _existing(row: PlanMonth) -> dict[str, Any]:
    cells = (row.existing, row.existing_sold, row.existing_resale_usd, row.gain_usd)
    return dict(zip(EXISTING, cells, strict=True))


def _load(row: PlanMonth, api: bool) -> dict[str, Any]:
    return {
        "demand": row.demand,
        "peak_demand": row.peak,
        "units_needed": row.needed,
        "capacity": row.capacity,
        "utilisation": row.utilisation,
        "meets_slo": None if api else row.meets_slo,
        "shortfall": row.shortfall,
    }


def components(found: Sequence[FleetPlanOutlook], kind: str) -> list[str]:
    """Return the components of capital cost (*kind* capex_usd) or operating cost (opex_usd) of all fleets."""
    return list(dict.fromkeys(name for one in found for row in one.rows for name in getattr(row, kind)))


def write_months(path: Path, found: Sequence[FleetPlanOutlook], plan: MultiYear) -> None:
    """Write plan.csv: a row per fleet and month, and a closing row for sales at the end.

    Net, cumulative and present cost are cash paid less cash received.
    """
    parts = [f"{name}_usd" for kind in ("capex_usd", "opex_usd") for name in components(found, kind)]
    optional = [*(EXISTING if plan.existing else ()), *([API_LOAD] if any(one.api for one in found) else [])]
    optional += [OWED] if any(one.owed_usd for one in found) else []
    optional += [WORKING_USD] if any(row.working_usd for one in found for row in one.rows) else []
    optional += [PREPAID_USD] if any(row.prepaid_usd for one in found for row in one.rows) else []
    rows = [{WORKING_USD: 0.0, PREPAID_USD: 0.0, **row} for one in found for row in month_rows(one, plan)]
    write_rows(path, rows, [*FRONT, *BACK, *optional, *parts])


def summary_row(one: FleetPlanOutlook) -> dict[str, Any]:
    """Return the row of summary.csv: the totals of a fleet; columns are None where there is no plan."""
    rows = one.rows
    totals = _totals(one) if rows else dict.fromkeys(_totals(one))
    return {
        "fleet": one.fleet,
        "reason": one.reason,
        "unit_capacity": None if one.api else one.capacity.mean,
        "unit_capacity_ci95": one.capacity.half_width,
        "unit_gpus": one.gpus,
        "units_first": rows[0].in_service if rows else None,
        "units_last": rows[-2].in_service if rows else None,
        "bought": one.bought if rows else None,
        "retired": rows[-1].retired if rows else None,
        "rented_unit_months": sum(row.rented for row in rows) if rows else None,
        "owed_unit_months": one.stock.owed_unit_months if one.stock is not None else None,
        "months_short": len(one.short) if rows else None,
        **totals,
        **(_sales(one) if one.held else {}),
        **({OWED: one.owed_usd} if one.owed_usd else {}),
        **({"after_tax_net_present_cost_usd": one.after_tax.net_present_usd} if one.after_tax is not None else {}),
        **(revenue_columns(one.earnings, one.inflation is not None) if one.earnings is not None else {}),
    }


def _totals(one: FleetPlanOutlook) -> dict[str, Any]:
    rows = one.rows
    return {
        "capex_usd": sum(row.capital_usd for row in rows),
        "resale_usd": sum(row.resale_usd for row in rows),
        "decommissioning_usd": sum(row.decommissioning_usd for row in rows),
        "opex_usd": sum(row.running_usd for row in rows),
        "rental_usd": sum(row.rental_usd for row in rows),
        "total_usd": one.total_usd,
        "net_present_cost_usd": one.present_usd,
        "discount_rate": one.discount_rate,
        "output_tokens": one.output_tokens,
        "usd_per_million_output_tokens": one.usd_per_million_output_tokens,
        "levelised_usd_per_million_output_tokens": one.levelised_usd_per_million_output_tokens,
        **({} if one.inflation is None else {REAL_LEVELISED: one.real_levelised_usd_per_million_output_tokens}),
    }


def _sales(one: FleetPlanOutlook) -> dict[str, Any]:
    """Return the columns of sales of existing units: month by group, resale value, gain over book value."""
    months = [END if held.sold == len(one.months) else f"month {held.sold + 1}" for held in one.held]
    return {
        "existing_sold": "; ".join(
            f"{held.units} {held.kind.fleet}: {when}" for held, when in zip(one.held, months, strict=True)
        ),
        "existing_resale_usd": sum(row.existing_resale_usd for row in one.rows),
        "disposal_gain_usd": sum(row.gain_usd for row in one.rows),
    }


def write_summary(path: Path, found: Sequence[FleetPlanOutlook]) -> None:
    """Write summary.csv, a row per fleet."""
    rows = [summary_row(one) for one in found]
    write_rows(path, rows, list(dict.fromkeys(name for row in rows for name in row)))


def plan_table(found: Sequence[FleetPlanOutlook]) -> FittedTable:
    """Build the terminal table, a row per fleet: plans by cost, then fleets without a plan."""
    money = (
        _("capital cost"),
        _("resale"),
        _("operating cost"),
        _("rent"),
        _("total"),
        _("net present cost"),
        _("levelised, per million output tokens"),
    )
    counts = (
        _("capacity of a unit"),
        _("units, first month"),
        _("units, last month"),
        _("units bought"),
        _("months short"),
    )
    owed = any(one.owed_usd for one in found)
    due = (_("rent due after the plan, not counted"),) if owed else ()
    heads = [_("fleet"), *counts, *(f"{head} [{heading_mark()}]" for head in (*money, *due))]
    sells = any(one.earnings is not None for one in found)
    heads += revenue_heads() if sells else []
    rows = []
    for one in sorted((one for one in found if one.rows), key=lambda one: one.present_usd):
        row = summary_row(one)
        levelised = row["levelised_usd_per_million_output_tokens"]
        amounts = (row["capex_usd"], row["resale_usd"], row["opex_usd"] + row["decommissioning_usd"])
        rows.append(
            [
                one.fleet,
                "" if one.api else plain(row["unit_capacity"]),
                *(str(row[name]) for name in ("units_first", "units_last", "bought", "months_short")),
                *map(_whole, (*amounts, row["rental_usd"], row["total_usd"], one.present_usd)),
                "" if levelised is None else bare(levelised),
                *([_whole(one.owed_usd)] if owed else []),
                *((revenue_cells(row) or [""] * len(revenue_heads())) if sells else []),
            ]
        )
    rows += [[one.fleet, _("none"), *[""] * (len(heads) - 2)] for one in found if one.reason]
    return FittedTable(heads, rows)


def _whole(value: float) -> str:
    return f"{shown(value):,.0f}"
