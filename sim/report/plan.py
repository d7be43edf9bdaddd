"""Report of `gpufleet plan` ("what to buy, and when?"): its verdict, and plan.html.

Sentences name the cheapest plan, its shortages of capacity, and the month from which a plan has cost less than another.
plan.html is one self-contained page that fetches nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum
from pathlib import Path
from typing import Any

from sim.cost.multi_year import ExistingUnits, MultiYear
from sim.language import N_, _, ngettext, translate_rendered
from sim.report.assumptions import assumptions
from sim.report.charts.vega_lite import PageCharts
from sim.report.financing_tables import cheapest_way, earning_line, financing_rows, financing_table, write_financing
from sim.report.json_document import heading
from sim.report.order_timing import Timings, timing_rows, timing_sentences, timing_table, write_timing
from sim.report.page.template import render as filled
from sim.report.plan_charts import page_figures, plan_picture
from sim.report.plan_tables import components, month_rows, summary_row, write_months, write_summary
from sim.report.run.page_tables import swatches
from sim.report.run.tables import write_rows
from sim.report.sources import one_per_fleet, sources, weak_values
from sim.report.words.money import cash, heading_mark, in_code, rate_notes, shown
from sim.report.words.precision import capacity_notes, central_value_notes, unsteady_capacity_notes
from sim.report.words.service_level import ranked_apart, unanswered_of
from sim.report.words.text import (
    axis_label,
    difference,
    joined,
    listing,
    percent,
    plain,
    question_and_context,
    question_of,
    readable_name,
    short,
)
from sim.report.words.units import verdict_in_units
from sim.scenario.schema import Scenario
from sim.scenario.sections.comparison import models_of
from sim.scenario.sections.precision import Precision
from sim.study.execution.cases import limits
from sim.study.financing import AfterTax
from sim.study.load_axis import LoadAxis
from sim.study.monte_carlo import inputs_of
from sim.study.plan import API_LINE, FleetPlanOutlook, demand_of, ranked
from sim.study.plan_cash import PlanMonth
from sim.study.plan_units import HeldUnits
from sim.study.variances import Variance, variances


@dataclass(frozen=True, slots=True)
class PlanVerdict:
    """Headline and findings of the plans."""

    headline: str
    findings: tuple[str, ...]


def verdict(
    found: Sequence[FleetPlanOutlook],
    plan: MultiYear,
    precision: Precision | None = None,
    models: Mapping[str, str] | None = None,
) -> PlanVerdict:
    """Rank the plans *found* and describe each.

    Parameters
    ----------
    found
        Plans of all fleets.
    plan
        Demand, prices and length of the plan.
    precision
        Wanted precision of the capacities.
    models
        Model of every fleet, where plans are ranked for each model on its own.

    """
    order, products = list(ranked(found)), _products(found, models or {})
    findings = [_bought_elsewhere(one, plan) if one.api else _standing(one, plan) for one in order]
    sold = [{one.fleet: one.earnings for one in own if one.earnings is not None} for own in products.values()]
    findings += [line[:1].upper() + line[1:] for each in sold for line in earning_line(each, plan.months)]
    findings += [text for one in order if (text := cheapest_way(financings_of(order), one.fleet))]
    findings += timing_sentences(_timings(order), plan.starts)
    findings += [_spent(fleet, own) for fleet, own in _by_fleet(variances_of(found, plan)).items()]
    findings += [_sale(one, held, plan) for one in order for held in one.held]
    findings += capacity_notes([one.capacity for one in order if not one.api], precision)
    findings += [text for own in products.values() for one in own[1:] if (text := _overtakes(own[0], one, plan))]
    findings += [
        _("{fleet} cannot be planned: {reason}.", fleet=one.fleet, reason=translate_rendered(one.reason))
        for one in found
        if one.reason
    ]
    heads = [
        (_("{model}: ", model=model) if model else "") + _headline(own, plan) for model, own in products.items()
    ] or [_("No fleet can be planned: see the reasons.")]
    if len(products) > 1:
        findings.insert(0, ranked_apart(models or {}))
    own = [one.capacity for one in found if not one.api]
    ends = unanswered_of({_("a unit of {fleet} at its capacity", fleet=one.fleet): one.unanswered for one in own})
    return PlanVerdict(joined([*unsteady_capacity_notes(own), *heads, ends]), tuple(findings))


def financings_of(found: Sequence[FleetPlanOutlook]) -> dict[str, Mapping[str, AfterTax]]:
    """Return fleet -> way to finance -> cost; empty where no financing or tax is stated."""
    return {one.fleet: one.financings for one in found if one.financings}


def variances_of(found: Sequence[FleetPlanOutlook], plan: MultiYear) -> list[Variance]:
    """Return the variances of the actual payments beside the plan; empty without any."""
    if plan.actuals is None:
        return []
    return list(variances(found, plan.dates, plan.actuals.read(plan.dates, [one.fleet for one in found])))


def _by_fleet(found: Sequence[Variance]) -> dict[str, list[Variance]]:
    fleets = dict.fromkeys(one.actual.fleet for one in found)
    return {fleet: [one for one in found if one.actual.fleet == fleet] for fleet in fleets}


def _spent(fleet: str, own: Sequence[Variance]) -> str:
    """Describe the actual payments of *fleet* beside the planned ones."""
    paid, more = fsum(one.actual.amount_usd for one in own), fsum(one.variance_usd for one in own)
    price, quantity = (fsum(getattr(one, f"{part}_usd") or 0.0 for one in own) for part in ("price", "quantity"))
    parts = [_("price {cash}", cash=cash(price)), _("quantity {cash}", cash=cash(quantity))]
    if abs(rest := more - price - quantity) > 0.005:
        parts.append(_("not split {cash}", cash=cash(rest)))
    dates = sorted(one.actual.date for one in own)
    span = (
        _("from {first} to {last}", first=dates[0], last=dates[-1])
        if dates[0] != dates[-1]
        else _("in {month}", month=dates[0])
    )
    over = N_("{fleet}: {paid} were paid {span}, {more} more than planned ({parts}).")
    under = N_("{fleet}: {paid} were paid {span}, {more} less than planned ({parts}).")
    return _(
        over if more >= 0 else under,
        fleet=fleet,
        paid=cash(paid),
        span=span,
        more=cash(abs(more)),
        parts=_("; ").join(parts),
    )


def _variance_rows(found: Sequence[Variance]) -> list[dict[str, Any]]:
    """Return the rows of variances.csv; amounts above the plan are positive."""
    return [
        {
            "fleet": one.actual.fleet,
            "date": one.actual.date,
            "line": one.actual.line,
            "unit": one.planned.unit,
            "planned_quantity": one.planned.quantity,
            "actual_quantity": one.actual.quantity,
            "planned_usd": one.planned.usd,
            "actual_usd": one.actual.amount_usd,
            "variance_usd": one.variance_usd,
            "price_variance_usd": one.price_usd,
            "quantity_variance_usd": one.quantity_usd,
        }
        for one in found
    ]


def _timings(found: Sequence[FleetPlanOutlook]) -> Timings:
    """Return fleet -> months of order that are compared; empty without price paths."""
    return {one.fleet: one.timing for one in found if one.timing is not None}


def _products(found: Sequence[FleetPlanOutlook], models: Mapping[str, str]) -> dict[str, list[FleetPlanOutlook]]:
    """Return the ranked plans by model, each list the cheapest first.

    The API counts as serving the model of the first fleet.
    """
    usual, order = next(iter(models.values()), ""), list(ranked(found))
    served = dict.fromkeys(models.get(one.fleet, usual) for one in order)
    if len(served) < 2:
        return {"": order} if order else {}
    return {model: [one for one in order if models.get(one.fleet, usual) == model] for model in served}


def _headline(order: Sequence[FleetPlanOutlook], plan: MultiYear) -> str:
    best = order[0]
    template = (
        N_("Over {span} {fleet} costs least: {costs}") if len(order) > 1 else N_("Over {span} {fleet} costs {costs}")
    )
    first = _(template, span=span(plan), fleet=best.fleet, costs=_costs(best))
    if len(order) > 1:
        others = [_extra_cost(one, best) for one in order[1:] if best.present_usd > 0]
        first += _("; ") + listing(others) if others else ""
    kept = next((one for one in order if not one.short and not one.api), None)
    if best.api:
        fleet = (
            ""
            if kept is None
            else _(
                "; the cheapest that meets it in every month is {fleet}, {costs}", fleet=kept.fleet, costs=_costs(kept)
            )
        )
        return _(
            "{first}. Whether {fleet} meets the SLO is not simulated{rival}.",
            first=first,
            fleet=best.fleet,
            rival=fleet,
        )
    if not best.short:
        return _("{first}. {fleet} meets the SLO in every month.", first=first, fleet=best.fleet)
    short = _(
        "{first}. {fleet} is short of capacity in {months}",
        first=first,
        fleet=best.fleet,
        months=_months_in_words(len(best.short)),
    )
    if kept is None:
        return _("{short}; no plan meets the SLO in every month.", short=short)
    return _(
        "{short}; the cheapest plan that meets the SLO in every month is {fleet}, {costs}.",
        short=short,
        fleet=kept.fleet,
        costs=_costs(kept),
    )


def _extra_cost(one: FleetPlanOutlook, best: FleetPlanOutlook) -> str:
    more = one.present_usd / best.present_usd - 1
    return (
        _("{fleet} costs {difference} more", fleet=one.fleet, difference=difference(more))
        if more > 0
        else _("{fleet} costs the same", fleet=one.fleet)
    )


def _costs(one: FleetPlanOutlook) -> str:
    levelised = one.levelised_usd_per_million_output_tokens
    each = "" if levelised is None else _(", levelised {cash} per million output tokens", cash=cash(levelised))
    return _("{cash} in present value{each}", cash=cash(one.present_usd), each=each)


def _standing(one: FleetPlanOutlook, plan: MultiYear) -> str:
    months = one.months
    first, last = months[0].in_service, months[-1].in_service
    existing = _(" ({existing} of them existing)", existing=months[0].existing) if months[0].existing else ""
    units = ngettext(
        "{fleet}: {count} unit at first{existing}, {last} in the last month",
        "{fleet}: {count} units at first{existing}, {last} in the last month",
        first,
        fleet=one.fleet,
        existing=existing,
        last=last,
    )
    most = max(row.in_service for row in months)
    parts = [
        ngettext(
            "{units}, at most {most} ({count} GPU each)",
            "{units}, at most {most} ({count} GPUs each)",
            one.gpus,
            units=units,
            most=most,
        )
    ]
    if one.bought:
        again = sum(batch.units for batch in one.stock.batches if batch.retires < plan.months) if one.stock else 0
        replaced = _(", {again} of them out of service before the end", again=again) if again else ""
        parts.append(_("{bought} bought{replaced}", bought=one.bought, replaced=replaced))
    if rented := sum(row.rented for row in months):
        parts.append(_("{rented} unit-months rented", rented=rented))
    if one.stock is not None and one.owed_usd:
        parts.append(
            _(
                "contracts reach {owed_unit_months} unit-months beyond the plan: {cash} remain due then, not "
                "included in any total",
                owed_unit_months=one.stock.owed_unit_months,
                cash=cash(one.owed_usd),
            )
        )
    if one.short:
        worst = max(one.short, key=lambda row: row.shortfall)
        where = _("{low} to {high}", low=plan.date(one.short[0].month), high=plan.date(one.short[-1].month))
        parts.append(
            _(
                "short in {months} ({where}), by {shortfall} at worst",
                months=_months_in_words(len(one.short)),
                where=where,
                shortfall=plain(worst.shortfall),
            )
        )
    return _("{texts}.", texts=_("; ").join(parts))


def _bought_elsewhere(one: FleetPlanOutlook, plan: MultiYear) -> str:
    usd = fsum(row.opex_usd.get(API_LINE, 0.0) for row in one.rows)
    share = fsum(row.elsewhere for row in one.months) / (fsum(row.demand for row in one.months) or 1.0)
    alone = _(", without the cost of the existing units") if one.held else ""
    served = _(
        "its bill is {cash} over {span} for {percent} of the load{alone}",
        cash=cash(usd),
        span=span(plan),
        percent=percent(share),
        alone=alone,
    )
    return _("{fleet}: {served}; its service level is not simulated.", fleet=one.fleet, served=served)


def _sale(one: FleetPlanOutlook, group: HeldUnits, plan: MultiYear) -> str:
    """Describe when a plan sells existing units, and for how much."""
    when = _("in {date}", date=plan.date(group.sold))
    if not group.kind.capacity:
        when = _("at once, as one of them does not meet the SLO at any load,")
    elif group.sold == 0:
        when = _("at once")
    elif group.sold == group.ends:
        when = _("at the end of their life, {date},", date=plan.date(group.sold))
    elif group.sold == plan.months:
        when = _("at the end of the plan")
    gain = group.gain_usd(group.sold)
    books = (
        ""
        if group.book_value_usd is None
        else _(N_(", {cash} below book value") if gain < 0 else N_(", {cash} above book value"), cash=cash(abs(gain)))
    )
    units = _("the {units} existing {fleet}", units=group.units, fleet=group.kind.fleet)
    return _(
        "{fleet} sells {units} {when} for {cash}{books}.",
        fleet=one.fleet,
        units=units,
        when=when,
        cash=cash(group.resale_usd(group.sold)),
        books=books,
    )


def _overtakes(best: FleetPlanOutlook, other: FleetPlanOutlook, plan: MultiYear) -> str:
    """State the month from which the cumulative cost of *best* stays below that of *other*; empty if it always is."""
    ahead_usd = [theirs - mine for mine, theirs in zip(best.cumulative_usd, other.cumulative_usd, strict=True)]
    if min(ahead_usd) >= 0:
        return ""
    following = max(month for month, usd in enumerate(ahead_usd) if usd <= 0) + 1
    if following > plan.months:
        return _(
            "The payments of {fleet} total more than those of {other}, but fall later: in present value it costs less.",
            fleet=best.fleet,
            other=other.fleet,
        )
    if following == plan.months:
        return _(
            "The cumulative payments of {fleet} exceed those of {other} until its hardware is sold at the end.",
            fleet=best.fleet,
            other=other.fleet,
        )
    return _(
        "From the end of {date} on, the cumulative payments of {fleet} are below those of {other}.",
        date=plan.date(following),
        fleet=best.fleet,
        other=other.fleet,
    )


def span(plan: MultiYear) -> str:
    """Describe the length of the plan."""
    return _("one year") if plan.years == 1 else _("{years} years", years=plain(plan.years))


def _months_in_words(count: int) -> str:
    return _("one month") if count == 1 else _("{count} months", count=count)


TEMPLATE = "plan.html.j2"
HEADS = (
    *(
        N_("month"),
        N_("demand"),
        N_("peak"),
        N_("units needed"),
        N_("ordered"),
        N_("on order"),
        N_("bought, in service"),
        N_("rented"),
        N_("retired"),
    ),
    *(
        N_("capacity"),
        N_("mean load over capacity"),
        N_("short by"),
        N_("capex"),
        N_("resale"),
        N_("opex"),
        N_("rent"),
        N_("net cost"),
    ),
    *(N_("cost so far"), N_("present cost")),
)
EXISTING_LABELS = (
    N_("existing, in service"),
    N_("existing, sold"),
    N_("existing, resale"),
    N_("existing, gain over book value"),
)

STATE_PROPERTIES = N_(
    "units stay until the end of their life, even if demand falls, are sold at their value by age, and replaced "
    "where needed; units in service at the end of the plan are sold then"
)
EXISTING_NOTE = N_(
    "units in service at the start share the load with new units in proportion to their capacity, and are sold in "
    "the month that minimises the cost of the plan, at the latest at the end of their life; a book value is sunk "
    "and affects no decision; the reserve is that of the largest units in service"
)
API_NOTE = N_(
    "tokens at the tariff, paid monthly in arrears; existing units take the part of the "
    "traffic that they can carry in the busiest hours; its service level is not simulated"
)
SCALING_NOTE = N_(
    "n units serve n times the load of one unit, at n times its cost: whole racks and contracted power are those of "
    "single units"
)


def render_plan(
    found: Sequence[FleetPlanOutlook],
    plan: MultiYear,
    axis: str,
    resolved: Sequence[Mapping[str, Any]],
    slo: Mapping[str, Any],
    name: str,
    question: str,
    answer: PlanVerdict,
    by_hour: bool = False,
) -> str:
    """Render plan.html; the same arguments give the same bytes.

    *by_hour*: whether a load profile gives the load of each hour.
    """
    main_question, context = question_and_context(question, name)
    drawn = [one for one in found if one.rows]
    plans = one_per_fleet(resolved)
    return filled(
        TEMPLATE,
        name=name,
        currency=heading_mark(),
        question=main_question,
        context=context,
        verdict=answer,
        swatches=swatches([one.fleet for one in found]),
        planned=[one.fleet for one in drawn],
        charts=page_figures(found, plan, axis),
        drawn=PageCharts() if drawn else None,
        marks={name: any(ones) for name, ones in _marks(drawn)},
        figures=_figures(drawn, axis),
        money=_money(drawn),
        tables=[
            *([financing_table(ways)] if (ways := financings_of(drawn)) else []),
            *([timing_table(times, plan.starts)] if (times := _timings(drawn)) else []),
        ],
        total=(_("total"), [cash(one.total_usd) for one in drawn]),
        years=span(plan),
        unit=axis_label(axis),
        months=[
            (
                one.fleet,
                [_(head) for head in (*HEADS, *(EXISTING_LABELS if one.held else ()))],
                _rows_by_month(one, plan),
            )
            for one in drawn
        ],
        assumptions=[*terms(plan, drawn, by_hour), *assumptions(plans, slo, [], [])],
        weak=weak_values(resolved),
        sources=sources(resolved),
    )


def _marks(drawn: Sequence[FleetPlanOutlook]) -> list[tuple[str, list[bool]]]:
    """Return (kind of area, whether each plan has it) for the legend."""
    return [
        ("existing", [bool(one.held) for one in drawn]),
        ("api", [one.api for one in drawn]),
        ("short", [bool(one.short) for one in drawn]),
    ]


def _figures(drawn: Sequence[FleetPlanOutlook], axis: str) -> list[tuple[str, list[str]]]:
    rows = [summary_row(one) for one in drawn]
    counts = {
        _("units in the first month"): "units_first",
        _("units in the last month"): "units_last",
        _("units bought"): "bought",
        _("unit-months rented"): "rented_unit_months",
        _("months short of capacity"): "months_short",
    }
    result = [(_("capacity of one unit, {axis_label}", axis_label=axis_label(axis)), [_capacity(row) for row in rows])]
    result.append((_("GPUs of one unit"), [str(row["unit_gpus"] or "") for row in rows]))
    result += [(text, [f"{row[key]:,}" for row in rows]) for text, key in counts.items()]
    result.append((_("total, not discounted"), [cash(row["total_usd"]) for row in rows]))
    result.append((_("net present cost"), [cash(row["net_present_cost_usd"]) for row in rows]))
    result.append((_("discount rate per year"), [percent(row["discount_rate"]) for row in rows]))
    if any(one.owed_usd for one in drawn):
        result.append((_("rent due after the plan, not counted"), [_paid(one.owed_usd) for one in drawn]))
    each = "usd_per_million_output_tokens"
    result.append((_("output tokens served, millions"), [plain(row["output_tokens"] / 1e6, 4) for row in rows]))
    result.append(
        (in_code(_("USD per million output tokens: total cost over tokens served")), [_usd(row[each]) for row in rows])
    )
    return [*result, (_("the same, levelised"), [_usd(row[f"levelised_{each}"]) for row in rows])]


def _capacity(row: Mapping[str, Any]) -> str:
    half = row["unit_capacity_ci95"]
    if row["unit_capacity"] is None:
        return ""
    return plain(row["unit_capacity"]) + (f" ± {plain(half, 2)}" if half else "")


def _usd(value: float | None) -> str:
    return "" if value is None else cash(value)


def _money(drawn: Sequence[FleetPlanOutlook]) -> list[tuple[str, list[str]]]:
    """Return (component, cost per fleet) for the table of costs."""
    result = []
    for kind in ("capex_usd", "opex_usd"):
        for name in components(drawn, kind):
            amounts = [sum(getattr(row, kind).get(name, 0.0) for row in one.rows) for one in drawn]
            result.append((readable_name(name), [_paid(amount) for amount in amounts]))
    sums = {N_("rent"): "rental_usd", N_("decommissioning"): "decommissioning_usd", N_("resale"): "resale_usd"}
    for text, key in sums.items():
        amounts = [sum(getattr(row, key) for row in one.rows) for one in drawn]
        if any(amounts):
            result.append((_(text), [_paid(-amount if key == "resale_usd" else amount) for amount in amounts]))
    return result


def _paid(amount: float) -> str:
    return cash(amount) if amount else ""


def _rows_by_month(one: FleetPlanOutlook, plan: MultiYear) -> list[tuple[bool, list[str]]]:
    """Return (short of capacity, cells) of every row."""
    so_far, result = 0.0, []
    for row in one.rows:
        so_far += row.net_usd
        cells = _cells(row, plan.date(row.month), row.month == plan.months, so_far)
        result.append((not row.meets_slo, [*cells, *(_existing(row) if one.held else [])]))
    return result


def _cells(row: PlanMonth, when: str, closing: bool, so_far: float) -> list[str]:
    load = [plain(row.demand), plain(row.peak), str(row.needed)]
    capacity = [plain(row.capacity), "" if row.utilisation is None else percent(row.utilisation)]
    front = [_("{when}, end", when=when) if closing else when, *(["", "", ""] if closing else load)]
    units = [str(count) if count else "" for count in (row.ordered, row.on_order, row.owned, row.rented, row.retired)]
    money = (row.capital_usd, row.resale_usd, row.running_usd + row.decommissioning_usd, row.rental_usd)
    middle = ["", "", ""] if closing else [*capacity, plain(row.shortfall) if row.shortfall else ""]
    amounts = [_whole(amount) if amount else "" for amount in money]
    return [*front, *units, *middle, *amounts, *(_whole(usd) for usd in (row.net_usd, so_far, row.present_usd))]


def _existing(row: PlanMonth) -> list[str]:
    units = [str(count) if count else "" for count in (row.existing, row.existing_sold)]
    return [*units, *(_whole(usd) if row.existing_sold else "" for usd in (row.existing_resale_usd, row.gain_usd))]


def _whole(usd: float) -> str:
    return f"{shown(usd):,.0f}"


def terms(plan: MultiYear, drawn: Sequence[FleetPlanOutlook], by_hour: bool = False) -> list[tuple[str, str]]:
    """Return the assumptions and conventions of the plan as (name, text)."""
    demand = plan.demand
    first = _("{demand} in the mean of the first month, ", demand=plain(drawn[0].months[0].demand)) if drawn else ""
    growth = _("{first}grows by {percent} a year, month by month", first=first, percent=percent(demand.growth_per_year))
    listed = next((kind for kind in (N_("monthly"), N_("quarterly")) if getattr(demand, kind) is not None), "")
    peak, count, lead, term = (
        short(plan.peak_to_mean),
        plan.reserve_units,
        plan.lead_time_months,
        plan.rental_term_months,
    )
    hardware, rents = _fall(plan.price_decline_per_year), _fall(plan.rental_decline_per_year)
    rows = [
        (_("Plan"), _("{span} from {starts}; a month has 730 hours", span=span(plan), starts=plan.starts)),
        (_("Demand"), _("as listed, {listed}", listed=_(listed)) if listed else growth),
        (
            _("Peak"),
            _(
                "{peak} times the mean of its month; units cover the peak, energy is that of each hour's load",
                peak=peak,
            )
            if by_hour
            else _("{peak} times the mean of its month; units cover the peak, energy is that of the mean", peak=peak),
        ),
        (
            _("Reserve"),
            _("{count} above the need of the peak, in service and sharing the load", count=_units(count)),
        ),
        (
            _("Orders"),
            _("{count} before service, as late as possible; priced and paid when ordered", count=_months_text(lead)),
        ),
        (_("Prices"), _("new hardware {hardware}, rents {rents}", hardware=hardware, rents=rents)),
        (_("Life"), _(STATE_PROPERTIES)),
        (
            _("Rent"),
            _(
                "for at least {count}, or the term of a commitment; months beyond the plan are not counted",
                count=_months_text(term),
            ),
        ),
        (_("Scaling"), _(SCALING_NOTE)),
        (_("Discounting"), _("purchases and sales at the start of their month, other amounts at its end")),
    ]
    if plan.existing:
        rows.append((_("Existing"), f"{listing([_entry(one) for one in plan.existing])}; {_(EXISTING_NOTE)}"))
    if any(one.api for one in drawn):
        rows.append((_("API"), _(API_NOTE)))
    for fleet, rent in plan.bridge.items():
        rows.append(
            (
                _("Bridge"),
                _("{fleet}: missing capacity is rented ({price})", fleet=fleet, price=rent.price or _("quoted")),
            )
        )
    return rows


def _entry(one: ExistingUnits) -> str:
    books = "" if one.book_value_usd is None else _(", book value {cash}", cash=cash(one.book_value_usd))
    return _(
        "{count} of {fleet} since {bought}{books}",
        count=_units(one.units),
        fleet=one.fleet,
        bought=one.bought,
        books=books,
    )


def _fall(decline: float) -> str:
    if decline == 0:
        return _("keep their price")
    template = N_("fall by {percent} a year") if decline > 0 else N_("rise by {percent} a year")
    return _(template, percent=percent(abs(decline)))


def _units(count: int) -> str:
    return ngettext("{count} unit", "{count} units", count)


def _months_text(count: int) -> str:
    return ngettext("{count} month", "{count} months", count)


def plan_document(scenario: Scenario, found: Sequence[FleetPlanOutlook], out: str) -> dict[str, Any]:
    """Build the document of `--format json`: the verdict, the rows of summary.csv and of plan.csv."""
    answer = verdict_of_plan(scenario, found)
    return {
        **heading(scenario, out),
        "axis": LoadAxis.of(scenario).label,
        "verdict": verdict_in_units(answer.headline, (*answer.findings, *plan_rate_notes(scenario))),
        "fleets": [summary_row(one) for one in found],
        "months": [row for one in found for row in month_rows(one, demand_of(scenario))],
        **({"financing": financing_rows(ways, "fleet")} if (ways := financings_of(found)) else {}),
        **({"timing": timing_rows(times, "fleet", demand_of(scenario).starts)} if (times := _timings(found)) else {}),
    }


def verdict_of_plan(scenario: Scenario, found: Sequence[FleetPlanOutlook]) -> PlanVerdict:
    """Return the verdict on the plans *found* of *scenario*."""
    answer = verdict(found, demand_of(scenario), scenario.precision, models_of(scenario, scenario.compare))
    return replace(answer, headline=joined([answer.headline, *central_value_notes(bool(inputs_of(scenario)))]))


def plan_rate_notes(scenario: Scenario) -> list[str]:
    """Return notes on the discount rate, where the plan states none of its own."""
    assert scenario.plan is not None
    return rate_notes(scenario) if scenario.plan.discount_rate is None else []


def write_plan(
    folder: Path,
    scenario: Scenario,
    found: Sequence[FleetPlanOutlook],
    resolved: Sequence[Mapping[str, Any]],
    remarks: Sequence[str],
    with_pictures: bool = True,
) -> None:
    """Write plan.csv, summary.csv and, if *with_pictures*, plan.png and plan.html into *folder*."""
    plan, axis = demand_of(scenario), LoadAxis.of(scenario).label
    write_months(folder / "plan.csv", found, plan)
    write_summary(folder / "summary.csv", found)
    write_financing(folder, financings_of(found), "fleet")
    write_timing(folder, _timings(found), "fleet", plan.starts)
    if rows := _variance_rows(variances_of(found, plan)):
        write_rows(folder / "variances.csv", rows)
    if not with_pictures:
        return
    answer = verdict_of_plan(scenario, found)
    answer = replace(answer, findings=(*answer.findings, *remarks))
    question = question_of(scenario)
    plan_picture(found, plan, axis, question, answer.headline).save(folder / "plan.png")
    by_hour = scenario.load_profile is not None
    page = render_plan(found, plan, axis, resolved, limits(scenario), scenario.name, scenario.question, answer, by_hour)
    (folder / "plan.html").write_text(page, encoding="utf-8")
