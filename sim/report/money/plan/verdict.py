"""What the plans come to in sentences: which costs least, where it is short, and when one overtakes another."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum

from sim.cost import MultiYear
from sim.language import N_, _, ngettext, retold
from sim.report.money.plan.tables import date
from sim.report.words.compared import ranked_apart
from sim.report.words.exactness import capacity_notes, unsettled
from sim.report.words.money import cash
from sim.report.words.text import difference, joined, listing, percent, plain
from sim.scenario.sections.precision import Precision
from sim.study.money.plan.api import LINE
from sim.study.money.plan.existing import HeldUnits
from sim.study.money.plan.plans import Outlook, ranked


@dataclass(frozen=True, slots=True)
class PlanVerdict:
    """The answer, and what belongs to it."""

    headline: str
    findings: tuple[str, ...]


def verdict(
    found: Sequence[Outlook],
    plan: MultiYear,
    precision: Precision | None = None,
    models: Mapping[str, str] | None = None,
) -> PlanVerdict:
    """Return sentences on *found*, whose capacities are as exact as *precision* asks for; each names its fleet and
    figures. *models* has the model of every fleet where plans are ranked for each model on its own.
    """
    order, products = list(ranked(found)), _products(found, models or {})
    findings = [_bought_elsewhere(one, plan) if one.api else _standing(one, plan) for one in order]
    findings += [_sale(one, held, plan) for one in order for held in one.held]
    findings += capacity_notes([one.capacity for one in order if not one.api], precision)
    findings += [text for own in products.values() for one in own[1:] if (text := _overtakes(own[0], one, plan))]
    findings += [
        _("{fleet} cannot be planned: {reason}.", fleet=one.fleet, reason=retold(one.reason))
        for one in found
        if one.reason
    ]
    heads = [
        (_("{model}: ", model=model) if model else "") + _headline(own, plan) for model, own in products.items()
    ] or [_("No fleet can be planned: see the reasons.")]
    if len(products) > 1:
        findings.insert(0, ranked_apart(models or {}))
    return PlanVerdict(joined([*unsettled([one.capacity for one in found if not one.api]), *heads]), tuple(findings))


def _products(found: Sequence[Outlook], models: Mapping[str, str]) -> dict[str, list[Outlook]]:
    """Return the plans that are ranked against each other, each list the cheapest first, by model; the API has the
    tokens of the first fleet's.
    """
    usual, order = next(iter(models.values()), ""), list(ranked(found))
    served = dict.fromkeys(models.get(one.fleet, usual) for one in order)
    if len(served) < 2:
        return {"": order} if order else {}
    return {model: [one for one in order if models.get(one.fleet, usual) == model] for model in served}


def _headline(order: Sequence[Outlook], plan: MultiYear) -> str:
    best = order[0]
    told = N_("Over {span} {fleet} costs least: {costs}") if len(order) > 1 else N_("Over {span} {fleet} costs {costs}")
    first = _(told, span=span(plan), fleet=best.fleet, costs=_costs(best))
    if len(order) > 1:
        others = [_more(one, best) for one in order[1:] if best.present_usd > 0]
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
        months=_months(len(best.short)),
    )
    if kept is None:
        return _("{short}; no plan meets the SLO in every month.", short=short)
    return _(
        "{short}; the cheapest plan that meets the SLO in every month is {fleet}, {costs}.",
        short=short,
        fleet=kept.fleet,
        costs=_costs(kept),
    )


def _more(one: Outlook, best: Outlook) -> str:
    more = one.present_usd / best.present_usd - 1
    return (
        _("{fleet} costs {difference} more", fleet=one.fleet, difference=difference(more))
        if more > 0
        else _("{fleet} costs as much", fleet=one.fleet)
    )


def _costs(one: Outlook) -> str:
    levelised = one.levelised_usd_per_million_output_tokens
    each = "" if levelised is None else _(", levelised {cash} per million output tokens", cash=cash(levelised))
    return _("{cash} in present value{each}", cash=cash(one.present_usd), each=each)


def _standing(one: Outlook, plan: MultiYear) -> str:
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
                "contracts reach {owed_unit_months} unit-months beyond the plan: {cash} remain due then, which no "
                "total counts",
                owed_unit_months=one.stock.owed_unit_months,
                cash=cash(one.owed_usd),
            )
        )
    if one.short:
        worst = max(one.short, key=lambda row: row.shortfall)
        where = _("{low} to {high}", low=date(plan, one.short[0].month), high=date(plan, one.short[-1].month))
        parts.append(
            _(
                "short in {months} ({where}), by {shortfall} at worst",
                months=_months(len(one.short)),
                where=where,
                shortfall=plain(worst.shortfall),
            )
        )
    return _("{texts}.", texts=_("; ").join(parts))


def _bought_elsewhere(one: Outlook, plan: MultiYear) -> str:
    usd = fsum(row.opex_usd.get(LINE, 0.0) for row in one.rows)
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


def _sale(one: Outlook, held: HeldUnits, plan: MultiYear) -> str:
    """When a plan sells existing units, and what that brings."""
    when = _("in {date}", date=date(plan, held.sold))
    if not held.kind.capacity:
        when = _("at once, as one of them does not meet the SLO at any load,")
    elif held.sold == 0:
        when = _("at once")
    elif held.sold == held.ends:
        when = _("at the end of their life, {date},", date=date(plan, held.sold))
    elif held.sold == plan.months:
        when = _("at the end of the plan")
    gain = held.gain_usd(held.sold)
    books = (
        ""
        if held.book_value_usd is None
        else _(N_(", {cash} below book value") if gain < 0 else N_(", {cash} above book value"), cash=cash(abs(gain)))
    )
    units = _("the {units} existing {fleet}", units=held.units, fleet=held.kind.fleet)
    return _(
        "{fleet} sells {units} {when} for {cash}{books}.",
        fleet=one.fleet,
        units=units,
        when=when,
        cash=cash(held.worth_usd(held.sold)),
        books=books,
    )


def _overtakes(best: Outlook, other: Outlook, plan: MultiYear) -> str:
    """At whose end *best* has paid less in sum than *other* for the first time and for good, if it has not always."""
    ahead_usd = [theirs - mine for mine, theirs in zip(best.cumulative_usd, other.cumulative_usd, strict=True)]
    if min(ahead_usd) >= 0:
        return ""
    following = max(month for month, usd in enumerate(ahead_usd) if usd <= 0) + 1
    if following > plan.months:
        return _(
            "{fleet} pays more in sum than {other}, but later: in present value it costs less.",
            fleet=best.fleet,
            other=other.fleet,
        )
    if following == plan.months:
        return _(
            "{fleet} has paid more than {other} until its hardware is sold at the end.",
            fleet=best.fleet,
            other=other.fleet,
        )
    return _(
        "From the end of {date} on {fleet} has paid less in sum than {other}.",
        date=date(plan, following),
        fleet=best.fleet,
        other=other.fleet,
    )


def span(plan: MultiYear) -> str:
    """Length of the plan in words."""
    return _("one year") if plan.years == 1 else _("{years} years", years=plain(plan.years))


def _months(count: int) -> str:
    return _("one month") if count == 1 else _("{count} months", count=count)
