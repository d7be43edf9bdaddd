"""The cheapest fleet of a kind that meets the service level."""

from sim.scenario.claims.figures import Cheapest
from sim.study.claims.asked import Asked
from sim.study.claims.figure import Figure, NoFigure
from sim.study.claims.kinds.registry import finds
from sim.study.fleets.size.prospects import why_no_size
from sim.study.fleets.size.search import search
from sim.units import HOURS_PER_MONTH


@finds(Cheapest)
def cheapest(spec: Cheapest, asked: Asked) -> Figure:
    """One search for all figures that ask about the same fleets."""
    key = ("size", repr(spec.set))
    if key not in asked.answers:
        scenario = asked.scenario(spec.set, with_fleets=False)
        if refusal := why_no_size(scenario):
            raise NoFigure(refusal)
        asked.answers[key] = search(scenario, asked.catalog, asked.out, asked.cores)
    met = [one for one in asked.answers[key].tried if one.status == "meets" and spec.gpu in (None, one.gpu)]
    if not met:
        text = f"no fleet of {spec.gpu or 'any GPU'} that was simulated meets the service level"
        raise NoFigure(f"{text}; more are simulated with a larger size.front_up_to")
    best = min(met, key=lambda one: one.usd_per_h or 0.0)
    if spec.value == "gpus":
        return Figure(best.gpus)
    return Figure((best.usd_per_h or 0.0) * HOURS_PER_MONTH)
