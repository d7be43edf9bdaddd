"""Section `price_paths`: future prices, with the checks that need the plan, the finances and the draws."""

from collections.abc import Iterator

from sim.cost.price_paths import ELECTRICITY, PricePath, PricePaths
from sim.message import Message
from sim.scenario.experiment import Experiment
from sim.scenario.sections import Everything, Section
from sim.spec import Spec
from sim.validation import Place, ValidationIssue

IN_PLACE_OF = {"hardware": "price_decline_per_year", "rent": "rental_decline_per_year"}
"""Price -> key of `plan` that its path replaces."""


def _check(paths: PricePaths, scenario: Experiment, _: Everything) -> Iterator[ValidationIssue]:
    """Yield issues of months without a start, and of prices that are stated twice."""
    plan: Spec | None = getattr(scenario, "plan", None)
    planned: str | None = getattr(plan, "starts", None)
    if planned is not None and paths.starts not in (None, planned):
        text = Message("is {starts}, and plan.starts is {planned}: remove one", paths.starts, planned)
        yield ValidationIssue(("price_paths", "starts"), text)
    starts = paths.starts or planned
    for name, path in paths.stated.items():
        place: Place = ("price_paths", name)
        if path.dated and starts is None:
            yield ValidationIssue(place, "names months, and the first month is unknown: add price_paths.starts")
        elif starts is not None:
            yield from _early_step_issues(path, place, starts)
        key = IN_PLACE_OF.get(name, "")
        if plan is not None and key in plan.model_fields_set:
            yield ValidationIssue(place, Message("states the price that plan.{key} states too: remove one", key))
    if paths.electricity is not None:
        yield from _inflation_issues(scenario)


def _early_step_issues(path: PricePath, place: Place, starts: str) -> Iterator[ValidationIssue]:
    """Yield issues of steps that change nothing, as they lie before the prices that the scenario states."""
    for month in path.steps:
        if month <= starts:
            text = Message("the scenario's prices are those of {starts}: state a later month", starts)
            yield ValidationIssue((*place, "steps", month), text)


def _inflation_issues(scenario: Experiment) -> Iterator[ValidationIssue]:
    holders: list[tuple[Place, object]] = [(("finance",), scenario.finance)]
    holders += [(("fleets", i, "finance"), fleet.finance) for i, fleet in enumerate(scenario.fleets)]
    for place, finance in holders:
        for line in sorted(ELECTRICITY):
            if line in getattr(finance, "inflation", ()):
                text = "states the price that price_paths.electricity states too: remove one"
                yield ValidationIssue((*place, "inflation", line), text)


PRICE_PATHS: Section[PricePaths] = Section(
    repriced=True,
    check=_check,
    example="""\
# prices to come, for `gpufleet plan` and `breakeven`: when to buy; each a decline, steps, a table or a random process
# price_paths: {hardware: {decline_per_year: 0.1, steps: {2027-09: -0.2}}, rent: {volatility: 0.3}}""",
)
