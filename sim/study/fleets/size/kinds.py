"""Kinds of replicas: which a search of mixed fleets may leave out, which exclude one another, and with what spares."""

from collections.abc import Sequence
from dataclasses import replace

from sim.scenario.sections.size import Size
from sim.study.fleets.availability.standby import StandBy
from sim.study.fleets.size.units import Unit


def dominated(place: int, units: Sequence[Unit], costs: dict[int, tuple[float, ...]]) -> bool:
    """Whether another way to buy, or to rent, the same machine never costs more; of equal ones the first is kept."""
    mine = costs[place]
    for other, its in costs.items():
        if other == place or units[other].machine != units[place].machine or len(its) < len(mine):
            continue
        if units[other].cost["acquisition"] != units[place].cost["acquisition"] or units[other].choice:
            continue  # most of the electricity is not in these costs: only an owner pays it, and hosts differ in it
        if all(a <= b for a, b in zip(its, mine, strict=False)) and (its != mine or other < place):
            return True
    return False


def family(unit: Unit) -> str:
    """Units that differ in nothing but their server or their limits: one fleet has no need of two."""
    if unit.most is not None:  # a server with power for so many shares it with no other kind
        return f"{unit.pool['gpu']} in {unit.pool['server']}"
    kept = {key: value for key, value in unit.pool.items() if key not in ("server", "link", "batching")}
    return repr((kept, unit.cost))


def with_spares(unit: Unit, size: Size, kind: str, count: int) -> Unit:
    """*unit* beside which *count* spares of *kind* stand by, in place of those that it has."""
    machine = unit.machine if unit.standby is None else unit.standby.machine
    spares = StandBy.of(size, kind, count, machine)
    choice = f"{unit.way}, {machine}, {spares.words}" if unit.choice else ""
    return replace(unit, machine=f"{machine}, {spares.words}", choice=choice, standby=spares)


def spares_differ(unit: Unit, other: Unit, kind: str) -> bool:
    """Whether *unit* is *other*, paid alike, but for its spares, which are of *kind*."""
    has = "hot" if unit.standby is None else unit.standby.kind
    return has == kind and unit.name == other.name
