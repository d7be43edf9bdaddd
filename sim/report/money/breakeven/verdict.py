"""What `gpufleet breakeven` found, in sentences: who is the cheapest, from where on, and what would change it."""

from collections.abc import Sequence
from math import isclose, isfinite

from sim.language import N_, _, retold
from sim.report.words.compared import ranked_apart
from sim.report.words.exactness import undrawn, unsettled
from sim.report.words.money import amount as amount_text
from sim.report.words.money import cash
from sim.report.words.text import difference, joined, listing, percent, plain
from sim.report.words.text import place as place_text
from sim.study.money.breakeven.candidates import Candidate
from sim.study.money.breakeven.cash import payback_months
from sim.study.money.breakeven.decision import BreakevenAnswer
from sim.study.money.breakeven.tipping import API, Tipping
from sim.units import HOURS_PER_MONTH

ROUNDING = 1e-9
"""Of sums of floats: what differs by less costs the same."""


def sentences(answer: BreakevenAnswer, with_tips: bool = True) -> list[str]:
    """The verdict first, then what it depends on; before both what its capacities still depend on."""
    return [*unsettled(answer.capacities), *_sentences(answer, with_tips)]


def _sentences(answer: BreakevenAnswer, with_tips: bool) -> list[str]:
    if not answer.usd_per_h:
        if not any(one.mean for one in answer.capacities):
            return [_("No fleet meets the service level at any load.")]
        at = place_text(answer.axis, answer.load)
        return [_("No fleet meets the service level at {place}.", place=at)]
    told = [_cheapest(answer, names) for names in answer.products]
    told[0] = joined([told[0], *undrawn(answer.uncertain)])
    told += [ranked_apart(answer.models)] if answer.models else []
    told += _crossings(answer)
    told += _paybacks(answer)
    if with_tips:
        told += _tips(answer.winner, answer.tipping)
        told += _tips(answer.best_machine, answer.tipping_of_machines, _(" of the machines"))
    named = len(answer.products) if answer.models else 0  # these begin with the id of a model
    return [*told[:named], *(line[:1].upper() + line[1:] for line in told[named:])]


def _cheapest(answer: BreakevenAnswer, names: Sequence[str]) -> str:
    """The first of *names*, in order of their cost, and the next."""
    at, model = place_text(answer.axis, answer.load), answer.models.get(names[0], "")
    winner, least = names[0], answer.usd_per_h[names[0]]
    cheapest, alone = (
        N_("At {at}, {winner} is the cheapest: {cash} a month"),
        N_("At {at}, {winner} costs {cash} a month"),
    )
    first = _(cheapest if names[1:] else alone, at=at, winner=winner, cash=cash(least * HOURS_PER_MONTH))
    if names[1:]:
        second, usd_per_h = names[1], answer.usd_per_h[names[1]]
        same = isclose(least, usd_per_h, rel_tol=ROUNDING)
        first += (
            _(", as much as {second}", second=second)
            if same
            else _(", {difference} below {second}", difference=difference(1 - least / usd_per_h), second=second)
        )
    return (_("{model}: ", model=model) if model else "") + _("{texts}.", texts=first)


def _crossings(answer: BreakevenAnswer) -> list[str]:
    """From which utilisation on a purchase beats the other ways to get the same tokens."""
    told = []
    for one in answer.candidates:
        several = one.name in answer.cheaper and answer.at_load[one.name].units > 1
        alone = _("One unit: ") if several else ""  # the verdict is about more of them
        for name, ranges in answer.cheaper.get(one.name, {}).items():
            if name == API and answer.models.get(API) != answer.models.get(one.name):
                continue  # other tokens
            where = _where_cheaper(answer, one, ranges, name)
            told.append(_("{alone}{name} {where}.", alone=alone, name=one.name, where=where))
    return told


def _where_cheaper(answer: BreakevenAnswer, one: Candidate, ranges: Sequence[tuple[float, float]], other: str) -> str:
    """Between which utilisations *one* is cheaper than the *other*."""
    xs = [u for u, _ in answer.curves[one.name]]
    if not ranges:
        return _("never gets cheaper than {other}", other=other)
    if ranges == [(xs[0], xs[-1])]:
        return _(
            "is cheaper than {other} at {percent} utilisation and above (lower loads were not simulated)",
            other=other,
            percent=percent(xs[0]),
        )

    def at(u: float) -> str:
        return _(
            "{percent} utilisation ({place_text})",
            percent=percent(u),
            place_text=place_text(answer.axis, float(f"{u * one.capacity:.3g}")),
        )

    parts = [
        _("below {at}", at=at(high))
        if low == xs[0]
        else _("above {at}", at=at(low))
        if high == xs[-1]
        else _("between {percent} and {at}", percent=percent(low), at=at(high))
        for low, high in ranges
    ]
    return _("is cheaper than {other} {listing}", other=other, listing=listing(parts))


def _paybacks(answer: BreakevenAnswer) -> list[str]:
    told = []
    for one in answer.candidates:
        cost = answer.at_load[one.name]
        if not cost.flows.capex_usd:
            continue
        against = {
            name: usd_per_h
            for name, usd_per_h in answer.usd_per_h.items()
            if _paid_by_month(answer, name) and answer.models.get(name) == answer.models.get(one.name)
        }
        if not against:
            continue
        name = min(against, key=lambda other: against[other])
        other = answer.api if name == API and answer.api is not None else answer.at_load[name]
        time = payback_months(cost, other)
        saying = _("pays for itself in {time} months", time=plain(time))
        if not isfinite(time):
            life = (
                _("its life of {life_months} months", life_months=plain(cost.finance.life_months))
                if cost.finance is not None
                else _("its life")
            )
            saying = _("does not pay for itself within {life} from what it saves, without its resale,", life=life)
        told.append(
            _(
                "{name} costs {cash} and {saying} against {other}.",
                name=one.name,
                cash=cash(cost.flows.capex_usd),
                saying=saying,
                other=name,
            )
        )
    return told


def _paid_by_month(answer: BreakevenAnswer, name: str) -> bool:
    return name == API or not answer.at_load[name].flows.capex_usd


def _tips(winner: str, tipping: Sequence[Tipping], among: str = "") -> list[str]:
    told = []
    for one in tipping:
        limits = []
        if one.below is not None:
            limits.append(
                _("above {amount} (below it {then_below})", amount=amount(one, one.below), then_below=one.then_below)
            )
        if one.above is not None:
            limits.append(
                _("below {amount} (above it {then_above})", amount=amount(one, one.above), then_above=one.then_above)
            )
        if limits:
            stays = _(
                "{winner} stays the cheapest{among} while {name} is {limits}",
                winner=winner,
                among=among,
                name=retold(one.name),
                limits=_(" and ").join(limits),
            )
            told.append(_("{stays}; it is {amount}.", stays=stays, amount=amount(one, one.now)))
    return told


def amount(one: Tipping, value: float) -> str:
    """*value* of the input that tips, with its unit."""
    return place_text(one.unit, float(f"{value:.3g}")) if one.name == "load" else amount_text(value, one.unit)


def unmoved(answer: BreakevenAnswer) -> str:
    """Inputs that never change who is the cheapest; of one candidate alone there is nothing to say."""
    if len(answer.usd_per_h) < 2:
        return ""
    every = [*answer.tipping, *answer.tipping_of_machines]
    moving = {one.name for one in every if one.below is not None or one.above is not None}
    still = list(dict.fromkeys(retold(one.name) for one in every if one.name not in moving))
    return (
        _("No value within a factor of 20 changes who is the cheapest: {still}.", still=_(", ").join(still))
        if still
        else ""
    )
