"""Report of `gpufleet breakeven` ("rent, buy or API?"): sentences, charts, tables and a page.

Sentences name the cheapest candidate, the utilisation from which a purchase is cheaper, and the inputs that would
change the result; charts show cost over utilisation and payments over the months.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import isclose, isfinite
from pathlib import Path
from typing import Any

from sim.cost.financing import OWN_MONEY
from sim.cost.time_value import MONTHS_PER_YEAR
from sim.language import ENGLISH, N_, _, current, translate_rendered
from sim.report.charts.fonts import drawable
from sim.report.charts.panels import DASHES, ChartCurve, Limit, Panel, style
from sim.report.charts.picture import KeyEntry, panel_picture
from sim.report.financing_tables import (
    WORKING_USD,
    cheapest_way,
    earning_line,
    financing_rows,
    financing_table,
    revenue_cells,
    revenue_columns,
    revenue_heads,
    write_financing,
)
from sim.report.json_document import heading
from sim.report.order_timing import timing_rows, timing_sentences, timing_table, write_timing
from sim.report.page.page import PageTable, render_page
from sim.report.run.tables import write_rows
from sim.report.terminal_table import FittedTable
from sim.report.words.money import amount as amount_text
from sim.report.words.money import cash, in_code, money_mark, money_thousands, rate_notes, shown
from sim.report.words.precision import capacity_notes, central_value_notes, unsteady_capacity_notes
from sim.report.words.service_level import load_notes, ranked_apart, unanswered_of
from sim.report.words.text import axis_label, difference, joined, listing, percent, plain, question_of, spaced
from sim.report.words.text import place as place_text
from sim.report.words.units import verdict_in_units
from sim.scenario.schema import Scenario
from sim.scenario.year import year_plan
from sim.study.breakeven import API, BreakevenAnswer, TippingPoints
from sim.study.breakeven_costs import Candidate, Cost, CumulativeCost, payback_months
from sim.units import HOURS_PER_MONTH

ROUNDING = 1e-9
"""Relative tolerance within which two costs count as equal (rounding of sums)."""


WAYS = {"bought": N_("{fleet} bought"), "rented": N_("{fleet} rented")}
"""Usual ways to pay -> example of a candidate's name with this way to pay."""


def worded(answer: BreakevenAnswer, text: str) -> str:
    """Return *text* with the names of candidates in the shown language; tables that programs read have them as is."""
    return with_labels(text, {one.name: one.fleet for one in answer.candidates})


def with_labels(text: str, fleets: Mapping[str, str]) -> str:
    """Return *text* with the candidates of *fleets*, a map to the name of their fleet, in the shown language."""
    if current() == ENGLISH:
        return text
    labels = labels_of(fleets)
    for name in sorted(labels, key=len, reverse=True):
        text = text.replace(name, labels[name])
    return spaced(text)


def labels_of(fleets: Mapping[str, str]) -> dict[str, str]:
    """Return candidate (of *fleets*, a map to the name of their fleet) or API -> name in the shown language."""
    labels = {}
    for candidate, fleet in fleets.items():
        way = candidate.removeprefix(f"{fleet} ")
        labels[candidate] = _(WAYS[way], fleet=fleet) if way in WAYS and candidate != fleet else candidate
    return labels | {API: _(API)}


def sentences(answer: BreakevenAnswer, with_tips: bool = True) -> list[str]:
    """Return the verdict and its conditions; capacities that a longer horizon would change come first."""
    lines = [*unsteady_capacity_notes(answer.capacities), *_sentences(answer, with_tips)]
    return [worded(answer, line) for line in lines]


def verdict_of_breakeven(answer: BreakevenAnswer, scenario: Scenario) -> tuple[str, list[str]]:
    """Return the verdict, before and after financing and tax, and the other findings."""
    stated = sentences(answer, with_tips=False)
    before = len(unsteady_capacity_notes(answer.capacities)) + max(1, len(answer.products))
    after = [worded(answer, _capitalised(line)) for line in _after_tax_lines(answer)]
    others = [line for line in stated[before:] if line not in after]
    findings = [*others, *hours_sentences(answer, scenario), inputs_without_effect(answer), *notes(answer, scenario)]
    return joined([*stated[:before], *after]), [line for line in findings if line]


def _capitalised(line: str) -> str:
    """Return *line* as a sentence; other languages have no capitals, and `worded` would not find such names."""
    return line[:1].upper() + line[1:] if current() == ENGLISH else line


def _sentences(answer: BreakevenAnswer, with_tips: bool) -> list[str]:
    if not answer.usd_per_h:
        if not any(one.mean for one in answer.capacities):
            return [_("No fleet meets the service level at any load.")]
        at = place_text(answer.axis, answer.load)
        return [_("No fleet meets the service level at {place}.", place=at)]
    lines = [_cheapest(answer, names) for names in answer.products]
    unanswered = {one.fleet: answer.at_load[one.name].unanswered for one in answer.candidates}
    lines[0] = joined([lines[0], unanswered_of(unanswered), *central_value_notes(answer.uncertain)])
    lines += _earning_lines(answer)
    lines += _real_line(answer)
    lines += [ranked_apart(answer.models)] if answer.models else []
    lines += _after_tax_lines(answer)
    lines += timing_sentences(answer.timings, answer.starts)
    lines += _crossings(answer)
    lines += _paybacks(answer)
    if with_tips:
        lines += _tips(answer.winner, answer.tipping)
        lines += _tips(answer.best_machine, answer.tipping_of_machines, _(" of the machines"))
    named = len(answer.products) if answer.models else 0  # lines that begin with a model's id keep their case
    return [*lines[:named], *map(_capitalised, lines[named:])]


def _cheapest(answer: BreakevenAnswer, names: Sequence[str]) -> str:
    """Name the cheapest of *names* (sorted by cost) and its distance to the next."""
    at, model = place_text(answer.axis, float(f"{answer.load:.4g}")), answer.models.get(names[0], "")
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


def _earning_lines(answer: BreakevenAnswer) -> list[str]:
    """Return the candidate that earns the most, for each model; none where the scenario states no revenue."""
    span = max(1, round(answer.horizon.months))
    sold = [{name: answer.earnings[name] for name in names if name in answer.earnings} for names in answer.products]
    return [line for earnings in sold for line in earning_line(earnings, span)]


def _real_line(answer: BreakevenAnswer) -> list[str]:
    """Return the levelised cost of the cheapest candidate in today's money; none without general inflation."""
    rate, inflation, winner = answer.horizon.real_rate, answer.horizon.inflation, answer.winner
    if rate is None or inflation is None:
        return []
    monthly = answer.horizon.real_usd(answer.usd_per_h[winner] * HOURS_PER_MONTH)
    assert monthly is not None  # there is a rate of inflation
    text = N_("in today's money, {winner} costs {cash} a month (inflation {inflation}, real discount rate {rate}).")
    return [_(text, winner=winner, cash=cash(monthly), inflation=percent(inflation), rate=percent(rate))]


def _after_tax_lines(answer: BreakevenAnswer) -> list[str]:
    """Return the cheapest candidate after financing and tax, for each model; none where the scenario states neither."""
    lines = []
    for names in answer.products if answer.after_tax else []:
        best = min(names, key=lambda name: answer.after_tax[name].net_present_usd)
        text = N_("after financing and tax, {winner} has the lowest net present cost: {cash} in {months:g} months.")
        if best != names[0]:
            text = N_("after financing and tax, {winner} costs less than {first}: {cash} in {months:g} months.")
        span = round(answer.horizon.months)
        paid = cash(answer.after_tax[best].net_present_usd)
        lines.append(_(text, winner=best, first=names[0], cash=paid, months=span))
        lines += _cheaper_option(answer, names, answer.after_tax[best].net_present_usd)
        bought = min(names, key=lambda name: (not answer.financings[name].get(OWN_MONEY), names.index(name)))
        lines += [text] if (text := cheapest_way(answer.financings, bought)) else []
    return lines


def _cheaper_option(answer: BreakevenAnswer, names: Sequence[str], least_usd: float) -> list[str]:
    """Name the cheapest way to finance any of *names*, where it is not that of the scenario and below *least_usd*."""
    ways = [(one.net_present_usd, name, way) for name in names for way, one in answer.financings[name].items()]
    usd, name, way = min(ways)
    if usd >= least_usd * (1 - ROUNDING):
        return []
    return [_("financed by {way}, {name} costs less still: {cash}.", way=_(way), name=name, cash=cash(usd))]


def _crossings(answer: BreakevenAnswer) -> list[str]:
    """Return the utilisation ranges in which each candidate is cheaper than the others."""
    lines = []
    for one in answer.candidates:
        several = one.name in answer.cheaper and answer.at_load[one.name].units > 1
        alone = _("One unit: ") if several else ""  # the verdict is about several units
        for name, ranges in answer.cheaper.get(one.name, {}).items():
            if name == API and answer.models.get(API) != answer.models.get(one.name):
                continue  # the API serves another model
            where = _where_cheaper(answer, one, ranges, name)
            lines.append(_("{alone}{name} {where}.", alone=alone, name=one.name, where=where))
    return lines


def hours_sentences(answer: BreakevenAnswer, scenario: Scenario) -> list[str]:
    """State up to how many hours a month a fleet rented by the hour costs less than the same fleet bought.

    With a `load_profile` that has hours without requests, also the cost of its other hours in both ways. Starts, and
    the electricity that a bought fleet saves in fewer hours, are not counted.
    """
    plan = year_plan(scenario)
    worked = plan.working_hours / MONTHS_PER_YEAR if plan is not None and plan.idle_hours else None
    lines = []
    for fleet in dict.fromkeys(one.fleet for one in answer.candidates):
        costs = {one.name: answer.at_load[one.name] for one in answer.candidates if one.fleet == fleet}
        costs = {name: cost for name, cost in costs.items() if name in answer.usd_per_h}
        bought = [name for name, cost in costs.items() if cost.flows.capex_usd and not cost.flows.rent_usd_per_h]
        rented = [name for name, cost in costs.items() if _by_the_hour(cost)]
        if not bought or not rented:
            continue
        own, rent = (min(names, key=lambda name: answer.usd_per_h[name]) for names in (bought, rented))
        own_usd, hours = answer.usd_per_h[own] * HOURS_PER_MONTH, HOURS_PER_MONTH
        hours *= answer.usd_per_h[own] / answer.usd_per_h[rent]
        template = N_(
            "Paid only while it runs, {rented} costs less than {bought} up to {hours} of {all} hours a month."
        )
        if hours >= HOURS_PER_MONTH:
            template = N_("{rented} costs less than {bought} even if it runs all {all} hours of a month.")
        shown = {"hours": f"{hours:.0f}", "all": f"{HOURS_PER_MONTH:.0f}"}
        lines.append(_(template, rented=rent, bought=own, **shown))
        if worked is not None:
            lines.append(
                _(
                    "For the {hours} hours a month with requests, {rented} costs {low} this way, {bought} {high}.",
                    hours=f"{worked:.0f}",
                    rented=rent,
                    low=cash(answer.usd_per_h[rent] * worked),
                    bought=own,
                    high=cash(own_usd),
                )
            )
    return [worded(answer, line) for line in lines]


def _by_the_hour(cost: Cost) -> bool:
    """Return whether all GPUs are rented without a term or a purchase."""
    flows = cost.flows
    return bool(flows.rent_usd_per_h) and not flows.capex_usd and not any(flows.agreed_months.values())


def _where_cheaper(answer: BreakevenAnswer, one: Candidate, ranges: Sequence[tuple[float, float]], other: str) -> str:
    """Describe the utilisation ranges in which *one* is cheaper than *other*."""
    xs = [u for u, _ in answer.curves[one.name]]
    if not ranges:
        return _("is never cheaper than {other}", other=other)
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
    lines = []
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
        template, life = N_("Against {other}, {name} ({cash}) pays for itself in {time} months."), _("its life")
        if not isfinite(time):
            template = N_("Against {other}, {name} ({cash}) does not pay for itself within {life}, resale not counted.")
            if cost.finance is not None:
                life = _("its life of {life_months} months", life_months=plain(cost.finance.life_months))
        paid = cash(cost.flows.capex_usd)
        lines.append(_(template, other=name, name=one.name, cash=paid, time=plain(time), life=life))
    return lines


def _paid_by_month(answer: BreakevenAnswer, name: str) -> bool:
    return name == API or not answer.at_load[name].flows.capex_usd


def _tips(winner: str, tipping: Sequence[TippingPoints], among: str = "") -> list[str]:
    lines = []
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
                "{winner} remains the cheapest{among} while {name} is {limits}",
                winner=winner,
                among=among,
                name=translate_rendered(one.name),
                limits=_(" and ").join(limits),
            )
            lines.append(_("{stays}; it is {amount}.", stays=stays, amount=amount(one, one.now)))
    return lines


def amount(one: TippingPoints, value: float) -> str:
    """Format *value*, a value of the input *one*, with its unit."""
    return place_text(one.unit, float(f"{value:.3g}")) if one.name == "load" else amount_text(value, one.unit)


def inputs_without_effect(answer: BreakevenAnswer) -> str:
    """Name the inputs whose change never makes another candidate the cheapest; empty for a single candidate."""
    if len(answer.usd_per_h) < 2:
        return ""
    every = [*answer.tipping, *answer.tipping_of_machines]
    moving = {one.name for one in every if one.below is not None or one.above is not None}
    still = list(dict.fromkeys(translate_rendered(one.name) for one in every if one.name not in moving))
    return (
        worded(
            answer,
            _("Within a factor of 20, these do not change the cheapest candidate: {still}.", still=_(", ").join(still)),
        )
        if still
        else ""
    )


LINES = list(DASHES.values())
"""Dashes of curves, by the way to pay."""


def panels(answer: BreakevenAnswer) -> list[Panel]:
    """Return the charts of cost and of payments; none where no fleet meets its service level."""
    if not answer.candidates:
        return []
    looks = _looks(answer)
    drawn = [_by_utilisation(answer, looks), _by_load(answer, looks), _cash(answer, looks), _present(answer, looks)]
    return [_in_words(answer, panel) for panel in drawn]


def _in_words(answer: BreakevenAnswer, panel: Panel) -> Panel:
    """Return *panel* with the names of candidates in the shown language."""
    curves = tuple(replace(curve, name=worded(answer, curve.name)) for curve in panel.curves)
    limit = panel.y_limit and replace(panel.y_limit, text=worded(answer, panel.y_limit.text))
    return replace(panel, curves=curves, y_limit=limit)


def key(answer: BreakevenAnswer) -> list[KeyEntry]:
    """Return the legend: colour and dash of every candidate."""
    looks = _looks(answer)
    return [KeyEntry(worded(answer, name), looks[name][0], dash=looks[name][2]) for name in answer.months]


def _looks(answer: BreakevenAnswer) -> dict[str, tuple[str, str, object]]:
    """Return colour, marker and dash of every candidate: a colour and a marker of its own, dash by the way to pay."""
    styles = style([one.name for one in answer.candidates])
    seen: dict[str, int] = {}
    looks: dict[str, tuple[str, str, object]] = {}
    for one in answer.candidates:
        way = seen[one.fleet] = seen.get(one.fleet, -1) + 1
        looks[one.name] = (*styles[one.name], LINES[way % len(LINES)])
    return looks | {API: ("#444444", "X", LINES[-1])}


def _by_utilisation(answer: BreakevenAnswer, looks: Mapping[str, tuple[str, str, object]]) -> Panel:
    curves = []
    for name, path in answer.curves.items():
        color, marker, dash = looks[name]
        x = tuple(u for u, _ in path)
        y = tuple(shown(cost.usd_per_million_output_tokens) for _, cost in path)
        curves.append(ChartCurve(name, color, x, y, marker, dash, good=(True,) * len(x)))
    limit = None
    if answer.api_usd_per_million is not None:
        limit = Limit(shown(answer.api_usd_per_million), API)
    return Panel(
        _("Cost of tokens over utilisation"),
        in_code(_("levelised USD per million output tokens, one unit")),
        _("offered load over capacity under the service level"),
        tuple(curves),
        x_format=percent,
        y_format=money_mark,
        y_limit=limit,
        x_ticks=(0.03, 0.1, 0.3, 1.0),
        kind="cost_vs_utilisation",
    )


def _by_load(answer: BreakevenAnswer, looks: Mapping[str, tuple[str, str, object]]) -> Panel:
    curves = []
    for name, path in answer.by_load.items():
        color, _marker, dash = looks[name]
        x, y = tuple(load for load, _usd in path), tuple(shown(usd * HOURS_PER_MONTH) for _load, usd in path)
        curves.append(ChartCurve(name, color, x, y, "", dash, good=(True,) * len(x)))
    return Panel(
        _("Cost of a load"),
        in_code(_("levelised USD a month, for the number of whole units needed")),
        axis_label(answer.axis),
        tuple(curves),
        y_format=money_mark,
        x_limit=Limit(answer.load, _("the load of the verdict"), forbids=False),
        kind="cost_vs_load",
    )


def _cash(answer: BreakevenAnswer, looks: Mapping[str, tuple[str, str, object]]) -> Panel:
    return Panel(
        _("Cumulative payments"),
        in_code(_("USD, not discounted, without resale")),
        _("months"),
        tuple(_path(name, [shown(at.cash_usd) for at in path], path, looks) for name, path in answer.months.items()),
        y_format=money_thousands,
        kind="cash",
    )


def _present(answer: BreakevenAnswer, looks: Mapping[str, tuple[str, str, object]]) -> Panel:
    return Panel(
        _("Net present cost of stopping then"),
        in_code(_("USD of today, net of resale")),
        _("months"),
        tuple(
            _path(name, [shown(at.net_present_usd) for at in path], path, looks) for name, path in answer.months.items()
        ),
        y_format=money_thousands,
        kind="net_present_cost",
    )


def _path(
    name: str, values: Sequence[float], path: Sequence[CumulativeCost], looks: Mapping[str, tuple[str, str, object]]
) -> ChartCurve:
    color, _marker, dash = looks[name]
    return ChartCurve(
        name, color, tuple(float(at.months) for at in path), tuple(values), "", dash, good=(True,) * len(path)
    )


def ranking_rows(answer: BreakevenAnswer) -> list[dict[str, Any]]:
    """Return the rows of ranking.csv: the levelised cost of the load by candidate, the cheapest first.

    Where candidates serve different models, rows of the same model are adjacent.
    """
    rows, every, is_real = [], costs_of(answer), answer.horizon.inflation is not None
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
                **_by_kind(every[name]),
                "months": answer.horizon.months,
                "net_present_cost_usd": answer.horizon.net_present_usd(usd_per_h),
                **_real_columns(answer, name),
                **_after_tax_columns(answer, name),
                **(revenue_columns(answer.earnings.get(name), is_real) if answer.earnings else {}),
            }
        )
    return rows


def _by_kind(cost: Cost) -> dict[str, float | None]:
    """Return the columns of ranking.csv for the separate costs of prompts and answers; None if not metered."""
    names = ("prompts_usd_per_million_prompt_tokens", "answers_usd_per_million_output_tokens")
    return dict(zip(names, cost.usd_per_million_by_kind or (None, None), strict=True))


def _after_tax_columns(answer: BreakevenAnswer, name: str) -> dict[str, Any]:
    """Return the columns of ranking.csv after financing and tax; none where the scenario states neither."""
    if not answer.after_tax:
        return {}
    one = answer.after_tax[name]
    return {
        "after_tax_net_present_cost_usd": one.net_present_usd,
        "irr": one.internal_rate,
        **({} if one.inflation is None else {"real_irr": one.real_internal_rate}),
        "irr_against": one.against,
    }


def _real_columns(answer: BreakevenAnswer, name: str) -> dict[str, Any]:
    """Return the columns of ranking.csv in today's money; none without general inflation."""
    horizon = answer.horizon
    if horizon.real_rate is None:
        return {}
    return {
        "real_discount_rate": horizon.real_rate,
        "real_usd_per_h": horizon.real_usd(answer.usd_per_h[name]),
        "real_usd_per_million_output_tokens": horizon.real_usd(_per_million(answer, name)),
    }


def utilisation_rows(answer: BreakevenAnswer) -> list[dict[str, Any]]:
    """Return the rows of breakeven.csv: cost of tokens with one unit of each candidate at each utilisation."""
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
    """Return the rows of months.csv: cumulative payments and net present cost of each candidate by month."""
    return [
        {"candidate": name, "month": at.months, "cash_usd": at.cash_usd, "net_present_cost_usd": at.net_present_usd}
        for name, path in answer.months.items()
        for at in path
    ]


def cash_rows(answer: BreakevenAnswer) -> list[dict[str, Any]]:
    """Return the rows of cash.csv: payments by month, up to the end of the comparison's horizon."""
    moves = any(at.working_usd for path in answer.cash.values() for at in path)
    return [
        {
            "candidate": name,
            "month": at.months,
            "purchase_usd": at.purchase_usd,
            "operating_usd": at.operating_usd,
            "brings_usd": at.brings_usd,
            "renewal_usd": at.renewal_usd,
            **({WORKING_USD: at.working_usd} if moves else {}),
            "net_present_cost_usd": at.net_present_usd,
            "discount_rate": answer.horizon.discount_rate,
        }
        for name, path in answer.cash.items()
        for at in path
    ]


def bill_rows(answer: BreakevenAnswer) -> list[dict[str, Any]]:
    """Return the rows of bill.csv: cost of the load by component, in the first month and levelised [USD/month].

    Purchases are spread over their life in both.
    """
    return [
        {
            "candidate": name,
            "component": component,
            "first_month_usd_per_month": cost.flows.booked_usd_per_h[component] * HOURS_PER_MONTH,
            "levelised_usd_per_month": usd_per_h * HOURS_PER_MONTH,
        }
        for name, cost in costs_of(answer).items()
        for component, usd_per_h in cost.lines_usd_per_h.items()
    ]


def costs_of(answer: BreakevenAnswer) -> dict[str, Cost]:
    """Return the cost of the load by candidate, the API included."""
    return {**answer.at_load, **({API: answer.api} if answer.api is not None else {})}


def tipping_rows(answer: BreakevenAnswer) -> list[dict[str, Any]]:
    """Return the rows of tipping.csv: the value of each input at which another candidate becomes the cheapest."""
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
    """Write all tables and, if *with_pictures*, the picture and the page into the folder *out*."""
    for name, rows in (
        ("ranking", ranking_rows(answer)),
        ("breakeven", utilisation_rows(answer)),
        ("months", month_rows(answer)),
        ("cash", cash_rows(answer)),
        ("bill", bill_rows(answer)),
        ("tipping", tipping_rows(answer)),
    ):
        write_rows(out / f"{name}.csv", rows)
    write_financing(out, answer.financings, "candidate")
    write_timing(out, answer.timings, "candidate", answer.starts)
    if with_pictures:
        _draw(out, answer, scenario, remarks)


def _draw(out: Path, answer: BreakevenAnswer, scenario: Scenario, remarks: Sequence[str]) -> None:
    verdict, *others = sentences(answer, with_tips=False)
    lines, question = [verdict, *hours_sentences(answer, scenario), *others], question_of(scenario)
    drawn = panels(answer)
    if drawn:
        with drawable():  # in English where no font has the characters of the shown language
            answers = sentences(answer, with_tips=False)[:1]
            panel_picture(panels(answer), question, answers, key(answer)).save(out / "breakeven.png")
    page = render_page(
        scenario.name,
        question,
        lines,
        drawn,
        page_tables(answer),
        [*remarks, *notes(answer, scenario)],
        key=key(answer) if drawn else (),
    )
    (out / "breakeven.html").write_text(page, encoding="utf-8")


def breakeven_document(scenario: Scenario, answer: BreakevenAnswer, out: str) -> dict[str, Any]:
    """Build the document of `--format json`: the verdict and the rows of the tables."""
    conditions = [*hours_sentences(answer, scenario), inputs_without_effect(answer), *rate_notes(scenario)]
    lines = [line for line in (*sentences(answer), *conditions) if line]
    return {
        **heading(scenario, out),
        "axis": answer.axis,
        "load": answer.load,
        "verdict": verdict_in_units(lines[0], lines[1:]),
        "ranking": ranking_rows(answer),
        "utilisation": utilisation_rows(answer),
        "months": month_rows(answer),
        "tipping": tipping_rows(answer),
        **({"financing": financing_rows(answer.financings, "candidate")} if answer.financings else {}),
        **({"timing": timing_rows(answer.timings, "candidate", answer.starts)} if answer.timings else {}),
    }


def ranking(answer: BreakevenAnswer) -> PageTable:
    """Build the table of the candidates' costs at the load."""
    rows = [
        [
            worded(answer, row["candidate"]),
            str(row["units"] or ""),
            cash(row["usd_per_h"] * HOURS_PER_MONTH),
            cash(row["capex_usd"]) if row["capex_usd"] else "",
            cash(row["first_month_running_usd_per_h"] * HOURS_PER_MONTH),
            cash(row["usd_per_million_output_tokens"]),
            cash(row["net_present_cost_usd"]),
            *([cash(row["real_usd_per_h"] * HOURS_PER_MONTH)] if "real_usd_per_h" in row else []),
            *(worded(answer, cell) for cell in _after_tax_cells(row)),
            *revenue_cells(row),
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
        *([] if answer.horizon.inflation is None else [in_code(_("levelised, today's money [USD/month]"))]),
        *([in_code(_("after financing and tax [USD]")), _("IRR of the purchase [a year]")] if answer.after_tax else []),
        *(revenue_heads() if answer.earnings else []),
    ]
    return PageTable(
        _("At {place_text}", place_text=place_text(answer.axis, answer.load)),
        _("Purchases are spread over their life; whole units share the load."),
        heads,
        rows,
    )


def _after_tax_cells(row: Mapping[str, Any]) -> list[str]:
    if "after_tax_net_present_cost_usd" not in row:
        return []
    rate = (
        "" if row["irr"] is None else _("{rate} (against {other})", rate=percent(row["irr"]), other=row["irr_against"])
    )
    return [cash(row["after_tax_net_present_cost_usd"]), rate]


def _kinds_table(answer: BreakevenAnswer) -> list[PageTable]:
    """Build the table of the separate costs of prompts and answers; none where nothing was metered by phase."""
    kinds = {name: cost.usd_per_million_by_kind for name, cost in costs_of(answer).items()}
    rows = [[worded(answer, name), *map(cash, found)] for name, found in kinds.items() if found is not None]
    heads = [
        _("candidate"),
        in_code(_("prompts [USD per million prompt tokens]")),
        in_code(_("answers [USD per million output tokens]")),
    ]
    note = _(
        "Levelised cost, divided by each pool's GPU time of prefill and decode; prompt tokens include cached ones. The "
        "API: its own prices."
    )
    return [PageTable(_("Prompts and answers"), note, heads, rows)] if rows else []


def _per_million(answer: BreakevenAnswer, name: str) -> float:
    if name == API:
        return answer.api_usd_per_million or float("nan")
    return answer.at_load[name].usd_per_million_output_tokens


def page_tables(answer: BreakevenAnswer) -> list[PageTable]:
    """Build the tables of the page: ranking, ways to finance, times of order, utilisation, tipping points."""
    if not answer.usd_per_h:
        return []
    found = [
        ranking(answer),
        *_kinds_table(answer),
        *([financing_table(answer.financings, partial(worded, answer))] if answer.financings else []),
        *([timing_table(answer.timings, answer.starts)] if answer.timings else []),
    ]
    heads = [
        in_code(_("levelised USD per million output tokens at utilisation")),
        *(percent(u) for u, _ in next(iter(answer.curves.values()), [])),
    ]
    rows = [
        [worded(answer, name), *(cash(cost.usd_per_million_output_tokens) for _, cost in path)]
        for name, path in answer.curves.items()
    ]
    found.append(
        PageTable(
            _("By utilisation"),
            _("Utilisation is the offered load over the fleet's capacity under its service level."),
            heads,
            rows,
        )
    )
    note = _("One input at a time, each within a factor of 20; {winner} is the cheapest now.", winner=answer.winner)
    found.append(_tipping_table(answer, _("Tipping points"), note, answer.tipping))
    if answer.tipping_of_machines:
        note = _("Without the API, {best_machine} is the cheapest candidate.", best_machine=answer.best_machine)
        title = _("Tipping points among the machines")
        found.append(_tipping_table(answer, title, note, answer.tipping_of_machines))
    return found


def tipping_limits(answer: BreakevenAnswer) -> list[FittedTable]:
    """Return tables for the terminal of the values at which another candidate becomes the cheapest, a row each."""
    groups = [(answer.winner, _("{winner} remains the cheapest unless"), answer.tipping)]
    among = _("{winner} remains the cheapest of the machines unless")
    groups += [(answer.best_machine, among, answer.tipping_of_machines)]
    tables = []
    for winner, title, tipping in groups:
        rows = []
        for one in tipping:
            front = [_("{name}, now {amount}", name=translate_rendered(one.name), amount=amount(one, one.now))]
            if one.below is not None:
                rows.append([*front, _("below {amount}", amount=amount(one, one.below)), one.then_below])
            if one.above is not None:
                rows.append([*front, _("above {amount}", amount=amount(one, one.above)), one.then_above])
        if rows:
            heads = [_("input"), _("if it is"), _("the cheapest is")]
            cells = [[worded(answer, cell) for cell in row] for row in rows]
            shown = worded(answer, title.format(winner=winner))
            tables.append(FittedTable(heads, cells, frozenset({0, 1, 2}), 1, title=shown, optional=()))
    return tables


def _tipping_table(answer: BreakevenAnswer, title: str, note: str, tipping: Sequence[TippingPoints]) -> PageTable:
    rows = [
        [
            worded(answer, translate_rendered(one.name)),
            amount(one, one.now),
            worded(answer, f"{amount(one, one.below)}: {one.then_below}") if one.below is not None else "",
            worded(answer, f"{amount(one, one.above)}: {one.then_above}") if one.above is not None else "",
        ]
        for one in tipping
    ]
    return PageTable(
        title,
        worded(answer, note),
        [_("input"), _("now"), _("cheapest changes below"), _("above")],
        rows,
        (2, 3),
    )


def left_out(answer: BreakevenAnswer) -> list[str]:
    """State which fleets are not compared, and why."""
    lines = [
        _("{fleet} is not compared: {reason}.", fleet=one.fleet, reason=translate_rendered(one.reason))
        for one in answer.capacities
        if one.reason
    ]
    missed = [one.fleet for one in answer.capacities if not one.reason and one.mean == 0]
    lines += [
        _("{name} is not compared: it does not meet the service level at any simulated load.", name=name)
        for name in missed
    ]
    compared = {one.fleet for one in answer.candidates}
    return lines + [
        _(
            "{name} is not compared: it meets the service level up to {most}, and the load is {load}.",
            name=one.fleet,
            most=place_text(answer.axis, float(f"{one.mean:.3g}")),
            load=place_text(answer.axis, answer.load),
        )
        for one in answer.capacities
        if not one.reason and one.mean and one.fleet not in compared
    ]


def owned_peaks(answer: BreakevenAnswer, scenario: Scenario) -> list[str]:
    """Return notes on purchased fleets with an autoscaler, which pay for all of their hardware."""
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
    """Return notes on capacities, fleets left out, and conventions."""
    lines = [
        _(
            "Capacity of {fleet}: {place_text}",
            fleet=one.fleet,
            place_text=place_text(answer.axis, float(f"{one.mean:.3g}")),
        )
        + (f" (± {plain(one.half_width, 2)})" if one.half_width else "")
        for one in answer.capacities
        if not one.reason and 0 < one.mean < float("inf")
    ]
    lines += capacity_notes(answer.capacities, scenario.precision)
    lines += left_out(answer)
    lines += [*load_notes(scenario), *rate_notes(scenario)]
    lines += owned_peaks(answer, scenario)
    if not answer.all_simulated:
        lines.append(_("The load at which the cheapest changes is interpolated, not simulated."))
    lines += [
        _(
            "Capacity of {fleet}: at least {place_text}, the highest simulated load.",
            fleet=one.fleet,
            place_text=place_text(answer.axis, float(f"{one.at_least:.3g}")),
        )
        for one in answer.capacities
        if one.mean == float("inf")
    ]
    if any(cost.finance is not None and cost.finance.inflation for cost in answer.at_load.values()):
        lines.append(
            _(
                "With inflation the cost a month is the equal payment over {months} months; the operating cost is "
                "that of the first month.",
                months=plain(answer.horizon.months),
            )
        )
    lines.append(
        _(
            "Purchases are paid at delivery or by stated terms of payment, other amounts at the end of each month. The "
            "curves of net present cost subtract the hardware's value at that age: its resale minus its removal."
        )
    )
    return [worded(answer, line) for line in lines]
