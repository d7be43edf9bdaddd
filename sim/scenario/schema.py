"""What a scenario file may say: the experiment, and sections that ask about it or say how far to go.

A section is a class in `sections/`, with its checks and a `Section` that holds what else the program needs to know of
it, and a line here.
"""

from typing import Annotated, Any

from sim.cost.multi_year import MultiYear
from sim.scenario.claim import CLAIM, Claim
from sim.scenario.experiment import LONGEST_NAME, TERMS, Experiment, Fleet, InheritedKeys, Pool, nearest
from sim.scenario.reading.distribution import MonteCarloDraws
from sim.scenario.sections import Section, sections_of
from sim.scenario.sections.comparison import BREAKEVEN, COMPARE, PLAN, Breakeven, Compare
from sim.scenario.sections.load_profile import LOAD_PROFILE, LoadProfile
from sim.scenario.sections.precision import LIMITS, PRECISION, Precision, ScenarioLimits
from sim.scenario.sections.sensitivity import FUTURES, SENSITIVITY, Sensitivity
from sim.scenario.sections.size import SIZE, Size

__all__ = ["LONGEST_NAME", "SECTIONS", "TERMS", "Fleet", "InheritedKeys", "Pool", "Scenario", "nearest"]


class Scenario(Experiment):
    """An experiment and what is asked about it."""

    precision: Annotated[Precision | None, PRECISION] = None
    """Adds replications until a metric is known exactly enough."""
    load_profile: Annotated[LoadProfile | None, LOAD_PROFILE] = None
    """Hours of a year by their load, which `run`, `breakeven`, `plan`, `size` and `price` bill: hours per year at each
    of several loads ({8: 2920, 0.5: 5840}), or 24 loads, one an hour of the day, or 168, one an hour of the week from
    Monday on. A load is requests per second, in a closed loop the number of clients; all lie within the loads that the
    sweep simulates, but for 0: then the machines are on and idle."""
    compare: Annotated[Compare | None, COMPARE] = None
    """Which fleets verdicts rank against each other: {across_models: true} also those that serve different models."""
    plan: Annotated[MultiYear | None, PLAN] = None
    """Several years month by month, for `gpufleet plan`."""
    breakeven: Annotated[Breakeven | None, BREAKEVEN] = None
    """What `gpufleet breakeven` compares beside each fleet's own `cost`; nothing else reads it."""
    sensitivity: Annotated[Sensitivity | None, SENSITIVITY] = None
    """What `gpufleet sensitivity` varies; nothing else reads it."""
    size: Annotated[Size | None, SIZE] = None
    """The fleets among which `gpufleet size` looks for the cheapest; nothing else reads it."""
    claim: Annotated[Claim | None, CLAIM] = None
    """What somebody has stated and how `gpufleet claims` checks it; nothing else reads it."""
    futures: Annotated[MonteCarloDraws | None, FUTURES] = None
    """How values that are distributions, {triangular: [low, mode, high]}, are drawn. Prices and terms may be ones, and
    the load between simulated loads."""
    limits: Annotated[ScenarioLimits, LIMITS] = ScenarioLimits()
    """How large a run may become."""


SECTIONS: dict[str, Section[Any]] = sections_of(Scenario)
"""Name -> section, in the order of the file."""
