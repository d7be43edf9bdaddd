"""Horizon and discount rate of a comparison, common to all fleets."""

from typing import TypeVar

from sim.cost.finance import Annuity, StraightLine
from sim.cost.time_value import Horizon
from sim.scenario.schema import Fleet, Scenario

Financed = TypeVar("Financed", Scenario, Fleet)


def horizon_of(scenario: Scenario, otherwise_months: float = 1.0) -> Horizon:
    """Return the horizon of a comparison: the longest life of the fleets' hardware, and a discount rate.

    The rate and the general inflation are the scenario's own, else those of this hardware. Without any `finance` the
    horizon is *otherwise_months*, and nothing is discounted.
    """
    used = finances_of(scenario)
    if not used:
        return Horizon(otherwise_months, 0.0, starts=starts_of(scenario))
    longest = max(used, key=lambda one: one.life_months)
    terms = scenario.finance or longest
    return Horizon(longest.life_months, terms.rate_per_year, terms.general_inflation, starts_of(scenario))


def starts_of(scenario: Scenario) -> str | None:
    """Return the first calendar month of the price paths, else of the plan; None where neither has a date."""
    own = scenario.price_paths.starts if scenario.price_paths is not None else None
    return own or (scenario.plan.starts if scenario.plan is not None else None)


def finances_of(scenario: Scenario) -> list[Annuity | StraightLine]:
    """Return the finance of each fleet that has one, its own or the scenario's; without fleets the scenario's."""
    stated = [fleet.finance or scenario.finance for fleet in scenario.fleets] or [scenario.finance]
    return [one for one in stated if one is not None]


def levelised(scenario: Scenario) -> Scenario:
    """Return *scenario* with purchases spread as equal payments at the discount rate of the comparison.

    The cheapest per hour then has the lowest net present cost, whatever `method` each `finance` states.
    """
    rate = horizon_of(scenario).discount_rate

    def at_rate(section: Financed) -> Financed:
        same = section.finance is None or (finance := section.finance.levelised(rate)) is section.finance
        return section if same else section.model_copy(update={"finance": finance})

    fleets = [at_rate(fleet) for fleet in scenario.fleets]
    changed = at_rate(scenario)
    if all(new is old for new, old in zip(fleets, scenario.fleets, strict=True)):
        return changed
    return changed.model_copy(update={"fleets": type(scenario.fleets)(fleets)})
