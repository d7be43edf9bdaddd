"""What `gpufleet breakeven` found, in sentences: who is the cheapest, from where on, and what would change it."""

from collections.abc import Sequence
from math import isclose, isfinite

from sim.report.words.money import amount as amount_text
from sim.report.words.money import cash
from sim.report.words.text import difference, listing, percent, plain
from sim.report.words.text import place as place_text
from sim.study.money.breakeven.candidates import Candidate, below
from sim.study.money.breakeven.cash import payback_months
from sim.study.money.breakeven.decision import BreakevenAnswer
from sim.study.money.breakeven.tipping import API, Tipping
from sim.units import HOURS_PER_MONTH

ROUNDING = 1e-9
"""Of sums of floats: what differs by less costs the same."""


def sentences(answer: BreakevenAnswer, with_tips: bool = True) -> list[str]:
    """The verdict first, then what it depends on."""
    if not answer.usd_per_h:
        return ["No fleet meets the service level at any load."]
    ranked = sorted(answer.usd_per_h.items(), key=lambda item: item[1])
    (winner, least), rest = ranked[0], ranked[1:]
    at = place_text(answer.axis, answer.load)
    first = f"At {at}, {winner} is the cheapest: {cash(least * HOURS_PER_MONTH)} a month"
    if rest:
        second, usd_per_h = rest[0]
        same = isclose(least, usd_per_h, rel_tol=ROUNDING)
        first += f", as much as {second}" if same else f", {difference(1 - least / usd_per_h)} below {second}"
    told = [f"{first}."]
    told += _crossings(answer)
    told += _paybacks(answer)
    if with_tips:
        told += _tips(answer.winner, answer.tipping)
        told += _tips(answer.best_machine, answer.tipping_of_machines, " of the machines")
    return [line[:1].upper() + line[1:] for line in told]


def _crossings(answer: BreakevenAnswer) -> list[str]:
    """From which utilisation on a purchase beats the other ways to get the same tokens."""
    told = []
    for one in answer.candidates:
        own = answer.curves[one.name]
        if not answer.at_load[one.name].flows.capex_usd:
            continue
        xs = [u for u, _ in own]
        mine = [cost.usd_per_million_output_tokens for _, cost in own]
        others = {
            other.name: [cost.usd_per_million_output_tokens for _, cost in answer.curves[other.name]]
            for other in answer.candidates
            if other.fleet == one.fleet and other.name != one.name
        }
        if answer.api_usd_per_million is not None:
            others[API] = [answer.api_usd_per_million] * len(xs)
        for name, theirs in others.items():
            if not all(map(isfinite, [*mine, *theirs])):
                continue
            several = answer.at_load[one.name].units > 1
            alone = "One unit: " if several else ""  # the verdict is about more of them
            told.append(f"{alone}{one.name} {_where_cheaper(answer, one, xs, below(xs, mine, theirs), name)}.")
    return told


def _where_cheaper(
    answer: BreakevenAnswer, one: Candidate, xs: Sequence[float], ranges: Sequence[tuple[float, float]], other: str
) -> str:
    """Between which utilisations *one* is cheaper than the *other*."""
    if not ranges:
        return f"never gets cheaper than {other}"
    if ranges == [(xs[0], xs[-1])]:
        return f"is cheaper than {other} from {percent(xs[0])} utilisation on, or before"

    def at(u: float) -> str:
        return f"{percent(u)} utilisation ({place_text(answer.axis, float(f'{u * one.capacity:.3g}'))})"

    parts = [
        f"below {at(high)}"
        if low == xs[0]
        else f"above {at(low)}"
        if high == xs[-1]
        else f"between {percent(low)} and {at(high)}"
        for low, high in ranges
    ]
    return f"is cheaper than {other} {listing(parts)}"


def _paybacks(answer: BreakevenAnswer) -> list[str]:
    told = []
    for one in answer.candidates:
        cost = answer.at_load[one.name]
        if not cost.flows.capex_usd:
            continue
        against = {name: usd_per_h for name, usd_per_h in answer.usd_per_h.items() if _paid_by_month(answer, name)}
        if not against:
            continue
        name = min(against, key=lambda other: against[other])
        other = answer.api if name == API and answer.api is not None else answer.at_load[name]
        time = payback_months(cost, other)
        saying = f"pays for itself in {plain(time)} months"
        if not isfinite(time):
            life = f"its life of {plain(cost.finance.life_months)} months" if cost.finance is not None else "its life"
            saying = f"does not pay for itself within {life} from what it saves, without its resale,"
        told.append(f"{one.name} costs {cash(cost.flows.capex_usd)} and {saying} against {name}.")
    return told


def _paid_by_month(answer: BreakevenAnswer, name: str) -> bool:
    return name == API or not answer.at_load[name].flows.capex_usd


def _tips(winner: str, tipping: Sequence[Tipping], among: str = "") -> list[str]:
    told = []
    for one in tipping:
        limits = []
        if one.below is not None:
            limits.append(f"above {amount(one, one.below)} (below it {one.then_below})")
        if one.above is not None:
            limits.append(f"below {amount(one, one.above)} (above it {one.then_above})")
        if limits:
            stays = f"{winner} stays the cheapest{among} while {one.name} is {' and '.join(limits)}"
            told.append(f"{stays}; it is {amount(one, one.now)}.")
    return told


def amount(one: Tipping, value: float) -> str:
    """*value* of the input that tips, with its unit."""
    return place_text(one.unit, float(f"{value:.3g}")) if one.name == "load" else amount_text(value, one.unit)


def unmoved(answer: BreakevenAnswer) -> str:
    """Inputs that never change who is the cheapest."""
    every = [*answer.tipping, *answer.tipping_of_machines]
    moving = {one.name for one in every if one.below is not None or one.above is not None}
    still = list(dict.fromkeys(one.name for one in every if one.name not in moving))
    return f"No value within a factor of 20 changes who is the cheapest: {', '.join(still)}." if still else ""
