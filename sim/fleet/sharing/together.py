"""Several services of one fleet: those that share pools are simulated together, the others each by itself."""

from dataclasses import replace
from heapq import merge

from sim.fleet.fleet import RunningFleet
from sim.fleet.pool import engines_per_replica
from sim.records import FleetLog, Meters, Request
from sim.scenario.resolving.resolved import CasePlan, ServicePlan


def run_fleet(plan: CasePlan) -> FleetLog:
    """Simulates *plan*, all of its services, and puts what they leave behind together in order of arrival."""
    if not plan.services:
        return RunningFleet(plan).run()
    counts = [pool.replicas * engines_per_replica(pool) for pool in plan.pools]
    first = [sum(counts[:position]) for position in range(len(counts))]
    together = FleetLog([], [], [], [p for p, count in enumerate(counts) for _ in range(count)], 0.0)
    meters: dict[int, Meters] = {}
    requests: list[list[Request]] = []
    for group in plan.groups():
        log = RunningFleet(plan.together(group) if _gated(group) else plan.alone(group[0])).run()
        names = {service.name for service in group}
        own = [position for position, pool in enumerate(plan.pools) if not names.isdisjoint(pool.served)]
        places = [first[position] + i for position in own for i in range(counts[position])]
        for request in log.requests:
            request.service = request.service if _gated(group) else group[0].name
            _renumber(request, places)
        for interval in log.intervals:
            interval.replica = places[interval.replica]
        meters |= dict(zip(places, log.meters, strict=True))
        requests.append(log.requests)
        together.intervals += log.intervals
        together.kv_sent_bytes |= {own[position]: sent for position, sent in log.kv_sent_bytes.items()}
        together.end_s = max(together.end_s, log.end_s)
    together.meters = [meters[place] for place in sorted(meters)]
    together.requests = list(merge(*requests, key=lambda request: request.arrived_s))
    for index, request in enumerate(together.requests):
        request.index = index
    return together


def _gated(group: tuple[ServicePlan, ...]) -> bool:
    """Whether requests belong to one of several, or are changed or refused on their way."""
    return len(group) > 1 or group[0].priority is not None or group[0].rate_limit is not None


def _renumber(request: Request, places: list[int]) -> None:
    """The replicas that *request* has been to under their numbers in the whole fleet."""
    request.replica = places[request.replica] if request.replica >= 0 else -1
    if request.prefill_replica >= 0:
        request.prefill_replica = places[request.prefill_replica]
    if request.left:
        request.left = tuple(replace(hop, replica=places[hop.replica]) for hop in request.left)
