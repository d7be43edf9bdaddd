"""Simulation of a whole plan: parts of it that do not affect each other are simulated one after the other.

Services that share pools run in one cluster, every other service runs by itself. A large fleet whose replicas do not
affect each other (`CasePlan.has_independent_replicas`) runs in shards: some of its replicas at a time, whose requests
are then close together in memory. The logs are merged; they are those of one simulation, byte for byte.
"""

from collections.abc import Iterable
from dataclasses import replace
from heapq import merge
from itertools import accumulate

from sim.fleet.admission import with_request_gates
from sim.fleet.arrivals import requests_of
from sim.fleet.fleet import RunningFleet, end_together, fleet_streams, under_way
from sim.records import FleetLog, Meters, Request
from sim.scenario.resolving.resolved import CasePlan, PoolPlan, ServicePlan

SHARD_ENGINES = 32
"""Most engines of a shard: the state of their running requests fits the CPU's caches."""


class ShardedFleet:
    """Simulation of a fleet of independent replicas, a shard of them after the other."""

    def __init__(self, plan: CasePlan, engines: int) -> None:
        """Divide the replicas of *plan* into shards of at most *engines* engines."""
        self._plan = plan
        self._counts = _shards(plan, engines)
        """Number of replicas in each pool, for each shard."""
        self._shards: list[RunningFleet] = []
        """Shards that are served, or being served."""

    @property
    def progress(self) -> tuple[float, float | None, int, int]:
        """Simulated time until now [s], mean of all shards, horizon [s], requests that are done and that are not."""
        found = [shard.progress for shard in self._shards]
        now_s = sum(now_s for now_s, *_ in found) / len(self._counts)
        return now_s, self._plan.horizon_s, sum(done for *_, done, _ in found), sum(waiting for *_, waiting in found)

    def run(self) -> FleetLog:
        """Choose the replicas of all requests, simulate the shards in turn and merge their logs."""
        plan, sizes = self._plan, [_engines(self._plan, shard) for shard in self._counts]
        with under_way(self):
            all_requests, assigned = _assigned(plan, sizes)
            for shard, requests in zip(self._counts, assigned, strict=True):
                fleet = RunningFleet(replace(plan, pools=_part(plan, shard)), assigned=requests)
                self._shards.append(fleet)
                fleet.serve()
            logs = end_together(plan, self._shards, all_requests[-1].arrived_s if all_requests else 0.0)
        for first, log in zip(accumulate(sizes, initial=0), logs, strict=False):
            for request in log.requests:
                request.replica += first
            for interval in log.intervals:
                interval.replica += first
        return FleetLog(
            all_requests,
            list(merge(*(log.intervals for log in logs), key=lambda interval: interval.end_s)),
            [meters for log in logs for meters in log.meters],
            [position for log in logs for position in log.pool_of_replica],
            logs[0].end_s,
        )


def _shards(plan: CasePlan, engines: int) -> list[list[int]]:
    """Return the number of replicas in each pool, for each shard of at most *engines* engines (or of one replica)."""
    shards, size = [[0] * len(plan.pools)], 0
    for position, pool in enumerate(plan.pools):
        for _ in range(pool.replicas):
            if size and size + pool.engines_per_replica > engines:
                shards.append([0] * len(plan.pools))
                size = 0
            shards[-1][position] += 1
            size += pool.engines_per_replica
    return shards


def _engines(plan: CasePlan, replicas: Iterable[int]) -> int:
    """Return the number of engines of *replicas*, the number of them in each pool."""
    return sum(count * pool.engines_per_replica for count, pool in zip(replicas, plan.pools, strict=True))


def _part(plan: CasePlan, replicas: Iterable[int]) -> tuple[PoolPlan, ...]:
    """Return the pools of *plan* with another number of *replicas* in each."""
    return tuple(replace(pool, replicas=count) for pool, count in zip(plan.pools, replicas, strict=True))


def _assigned(plan: CasePlan, sizes: list[int]) -> tuple[list[Request], list[list[Request]]]:
    """Return all requests of *plan*, and those of each shard with their engines in it; *sizes* are engines a shard."""
    streams = fleet_streams(plan)
    pools = [pool.name for pool in plan.pools for _ in range(pool.replicas * pool.engines_per_replica)]
    router = plan.routing.start(pools, streams("routing"))
    places = [(shard, place) for shard, size in enumerate(sizes) for place in range(size)]
    assigned: list[list[Request]] = [[] for _ in sizes]

    def assign(requests: list[Request], now: float) -> None:
        for request in requests:
            shard, request.replica = places[router.choose(request)]
            assigned[shard].append(request)

    arrive = with_request_gates(plan.workload, streams, assign, lambda refused, now: None)
    requests = list(requests_of(plan.workload.open_table(streams, plan.horizon_s)))
    for request in requests:
        arrive([request], request.arrived_s)
    return requests, assigned


def runs_in_shards(plan: CasePlan) -> bool:
    """Return whether *plan* is simulated in shards: its replicas are independent, and more than a shard has."""
    return _engines(plan, (pool.replicas for pool in plan.pools)) > SHARD_ENGINES and plan.has_independent_replicas


def _run(plan: CasePlan) -> FleetLog:
    """Simulate *plan*, whose pools are those of one service or are shared."""
    return ShardedFleet(plan, SHARD_ENGINES).run() if runs_in_shards(plan) else RunningFleet(plan).run()


def run_fleet(plan: CasePlan) -> FleetLog:
    """Simulate *plan* with all of its services, and merge their logs in order of arrival.

    Returns
    -------
    FleetLog
        Requests, intervals and meters of all replicas, numbered as in the plan.

    """
    if not plan.services:
        return _run(plan)
    counts = [pool.replicas * pool.engines_per_replica for pool in plan.pools]
    first = [sum(counts[:position]) for position in range(len(counts))]
    together = FleetLog([], [], [], [p for p, count in enumerate(counts) for _ in range(count)], 0.0)
    meters: dict[int, Meters] = {}
    requests: list[list[Request]] = []
    for group in plan.groups():
        log = _run(plan.for_group(group) if _needs_one_source(group) else plan.for_service(group[0]))
        names = {service.name for service in group}
        own = [position for position, pool in enumerate(plan.pools) if not names.isdisjoint(pool.served)]
        places = [first[position] + i for position in own for i in range(counts[position])]
        for request in log.requests:
            request.service = request.service if _needs_one_source(group) else group[0].name
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


def _needs_one_source(group: tuple[ServicePlan, ...]) -> bool:
    """Return whether the requests of *group* share pools, or are changed or refused before they reach the fleet."""
    return len(group) > 1 or group[0].priority is not None or group[0].rate_limit is not None


def _renumber(request: Request, places: list[int]) -> None:
    """Renumber the replicas that *request* has visited to those of the whole fleet."""
    request.replica = places[request.replica] if request.replica >= 0 else -1
    if request.prefill_replica >= 0:
        request.prefill_replica = places[request.prefill_replica]
    if request.left:
        request.left = tuple(replace(hop, replica=places[hop.replica]) for hop in request.left)
