"""What a sizing says of money before and during service, of power, and of the budget."""

from collections.abc import Iterator
from math import isfinite
from typing import Any

from sim.report.words.goals import readings
from sim.report.words.money import cash
from sim.report.words.text import plain
from sim.scenario.schema import Scenario
from sim.scenario.sections.size import Budget
from sim.study.fleets.size.tried import Sizing, TriedFleet


def budget_told(budget: Budget) -> str:
    """`the budget of $15,000 of capital and 3 kW`."""
    parts = [] if budget.capex_usd is None else [f"{cash(budget.capex_usd)} of capital"]
    parts += [] if budget.usd_per_month is None else [f"{cash(budget.usd_per_month)} of operating cost a month"]
    parts += [] if budget.kw is None else [f"{budget.kw:g} kW"]
    return f"the budget of {', '.join(parts[:-1])}{' and ' if parts[1:] else ''}{parts[-1]}"


def within(scenario: Scenario) -> str:
    """` within the budget of ...`; empty without one."""
    budget = scenario.size.budget if scenario.size is not None else None
    return "" if budget is None else f" within {budget_told(budget)}"


def nearest_told(found: Sizing, scenario: Scenario) -> Iterator[str]:
    """Where nothing meets the service level within the budget: the best fleet that it allows."""
    if found.winner is not None or scenario.size is None or scenario.size.budget is None:
        return
    best = found.nearest
    if best is None:
        yield "No fleet that can serve stays within the budget: raise it, or allow other GPUs or ways to pay."
        return
    attained = "; ".join(readings(scenario.slo, best.metrics or {})) or "no request arrives in the window"
    yield (
        f"The most that the budget allows is {best.name}, which does not meet the service level: {attained}. "
        f"It takes {asked(best)}."
    )


def asked(one: TriedFleet) -> str:
    """What a fleet asks of a budget: `$9,300 of capital, $320 of operating cost a month and 2.3 kW`."""
    needs, operating = one.needs, one.operating_usd_per_month
    if needs is None or operating is None:
        return "an unknown amount of money"
    paid = f"{cash(needs.capex_usd)} of capital, {cash(operating)} of operating cost a month"
    return f"{paid} and {plain(needs.kw)} kW" if needs.kw is not None else f"{paid} and an unknown power"


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
    named = [] if budget is None or budget.usd_per_month is None else ["operating USD a month"]
    named += [] if budget is None or budget.kw is None else ["kW"]
    return ["capital USD", *named]


def cells(one: TriedFleet, scenario: Scenario) -> list[str]:
    """The row of `heads`."""
    operating = one.operating_usd_per_month
    known = {
        "capital USD": "" if one.needs is None else cash(one.needs.capex_usd),
        "operating USD a month": "" if operating is None or not isfinite(operating) else _least(one) + cash(operating),
        "kW": "" if one.needs is None or one.needs.kw is None else plain(one.needs.kw),
    }
    return [known[head] for head in heads(scenario)]


def _least(one: TriedFleet) -> str:
    return "≥ " if one.usd_per_h is None else ""
