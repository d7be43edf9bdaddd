"""Several services of one fleet: each runs on pools of its own, so each is simulated by itself."""

from heapq import merge

from sim.fleet.fleet import RunningFleet
from sim.fleet.pool import engines_per_replica
from sim.records import FleetLog, Meters, Request
from sim.scenario.resolving.resolved import CasePlan


def run_fleet(plan: CasePlan) -> FleetLog:
    """Simulates *plan*, all of its services, and puts what they leave behind together in order of arrival."""
    if not plan.services:
        return RunningFleet(plan).run()
    counts = [pool.replicas * engines_per_replica(pool) for pool in plan.pools]
    first = [sum(counts[:position]) for position in range(len(counts))]
    together = FleetLog([], [], [], [p for p, count in enumerate(counts) for _ in range(count)], 0.0)
    meters: dict[int, Meters] = {}
    requests: list[list[Request]] = []
    for service in plan.services:
        log = RunningFleet(plan.alone(service)).run()
        own = [position for position, pool in enumerate(plan.pools) if pool.service == service.name]
        places = [first[position] + i for position in own for i in range(counts[position])]
        for request in log.requests:
            request.service = service.name
            request.replica = places[request.replica] if request.replica >= 0 else -1
        for interval in log.intervals:
            interval.replica = places[interval.replica]
        meters |= dict(zip(places, log.meters, strict=True))
        requests.append(log.requests)
        together.intervals += log.intervals
        together.end_s = max(together.end_s, log.end_s)
    together.meters = [meters[place] for place in sorted(meters)]
    together.requests = list(merge(*requests, key=lambda request: request.arrived_s))
    for index, request in enumerate(together.requests):
        request.index = index
    return together
