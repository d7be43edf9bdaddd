"""Replicas that fail or are withdrawn: failures, planned maintenance, and interruptions of spot instances.

A failure is detected after the detection time. Until then the router sends requests to the replica; they are stranded
with those that it had. A replica that is withdrawn on notice drains first; it is switched off when it has answered its
requests or when its notice is over.
"""

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from math import inf

import numpy as np
import simpy

from sim.failures import FailureDomain, SpotInterruptions
from sim.fleet.clock import FleetClock
from sim.fleet.replica import ReplicaLifecycle, State, StrandedRequests
from sim.fleet.scaling import PoolScaling
from sim.rng import exponential
from sim.scenario.resolving.resolved import CasePlan
from sim.units import SECONDS_PER_HOUR
from sim.workload import Streams

SWITCHED_OFF = (State.OFF, State.PROVISIONING)


class FailingComponent:
    """Component of a pool that can fail, with its own random stream."""

    __slots__ = ("domain", "position", "repair_s", "rng")

    def __init__(self, position: int, domain: FailureDomain, rng: np.random.Generator) -> None:
        self.position, self.domain, self.rng = position, domain, rng
        self.repair_s = 0.0
        """Repair time of the failure under way, or of the next one [s]."""

    def next_up_s(self) -> float:
        """Draw the time to the next failure [s]."""
        up_s, self.repair_s = self.domain.law.outage(self.rng)
        return up_s


class RepairCrews:
    """Repair crews of a pool; components are repaired in order of their failures."""

    def __init__(self, env: FleetClock, number: int | None, repaired: Callable[[FailingComponent], None]) -> None:
        self._env, self._free, self._on_repair = env, number, repaired
        self._waiting: deque[FailingComponent] = deque()

    def call(self, component: FailingComponent) -> None:
        """Queue *component* for repair."""
        self._waiting.append(component)
        self._begin()

    def _begin(self) -> None:
        while self._waiting and self._free != 0:
            if self._free is not None:
                self._free -= 1
            component = self._waiting.popleft()
            self._env.timeout(component.repair_s).callbacks.append(partial(self._end, component))

    def _end(self, component: FailingComponent, event: simpy.Event) -> None:
        if self._free is not None:
            self._free += 1
        self._on_repair(component)
        self._begin()


class ComponentFailures:
    """Failures of the components of a fleet.

    Their times depend on the components alone, not on what the fleet does. A failure of a component that is switched
    off does not happen, and the time to the next one begins.
    """

    def __init__(
        self,
        plan: CasePlan,
        env: FleetClock,
        lifecycle: ReplicaLifecycle,
        scale: PoolScaling,
        stranded: StrandedRequests,
        streams: Streams,
    ) -> None:
        self._plan, self._env, self._lifecycle, self._scale, self._stranded = plan, env, lifecycle, scale, stranded
        self._down = [[0] * pool.replicas for pool in plan.pools]
        """Number of failed components that each replica needs, per pool."""
        self._crews: list[RepairCrews | None] = []
        for position, pool in enumerate(plan.pools):
            failing = pool.failures
            self._crews.append(RepairCrews(env, failing.crews, self._on_repair) if failing else None)
            for domain in failing.domains if failing else ():
                name = domain.name if domain.name.startswith("site") else f"{position} {domain.name}"
                self._arm(FailingComponent(position, domain, streams(f"failures: {name}")))

    def _arm(self, component: FailingComponent) -> None:
        self._env.timeout(component.next_up_s()).callbacks.append(lambda _: self._fail(component))

    def _fail(self, component: FailingComponent) -> None:
        if component.domain.needs_power and self._is_off(component):
            self._arm(component)
            return
        down = self._down[component.position]
        for place in component.domain.replicas:
            down[place] += 1
            if down[place] == 1:
                self._fail_replica_of(self._scale.replicas[component.position][place])
        failing = self._plan.pools[component.position].failures
        if failing is not None and failing.detection_s:
            self._env.timeout(failing.detection_s).callbacks.append(lambda _: self._on_detection(component))
        else:
            self._on_detection(component)

    def _is_off(self, component: FailingComponent) -> bool:
        """Return whether nothing that needs *component* is switched on: then it cannot fail."""
        replicas = self._scale.replicas[component.position]
        held = [self._lifecycle.states[engine] for place in component.domain.replicas for engine in replicas[place]]
        return all(state in SWITCHED_OFF for state in held)

    def _fail_replica_of(self, engines: list[int]) -> None:
        """Fail a replica, whatever its state; the failure of one that is switched off is detected at once."""
        for engine in engines:
            state = self._lifecycle.states[engine]
            if state is State.PROVISIONING:
                self._lifecycle.move([engine], State.OFF)
            if state in SWITCHED_OFF:
                self._lifecycle.move([engine], State.REPAIRING)
            else:
                self._stranded.fail(engine, self._env.now)
                self._lifecycle.move([engine], State.FAILED)

    def _on_detection(self, component: FailingComponent) -> None:
        now, position = self._env.now, component.position
        lost = []
        for place in component.domain.replicas:
            for engine in self._scale.replicas[position][place]:
                if self._lifecycle.states[engine] is State.FAILED:
                    lost += self._stranded.detect(engine, now)
                    self._lifecycle.move([engine], State.REPAIRING)
        self._stranded.retry(lost, now)
        crews = self._crews[position]
        if crews is not None:
            crews.call(component)
        self._scale.replace(position)

    def _on_repair(self, component: FailingComponent) -> None:
        self.release(component.position, component.domain.replicas)
        self._arm(component)

    def take_for_maintenance(self, position: int, places: Iterable[int]) -> None:
        """Take the replicas at *places* of a pool, which are switched off or under repair, for maintenance."""
        for place in places:
            self._down[position][place] += 1
            self._lifecycle.move(self._scale.replicas[position][place], State.REPAIRING)

    def release(self, position: int, places: Iterable[int]) -> None:
        """Remove one reason why the replicas at *places* of a pool cannot run."""
        down = self._down[position]
        for place in places:
            down[place] -= 1
            if not down[place]:
                self._scale.repaired(position, self._scale.replicas[position][place])


OUT_OF_SERVICE = (State.OFF, State.REPAIRING)
BROKEN = (State.FAILED, State.REPAIRING)


class ReplicaRemovals:
    """Replicas withdrawn from a fleet, each until every party that withdrew it has returned it."""

    def __init__(
        self, env: FleetClock, lifecycle: ReplicaLifecycle, scale: PoolScaling, stranded: StrandedRequests
    ) -> None:
        self._env, self._lifecycle, self._scale, self._stranded = env, lifecycle, scale, stranded
        self._waiting: dict[tuple[int, str], tuple[list[int], Callable[[], None]]] = {}
        """(Engine, withdrawing party) -> all engines to take out of service, and the callback once all are off or in
        repair."""
        self._kept: set[tuple[int, str]] = set()
        """(First engine of a replica, party that keeps it withdrawn)."""

    def withdraw(
        self,
        by: str,
        position: int,
        places: list[int],
        gone: Callable[[], None],
        within_s: float = inf,
        migrate: bool = False,
    ) -> None:
        """Drain the replicas at *places* of a pool on behalf of the party *by*.

        The replicas do not start until every party that withdrew them has returned them.

        Parameters
        ----------
        by
            Name of the withdrawing party.
        position
            Number of the pool.
        places
            Replicas of the pool.
        gone
            Called when all of them are off or under repair.
        within_s
            Notice [s]: requests not answered by then are lost.
        migrate
            Whether other replicas continue the requests at once.

        """
        replicas = [self._scale.replicas[position][place] for place in places]
        engines = [engine for replica in replicas for engine in replica]
        self._scale.barred.update(replica[0] for replica in replicas)
        self._kept.update((replica[0], by) for replica in replicas)
        self._waiting |= {(engine, by): (engines, gone) for engine in engines}
        for engine in engines:
            if self._lifecycle.states[engine] not in BROKEN:
                self._scale.stop([engine])
        self._scale.replace(position)
        for engine in engines if migrate else ():
            if self._lifecycle.states[engine] is State.DRAINING:
                self._stranded.migrate(engine, self._env.now)
        if within_s < inf:
            self._env.timeout(within_s).callbacks.append(lambda _: self._end_notice(engines, by))
        self._check(engines[0], by)

    def return_replicas(self, by: str, position: int, places: list[int]) -> None:
        """Allow the replicas at *places* to start again, if no other party keeps them withdrawn.

        Broken replicas start when they have been repaired, draining ones when they have been switched off.
        """
        for place in places:
            replica = self._scale.replicas[position][place]
            if (replica[0], by) in self._waiting:
                engines = self._waiting[replica[0], by][0]
                later = partial(self.return_replicas, by, position, [place])
                self._waiting |= {(engine, by): (engines, later) for engine in engines}
                continue
            self._kept.discard((replica[0], by))
            if any(engine == replica[0] for engine, _ in self._kept):
                continue
            self._scale.barred.discard(replica[0])
            if all(self._lifecycle.states[engine] is State.OFF for engine in replica):
                self._scale.repaired(position, replica)

    def moved(self, engine: int, following: State) -> None:
        """Check whether the removals of *engine*, which changes to the state *following*, are complete."""
        if following in (*OUT_OF_SERVICE, State.RESERVE):
            for one, by in self._waiting:
                if one == engine:
                    # checked after the other events of this moment and the consequences of this change
                    self._env.timeout(0).callbacks.append(partial(self._check_later, engine, by))

    def _check_later(self, engine: int, by: str, event: simpy.Event) -> None:
        self._check(engine, by)

    def _check(self, engine: int, by: str) -> None:
        """Complete the withdrawal by *by* that includes *engine* if all of its engines are off or under repair."""
        engines, gone = self._waiting.get((engine, by), ([], None))
        # a replica in reserve (asleep) is switched off
        self._lifecycle.move([one for one in engines if self._lifecycle.states[one] is State.RESERVE], State.OFF)
        if gone is not None and all(self._lifecycle.states[one] in OUT_OF_SERVICE for one in engines):
            for one in engines:
                del self._waiting[one, by]
            gone()

    def _end_notice(self, engines: list[int], by: str) -> None:
        """Switch off *engines*, whose notice is over; requests that have not been answered are lost and resent."""
        now, lost = self._env.now, []
        for engine in engines:
            # skips a replica that has returned meanwhile and drains for another withdrawal
            waits = self._waiting.get((engine, by), (None,))[0] is engines
            if waits and self._lifecycle.states[engine] is State.DRAINING:
                self._stranded.fail(engine, now)
                lost += self._stranded.detect(engine, now)
                if self._lifecycle.states[engine] is State.DRAINING:
                    self._lifecycle.move([engine], State.OFF)
        self._stranded.retry(lost, now)


MAINTENANCE, PROVIDER = "maintenance", "provider"
"""Names of the parties that withdraw replicas: planned maintenance, and the provider of spot instances."""


class PlannedMaintenance:
    """Maintenance of the servers of each pool, one after another."""

    def __init__(
        self, plan: CasePlan, env: FleetClock, removals: ReplicaRemovals, component_failures: ComponentFailures
    ) -> None:
        self._env, self._removals, self._component_failures = env, removals, component_failures
        for position, pool in enumerate(plan.pools):
            work = pool.failures.maintenance if pool.failures else None
            if pool.failures is None or work is None:
                continue
            every_s, takes_s = work.every_h * SECONDS_PER_HOUR, work.takes_h * SECONDS_PER_HOUR
            servers = pool.failures.servers
            for number, places in enumerate(servers):
                self._arm((number + 1) / len(servers) * every_s, position, list(places), every_s, takes_s)

    def _arm(self, after_s: float, position: int, places: list[int], every_s: float, takes_s: float) -> None:
        def begin(_: simpy.Event) -> None:
            self._arm(every_s, position, places, every_s, takes_s)
            self._removals.withdraw(MAINTENANCE, position, places, work)

        def work() -> None:
            self._component_failures.take_for_maintenance(position, places)
            self._env.timeout(takes_s).callbacks.append(end)

        def end(_: simpy.Event) -> None:
            self._component_failures.release(position, places)
            self._removals.return_replicas(MAINTENANCE, position, places)

        self._env.timeout(after_s).callbacks.append(begin)


class SpotMarket:
    """Interruptions of spot instances, and the fallback replicas that replace them meanwhile."""

    def __init__(
        self, plan: CasePlan, env: FleetClock, removals: ReplicaRemovals, scale: PoolScaling, streams: Streams
    ) -> None:
        self._env, self._removals, self._scale = env, removals, scale
        names = [pool.name for pool in plan.pools]
        self._fallback: dict[int, int] = {}
        """Spot pool -> its fallback pool."""
        self._covered: dict[int, int] = {}
        """First engine of a replica that is interrupted, or not serving again yet -> its fallback pool."""
        for position, pool in enumerate(plan.pools):
            if pool.spot is None:
                continue
            if pool.spot.fallback is not None:
                self._fallback[position] = names.index(pool.spot.fallback)
            if pool.spot.trace is not None:
                _CapacityTrace(self, env, position, pool.replicas, pool.spot)
                continue
            for place in range(pool.replicas):
                self._arm(position, place, pool.spot, streams(f"spot: {position} {place}"))

    def moved(self, engine: int, following: State) -> None:
        """Release the fallback of *engine* once it changes to the state *following* and serves again."""
        if following is State.SERVING and engine in self._covered:
            position = self._covered.pop(engine)
            self._env.timeout(0).callbacks.append(lambda _: self._cover(position))

    def interrupt(self, position: int, places: list[int], spot: SpotInterruptions) -> None:
        """Give notice for the instances at *places* of a pool."""
        fallback = self._fallback.get(position)
        if fallback is not None:
            self._covered |= {self._scale.replicas[position][place][0]: fallback for place in places}
            self._cover(fallback)
        for place in places:
            migrate = spot.on_notice == "migrate"
            self._removals.withdraw(PROVIDER, position, [place], lambda: None, spot.notice_s, migrate)

    def return_replicas(self, position: int, places: list[int]) -> None:
        """Return the capacity for the replicas at *places* of a pool."""
        self._removals.return_replicas(PROVIDER, position, places)

    def _cover(self, fallback: int) -> None:
        self._scale.scale_to(fallback, sum(one == fallback for one in self._covered.values()))

    def _arm(self, position: int, place: int, spot: SpotInterruptions, rng: np.random.Generator) -> None:
        """Draw and schedule the next interruption of one instance."""
        running, waiting = rng.random(2).tolist()
        up_s = exponential(running, spot.interval_s)
        out_s = exponential(waiting, (spot.recovery_h or 0.0) * SECONDS_PER_HOUR)

        def interrupt(_: simpy.Event) -> None:
            self._env.timeout(spot.notice_s + out_s).callbacks.append(back)
            self.interrupt(position, [place], spot)

        def back(_: simpy.Event) -> None:
            # the event that ends the notice was scheduled earlier, so the notice is over
            self.return_replicas(position, [place])
            self._arm(position, place, spot, rng)

        self._env.timeout(up_s).callbacks.append(interrupt)


class _CapacityTrace:
    """Number of instances of a pool that are available over time."""

    def __init__(
        self, market: SpotMarket, env: FleetClock, position: int, replicas: int, spot: SpotInterruptions
    ) -> None:
        self._market, self._position, self._spot = market, position, spot
        self._available = list(range(replicas))
        self._replicas = replicas
        for at_h, count in sorted((spot.trace or {}).items()):
            env.timeout(at_h * SECONDS_PER_HOUR).callbacks.append(partial(self._change, count))

    def _change(self, count: int, event: simpy.Event) -> None:
        out = self._available[count:]
        back = [place for place in range(min(count, self._replicas)) if place not in self._available]
        self._available = list(range(min(count, self._replicas)))
        if out:
            self._market.interrupt(self._position, out, self._spot)
        if back:
            self._market.return_replicas(self._position, back)
