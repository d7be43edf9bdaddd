"""Section `compare`: the fleets of a scenario that are ranked against one another."""

from collections.abc import Mapping

from sim.scenario.experiment import Experiment, Fleet, nearest
from sim.scenario.sections.section import Section
from sim.spec import Spec


class Compare(Spec):
    """Which fleets are ranked as one product."""

    across_models: bool = False
    """Whether fleets that serve different models are ranked against each other, as if a token of one model were worth
    a token of the other. Default: verdicts rank the fleets of each model on their own."""


def models_of(scenario: Experiment, compare: Compare | None) -> Mapping[str, str]:
    """Return the model of every fleet (several are joined by commas) where fleets that serve different models are to be
    ranked apart; empty where one ranking holds for all.
    """
    if compare is not None and compare.across_models:
        return {}
    found = {fleet.name: model_of(fleet, scenario) for fleet in scenario.fleets}
    return found if len(set(found.values())) > 1 else {}


def model_of(fleet: Fleet, scenario: Experiment) -> str:
    """Return the id of the model that *fleet* serves, of several all of them; empty without a model."""
    models = {
        nearest(pool.model, service, fleet.model, scenario.model)
        for pool in fleet.pools
        for service in [one.model for one in scenario.services if one.name in pool.served] or [None]
    }
    return ", ".join(sorted(model for model in models if model))


COMPARE: Section[Compare] = Section(
    repriced=True,
    of_fleets=True,
    example="# compare: {across_models: true}   # rank fleets that serve different models as one product",
)
