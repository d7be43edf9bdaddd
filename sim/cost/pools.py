"""Pools of one fleet that are paid for in different ways: a bill for each way, put together."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from sim.cost.bill.charge import Charge, UnitPrice
from sim.cost.cost_plan import Cost, CostPlan
from sim.cost.hardware import Hardware, PoolFacts, group_hardware
from sim.cost.prices import CostError, Problem
from sim.cost.purchase.buying import Buy

Priced = Callable[[Cost | None, Sequence[PoolFacts], Sequence[Hardware]], CostPlan]
"""(how pools are paid for, the pools, the fleet's other machines at the site) -> their bill."""


def costs_by_pool(ways: Sequence[Cost | None], pools: Sequence[PoolFacts], priced: Priced, copies: int = 1) -> CostPlan:
    """The bill of *pools*, each paid for in its own of the *ways*; *priced* bills *copies* of pools that share one.

    Only such pools fill servers together; all that are bought share racks. Raises CostError with all that is missing,
    each at its first pool's `pools.<i>.cost`.
    """
    groups: list[tuple[Cost | None, list[int]]] = []
    for position, way in enumerate(ways):
        members = next((members for known, members in groups if known == way), None)
        if members is None:
            groups.append((way, [position]))
        else:
            members.append(position)
    plans: list[CostPlan] = []
    problems: dict[Problem, None] = {}
    for way, members in groups:
        holder = f"pools.{members[0]}."
        beside = [
            one
            for other, others in groups
            if other is not way and isinstance(other, Buy)
            for one in group_hardware([pools[i] for i in others], other.share, copies)
        ]
        try:
            plan = priced(way, [pools[i] for i in members], beside)
        except CostError as error:
            found = (Problem(_moved(one.path, holder), one.text) for one in error.problems)
            problems.update(dict.fromkeys(found))
            continue
        names = ", ".join(pools[i].name for i in members)
        notes = tuple(f"{names}: {note}" for note in plan.notes)
        plans.append(replace(plan, charges=tuple(_held(one, holder) for one in plan.charges), notes=notes))
    if problems:
        raise CostError(*problems)
    metered = next((plan for plan in plans if plan.usd_per_kwh_by_hour is not None), plans[0])
    return replace(
        plans[0],
        charges=tuple(charge for plan in plans for charge in plan.charges),
        notes=tuple(note for plan in plans for note in plan.notes),
        usd_per_kwh_by_hour=metered.usd_per_kwh_by_hour,
        usd_per_kwh_by_hour_of_week=metered.usd_per_kwh_by_hour_of_week,
    )


def _moved(path: str, holder: str) -> str:
    """*path* within the pool that says how it is paid for; sections of the fleet stay where they are."""
    return f"{holder}{path}" if path.split(".")[0] == "cost" else path


def _held(charge: Charge, holder: str) -> Charge:
    """*charge* with the places of its figures within their pool."""
    changed: Any = charge
    found: Charge = replace(changed, price=_price(charge.price, holder))
    return found


def _price(price: UnitPrice, holder: str) -> UnitPrice:
    stated = tuple(one._replace(path=_moved(one.path, holder)) for one in price.stated)
    scenarios = "scenario: "
    source = price.source
    if source.startswith(scenarios):
        source = scenarios + _moved(source.removeprefix(scenarios), holder)
    return replace(price, source=source, stated=stated)
