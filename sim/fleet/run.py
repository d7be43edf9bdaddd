"""Simulation of a whole plan: parts of it that do not affect each other are simulated separately.

Services that share pools run in one cluster, every other service runs by itself. A large fleet whose replicas do not
affect each other (`CasePlan.has_independent_replicas`) runs in shards, some of its replicas at a time, of whose
requests arrays are kept; several processes may take part. The logs are merged; they are those of one simulation, byte
for byte.
"""

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from heapq import merge
from itertools import accumulate, chain
from os import getpid
from threading import Condition
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.fleet.admission import with_request_gates
from sim.fleet.arrivals import ROWS_AT_ONCE, batches_of, collector_paused
from sim.fleet.fleet import RUNNING, RunningFleet, end_of, fleet_streams, under_way
from sim.fleet.request_columns import RequestColumns
from sim.records import DEFAULT_OPTIONS, FleetLog, Meters, Request, RequestOptions
from sim.routing.round_robin_and_random import StaticRouting
from sim.scenario.resolving.resolved import CasePlan, PoolPlan, ServicePlan
from sim.workload import Streams

SHARD_ENGINES = 32
"""Largest number of engines in a shard: the state of their running requests fits the CPU's caches."""
SHARD_REQUESTS = 200_000
"""Largest number of requests in a shard of several engines: each has 250 bytes while the shard is served."""
RunThere = Callable[..., Any]
"""Function that returns `function(plan, *arguments)`, computed in some process: `run_there(function, *arguments)`."""
Share = Callable[[CasePlan, Callable[[RunThere], None]], AbstractContextManager[None]]
"""Function that gets a plan and work on it; within the context, other processes may take part in the work."""
ServedShard = tuple[tuple[int, float], dict[str, NDArray[Any]], dict[int, RequestOptions]]
"""State of a served shard, and what it has set of its requests: arrays by field, and options by position."""
SERVED: dict[tuple[str, int], RunningFleet] = {}
"""Shards that this process has served and that are not closed, by the key of their simulation and their number."""


def alone(plan: CasePlan, work: Callable[[RunThere], None]) -> AbstractContextManager[None]:
    """Do nothing: no other process takes part in the *work* on *plan* (see `Share`)."""
    return nullcontext()


class ShardedFleet:
    """Simulation of a fleet of independent replicas, a shard of them after the other.

    A process that takes part serves shards until none is left. The end of the run is known when all are served; then
    each process closes the logs of its shards.
    """

    def __init__(self, plan: CasePlan, engines: int) -> None:
        """Prepare to divide the replicas of *plan* into shards of at most *engines* engines."""
        self._plan, self._most_engines = plan, engines
        self._counts: list[list[int]] = []
        """Number of replicas in each pool, for each shard; empty until the requests are known."""
        self._first: list[int] = []
        """Number of the first engine of each shard, and of all engines."""
        self._key = f"{getpid()} {id(self)}"
        self._requests: RequestColumns
        self._by_shard: tuple[NDArray[Any], list[int]]
        """Positions of all requests, shard after shard and each in order of arrival, and where those of each end."""
        self._changed = Condition()
        """Lock of the attributes below, signalled when a shard is served, closed or given back."""
        self._left: deque[int] = deque()
        """Shards to serve."""
        self._states: dict[int, tuple[int, float]] = {}
        """Shard -> `RunningFleet.state` when its requests were served."""
        self._done: dict[int, int] = {}
        """Shard -> number of its requests that are done."""
        self._options: dict[int, dict[int, RequestOptions]] = {}
        """Shard -> options of its requests by index, until the shard is closed: it may have to be served again."""
        self._logs: dict[int, FleetLog] = {}
        self._end: tuple[float, float] | None = None
        """End of the run and of the replicas' steps [s]: see `end_of`; None until all shards are served."""
        self._stopped = False

    @property
    def progress(self) -> tuple[float, float | None, int, int]:
        """Simulated time until now [s], mean of all shards, horizon [s], requests that are done and that are not."""
        here = [one.progress for one in RUNNING if one is not self]
        states = list(self._states.values())
        times_s = [finished_s for _, finished_s in states] + [now_s for now_s, *_ in here]
        return (
            sum(times_s) / max(1, len(self._counts)),  # compiled, two sums of floats would add up as whole numbers
            self._plan.horizon_s,
            sum(self._done.values()) + sum(done for *_, done, _ in here),
            sum(outstanding for outstanding, _ in states) + sum(waiting for *_, waiting in here),
        )

    def run(self, share: Share = alone) -> FleetLog:
        """Choose the replicas of all requests, simulate the shards and merge their logs."""
        plan = self._plan
        with under_way(self):
            self._divide()
            shards = len(self._counts)
            try:
                with share(plan, self.take_part):
                    while len(self._logs) < shards:
                        self.take_part(lambda function, *arguments: function(plan, *arguments))
                        with self._changed:
                            self._changed.wait_for(lambda: self._left or len(self._logs) == shards)
            finally:
                with self._changed:
                    self._stopped = True
                    self._changed.notify_all()
                for shard in range(shards):
                    SERVED.pop((self._key, shard), None)
        logs = [self._logs[shard] for shard in range(shards)]
        return FleetLog(
            self._requests,
            list(merge(*(log.intervals for log in logs), key=lambda interval: interval.end_s)),
            [meters for log in logs for meters in log.meters],
            [position for log in logs for position in log.pool_of_replica],
            logs[0].end_s,
        )

    def take_part(self, run_there: RunThere) -> None:
        """Serve shards that are left by means of *run_there*, and close them when all are served."""
        own: list[int] = []
        try:
            while (shard := self._next_shard()) is not None:
                own.append(shard)
                order, ends = self._by_shard
                places = order[ends[shard - 1] if shard else 0 : ends[shard]]
                with self._changed:  # others set columns
                    arrivals = self._requests.unserved(places)
                state, values, options = run_there(
                    serve_shard, (self._key, shard), self._counts[shard], self._first[shard], arrivals
                )
                with self._changed:
                    for name, column in values.items():
                        self._requests.set(name, column, places)
                    self._options[shard] = {int(places[place]): one for place, one in options.items()}
                    self._states[shard] = state
                    self._done[shard] = len(places) - state[0]
                    if self._end is None and len(self._states) == len(self._counts):
                        arrived_s = self._requests.column("arrived_s")
                        last_arrival_s = float(arrived_s[-1]) if arrived_s.size else 0.0
                        self._end = end_of(self._plan, list(self._states.values()), last_arrival_s)
                    self._changed.notify_all()
            while own and self._end is not None and not self._stopped:
                log = run_there(close_shard, (self._key, own[-1]), self._first[own[-1]], *self._end)
                with self._changed:
                    self._requests.options |= self._options.pop(own[-1])
                    self._logs[own.pop()] = log
                    self._changed.notify_all()
        except BaseException:
            with self._changed:  # the process may be gone, and its shards with it
                for shard in own:
                    self._options.pop(shard, None)
                    self._states.pop(shard, None)
                    self._done.pop(shard, None)
                self._left.extend(own)
                self._changed.notify_all()
            raise

    def _divide(self) -> None:
        """Choose the replicas of all requests, and divide both into shards."""
        plan = self._plan
        total = _engines(plan, (pool.replicas for pool in plan.pools))
        self._requests = _assigned(plan)
        self._counts = _shards(plan, min(self._most_engines, SHARD_REQUESTS * total // max(1, len(self._requests))))
        self._first = [*accumulate((_engines(plan, shard) for shard in self._counts), initial=0)]
        self._by_shard = self._sorted()
        self._left.extend(range(len(self._counts)))

    def _sorted(self) -> tuple[NDArray[Any], list[int]]:
        """Return `_by_shard`; refused requests, which have no replica, come last."""
        sizes, shards = np.diff(self._first), len(self._counts)
        narrow = np.uint16 if shards < 2**16 else np.uint32  # numpy sorts 16 bits by counting
        shard_of = np.append(np.repeat(np.arange(shards), sizes), shards).astype(narrow)
        shard = shard_of[self._requests.column("replica")]  # -1: the last entry
        order = np.argsort(shard, kind="stable").astype(np.int32 if len(shard) < 2**31 else np.int64)
        return order, np.cumsum(np.bincount(shard, minlength=shards + 1)).tolist()

    def _next_shard(self) -> int | None:
        """Return a shard to serve, waiting while one that another process serves may be given back; None: no more."""
        with self._changed:
            self._changed.wait_for(lambda: self._left or self._stopped or len(self._states) == len(self._counts))
            return self._left.popleft() if self._left and not self._stopped else None


def serve_shard(
    plan: CasePlan, name: tuple[str, int], replicas: list[int], first: int, requests: RequestColumns
) -> ServedShard:
    """Simulate a shard until its requests are served, and keep it under its *name* to be closed.

    Parameters
    ----------
    plan
        Plan of the whole fleet.
    name
        Key of the simulation and number of the shard.
    replicas
        Number of replicas of each pool in the shard.
    first
        Number of its first engine in the fleet.
    requests
        Requests of the shard, with the number of their engine in the fleet.

    """
    with collector_paused():
        served = _of_shard(requests, first)
        fleet = RunningFleet(replace(plan, pools=_part(plan, replicas)), assigned=served)
    with under_way(fleet):
        fleet.serve()
        fleet.release_requests()
        SERVED[name] = fleet
        return fleet.state, *_results_of(served)


def _of_shard(columns: RequestColumns, first: int) -> list[Request]:
    """Return the unserved requests of a shard, whose first engine is *first*: as `list`, but compiled."""
    served: list[Request] = []
    for start in range(0, len(columns), ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        for index, arrived_s, prompt_tokens, output_tokens, priority, replica in columns.rows(part):
            request = Request(index, arrived_s, prompt_tokens, output_tokens, priority)
            request.replica = replica - first
            served.append(request)
    for place, options in columns.options.items():
        served[place].options = options
    return served


def _results_of(served: list[Request]) -> tuple[dict[str, NDArray[Any]], dict[int, RequestOptions]]:
    """Return what replicas have set of *served*: arrays by field, where any value is set, and options by position."""
    count = len(served)
    found: dict[str, NDArray[Any]] = {
        "started_s": np.fromiter([request.started_s for request in served], np.float64, count),
        "first_token_s": np.fromiter([request.first_token_s for request in served], np.float64, count),
        "finished_s": np.fromiter([request.finished_s for request in served], np.float64, count),
    }
    if any(request.cached_tokens for request in served):
        found["cached_tokens"] = np.fromiter([request.cached_tokens for request in served], np.int32, count)
    if any(request.preemptions for request in served):
        found["preemptions"] = np.fromiter([request.preemptions for request in served], np.int32, count)
    own = {place: one.options for place, one in enumerate(served) if one.options is not DEFAULT_OPTIONS}
    return found, own


def close_shard(plan: CasePlan, name: tuple[str, int], first: int, end_s: float, until_s: float) -> FleetLog:
    """Return the log of a served shard without its requests: see `RunningFleet.close`."""
    with collector_paused():
        log = SERVED.pop(name).close(end_s, until_s)
    for interval in log.intervals:
        interval.replica += first
    return log


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
    """Return the number of engines in all pools of *plan*, which have the given numbers of *replicas*."""
    return sum(count * pool.engines_per_replica for count, pool in zip(replicas, plan.pools, strict=True))


def _part(plan: CasePlan, replicas: Iterable[int]) -> tuple[PoolPlan, ...]:
    """Return the pools of *plan* with another number of *replicas* in each."""
    return tuple(replace(pool, replicas=count) for pool, count in zip(plan.pools, replicas, strict=True))


def _assigned(plan: CasePlan) -> RequestColumns:
    """Return all requests of *plan*, with the replicas that are chosen for them."""
    if not isinstance(plan.routing, StaticRouting):
        raise ValueError("replicas are chosen beforehand only by a static policy")
    streams = fleet_streams(plan)
    columns = _offered(plan, streams)
    admitted = np.flatnonzero(~columns.column("rejected"))
    total = _engines(plan, (pool.replicas for pool in plan.pools))
    replicas = np.full(len(columns), -1, np.int32)
    replicas[admitted] = plan.routing.choices(total, len(admitted), streams("routing"))
    columns.set("replica", replicas)
    return columns


def _offered(plan: CasePlan, streams: Streams) -> RequestColumns:
    """Return all requests of *plan* behind the limits of tenants, which refuse some."""
    table = plan.workload.open_table(streams, plan.horizon_s)
    columns = RequestColumns(table)
    arrive = with_request_gates(plan.workload, streams, _pass, _pass)
    priorities = table.priority
    if arrive is not _pass or table.has_options:
        priorities = np.zeros(len(columns), np.int64)
        for request in chain.from_iterable(batches_of(table)):
            arrive([request], request.arrived_s)
            priorities[request.index] = request.priority
            if request.options is not DEFAULT_OPTIONS:
                columns.options[request.index] = request.options
    if priorities is not None:
        columns.set("priority", priorities)
    return columns


def _pass(requests: list[Request], now: float) -> None:
    """Do nothing with *requests*, which have passed the gates or were refused."""


def runs_in_shards(plan: CasePlan) -> bool:
    """Return whether *plan* is simulated in shards: its replicas are independent, and more than a shard has."""
    return _engines(plan, (pool.replicas for pool in plan.pools)) > SHARD_ENGINES and plan.has_independent_replicas


def _run(plan: CasePlan, share: Share = alone) -> FleetLog:
    """Simulate *plan*, whose pools are those of one service or are shared."""
    return ShardedFleet(plan, SHARD_ENGINES).run(share) if runs_in_shards(plan) else RunningFleet(plan).run()


def run_fleet(plan: CasePlan, share: Share = alone) -> FleetLog:
    """Simulate *plan* with all of its services, and merge their logs in order of arrival.

    Parameters
    ----------
    plan
        Plan of the case.
    share
        Context in which other processes may take part; only for the shards of a plan without services.

    Returns
    -------
    FleetLog
        Requests, intervals and meters of all replicas, numbered as in the plan.

    """
    if not plan.services:
        return _run(plan, share)
    counts = [pool.replicas * pool.engines_per_replica for pool in plan.pools]
    first = [*accumulate(counts, initial=0)]
    together = FleetLog([], [], [], [p for p, count in enumerate(counts) for _ in range(count)], 0.0)
    meters: dict[int, Meters] = {}
    requests: list[list[Request]] = []
    for group in plan.groups():
        log = _run(plan.for_group(group) if _needs_one_source(group) else plan.for_service(group[0]))
        names = {service.name for service in group}
        own = [position for position, pool in enumerate(plan.pools) if not names.isdisjoint(pool.served)]
        places = [first[position] + i for position in own for i in range(counts[position])]
        own_requests = list(log.requests)
        for request in own_requests:
            request.service = request.service if _needs_one_source(group) else group[0].name
            _renumber(request, places)
        for interval in log.intervals:
            interval.replica = places[interval.replica]
        meters |= dict(zip(places, log.meters, strict=True))
        requests.append(own_requests)
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
