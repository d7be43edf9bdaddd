"""The simulated cluster: a request source, a router, replicas, and meters that are read at fixed times.

`RunningFleet` simulates one cluster once; `run_fleet` (sim/fleet/run.py) simulates a whole plan.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import inf, isnan
from sys import float_info
from typing import Protocol

import simpy

from sim.engine.protocol import ReplicaEngine
from sim.fleet.admission import admission_control, with_request_gates
from sim.fleet.arrivals import OpenSource, RequestSource, Send, collector_paused, source_of
from sim.fleet.autoscaling import AutoscalerLoops
from sim.fleet.caches import clear_caches, connect_caches, fill_caches
from sim.fleet.clock import FleetClock
from sim.fleet.failures import ComponentFailures, PlannedMaintenance, ReplicaRemovals, SpotMarket
from sim.fleet.interrupts import EVENTS_BETWEEN, allow_interrupts
from sim.fleet.kv_transfer import KvTransfers, TransferCallbacks
from sim.fleet.metering import MeterLog, with_busy_times
from sim.fleet.pool import replica_engines
from sim.fleet.replica import WITHOUT_MEMORY, Replica, ReplicaLifecycle, State, StrandedRequests
from sim.fleet.retries import Attempts, ClientCallbacks
from sim.fleet.routing import AssignedReplicas, RoleRouter, ServiceRouter, ServingReplicas
from sim.fleet.scaling import NOT_STARTED, PoolScaling, ScheduledScaling, states_at_start
from sim.fleet.services import ServicesSource
from sim.records import ONLY_SERVICE, FleetLog, Request
from sim.rng import SeededStreams
from sim.routing import Router
from sim.scenario.resolving.resolved import CasePlan
from sim.workload import Streams

LATEST_S = float_info.max
"""Latest time of an event [s]; later events never come."""
Watch = Callable[[ReplicaEngine, int], ReplicaEngine]
"""Function from an engine and the number of its replica to the engine that the replica calls."""


class Simulation(Protocol):
    """Simulation under way."""

    @property
    def progress(self) -> tuple[float, float | None, int, int]:
        """Simulated time until now [s], horizon [s], and numbers of requests that are done and that are not."""
        ...


RUNNING: list[Simulation] = []
"""Simulations under way in this process; other threads read their progress."""


@contextmanager
def under_way(simulation: Simulation) -> Iterator[None]:
    """Show the progress of *simulation* to other threads, and disable garbage collection, until the context ends."""
    RUNNING.append(simulation)
    try:
        with collector_paused():
            yield
    finally:
        RUNNING.remove(simulation)


class RunningFleet:
    """Simulation of one fleet at one sweep point, in one replication. `run` simulates it once."""

    def __init__(
        self,
        plan: CasePlan,
        watch: Watch = lambda engine, replica: engine,
        assigned: list[Request] | None = None,
    ) -> None:
        """Build the fleet of *plan*; *watch* may wrap each engine.

        The fleet serves the requests of the plan's workload, or those that are *assigned* to its replicas already.
        """
        self._plan = plan
        self._env = FleetClock()
        streams = fleet_streams(plan)
        release, finished = self._release, self._on_finished  # one object each, which stays in the CPU's caches
        self._replicas = [
            Replica(self._env, watch(engine, index), index, position, release, finished)
            for index, (position, engine) in enumerate(
                (position, engine)
                for position, pool in enumerate(plan.pools)
                for engine in replica_engines(pool, streams)
            )
        ]
        self._held: list[Request] = []
        """Requests that have arrived while no replica served."""
        self._ends_with_errors = plan.ends_with_errors
        self._scaler: AutoscalerLoops | None = None
        self._outstanding = 0
        self._finished_s = 0.0
        self._over = False
        self._end_s = inf
        """End of the run [s]; inf until it is known."""
        self._independent = plan.has_independent_replicas
        self._stranded: StrandedRequests | None = None
        """Requests stranded on failed replicas; None where replicas do not fail."""
        arrive: Send = self._send
        if plan.may_retry:
            callbacks = ClientCallbacks(self._send, self._send_again, self._take, self._settle)
            attempts = Attempts(self._env, plan.client, streams, callbacks)
            arrive, self._refuse = attempts.arrive, attempts.refuse
            if plan.fails:
                self._stranded = StrandedRequests(self._replicas, self._discount, attempts.lose, attempts.move)
        if plan.cost_per_request:
            arrive = with_busy_times(arrive)
        self._source: RequestSource
        if assigned is None:
            self._source = self._arrivals(arrive, streams)
        else:
            self._source = OpenSource(self._env, iter([assigned]), arrive)
        states = states_at_start(plan)
        self._log = MeterLog(plan, self._replicas, states)
        policy, self._kv_transfers = self._routed(streams) if assigned is None else (AssignedReplicas(), None)
        connect_caches(policy, self._replicas, self._env)
        fill_caches(self._replicas, plan.workload, streams)
        self._router: Router | ServingReplicas = policy
        self._admission = admission_control(plan, self._replicas, lambda replica, for_s: self._eject(replica, for_s))
        if plan.switched:
            self._router = self._switched(policy, states, streams)

    def _arrivals(self, arrive: Send, streams: Streams) -> RequestSource:
        """Return the source of requests, whose admission limits come before *arrive*."""
        plan = self._plan
        if plan.services:
            return ServicesSource(plan, partial(fleet_streams, plan), self._env, arrive, self._refuse_arrivals)
        arrive = with_request_gates(plan.workload, streams, arrive, self._refuse_arrivals)
        return source_of(plan.workload, streams, plan.horizon_s, self._env, arrive)

    def _routed(self, streams: Streams) -> tuple[Router, KvTransfers | None]:
        """Return the routing policy, and the KV transfers between replicas where pools have roles."""
        plan, pools = self._plan, [replica.pool for replica in self._replicas]
        roles: ServiceRouter | RoleRouter
        if plan.services:
            roles = ServiceRouter(plan, self._replicas, partial(fleet_streams, plan), lambda: self._env.now)
        elif plan.kv_transfer is not None:
            roles = RoleRouter(plan, pools, streams)
        else:
            return plan.routing.start([plan.pools[pool].name for pool in pools], streams("routing")), None
        if plan.kv_transfer is None:
            return roles, None
        callbacks = TransferCallbacks(
            lambda: self._router, roles.choose_answering, self._found_no_replica, self._stranded
        )
        return roles, KvTransfers(plan, self._env, self._replicas, callbacks)

    @property
    def progress(self) -> tuple[float, float | None, int, int]:
        """Simulated time until now [s], horizon [s], and numbers of requests that are done and that are not."""
        waiting = self._outstanding
        return self._env.now, self._plan.horizon_s, max(len(self._source.requests) - waiting, 0), waiting

    def run(self) -> FleetLog:
        """Simulate arrivals up to the horizon, then the drain until all are served or its limit is reached."""
        with under_way(self):
            self.serve()
            last_arrival_s = self._source.requests[-1].arrived_s if self._source.requests else 0.0
            return self.close(*end_of(self._plan, [self.state], last_arrival_s))

    def serve(self) -> None:
        """Simulate until the drain is over; what the replicas do after their last requests may be left to `close`."""
        plan, env = self._plan, self._env
        for reading_s in self._log.fixed_readings():
            env.timeout(reading_s).callbacks.append(self._read_meters)
        if plan.horizon_s is None:
            self._arm_reading(plan.next_reading_s(0.0))
        last_s = min(plan.stop_s, LATEST_S)
        independent, events = self._independent, 0
        while env.next_s() <= last_s:
            if self._is_done(env.now) if independent else self._over:
                break
            env.step()
            events += 1
            if events % EVENTS_BETWEEN == 0:
                allow_interrupts()

    def step(self) -> bool:
        """Process the next event, without readings of meters. Return whether there was one."""
        if self._env.next_s() > LATEST_S:
            return False
        self._env.step()
        return True

    @property
    def state(self) -> tuple[int, float]:
        """Number of requests that are not done, and time at which the last one was [s]."""
        return self._outstanding, self._finished_s

    def release_requests(self) -> None:
        """Complete the timestamps of the requests, which are independent and served, and keep no reference to them."""
        self._add_overheads()
        self._source.requests = []

    def close(self, end_s: float, until_s: float) -> FleetLog:
        """Return the log of the run, which ends at *end_s*; independent replicas go on with their steps *until_s*."""
        self._end_s = end_s
        if self._independent:
            env, last_s = self._env, min(until_s, LATEST_S)
            while env.next_s() <= last_s:
                env.step()
        self._add_overheads()
        log = self._log.close(end_s, self._source.requests)
        if self._kv_transfers is not None:
            log.kv_sent_bytes = self._kv_transfers.sent_bytes(end_s)
        return log

    def _switched(self, policy: Router, states: list[State], streams: Streams) -> ServingReplicas:
        """Return the router that follows replicas' states, and start the schedules, autoscalers and failures."""
        router = ServingReplicas(policy, states, lambda replica: scale.drained(replica))

        def before_move(replica: int, state: State, following: State) -> None:
            self._log.read_replica(replica, self._env.now)
            if following in NOT_STARTED:
                self._replicas[replica].stop(self._env.now)
            if state in WITHOUT_MEMORY and following not in WITHOUT_MEMORY:
                clear_caches(self._replicas[replica])
            router.before_move(replica, following)
            scale.moved(replica, following)
            for moved in watching:
                moved(replica, following)

        watching: list[Callable[[int, State], None]] = []
        lifecycle = ReplicaLifecycle(states, before_move, self._open)
        scale = PoolScaling(self._plan, self._env, lifecycle, router)
        ScheduledScaling(self._plan, self._env, scale)
        if any(pool.autoscaling for pool in self._plan.pools):
            engines, held = self._replicas, self._held
            self._scaler = AutoscalerLoops(
                self._plan,
                self._env,
                scale,
                lifecycle,
                router,
                engines,
                held.__len__,
                lambda: self._is_done(self._env.now),
            )
        if self._stranded is not None:
            component_failures = ComponentFailures(self._plan, self._env, lifecycle, scale, self._stranded, streams)
            removals = ReplicaRemovals(self._env, lifecycle, scale, self._stranded)
            PlannedMaintenance(self._plan, self._env, removals, component_failures)
            watching += [removals.moved, SpotMarket(self._plan, self._env, removals, scale, streams).moved]
        return router

    def _send(self, requests: list[Request], now: float) -> None:
        """Route requests that arrive together; the engines form their steps once all have been offered."""
        touched: dict[int, Replica] = {}
        refused: list[Request] = []
        for request in requests:
            index = self._router.choose(request)
            if index < 0:
                self._outstanding += 1
                self._held.append(request)
                self._found_no_replica()
                continue
            if (
                self._admission is not None
                and (loser := self._admission.request_to_refuse(request, index, now)) is not None
            ):
                refused.append(loser)
                if loser is request:
                    self._outstanding += 1
                    continue
                touched[index] = self._replicas[index]
                touched[index].withdraw(loser, now)
                self._left(loser, index)
            if self._stranded is not None and self._stranded.strand_if_failed(request, index):
                self._outstanding += 1
                self._joined(request, index)
                continue
            replica = self._replicas[index]
            request.replica, request.came_s = index, now
            prompt_only = self._kv_transfers is not None and self._kv_transfers.computes_prompt_only(request, index)
            moved = not request.rejected and replica.offer(request, now, prompt_only)
            if request.rejected:
                self._source.answered(request, now)
                continue
            self._outstanding += 1
            self._joined(request, index)
            if self._stranded is not None:
                self._stranded.joined(request, index)
            if moved:
                touched[index] = replica
        for replica in touched.values():
            replica.replan(now)
        if refused:
            self._refuse(refused, now)

    def _found_no_replica(self) -> None:
        """Notify the autoscalers that a request has found no serving replica."""
        if self._scaler is not None:
            self._scaler.held()

    def _refuse_arrivals(self, requests: list[Request], now: float) -> None:
        """Refuse *requests* for good before they reach a replica."""
        for request in requests:
            self._source.answered(request, now)

    def _open(self) -> None:
        """Send held requests later in this moment, when all replicas that open at it have opened."""
        self._env.timeout(0).callbacks.append(self._send_held)

    def _send_held(self, event: simpy.Event | None = None) -> None:
        """Send the held requests: replicas have begun to serve."""
        held = self._held.copy()
        self._held.clear()
        self._outstanding -= len(held)
        if held:
            self._send(held, self._env.now)
        if self._kv_transfers is not None:
            self._kv_transfers.opened(self._env.now)

    def _send_again(self, requests: list[Request], now: float) -> None:
        """Send further attempts of *requests*, which have been outstanding since they arrived."""
        self._outstanding -= len(requests)
        self._send(requests, now)

    def _take(self, requests: list[Request], now: float) -> list[Request]:
        """Remove *requests* from where they are. Return all but those that get their last tokens at *now*."""
        here: dict[int, list[Request]] = {}
        for request in requests:
            if self._kv_transfers is not None and self._kv_transfers.abandon(request, now):
                continue
            index = (
                request.replica if self._stranded is None else max(request.replica, self._stranded.replica_of(request))
            )
            if index >= 0 and self._admission is not None:
                self._admission.timed_out(index)
            if self._stranded is not None and self._stranded.abandon(request):
                continue
            if index < 0:
                self._held.remove(request)
            else:
                here.setdefault(index, []).append(request)
        for index, at_replica in here.items():
            gone = self._replicas[index].evict(at_replica, now)
            for request in gone:
                self._left(request, index)
            if self._kv_transfers is not None:
                self._take([one for one in at_replica if one not in gone and isnan(one.finished_s)], now)
        return [request for request in requests if isnan(request.finished_s)]

    def _joined(self, request: Request, replica: int) -> None:
        """Count *request*, which is on its way to *replica*."""
        self._router.joined(replica, request)
        if self._admission is not None:
            self._admission.joined(replica, request)

    def _discount(self, replica: int, request: Request) -> None:
        """Discount *request*, which is no longer on its way to *replica*."""
        self._router.left(replica, request)
        if self._admission is not None:
            self._admission.left(replica, request)

    def _eject(self, replica: int, for_s: float) -> None:
        """Close *replica* for *for_s* seconds."""
        router = self._router
        if not isinstance(router, ServingReplicas) or not router.eject(replica):
            return

        def readmit(_: simpy.Event) -> None:
            router.readmit(replica)
            self._send_held()

        self._env.timeout(for_s).callbacks.append(readmit)

    def _left(self, request: Request, replica: int) -> None:
        """Record that *request* has left *replica*."""
        self._discount(replica, request)
        if self._stranded is not None:
            self._stranded.left(request, replica)

    def _on_finished(self, replica: Replica, requests: list[Request], end_s: float) -> None:
        if self._ends_with_errors and (broken := replica.broken_off(requests, end_s)):
            for request in broken:
                self._left(request, replica.index)
            self._refuse(broken, end_s)
            requests = [request for request in requests if request not in broken]
        if self._kv_transfers is not None:
            for request in requests:
                if isnan(request.finished_s):
                    self._kv_transfers.prompt_done(replica, request, end_s)
            requests = [request for request in requests if not isnan(request.finished_s)]
        if self._scaler is not None:
            self._scaler.finished(replica.pool, requests, end_s)
        self._settle(requests, end_s, replica.index)

    def _settle(self, requests: list[Request], end_s: float, replica: int | None = None) -> None:
        """End *requests*, on *replica* or at none: their clients continue, and the run may be over."""
        self._outstanding -= len(requests)
        now = self._finished_s = max(self._finished_s, end_s)
        for request in requests:
            if replica is not None:
                self._left(request, replica)
                if self._admission is not None:
                    self._admission.answered(replica, end_s)
            self._source.answered(request, end_s)
        self._over = self._is_done(now)

    def _is_done(self, now: float) -> bool:
        return not self._outstanding and self._source.exhausted and now >= (self._plan.horizon_s or 0.0)

    def _release(self, until_s: float) -> None:
        self._source.release(until_s)

    def _read_meters(self, event: simpy.Event) -> None:
        self._log.read(self._env.now)
        if self._env.now >= (self._plan.horizon_s or inf) and not self._outstanding:
            self._over = True

    def _arm_reading(self, at_s: float) -> None:
        """Schedule a reading at *at_s*: without a horizon readings continue as long as there is work."""
        due = self._env.timeout(at_s - self._env.now)
        due.callbacks.append(lambda _: self._read_on(at_s))

    def _read_on(self, at_s: float) -> None:
        works = at_s <= self._end_s if self._independent else self._outstanding or not self._source.exhausted
        if works:
            self._log.read(at_s)
            self._arm_reading(self._plan.next_reading_s(at_s))

    def _add_overheads(self) -> None:
        """Add the API server's time before a first token, which delays that request only, to the timestamps."""
        pools = [self._plan.pools[replica.pool] for replica in self._replicas]
        names = [service.name for service in self._plan.services] or [ONLY_SERVICE]
        served = {name: [pool.serving(name) for pool in pools] for name in names}
        if any(one.request_overhead_s or one.tokenising_s for each in served.values() for one in each):
            for request in self._source.requests:
                replica = request.replica if request.prefill_replica < 0 else request.prefill_replica
                pool = served[request.service if self._plan.services else ONLY_SERVICE][replica]
                before_s = pool.request_overhead_s + pool.tokenising_s * request.prompt_tokens
                request.first_token_s += before_s
                request.finished_s += before_s


def fleet_streams(plan: CasePlan, service: str = "") -> Streams:
    """Return a function from a name to a random stream; each of several services has its own streams."""
    prefix = f"{service or plan.service}: " if plan.service else ""
    return SeededStreams(plan.seed, plan.replication, prefix)


def end_of(plan: CasePlan, states: Sequence[tuple[int, float]], last_arrival_s: float) -> tuple[float, float]:
    """Return the end of a run [s], and the time until which replicas go on with their steps [s].

    Parameters
    ----------
    plan
        Plan of the whole fleet.
    states
        `RunningFleet.state` of the fleet that has served its requests, or of all its parts.
    last_arrival_s
        Arrival of the last request of the whole fleet [s].

    """
    finished_s = max(finished_s for _, finished_s in states)
    if any(outstanding for outstanding, _ in states):
        end_s = max(plan.stop_s, plan.horizon_s or 0.0)
        return end_s, end_s
    end_s = max(finished_s, last_arrival_s, plan.horizon_s or 0.0)
    if plan.horizon_s is None and last_arrival_s > finished_s:  # the last request is refused: nothing ends the run
        return end_s, inf
    return end_s, end_s
