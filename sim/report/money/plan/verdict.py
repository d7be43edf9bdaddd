"""What the plans come to in sentences: which costs least, where it is short, and when one overtakes another."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

from sim.cost import MultiYear
from sim.report.money.plan.tables import date
from sim.report.words.exactness import capacity_notes
from sim.report.words.money import cash
from sim.report.words.text import difference, listing, percent, plain
from sim.scenario.sections.precision import Precision
from sim.study.money.plan.api import LINE
from sim.study.money.plan.existing import HeldUnits
from sim.study.money.plan.plans import Outlook, ranked


@dataclass(frozen=True, slots=True)
class PlanVerdict:
    """The answer, and what belongs to it."""

    headline: str
    findings: tuple[str, ...]


def verdict(found: Sequence[Outlook], plan: MultiYear, precision: Precision | None = None) -> PlanVerdict:
    """Sentences on *found*, whose capacities are as exact as *precision* asks for; each names its fleet and figures."""
    order = list(ranked(found))
    findings = [_bought_elsewhere(one, plan) if one.api else _standing(one, plan) for one in order]
    findings += [_sale(one, held, plan) for one in order for held in one.held]
    findings += capacity_notes([one.capacity for one in order if not one.api], precision)
    findings += [text for one in order[1:] if (text := _overtakes(order[0], one, plan))]
    findings += [f"{one.fleet} cannot be planned: {one.reason}." for one in found if one.reason]
    return PlanVerdict(_headline(order, plan), tuple(findings))


def _headline(order: Sequence[Outlook], plan: MultiYear) -> str:
    if not order:
        return "No fleet can be planned: see the reasons."
    best = order[0]
    first = f"Over {span(plan)} {best.fleet} costs least: {_costs(best)}"
    if len(order) > 1:
        others = [_more(one, best) for one in order[1:] if best.present_usd > 0]
        first += f"; {listing(others)}" if others else ""
    kept = next((one for one in order if not one.short and not one.api), None)
    if best.api:
        fleet = "" if kept is None else f"; the cheapest that meets it in every month is {kept.fleet}, {_costs(kept)}"
        return f"{first}. Whether {best.fleet} meets the SLO is not simulated{fleet}."
    if not best.short:
        return f"{first}. {best.fleet} meets the SLO in every month."
    short = f"{first}. {best.fleet} is short of capacity in {_months(len(best.short))}"
    if kept is None:
        return f"{short}; no plan meets the SLO in every month."
    return f"{short}; the cheapest plan that meets the SLO in every month is {kept.fleet}, {_costs(kept)}."


def _more(one: Outlook, best: Outlook) -> str:
    more = one.present_usd / best.present_usd - 1
    return f"{one.fleet} costs {difference(more)} more" if more > 0 else f"{one.fleet} costs as much"


def _costs(one: Outlook) -> str:
    levelised = one.levelised_usd_per_million_output_tokens
    each = "" if levelised is None else f", levelised {cash(levelised)} per million output tokens"
    return f"{cash(one.present_usd)} in present value{each}"


def _standing(one: Outlook, plan: MultiYear) -> str:
    months = one.months
    first, last = months[0].in_service, months[-1].in_service
    existing = f" ({months[0].existing} of them existing)" if months[0].existing else ""
    units = f"{one.fleet}: {first} {'unit' if first == 1 else 'units'} at first{existing}, {last} in the last month"
    parts = [f"{units}, at most {max(row.in_service for row in months)} ({one.gpus} GPU{'s' * (one.gpus != 1)} each)"]
    if one.bought:
        again = sum(batch.units for batch in one.stock.batches if batch.retires < plan.months) if one.stock else 0
        replaced = f", {again} of them out of service before the end" if again else ""
        parts.append(f"{one.bought} bought{replaced}")
    if rented := sum(row.rented for row in months):
        parts.append(f"{rented} unit-months rented")
    if one.stock is not None and one.stock.owed_unit_months:
        parts.append(f"contracts reach {one.stock.owed_unit_months} unit-months beyond the plan, which are not counted")
    if one.short:
        worst = max(one.short, key=lambda row: row.shortfall)
        where = f"{date(plan, one.short[0].month)} to {date(plan, one.short[-1].month)}"
        parts.append(f"short in {_months(len(one.short))} ({where}), by {plain(worst.shortfall)} at worst")
    return "; ".join(parts) + "."


def _bought_elsewhere(one: Outlook, plan: MultiYear) -> str:
    usd = fsum(row.opex_usd.get(LINE, 0.0) for row in one.rows)
    share = fsum(row.elsewhere for row in one.months) / (fsum(row.demand for row in one.months) or 1.0)
    alone = ", without the cost of the existing units" if one.held else ""
    served = f"its bill is {cash(usd)} over {span(plan)} for {percent(share)} of the load{alone}"
    return f"{one.fleet}: {served}; its service level is not simulated."


def _sale(one: Outlook, held: HeldUnits, plan: MultiYear) -> str:
    """When a plan sells existing units, and what that brings."""
    when = f"in {date(plan, held.sold)}"
    if not held.kind.capacity:
        when = "at once, as one of them does not meet the SLO at any load,"
    elif held.sold == 0:
        when = "at once"
    elif held.sold == held.ends:
        when = f"at the end of their life, {date(plan, held.sold)},"
    elif held.sold == plan.months:
        when = "at the end of the plan"
    gain = held.gain_usd(held.sold)
    books = "" if held.book_value_usd is None else f", {cash(abs(gain))} {'below' if gain < 0 else 'above'} book value"
    units = f"the {held.units} existing {held.kind.fleet}"
    return f"{one.fleet} sells {units} {when} for {cash(held.worth_usd(held.sold))}{books}."


def _overtakes(best: Outlook, other: Outlook, plan: MultiYear) -> str:
    """At whose end *best* has paid less in sum than *other* for the first time and for good, if it has not always."""
    ahead_usd = [mine - theirs for mine, theirs in zip(best.cumulative_usd, other.cumulative_usd, strict=True)]
    if min(ahead_usd) >= 0:
        return ""
    following = max(month for month, usd in enumerate(ahead_usd) if usd <= 0) + 1
    if following > plan.months:
        return f"{best.fleet} pays more in sum than {other.fleet}, but later: in present value it costs less."
    if following == plan.months:
        return f"{best.fleet} has paid more than {other.fleet} until its hardware is sold at the end."
    return f"From the end of {date(plan, following)} on {best.fleet} has paid less in sum than {other.fleet}."


def span(plan: MultiYear) -> str:
    """Length of the plan in words."""
    return "one year" if plan.years == 1 else f"{plain(plan.years)} years"


def _months(count: int) -> str:
    return "one month" if count == 1 else f"{count} months"
