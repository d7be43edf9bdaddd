"""Which kinds of replicas a search of mixed fleets may leave out, and which exclude one another."""

from collections.abc import Sequence

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
