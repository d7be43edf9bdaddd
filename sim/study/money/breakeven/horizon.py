"""The one span and discount rate of a comparison, whatever finance each fleet has of its own."""

from sim.cost.finance.horizon import Horizon
from sim.scenario.schema import Scenario


def horizon_of(scenario: Scenario, otherwise_months: float = 1.0) -> Horizon:
    """The longest life of the fleets' hardware; the discount rate is the scenario's own, else that of this hardware.

    *otherwise_months* without any `finance`, and then nothing is discounted.
    """
    used = [finance for fleet in scenario.fleets if (finance := fleet.finance or scenario.finance) is not None]
    if not used:
        return Horizon(otherwise_months, 0.0)
    longest = max(used, key=lambda one: one.life_months)
    return Horizon(longest.life_months, (scenario.finance or longest).rate_per_year)
