"""The year under a load profile: its verdict, year.csv and its table in report.html."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sim.language import _
from sim.report.run.tables import write_rows
from sim.report.words.money import cash, in_code
from sim.report.words.service_level import goal_of_all, goal_of_one, share_beside
from sim.report.words.text import AXIS_UNITS, commas, difference, joined, listing, percent, places, plain
from sim.scenario.slo import Slo
from sim.scenario.year import YearPlan
from sim.study.metrics.statistics import differ
from sim.study.year import COLUMNS, PEAKS, SALES, FleetYear, RunYear
from sim.units import HOURS_PER_YEAR


def write_year(path: Path, rows: Sequence[FleetYear], axes: Sequence[str], money: bool) -> None:
    """Write year.csv; without any cost there are no money columns."""
    shown = [name for name in PEAKS if any(getattr(row, name) is not None for row in rows)] or PEAKS[:1]
    left_out = {*PEAKS} - {*shown} | {name for name in COLUMNS if "usd" in name and not money}
    left_out |= {name for name in SALES if not any(row.sold for row in rows)}
    write_rows(
        path, [row.row for row in rows], [_("fleet"), *axes, *(name for name in COLUMNS if name not in left_out)]
    )


def year_table(year: RunYear, axes: Sequence[str], slo: Slo) -> dict[str, Any]:
    """Return the table of the year for report.html: headings, rows and a note."""
    rows, plan = year.rows, year.plan
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
        _("working hours within the SLO"),
        _("requests within it"),
    ]
    body = []
    for row in rows:
        name = _(", ").join([row.fleet, *(f"{axis} {row.axes[axis]}" for axis in others)])
        body.append((row.fleet, name, _cells(row, money, slo) if row.status == "ok" else [row.status]))
    return {"heads": heads, "rows": body, "note": _note(year)}


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
        _("{good_hours:,.0f} of {working_hours:,.0f}", good_hours=row.good_hours, working_hours=row.working_hours),
        "" if attained is None else share_beside(attained, slo.attainment),
    ]


def year_load(plan: YearPlan) -> str:
    """Describe the load of a year: its mean, its peak and its idle hours."""
    unit = _(AXIS_UNITS["concurrency" if plan.clients else "rate_rps"])
    lines = [
        _("mean {load}", load=unit.format(plain(plan.mean))),
        _("peak {load}", load=unit.format(plain(plan.peak))),
    ]
    idle = _("idle in {hours} of {all_hours} hours", hours=plain(plan.idle_hours), all_hours=f"{HOURS_PER_YEAR:,.0f}")
    return commas([*lines, *([idle] if plan.idle_hours else [])])


def _note(year: RunYear) -> str:
    rows, plan = year.rows, year.plan
    parts = [_("Each hour is modelled as steady at its load: no queue carries over to the next hour.")]
    if plan.clients:
        parts.append(_("The load is the number of concurrent clients, all with the workload's think time."))
    if idle := plan.idle_hours:
        parts.append(
            _(
                "Working hours are those in which requests arrive; in the other {idle} the servers stay on and idle.",
                idle=plain(idle),
            )
        )
    hours = max((row.interpolated_hours or 0.0 for row in rows), default=0.0)
    if hours:
        parts.append(
            _(
                "{hours} of its hours are between simulated loads and are interpolated linearly.",
                hours=plain(hours),
            )
        )
    return " ".join(parts)


def year_heads(year: RunYear, judged: bool, models: Mapping[str, str]) -> Iterator[str]:
    """Yield the verdict on the year, for each setting of the axes other than the load.

    *judged*: whether there is an SLO. Where *models* has the model of every fleet, each model has a verdict of its own.
    """
    groups: dict[str, list[FleetYear]] = {}
    for row in year.rows:
        if row.status != "infeasible":
            groups.setdefault(repr((row.axes, models.get(row.fleet))), []).append(row)
    for rows in groups.values():
        setting, model = places([*rows[0].axes.items()]), models.get(rows[0].fleet, "")
        lead = (_("At {places}: ", places=setting) if setting else "") + (_("{model}: ", model=model) if model else "")
        yield lead + _headline(rows, judged)


def _headline(rows: Sequence[FleetYear], judged: bool) -> str:
    known = [row for row in rows if row.status == "ok"]
    good = sorted((row for row in known if row.good), key=lambda row: row.usd_per_year or 0.0)
    rest = sorted((row for row in known if not row.good), key=lambda row: -row.good_share)
    beyond = [row.fleet for row in rows if row.status != "ok"]
    priced = [row for row in good if row.usd_per_year is not None]
    lines = []
    if len(rows) == 1 and known:
        lines = [_single_fleet(known[0], judged)]
    elif len(priced) > 1:
        unpriced = [row for row in good if row not in priced]
        lines = [_cheapest(priced, len(rows), judged), *(_single_fleet(row, judged) for row in (*unpriced, *rest))]
    elif good:
        lines = [_single_fleet(row, judged) for row in (*good, *rest)]
    elif rest:
        each = [_("{fleet} in {share}", fleet=_with_cost(row), share=percent(row.good_share)) for row in rest]
        none = _("No fleet meets the SLO in") if judged else _("No fleet keeps up with the load in")
        lines = [_("{none} {all_hours}: {each}.", none=none, all_hours=_all_hours(rest[0]), each=_("; ").join(each))]
    if beyond:
        lines.append(_("The year of {fleets} has loads that were not simulated.", fleets=listing(beyond)))
    return joined(lines)


def _cheapest(good: Sequence[FleetYear], fleets: int, judged: bool) -> str:
    """Name the cheapest of the fleets that meet the SLO in all working hours, and the next."""
    first, second = good[:2]
    low, high = first.usd_per_year or 0.0, second.usd_per_year or 0.0
    both = _("both") if len(good) == fleets == 2 else str(len(good)) if len(good) < fleets else _("all")
    hours = _("{both} {goal} in {all_hours}", both=both, goal=goal_of_all(judged), all_hours=_all_hours(first))
    if differ(first.usd_of_runs, second.usd_of_runs) is False:
        return _(
            "{first} and {second} cost the same a year within the 95 % interval ({low} and {high}), and {hours}.",
            first=first.fleet,
            second=second.fleet,
            low=cash(low),
            high=cash(high),
            hours=hours,
        )
    less = _(", {difference} less", difference=difference(1 - low / high)) if high > low else ""
    return _(
        "{first} is {comparative}: {low} a year against {high} ({second}){less}; {hours}.",
        first=first.fleet,
        comparative=_("cheaper") if fleets == 2 else _("cheapest"),
        low=cash(low),
        high=cash(high),
        second=second.fleet,
        less=less,
        hours=hours,
    )


def _single_fleet(row: FleetYear, judged: bool) -> str:
    hours = _all_hours(row) if row.good else _("{share} of {hours}", share=percent(row.good_share), hours=_hours(row))
    goal = goal_of_one(judged)
    if row.usd_per_year is None:
        return _("{fleet} {goal} in {hours}.", fleet=row.fleet, goal=goal, hours=hours)
    cost = cash(row.usd_per_year)
    return _("{fleet} costs {cost} a year and {goal} in {hours}.", fleet=row.fleet, cost=cost, goal=goal, hours=hours)


def _with_cost(row: FleetYear) -> str:
    usd = row.usd_per_year
    return row.fleet if usd is None else _("{fleet} ({cost} a year)", fleet=row.fleet, cost=cash(usd))


def _all_hours(row: FleetYear) -> str:
    return _("all {hours}", hours=_hours(row))


def _hours(row: FleetYear) -> str:
    """Format the number of working hours of a year; all hours of the year where none is idle."""
    count = row.working_hours or 0.0
    if count >= HOURS_PER_YEAR - 0.5:
        return _("{count:,.0f} hours", count=count)
    return _("{count:,.0f} working hours", count=count)
