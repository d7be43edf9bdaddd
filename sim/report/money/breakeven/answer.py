"""The answer to "rent, buy or API?": tables, a picture and a page."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sim.language import _, retold
from sim.report.charts.fonts import drawable
from sim.report.fleets.run.tables import write_rows
from sim.report.money.breakeven.picture import key, panels
from sim.report.money.breakeven.verdict import amount, sentences, unmoved
from sim.report.page.document import heading
from sim.report.page.page import Table, render_page, write_picture
from sim.report.words.exactness import capacity_notes
from sim.report.words.money import cash, in_code, rate_notes
from sim.report.words.services import load_notes
from sim.report.words.text import percent, plain, question_of
from sim.report.words.text import place as place_text
from sim.report.words.units import verdict_in_units
from sim.scenario.schema import Scenario
from sim.study.money.breakeven.candidates import Cost
from sim.study.money.breakeven.decision import BreakevenAnswer
from sim.study.money.breakeven.tipping import API, Tipping
from sim.units import HOURS_PER_MONTH


def ranking_rows(answer: BreakevenAnswer) -> list[dict[str, Any]]:
    """Return the rows of ranking.csv: the levelised cost of the load by candidate, the cheapest first.

    Where candidates serve different models, those of one model stand together.
    """
    rows, every = [], _costs(answer)
    for name in (name for names in answer.products for name in names):
        cost, usd_per_h = answer.at_load.get(name), answer.usd_per_h[name]
        rows.append(
            {
                "candidate": name,
                **({"model": answer.models[name]} if answer.models else {}),
                answer.axis: answer.load,
                "units": cost.units if cost else None,
                "usd_per_h": usd_per_h,
                "capex_usd": cost.flows.capex_usd if cost else 0.0,
                "levelised_running_usd_per_h": usd_per_h - (cost.capital_usd_per_h if cost else 0.0),
                "first_month_running_usd_per_h": every[name].flows.opex_usd_per_h,
                "usd_per_million_output_tokens": _per_million(answer, name),
                "months": answer.horizon.months,
                "net_present_cost_usd": answer.horizon.net_present_usd(usd_per_h),
            }
        )
    return rows


def utilisation_rows(answer: BreakevenAnswer) -> list[dict[str, Any]]:
    """breakeven.csv: what a million tokens cost with one unit of each candidate at each utilisation."""
    return [
        {
            "candidate": one.name,
            "fleet": one.fleet,
            "utilisation": u,
            answer.axis: cost.load,
            "usd_per_h": cost.usd_per_h,
            "capital_usd_per_h": cost.capital_usd_per_h,
            "output_tokens_per_h": cost.output_tokens_per_h,
            "usd_per_million_output_tokens": cost.usd_per_million_output_tokens,
            "api_usd_per_million_output_tokens": answer.api_usd_per_million,
        }
        for one in answer.candidates
        for u, cost in answer.curves[one.name]
    ]


def month_rows(answer: BreakevenAnswer) -> list[dict[str, Any]]:
    """months.csv."""
    return [
        {"candidate": name, "month": at.months, "cash_usd": at.cash_usd, "net_present_cost_usd": at.net_present_usd}
        for name, path in answer.months.items()
        for at in path
    ]


def cash_rows(answer: BreakevenAnswer) -> list[dict[str, Any]]:
    """cash.csv: what is paid when, to the end of the comparison's horizon."""
    return [
        {
            "candidate": name,
            "month": at.months,
            "purchase_usd": at.purchase_usd,
            "operating_usd": at.operating_usd,
            "brings_usd": at.brings_usd,
            "renewal_usd": at.renewal_usd,
            "net_present_cost_usd": at.net_present_usd,
            "discount_rate": answer.horizon.discount_rate,
        }
        for name, path in answer.cash.items()
        for at in path
    ]


def bill_rows(answer: BreakevenAnswer) -> list[dict[str, Any]]:
    """Return the rows of bill.csv: the first month of the load by component, and the levelised one; purchases are
    spread over their life in both.
    """
    return [
        {
            "candidate": name,
            "component": component,
            "first_month_usd_per_month": cost.flows.booked_usd_per_h[component] * HOURS_PER_MONTH,
            "levelised_usd_per_month": usd_per_h * HOURS_PER_MONTH,
        }
        for name, cost in _costs(answer).items()
        for component, usd_per_h in cost.lines_usd_per_h.items()
    ]


def _costs(answer: BreakevenAnswer) -> dict[str, Cost]:
    """Return the cost of the load by candidate, the API included."""
    return {**answer.at_load, **({API: answer.api} if answer.api is not None else {})}


def tipping_rows(answer: BreakevenAnswer) -> list[dict[str, Any]]:
    """tipping.csv."""
    groups = ((answer.winner, "all", answer.tipping), (answer.best_machine, "machines", answer.tipping_of_machines))
    return [
        {
            "among": among,
            "input": one.name,
            "unit": one.unit,
            "now": one.now,
            "cheapest_now": winner,
            "tips_below": one.below,
            "then_below": one.then_below,
            "tips_above": one.above,
            "then_above": one.then_above,
            "searched_from": one.searched[0],
            "searched_to": one.searched[1],
        }
        for winner, among, tipping in groups
        for one in tipping
    ]


def write_breakeven(
    out: Path, answer: BreakevenAnswer, scenario: Scenario, remarks: Sequence[str], with_pictures: bool = True
) -> None:
    """All tables and, *with_pictures*, picture and page in the folder *out*."""
    for name, rows in (
        ("ranking", ranking_rows(answer)),
        ("breakeven", utilisation_rows(answer)),
        ("months", month_rows(answer)),
        ("cash", cash_rows(answer)),
        ("bill", bill_rows(answer)),
        ("tipping", tipping_rows(answer)),
    ):
        write_rows(out / f"{name}.csv", rows)
    if with_pictures:
        _draw(out, answer, scenario, remarks)


def _draw(out: Path, answer: BreakevenAnswer, scenario: Scenario, remarks: Sequence[str]) -> None:
    told, drawn = sentences(answer, with_tips=False), panels(answer)
    asked = question_of(scenario)
    if drawn:
        with drawable():
            write_picture(
                out / "breakeven.png", panels(answer), asked, sentences(answer, with_tips=False)[:1], key(answer)
            )
    page = render_page(
        scenario.name,
        asked,
        told,
        drawn,
        _tables(answer),
        [*remarks, *notes(answer, scenario)],
        key=key(answer) if drawn else (),
    )
    (out / "breakeven.html").write_text(page, encoding="utf-8")


def breakeven_document(scenario: Scenario, answer: BreakevenAnswer, out: str) -> dict[str, Any]:
    """The answer for `--format json`: the rows of all its CSV files."""
    told = [line for line in (*sentences(answer), unmoved(answer), *rate_notes(scenario)) if line]
    return {
        **heading(scenario, out),
        "axis": answer.axis,
        "load": answer.load,
        "verdict": verdict_in_units(told[0], told[1:]),
        "ranking": ranking_rows(answer),
        "utilisation": utilisation_rows(answer),
        "months": month_rows(answer),
        "tipping": tipping_rows(answer),
    }


def ranking(answer: BreakevenAnswer) -> Table:
    """Who costs how much at the load."""
    rows = [
        [
            row["candidate"],
            str(row["units"] or ""),
            cash(row["usd_per_h"] * HOURS_PER_MONTH),
            cash(row["capex_usd"]) if row["capex_usd"] else "",
            cash(row["first_month_running_usd_per_h"] * HOURS_PER_MONTH),
            cash(row["usd_per_million_output_tokens"]),
            cash(row["net_present_cost_usd"]),
        ]
        for row in ranking_rows(answer)
    ]
    heads = [
        _("candidate"),
        _("units"),
        in_code(_("levelised cost [USD/month]")),
        in_code(_("capital cost [USD]")),
        in_code(_("operating cost, first month [USD]")),
        in_code(_("levelised cost [USD per million output tokens]")),
        in_code(_("net present cost [USD], {months:g} months", months=answer.horizon.months)),
    ]
    return Table(
        _("At {place_text}", place_text=place_text(answer.axis, answer.load)),
        _("Purchases are spread over their life; whole units share the load."),
        heads,
        rows,
    )


def _per_million(answer: BreakevenAnswer, name: str) -> float:
    if name == API:
        return answer.api_usd_per_million or float("nan")
    return answer.at_load[name].usd_per_million_output_tokens


def _tables(answer: BreakevenAnswer) -> list[Table]:
    if not answer.usd_per_h:
        return []
    found = [ranking(answer)]
    heads = [
        in_code(_("levelised USD per million output tokens at utilisation")),
        *(percent(u) for u, _ in next(iter(answer.curves.values()), [])),
    ]
    rows = [
        [name, *(cash(cost.usd_per_million_output_tokens) for _, cost in path)] for name, path in answer.curves.items()
    ]
    found.append(
        Table(
            _("By utilisation"),
            _("Utilisation is the offered load over the fleet's capacity under its service level."),
            heads,
            rows,
        )
    )
    note = _("One input at a time, each within a factor of 20; {winner} is the cheapest now.", winner=answer.winner)
    found.append(_tipping_table(_("Tipping points"), note, answer.tipping))
    if answer.tipping_of_machines:
        note = _("Without the API, {best_machine} is the cheapest candidate.", best_machine=answer.best_machine)
        found.append(_tipping_table(_("Tipping points among the machines"), note, answer.tipping_of_machines))
    return found


def _tipping_table(title: str, note: str, tipping: Sequence[Tipping]) -> Table:
    rows = [
        [
            retold(one.name),
            amount(one, one.now),
            f"{amount(one, one.below)}: {one.then_below}" if one.below is not None else "",
            f"{amount(one, one.above)}: {one.then_above}" if one.above is not None else "",
        ]
        for one in tipping
    ]
    return Table(title, note, [_("input"), _("now"), _("another is the cheapest below"), _("above")], rows)


def left_out(answer: BreakevenAnswer) -> list[str]:
    """Fleets that are not compared, and why."""
    told = [
        _("{fleet} is left out: {reason}.", fleet=one.fleet, reason=retold(one.reason))
        for one in answer.capacities
        if one.reason
    ]
    missed = [one.fleet for one in answer.capacities if not one.reason and one.mean == 0]
    told += [
        _("{name} is left out: it does not meet the service level at any load tried.", name=name) for name in missed
    ]
    compared = {one.fleet for one in answer.candidates}
    return told + [
        _(
            "{name} is left out: it meets the service level up to {most}, and the load is {load}.",
            name=one.fleet,
            most=place_text(answer.axis, float(f"{one.mean:.3g}")),
            load=place_text(answer.axis, answer.load),
        )
        for one in answer.capacities
        if not one.reason and one.mean and one.fleet not in compared
    ]


def owned_peaks(answer: BreakevenAnswer, scenario: Scenario) -> list[str]:
    """Fleets that scale themselves and are bought: all of their hardware is paid for."""
    most = {
        fleet.name: sum(pool.most_replicas for pool in fleet.pools)
        for fleet in scenario.fleets
        if any(pool.autoscaling is not None for pool in fleet.pools)
    }
    return [
        _(
            "{name} owns all {count} replicas that its autoscaler may run; rent by time is paid for those that run.",
            name=one.name,
            count=most[one.fleet],
        )
        for one in answer.candidates
        if one.fleet in most and answer.at_load[one.name].flows.capex_usd
    ]


def notes(answer: BreakevenAnswer, scenario: Scenario) -> list[str]:
    """Capacities, who is left out and why, and conventions."""
    told = [
        _(
            "Capacity of {fleet}: {place_text}",
            fleet=one.fleet,
            place_text=place_text(answer.axis, float(f"{one.mean:.3g}")),
        )
        + (f" (± {plain(one.half_width, 2)})" if one.half_width else "")
        for one in answer.capacities
        if not one.reason and 0 < one.mean < float("inf")
    ]
    told += capacity_notes(answer.capacities, scenario.precision)
    told += left_out(answer)
    told += [*load_notes(scenario), *rate_notes(scenario)]
    told += owned_peaks(answer, scenario)
    told += [
        _(
            "Capacity of {fleet}: at least {place_text}, the highest tried.",
            fleet=one.fleet,
            place_text=place_text(answer.axis, float(f"{one.at_least:.3g}")),
        )
        for one in answer.capacities
        if one.mean == float("inf")
    ]
    if any(cost.finance is not None and cost.finance.inflation for cost in answer.at_load.values()):
        told.append(
            _(
                "With inflation the cost a month is the equal payment over {months} months; what is paid "
                "by the month is that of the first.",
                months=plain(answer.horizon.months),
            )
        )
    told.append(
        _(
            "Purchases are paid at delivery, all else at the end of each month. The curves of net "
            "present cost take off what the hardware would bring at that age: its resale less its "
            "removal."
        )
    )
    return told
