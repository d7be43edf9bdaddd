"""Whether a router by length and the pools behind it know each other."""

from collections.abc import Iterator, Sequence

from sim.routing import ByLength
from sim.scenario.reading.errors import Complaint, Place, did_you_mean
from sim.scenario.schema import Fleet


def routing_complaints(fleet: Fleet, pools: Sequence[str], place: Place) -> Iterator[Complaint]:
    """Names that are none of the fleet's *pools*, and pools that no request would go to."""
    routing = fleet.routing
    if not isinstance(routing, ByLength):
        return
    for i, one in enumerate(routing.classes):
        for name in one.pools:
            if name not in pools:
                at = (*place, "routing", "classes", i, "pools", name)
                yield Complaint(at, f"there is no pool {name!r} in this fleet{did_you_mean(name, pools)}")
    reached = {name for one in routing.classes for name in one.pools}
    for name in pools:
        if name not in reached:
            yield Complaint((*place, "routing", "classes"), f"no class goes to the pool {name}: it would stand idle")
