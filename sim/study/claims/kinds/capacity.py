"""What a fleet does at the highest load within its service level."""

from sim.scenario.claims.figures import Capacity
from sim.scenario.reading.errors import did_you_mean
from sim.study.claims.asked import Asked
from sim.study.claims.figure import Figure, NoFigure
from sim.study.claims.kinds.registry import finds
from sim.study.fleets.capacity.at_capacity import at_capacity
from sim.study.fleets.capacity.axis import LoadAxis
from sim.study.fleets.capacity.search import capacities, why_no_capacity


@finds(Capacity)
def capacity(spec: Capacity, asked: Asked) -> Figure:
    """Over the scenario's replications, one search each."""
    scenario = asked.scenario(spec.set)
    if refusal := why_no_capacity(scenario):
        raise NoFigure(refusal)
    alone = scenario.model_copy(
        update={"sweep": None, "fleets": tuple(fleet for fleet in scenario.fleets if fleet.name == spec.fleet)}
    )
    key = ("capacity", spec.fleet, repr(spec.set), spec.relative)
    if key not in asked.answers:
        [asked.answers[key]] = capacities(alone, asked.catalog, asked.out, asked.cores, spec.relative)
    found, axis = asked.answers[key], LoadAxis.of(alone)
    if found.reason:
        raise NoFigure(f"{spec.fleet}: {found.reason}")
    if spec.metric == "load":
        samples = tuple(one.capacity for one in found.found)
        return Figure(found.mean, found.half_width, samples if found.half_width is not None else ())
    row = at_capacity(found, alone.slo).row(axis)
    if row.get(spec.metric) is None:
        raise NoFigure(f"capacity.csv has no {spec.metric!r}{did_you_mean(spec.metric, row)}")
    return Figure(float(row[spec.metric]), row.get(f"{spec.metric}_ci95"))
