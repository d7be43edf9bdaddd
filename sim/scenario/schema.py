"""Schema of a scenario file: the experiment, and sections that ask about it or limit its effort.

A section is a class in `sections/`, with its checks and a `Section` that holds what else the program needs to know of
it, and a line here.
"""

from typing import Annotated, Any

from sim.cost.multi_year import MultiYear
from sim.cost.price_paths import PricePaths
from sim.scenario.claim import CLAIM, Claim
from sim.scenario.experiment import LONGEST_NAME, TERMS, Experiment, Fleet, InheritedKeys, Pool, nearest
from sim.scenario.reading.distribution import MonteCarloDraws
from sim.scenario.sections import Section, sections_of
from sim.scenario.sections.chargeback import CHARGEBACK, Chargeback
from sim.scenario.sections.comparison import BREAKEVEN, COMPARE, PLAN, Breakeven, Compare
from sim.scenario.sections.load_profile import LOAD_PROFILE, LoadProfile
from sim.scenario.sections.precision import LIMITS, PRECISION, Precision, ScenarioLimits
from sim.scenario.sections.price_paths import PRICE_PATHS
from sim.scenario.sections.sensitivity import FUTURES, SENSITIVITY, Sensitivity
from sim.scenario.sections.size import SIZE, Size

__all__ = ["LONGEST_NAME", "SECTIONS", "TERMS", "Fleet", "InheritedKeys", "Pool", "Scenario", "nearest"]


class Scenario(Experiment):
    """Scenario: an experiment and the questions about it."""

    precision: Annotated[Precision | None, PRECISION] = None
    """Target precision: replications are added until a metric is known exactly enough."""
    load_profile: Annotated[LoadProfile | None, LOAD_PROFILE] = None
    """Hours of a year by their load, which `run`, `breakeven`, `plan`, `size` and `price` bill: hours per year at each
    of several loads ({8: 2920, 0.5: 5840}), or 24 loads, one an hour of the day, or 168, one an hour of the week from
    Monday on. A load is requests per second, in a closed loop the number of clients; all lie within the loads that the
    sweep simulates, but for 0: then the machines are on and idle."""
    compare: Annotated[Compare | None, COMPARE] = None
    """Fleets that verdicts rank against each other; {across_models: true} includes those that serve different
    models."""
    plan: Annotated[MultiYear | None, PLAN] = None
    """Plan over several years month by month, for `gpufleet plan`."""
    breakeven: Annotated[Breakeven | None, BREAKEVEN] = None
    """Other costs that `gpufleet breakeven` compares with each fleet's own `cost`; no other command reads it."""
    chargeback: Annotated[Chargeback | None, CHARGEBACK] = None
    """Split of the bill among tenants, with rules for idle and unused capacity."""
    price_paths: Annotated[PricePaths | None, PRICE_PATHS] = None
    """Future prices, with which `plan` and `breakeven` decide when to buy: a decline, steps at launches, a table, or a
    random process."""
    sensitivity: Annotated[Sensitivity | None, SENSITIVITY] = None
    """Inputs that `gpufleet sensitivity` varies; no other command reads it."""
    size: Annotated[Size | None, SIZE] = None
    """Fleets among which `gpufleet size` searches for the cheapest; no other command reads it."""
    claim: Annotated[Claim | None, CLAIM] = None
    """Claim of an article that `gpufleet claims` checks; no other command reads it."""
    futures: Annotated[MonteCarloDraws | None, FUTURES] = None
    """Monte Carlo draws of values that are distributions, {triangular: [low, mode, high]}. Prices and terms may be
    distributions, and the load between simulated loads."""
    limits: Annotated[ScenarioLimits, LIMITS] = ScenarioLimits()
    """Largest size of a run."""


SECTIONS: dict[str, Section[Any]] = sections_of(Scenario)
"""Sections by name, in the order of the file."""
