"""What a sizing says of money before and during service, of power, and of the budget."""

from collections.abc import Iterator
from math import isfinite
from typing import Any

from sim.language import _
from sim.report.words.goals import readings
from sim.report.words.money import cash
from sim.report.words.text import listing, plain
from sim.scenario.schema import Scenario
from sim.scenario.sections.size import Budget
from sim.study.fleets.size.tried import Sizing, TriedFleet


def budget_told(budget: Budget) -> str:
    """`the budget of $15,000 of capital and 3 kW`."""
    parts = [] if budget.capex_usd is None else [_("{cash} of capital", cash=cash(budget.capex_usd))]
    parts += (
        [] if budget.usd_per_month is None else [_("{cash} of operating cost a month", cash=cash(budget.usd_per_month))]
    )
    parts += [] if budget.kw is None else [_("{kw:g} kW", kw=budget.kw)]
    return _("the budget of {amounts}", amounts=listing(parts))


def within(scenario: Scenario) -> str:
    """` within the budget of ...`; empty without one."""
    budget = scenario.size.budget if scenario.size is not None else None
    return "" if budget is None else _(" within {budget_told}", budget_told=budget_told(budget))


def _attained(best: TriedFleet, scenario: Scenario) -> Iterator[str]:
    """What *best* attains of each goal; of several services each with its name."""
    yield from readings(scenario.slo, best.metrics or {})
    for one in scenario.services if best.services else ():
        told = "; ".join(readings(one.slo, best.services[one.name].metrics))
        yield _("{service}: {what}", service=one.name, what=told)


def nearest_told(found: Sizing, scenario: Scenario) -> Iterator[str]:
    """Where nothing meets the service level within the budget: the best fleet that it allows."""
    if found.winner is not None or scenario.size is None or scenario.size.budget is None:
        return
    best = found.nearest
    if best is None:
        yield _("No fleet that can serve stays within the budget: raise it, or allow other GPUs or ways to pay.")
        return
    attained = "; ".join(_attained(best, scenario)) or _("no request arrives in the window")
    yield (
        _(
            "The most that the budget allows is {name}, which does not meet the service level: "
            "{attained}. It takes {asked}.",
            name=best.name,
            attained=attained,
            asked=asked(best),
        )
    )


def asked(one: TriedFleet) -> str:
    """What a fleet asks of a budget: `$9,300 of capital, $320 of operating cost a month and 2.3 kW`."""
    needs, operating = one.needs, one.operating_usd_per_month
    if needs is None or operating is None:
        return _("an unknown amount of money")
    paid = _(
        "{cash} of capital, {cash_2} of operating cost a month", cash=cash(needs.capex_usd), cash_2=cash(operating)
    )
    return (
        _("{paid} and {kw} kW", paid=paid, kw=plain(needs.kw))
        if needs.kw is not None
        else _("{paid} and an unknown power", paid=paid)
    )


def money(one: TriedFleet) -> dict[str, Any]:
    """Of size.csv."""
    needs = one.needs
    return {
        "servers": one.servers or None,
        "capex_usd": None if needs is None else needs.capex_usd,
        "operating_usd_per_month": one.operating_usd_per_month,
        "nameplate_kw": None if needs is None else needs.kw,
    }


def heads(scenario: Scenario) -> list[str]:
    """Of the ranking: capital, and what else the budget limits."""
    budget = scenario.size.budget if scenario.size is not None else None
    named = [] if budget is None or budget.usd_per_month is None else [_("operating USD a month")]
    named += [] if budget is None or budget.kw is None else [_("kW")]
    return [_("capital USD"), *named]


def cells(one: TriedFleet, scenario: Scenario) -> list[str]:
    """The row of `heads`."""
    operating = one.operating_usd_per_month
    known = {
        _("capital USD"): "" if one.needs is None else cash(one.needs.capex_usd),
        _("operating USD a month"): ""
        if operating is None or not isfinite(operating)
        else _least(one) + cash(operating),
        "kW": "" if one.needs is None or one.needs.kw is None else plain(one.needs.kw),
    }
    return [known[head] for head in heads(scenario)]


def _least(one: TriedFleet) -> str:
    return "≥ " if one.usd_per_h is None else ""
