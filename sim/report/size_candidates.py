"""Candidates of `gpufleet size` in tables: winners, losers by reason, budget and spares.

Capital and operating cost are shown where the budget limits them. Spares are compared by kind: hot (serving), warm
(powered on), cold (switched off).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf, isfinite
from typing import Any

from sim.language import ENGLISH, N_, _, current, translate_rendered
from sim.report.page.page import PageTable, text_table
from sim.report.terminal_table import FittedTable
from sim.report.words.money import cash, in_code
from sim.report.words.service_level import latency_columns, percentiles_shown, readings, seconds_beside, share_beside
from sim.report.words.text import difference, listing, plain, seconds, steady
from sim.scenario.schema import Scenario
from sim.scenario.sections.size import Budget
from sim.scenario.slo import Slo
from sim.scenario.sweep import is_deterministic
from sim.study.size.candidates import CandidateFleet, Sizing, front
from sim.study.size.trials import OVER_FAILURES
from sim.units import HOURS_PER_MONTH

IN_NAMES = re.compile(r", (bought|rented)\b|(?<=[\w.-]) in (?=[a-z0-9]+-)")
"""Words in the names of candidates: the usual ways to pay, and the server."""


def named(text: str) -> str:
    """Return *text* with the names of candidates in the shown language; files for programs have them as they are."""
    if current() == ENGLISH:
        return text
    return IN_NAMES.sub(lambda word: f", {_(word[1])}" if word[1] else ", ", text)


def budget_text(budget: Budget) -> str:
    """Describe a budget: `the budget of $15,000 of capital and 3 kW`."""
    parts = [] if budget.capex_usd is None else [_("{cash} of capital", cash=cash(budget.capex_usd))]
    parts += (
        [] if budget.usd_per_month is None else [_("{cash} of operating cost a month", cash=cash(budget.usd_per_month))]
    )
    parts += [] if budget.kw is None else [_("{kw:g} kW", kw=budget.kw)]
    return _("the budget of {amounts}", amounts=listing(parts))


def within(scenario: Scenario) -> str:
    """Return ` within the budget of ...`; empty without a budget."""
    budget = scenario.size.budget if scenario.size is not None else None
    return "" if budget is None else _(" within {budget}", budget=budget_text(budget))


def _attained(best: CandidateFleet, scenario: Scenario) -> Iterator[str]:
    """Yield the attainment of each goal by *best*; with several services, by service."""
    yield from readings(scenario.slo, best.metrics or {})
    for one in scenario.services if best.services else ():
        text = "; ".join(readings(one.slo, best.services[one.name].metrics))
        yield _("{service}: {what}", service=one.name, what=text)


def nearest_sentences(found: Sizing, scenario: Scenario) -> Iterator[str]:
    """Describe the best fleet that the budget allows, where no fleet meets the service level within it."""
    if found.winner is not None or scenario.size is None or scenario.size.budget is None:
        return
    best = found.best_within_budget
    if best is None:
        yield _("No fleet that can serve stays within the budget: raise it, or allow other GPUs or ways to pay.")
        return
    attained = "; ".join(_attained(best, scenario)) or _("no request arrives in the window")
    yield (
        _(
            "The best fleet within the budget is {name}, which does not meet the service level: "
            "{attained}. It needs {asked}.",
            name=best.name,
            attained=attained,
            asked=budget_needs(best),
        )
    )


def budget_needs(one: CandidateFleet) -> str:
    """Describe a fleet's demands on a budget: `$9,300 of capital, $320 of operating cost a month and 2.3 kW`."""
    needs, operating = one.needs, one.operating_usd_per_month
    if needs is None or operating is None:
        return _("an unknown amount of money")
    paid = _(
        "{cash} of capital, {cash_2} of operating cost a month", cash=cash(needs.capex_usd), cash_2=cash(operating)
    )
    if needs.kw == 0:
        return _("{paid}, and no power", paid=paid)
    return (
        _("{paid} and {kw} kW", paid=paid, kw=plain(needs.kw))
        if needs.kw is not None
        else _("{paid} and an unknown power", paid=paid)
    )


def money(one: CandidateFleet) -> dict[str, Any]:
    """Return the columns of size.csv on money and power."""
    needs = one.needs
    return {
        "servers": one.servers or None,
        "capex_usd": None if needs is None else needs.capex_usd,
        "operating_usd_per_month": one.operating_usd_per_month,
        "nameplate_kw": None if needs is None else needs.kw,
    }


def heads(scenario: Scenario) -> list[str]:
    """Return the headings of the ranking on money and power: capital, and what else the budget limits."""
    budget = scenario.size.budget if scenario.size is not None else None
    named = [] if budget is None or budget.usd_per_month is None else [_("operating USD a month")]
    named += [] if budget is None or budget.kw is None else [_("kW")]
    return [_("capital USD"), *named]


def cells(one: CandidateFleet, scenario: Scenario) -> list[str]:
    """Return the cells of the ranking under `heads`."""
    operating = one.operating_usd_per_month
    known = {
        _("capital USD"): "" if one.needs is None else cash(one.needs.capex_usd),
        _("operating USD a month"): ""
        if operating is None or not isfinite(operating)
        else _bound_sign(one) + cash(operating),
        "kW": "" if one.needs is None or one.needs.kw is None else plain(one.needs.kw),
    }
    return [known[head] for head in heads(scenario)]


def _bound_sign(one: CandidateFleet) -> str:
    return "≥ " if one.usd_per_h is None else ""


ROUNDING = 1e-6
"""Relative difference below which costs count as equal: ledgers of short windows are rounded to nano-dollars."""
LIMITS = {"ttft_s": "TTFT", "tpot_s": "TPOT", "e2e_s": N_("end-to-end latency")}


def least(one: CandidateFleet) -> float:
    """Return the cost of a candidate, or its lower bound [USD/h]; infinite if unknown."""
    return inf if one.least_usd_per_h is None else one.least_usd_per_h


def why(one: CandidateFleet, found: Sizing, scenario: Scenario) -> str:
    """Return why *one* lost, in a few words, and whether that is inconclusive."""
    reason = _reason_lost(one, found, scenario)
    return _("{told} (inconclusive)", told=reason) if reason and one.inconclusive else reason


def _reason_lost(one: CandidateFleet, found: Sizing, scenario: Scenario) -> str:
    best = found.winner.usd_per_h if found.winner is not None else None
    if one is found.winner:
        return _("the cheapest")
    if one.status in ("impossible", "over budget"):
        return translate_rendered(one.reason)
    if one is found.best_within_budget:
        return _("the best within the budget: {miss}", miss=miss(one, scenario))
    if one.status == "misses":
        return miss(one, scenario) + screened(one, scenario)
    if not best:
        return ""
    return compared(one, best)


def compared(one: CandidateFleet, best_usd_per_h: float) -> str:
    """Compare the cost of a candidate, or its lower bound, with the lowest cost."""
    ratio = least(one) / best_usd_per_h
    text = _("{ratio}x", ratio=plain(ratio))
    if 1 < ratio < 1.1:
        text = _("{difference} more", difference=difference(ratio - 1))
    elif ratio < 1:
        text = _("{difference} less", difference=difference(1 - ratio))
    text = _("as much") if abs(ratio - 1) < ROUNDING else text
    return _("costs {told}", told=text) if one.usd_per_h is not None else _("costs at least {told}", told=text)


def screened(one: CandidateFleet, scenario: Scenario) -> str:
    """Return the number of replications, where the first ones showed that the candidate misses the service level."""
    wanted = 1 if one.fleet is None or is_deterministic(scenario, one.fleet) else scenario.replications
    done = wanted if one.replications is None else one.replications
    return "" if done >= wanted else _(" ({done} of {wanted} replications)", done=done, wanted=wanted)


def miss(one: CandidateFleet, scenario: Scenario) -> str:
    """Describe the missed limits with figures; with several services, by service."""
    if not one.services:
        return _missed_by(one.metrics or {}, one.overloaded, scenario.slo)
    lines = [
        _("{service}: {what}", service=each.name, what=_missed_by(fared.metrics, fared.overloaded, each.slo))
        for each in scenario.services
        if not (fared := one.services[each.name]).good
    ]
    return "; ".join(lines)


def _missed_by(metrics: Mapping[str, float | None], overloaded: bool, slo: Slo) -> str:
    """Describe the missed limits of *slo* with figures."""
    lines = []
    if metrics.get("requests") == 0:
        return _("no request arrives in the window")
    for name, words in ((name, _(text)) for name, text in LIMITS.items()):
        for part, limit in percentiles_shown(slo, name).items():
            value = metrics.get(f"{name}_{part}")
            if limit is not None and value is not None and value > limit:
                lines.append(
                    _(
                        "{part} {words} {seconds_beside}",
                        part=part,
                        words=words,
                        seconds_beside=seconds_beside(value, limit) if isfinite(value) else _("unbounded"),
                    )
                )
    attained = metrics.get("slo_attainment") if slo.per_request else None
    shown = "" if attained is None else share_beside(attained, slo.attainment)
    within = _("{shown} of the requests within the service level", shown=shown) if shown else ""
    over, wanted = metrics.get(OVER_FAILURES), slo.availability
    if over is not None and wanted is not None:
        shown = share_beside(over, wanted)
        within = _("{shown} of the requests within the service level over failures", shown=shown)
    parts = [*([_("overloaded")] if overloaded else []), *lines, within]
    return _(", ").join(part for part in parts if part)


def missed(one: CandidateFleet, scenario: Scenario) -> str:
    """Name the first missed limit, without figures: the group of a losing candidate."""
    for each in scenario.services if one.services else ():
        fared = one.services[each.name]
        if not fared.good:
            what = _first_missed(fared.metrics, fared.overloaded, each.slo)
            return _("{service}: {what}", service=each.name, what=what)
    return _first_missed(one.metrics or {}, one.overloaded, scenario.slo)


def _first_missed(metrics: Mapping[str, float | None], overloaded: bool, slo: Slo) -> str:
    if overloaded:
        return _("overloaded")
    for name, words in ((name, _(text)) for name, text in LIMITS.items()):
        for part, limit in percentiles_shown(slo, name).items():
            value = metrics.get(f"{name}_{part}")
            if limit is not None and value is not None and value > limit:
                return _("{part} {words} beyond its limit", part=part, words=words)
    if OVER_FAILURES in metrics:
        return _("too few requests within the service level over failures")
    return _("too few requests within the service level")


KINDS = {"hot": N_("hot"), "warm": N_("warm"), "cold": N_("cold")}


def least_serving(found: Sizing, best: CandidateFleet) -> int:
    """Return the number of replicas of the hardware of *best* that the load needs without failures."""
    alike = [one for one in found.candidates if one.serving == best.serving and OVER_FAILURES in (one.metrics or {})]
    return min(one.replicas for one in alike)


def spares_table(found: Sizing, scenario: Scenario) -> PageTable:
    """Build the table of the cheapest fleet with each kind of spares; empty where the winner has no spares."""
    best, size = found.winner, scenario.size
    rows = []
    if best is not None and size is not None and size.spares is not None and OVER_FAILURES in (best.metrics or {}):
        least = least_serving(found, best)
        for kind in size.spares.kinds if best.total > least else ():
            mine = [one for one in found.candidates if one.serving == best.serving and _kind(one) == kind]
            rows.append(_row(kind, mine, least, scenario))
    note = _("The hardware of the winner. hot: serve with the others; warm: switched on; cold: switched off.")
    heads = [
        _("kind of spares"),
        _("fleet"),
        _("number of spares"),
        in_code(_("cost [USD/month]")),
        _("share over failures"),
    ]
    return PageTable(_("Cost by kind of spares"), note, heads, rows, worded=(1,))


def _row(kind: str, alike: list[CandidateFleet], least: int, scenario: Scenario) -> list[str]:
    met = [one for one in alike if one.status == "meets"]
    if not met:
        why = next((one.reason for one in alike if one.status == "impossible"), "")
        return [_(KINDS[kind]), translate_rendered(why) or _("no simulated fleet meets the service level"), "", "", ""]
    one = min(met, key=lambda one: one.usd_per_h or 0.0)
    share = (one.metrics or {}).get(OVER_FAILURES) or 0.0
    beside = share_beside(share, scenario.slo.availability or 0.0)
    return [
        _(KINDS[kind]),
        named(one.name),
        str(one.total - least),
        cash((one.usd_per_h or 0.0) * HOURS_PER_MONTH),
        beside,
    ]


def _kind(one: CandidateFleet) -> str:
    return "hot" if one.standby is None else one.standby.kind


def spares_cells(one: CandidateFleet, found: Sizing, scenario: Scenario) -> dict[str, Any]:
    """Return the columns of size.csv on spares; empty where the scenario asks for no kinds of spares."""
    if scenario.size is None or scenario.size.spares is None:
        return {}
    standby = one.standby
    return {"standing_by": standby.count if standby else None, "spare_kind": standby.kind if standby else None}


def ranking(found: Sizing, scenario: Scenario, most: int, most_others: int) -> FittedTable:
    """Build the table of the terminal: at most *most* rows, *most_others* of them for fleets that miss the SLO.

    Figures of missed limits are in the columns of latencies.
    """
    able = [one for one in found.candidates if one.status != "impossible"]
    met = [one for one in able if one.status == "meets"][:most]
    chosen = [*met, *[one for one in able if one.status != "meets"][: min(most_others, most - len(met))]]
    table = _table("", "", chosen, found, scenario, brief=True)
    heads = [table.heads[0], table.heads[1], in_code(_("monthly cost [USD]")), *table.heads[3:]]
    return replace(text_table(replace(table, heads=heads)), optional=(1,))


def winners(found: Sizing, scenario: Scenario) -> PageTable:
    """Build the table of candidates that meet the service level, and of the best candidate within a budget."""
    chosen = [one for one in found.candidates if one.status == "meets" or one is found.best_within_budget]
    note = _("Sorted by cost.")
    if scenario.replications > 1:
        note += _(" Figures are means over all replications, or over those named in the verdict.")
    return _table(_("Fleets that meet the service level"), note, chosen, found, scenario)


def losers(found: Sizing, scenario: Scenario) -> Iterator[PageTable]:
    """Yield a folded table of losing candidates for each reason."""
    groups: dict[str, list[CandidateFleet]] = {}
    for one in found.candidates:
        if one.status == "misses" and one is not found.best_within_budget:
            groups.setdefault(_("Misses the service level: {missed}", missed=missed(one, scenario)), []).append(one)
        elif one.status == "not simulated":
            groups.setdefault(_("Not simulated: the lower bound of the cost is already higher"), []).append(one)
        elif one.status == "over budget" and one is not found.best_within_budget:
            groups.setdefault(_("Exceeds the budget"), []).append(one)
    for title, chosen in groups.items():
        yield _table(title, "", chosen, found, scenario, folded=True)
    reasons: dict[str, list[str]] = {}
    for one in found.candidates:
        if one.status == "impossible":
            reasons.setdefault(translate_rendered(one.reason), []).append(named(one.name))
    rows = [[reason, str(len(names)), ", ".join(names)] for reason, names in reasons.items()]
    yield PageTable(
        _("Ruled out without a simulation"), "", [_("why"), _("fleets"), _("names")], rows, worded=(0, 2), folded=True
    )


def _table(
    title: str,
    note: str,
    chosen: Sequence[CandidateFleet],
    found: Sizing,
    scenario: Scenario,
    folded: bool = False,
    brief: bool = False,
) -> PageTable:
    names = latency_columns(scenario.slo)
    rows = [
        [
            named(one.name),
            str(one.gpus),
            f"{'' if one.usd_per_h is not None else '≥ '}{cash(least(one) * HOURS_PER_MONTH)}",
            *cells(one, scenario),
            *(shown(one, name) for name in names),
            _first_reason(one, found, scenario) if brief else why(one, found, scenario),
        ]
        for one in chosen
    ]
    titles = [
        _("fleet"),
        "GPUs",
        in_code(_("cost [USD/month]")),
        *map(in_code, heads(scenario)),
        *names.values(),
        _("verdict"),
    ]
    return PageTable(title, note, titles, rows, worded=(len(titles) - 1,), folded=folded)


def _first_reason(one: CandidateFleet, found: Sizing, scenario: Scenario) -> str:
    """Return the verdict on *one*; where it misses the service level, the first missed limit without figures."""
    if one.status != "misses":
        return why(one, found, scenario)
    reason = missed(one, scenario) + screened(one, scenario)
    if one is found.best_within_budget:
        reason = _("the best within the budget: {miss}", miss=reason)
    return _("{told} (inconclusive)", told=reason) if one.inconclusive else reason


def details(found: Sizing, scenario: Scenario) -> dict[str, Any]:
    """Return the details of every candidate, shown at its marker: its row of the table."""
    known = {}
    for one in found.candidates:
        table = _table("", "", [one], found, scenario)
        name, *cells = table.rows[0]
        rows = [(head, cell) for head, cell in zip(table.heads[1:], cells, strict=True) if cell]
        known[one.name] = {"title": name, "rows": rows}
    return known


def shown(one: CandidateFleet, name: str) -> str:
    """Format a latency of *one*, a TPOT in ms at any length; empty where it was not simulated."""
    value = (one.metrics or {}).get(name)
    if value is None:
        return ""
    return f"{steady(1e3 * value)} ms" if name.startswith("tpot") and isfinite(value) else seconds(value)


def front_table(found: Sizing, scenario: Scenario) -> PageTable:
    """Build the table of the Pareto front in cost and latency; empty where it has a single fleet."""
    best = found.winner.usd_per_h if found.winner is not None else None
    names = latency_columns(scenario.slo)
    members = front(found, list(names))
    rows = [
        [
            named(one.name),
            f"{cash(least(one) * HOURS_PER_MONTH)}",
            *(shown(one, name) for name in names),
            compared(one, best) if best and one is not found.winner else _("the cheapest"),
        ]
        for one in members
    ]
    note = _(
        "Fleets that meet the service level and that no other beats in cost, time to first token and time per token."
    )
    heads = [_("fleet"), in_code(_("cost [USD/month]")), *names.values(), _("cost")]
    return PageTable(
        _("Cost against latency: the Pareto front"),
        note,
        heads,
        rows if len(rows) > 1 else [],
        worded=(len(heads) - 1,),
    )


def impossible(found: Sizing) -> PageTable:
    """Build the table of candidates that cannot serve or have no price, with the reason."""
    rows = [[named(one.name), translate_rendered(one.reason)] for one in found.candidates if one.status == "impossible"]
    return PageTable(_("Ruled out without a simulation"), "", [_("fleet"), _("why")], rows, worded=(1,))
