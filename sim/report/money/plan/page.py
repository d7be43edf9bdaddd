"""plan.html: one self-contained page that fetches nothing."""

from collections.abc import Mapping, Sequence
from typing import Any

from sim.cost import MultiYear
from sim.cost.finance.multi_year import ExistingUnits
from sim.language import N_, _, ngettext
from sim.report.fleets.run.basis import assumptions, one_per_fleet, sources, weak_values
from sim.report.fleets.run.sections import swatches
from sim.report.money.plan.picture import page_figures
from sim.report.money.plan.tables import components, date, summary_row
from sim.report.money.plan.verdict import PlanVerdict, span
from sim.report.page.template import render as filled
from sim.report.vega.figures import Drawn
from sim.report.words.money import cash, code, in_code, shown
from sim.report.words.names import name_told
from sim.report.words.text import axis_label, first_sentence, listing, percent, plain, short
from sim.study.money.plan.cash import Row
from sim.study.money.plan.plans import Outlook

TEMPLATE = "money/plan/plan.html.j2"
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
HELD = (N_("of those existing, in service"), N_("existing sold"), N_("of resale, existing"), N_("over book value"))

LIFE = N_(
    "units stay until the end of their life, also where demand falls, are sold at their "
    "value by age, and replaced where they are needed; what is in service at the end of the "
    "plan is sold then"
)
EXISTING = N_(
    "units in service at the start share the load with new ones in proportion to their "
    "capacity, and are sold in the month that costs this plan least, the end of their life "
    "at the latest; a book value is sunk and decides nothing; the reserve is that of the "
    "largest units in service"
)
ELSEWHERE = N_(
    "tokens at the tariff, paid monthly in arrears; existing units take the part of the "
    "traffic that they can carry in the busiest hours; its service level is not simulated"
)
SCALING = N_(
    "n units serve n times what one does, and cost n times what one does: whole racks and "
    "contracted power are those of single units"
)


def render_plan(
    found: Sequence[Outlook],
    plan: MultiYear,
    axis: str,
    resolved: Sequence[Mapping[str, Any]],
    slo: Mapping[str, Any],
    name: str,
    question: str,
    answer: PlanVerdict,
    by_hour: bool = False,
) -> str:
    """The page's text; the same arguments give the same bytes. *by_hour*: a load profile says how the load varies."""
    asked, context = first_sentence(question or name)
    drawn = [one for one in found if one.rows]
    plans = one_per_fleet(resolved)
    return filled(
        TEMPLATE,
        name=name,
        currency=code(),
        question=asked,
        context=context,
        verdict=answer,
        swatches=swatches([one.fleet for one in found]),
        planned=[one.fleet for one in drawn],
        charts=page_figures(found, plan, axis),
        drawn=Drawn() if drawn else None,
        marks={name: any(ones) for name, ones in _marks(drawn)},
        figures=_figures(drawn, axis),
        money=_money(drawn),
        total=(_("total"), [cash(one.total_usd) for one in drawn]),
        years=span(plan),
        unit=axis_label(axis),
        months=[
            (one.fleet, [_(head) for head in (*HEADS, *(HELD if one.held else ()))], _months(one, plan))
            for one in drawn
        ],
        assumptions=[*terms(plan, drawn, by_hour), *assumptions(plans, slo, [], [])],
        weak=weak_values(resolved),
        sources=sources(resolved),
    )


def _marks(drawn: Sequence[Outlook]) -> list[tuple[str, list[bool]]]:
    """Name of a kind of area -> whether each plan has it."""
    return [
        ("existing", [bool(one.held) for one in drawn]),
        ("api", [one.api for one in drawn]),
        ("short", [bool(one.short) for one in drawn]),
    ]


def _figures(drawn: Sequence[Outlook], axis: str) -> list[tuple[str, list[str]]]:
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
    result.append((in_code(_("USD per million output tokens: total over served")), [_usd(row[each]) for row in rows]))
    return [*result, (_("the same, levelised"), [_usd(row[f"levelised_{each}"]) for row in rows])]


def _capacity(row: Mapping[str, Any]) -> str:
    half = row["unit_capacity_ci95"]
    if row["unit_capacity"] is None:
        return ""
    return plain(row["unit_capacity"]) + (f" ± {plain(half, 2)}" if half else "")


def _usd(value: float | None) -> str:
    return "" if value is None else cash(value)


def _money(drawn: Sequence[Outlook]) -> list[tuple[str, list[str]]]:
    """Component -> what each fleet pays for it."""
    result = []
    for kind in ("capex_usd", "opex_usd"):
        for name in components(drawn, kind):
            amounts = [sum(getattr(row, kind).get(name, 0.0) for row in one.rows) for one in drawn]
            result.append((name_told(name), [_paid(amount) for amount in amounts]))
    sums = {N_("rent"): "rental_usd", N_("decommissioning"): "decommissioning_usd", N_("resale"): "resale_usd"}
    for text, key in sums.items():
        amounts = [sum(getattr(row, key) for row in one.rows) for one in drawn]
        if any(amounts):
            result.append((_(text), [_paid(-amount if key == "resale_usd" else amount) for amount in amounts]))
    return result


def _paid(amount: float) -> str:
    return cash(amount) if amount else ""


def _months(one: Outlook, plan: MultiYear) -> list[tuple[bool, list[str]]]:
    """(short of capacity, cells) of every row."""
    so_far, result = 0.0, []
    for row in one.rows:
        so_far += row.net_usd
        cells = _cells(row, date(plan, row.month), row.month == plan.months, so_far)
        result.append((not row.meets_slo, [*cells, *(_existing(row) if one.held else [])]))
    return result


def _cells(row: Row, when: str, closing: bool, so_far: float) -> list[str]:
    load = [plain(row.demand), plain(row.peak), str(row.needed)]
    capacity = [plain(row.capacity), "" if row.utilisation is None else percent(row.utilisation)]
    front = [_("{when}, end", when=when) if closing else when, *(["", "", ""] if closing else load)]
    units = [str(count) if count else "" for count in (row.ordered, row.on_order, row.owned, row.rented, row.retired)]
    money = (row.capital_usd, row.resale_usd, row.running_usd + row.decommissioning_usd, row.rental_usd)
    middle = ["", "", ""] if closing else [*capacity, plain(row.shortfall) if row.shortfall else ""]
    amounts = [_whole(amount) if amount else "" for amount in money]
    return [*front, *units, *middle, *amounts, *(_whole(usd) for usd in (row.net_usd, so_far, row.present_usd))]


def _existing(row: Row) -> list[str]:
    units = [str(count) if count else "" for count in (row.existing, row.existing_sold)]
    return [*units, *(_whole(usd) if row.existing_sold else "" for usd in (row.existing_resale_usd, row.gain_usd))]


def _whole(usd: float) -> str:
    return f"{shown(usd):,.0f}"


def terms(plan: MultiYear, drawn: Sequence[Outlook], by_hour: bool = False) -> list[tuple[str, str]]:
    """What the plan takes as given, and how it counts."""
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
            _("{count} beyond the peak's need, in service and sharing the load", count=_units(count)),
        ),
        (
            _("Orders"),
            _("{count} before service, as late as possible; priced and paid when ordered", count=_months_told(lead)),
        ),
        (_("Prices"), _("new hardware {hardware}, rents {rents}", hardware=hardware, rents=rents)),
        (_("Life"), _(LIFE)),
        (
            _("Rent"),
            _(
                "for at least {count}, or a commitment's own; months beyond the plan do not count",
                count=_months_told(term),
            ),
        ),
        (_("Scaling"), _(SCALING)),
        (_("Discounting"), _("purchases and sales at the start of their month, all else at its end")),
    ]
    if plan.existing:
        rows.append((_("Existing"), f"{listing([_entry(one) for one in plan.existing])}; {_(EXISTING)}"))
    if any(one.api for one in drawn):
        rows.append((_("API"), _(ELSEWHERE)))
    for fleet, rent in plan.bridge.items():
        rows.append(
            (
                _("Bridge"),
                _("{fleet}: what is missing is rented ({price})", fleet=fleet, price=rent.price or _("quoted")),
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
    told = N_("fall by {percent} a year") if decline > 0 else N_("rise by {percent} a year")
    return _(told, percent=percent(abs(decline)))


def _units(count: int) -> str:
    return ngettext("{count} unit", "{count} units", count)


def _months_told(count: int) -> str:
    return ngettext("{count} month", "{count} months", count)
