"""Failures in a running fleet: components that fail and are repaired, and requests on the failed replicas.

A failure is noticed after the detection time. Until then the router goes on sending requests to the replica; they
are stranded with those that it had.
"""

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
import simpy

from sim.failures import Domain
from sim.fleet.replica import Lives, Replica, State
from sim.fleet.scaling import Scale
from sim.records import Request
from sim.scenario.resolving.resolved import CasePlan
from sim.workload import Streams

Lose = Callable[[list[Request], float], None]
"""Takes requests that were lost with their replica, and when that is noticed."""


class Losses:
    """Which requests each replica has, and which of them wait for an answer that will not come.

    From a failure until it is noticed the router goes on sending requests to the replica; they are stranded with those
    that it had.
    """

    def __init__(self, replicas: list[Replica], left: Callable[[int, Request], None], lose: Lose, move: Lose) -> None:
        """*left* tells the router that a request has left a replica; *move* gets requests that go on elsewhere."""
        self._replicas = replicas
        self._left, self._lose, self._move = left, lose, move
        self._has: list[dict[Request, None]] = [{} for _ in replicas]
        self._stranded: dict[Request, int] = {}
        self._dead: set[int] = set()
        self.moves: Callable[[int, float], list[Request]] = lambda index, now: []
        """Takes requests that are on their way to or from a replica which has failed; they are stranded there."""

    def has_failed(self, index: int) -> bool:
        """Whether replica *index* is dead, and nobody has noticed."""
        return index in self._dead

    def joined(self, request: Request, index: int) -> None:
        """*request* is at replica *index*, which works on it."""
        self._has[index][request] = None

    def left(self, request: Request, index: int) -> None:
        """*request* has left replica *index*: it is finished or has been taken away."""
        del self._has[index][request]

    def swallows(self, request: Request, index: int) -> bool:
        """Whether replica *index* is dead, so that *request*, sent there, is stranded."""
        if index not in self._dead:
            return False
        self._stranded[request] = index
        return True

    def where(self, request: Request) -> int:
        """The replica at which *request* is stranded; -1 if it is not."""
        return self._stranded.get(request, -1)

    def gives_up(self, request: Request) -> bool:
        """Whether *request* was stranded; its client does not wait for it any more."""
        index = self._stranded.pop(request, None)
        if index is None:
            return False
        self._left(index, request)
        return True

    def strike(self, index: int, now: float) -> None:
        """Replica *index* fails: its KV cache and its step under way are gone, and what it works on is stranded."""
        self._dead.add(index)
        for request in self._replicas[index].crash(list(self._has[index]), now):
            del self._has[index][request]
            self._stranded[request] = index
        for request in self.moves(index, now):
            self._stranded[request] = index

    def empty(self, index: int, now: float) -> None:
        """Replica *index*, which is closed, stops; others go on with what it has."""
        gone = self._replicas[index].crash(list(self._has[index]), now)
        for request in gone:
            self.left(request, index)
            self._left(index, request)
        if gone:
            self._move(gone, now)

    def notice(self, index: int, now: float) -> list[Request]:
        """It is noticed that replica *index* has failed; the requests that were stranded there."""
        self._dead.discard(index)
        lost = [request for request, where in self._stranded.items() if where == index]
        for request in lost:
            del self._stranded[request]
            self._left(index, request)
        return lost

    def send_elsewhere(self, lost: list[Request], now: float) -> None:
        """Their clients, or the router, send *lost* again."""
        if lost:
            self._lose(lost, now)


OFF = (State.OFF, State.PROVISIONING)


class Component:
    """One component of a pool, on its own stream of chance."""

    __slots__ = ("domain", "position", "repair_s", "rng")

    def __init__(self, position: int, domain: Domain, rng: np.random.Generator) -> None:
        self.position, self.domain, self.rng = position, domain, rng
        self.repair_s = 0.0
        """Of the failure under way, or the next one."""

    def next_up_s(self) -> float:
        """Time to its next failure [s]."""
        up_s, self.repair_s = self.domain.law.outage(self.rng)
        return up_s


class Crews:
    """Those who repair the components of a pool: who comes first is served first."""

    def __init__(self, env: simpy.Environment, number: int | None, repaired: Callable[[Component], None]) -> None:
        self._env, self._free, self._repaired = env, number, repaired
        self._waiting: deque[Component] = deque()

    def call(self, component: Component) -> None:
        """Somebody is to repair *component*."""
        self._waiting.append(component)
        self._begin()

    def _begin(self) -> None:
        while self._waiting and self._free != 0:
            if self._free is not None:
                self._free -= 1
            component = self._waiting.popleft()
            self._env.timeout(component.repair_s).callbacks.append(partial(self._end, component))

    def _end(self, component: Component, event: simpy.Event) -> None:
        if self._free is not None:
            self._free += 1
        self._repaired(component)
        self._begin()


class Breakdowns:
    """The failures of a fleet. Their times depend on the components alone, not on what the fleet does; one that falls
    into a time without power does not happen, and the time to the next one begins.
    """

    def __init__(
        self, plan: CasePlan, env: simpy.Environment, lives: Lives, scale: Scale, losses: Losses, streams: Streams
    ) -> None:
        self._plan, self._env, self._lives, self._scale, self._losses = plan, env, lives, scale, losses
        self._down = [[0] * pool.replicas for pool in plan.pools]
        """Failed components that each replica needs."""
        self._crews: list[Crews | None] = []
        for position, pool in enumerate(plan.pools):
            failing = pool.failures
            self._crews.append(Crews(env, failing.crews, self._repaired) if failing else None)
            for domain in failing.domains if failing else ():
                name = domain.name if domain.name.startswith("site") else f"{position} {domain.name}"
                self._arm(Component(position, domain, streams(f"failures: {name}")))

    def _arm(self, component: Component) -> None:
        self._env.timeout(component.next_up_s()).callbacks.append(lambda _: self._fails(component))

    def _fails(self, component: Component) -> None:
        if component.domain.needs_power and self._is_off(component):
            self._arm(component)
            return
        down = self._down[component.position]
        for place in component.domain.replicas:
            down[place] += 1
            if down[place] == 1:
                self._strike(self._scale.replicas[component.position][place])
        failing = self._plan.pools[component.position].failures
        if failing is not None and failing.detection_s:
            self._env.timeout(failing.detection_s).callbacks.append(lambda _: self._noticed(component))
        else:
            self._noticed(component)

    def _is_off(self, component: Component) -> bool:
        """Whether nothing that needs *component* is switched on: then nothing can fail."""
        replicas = self._scale.replicas[component.position]
        held = [self._lives.states[engine] for place in component.domain.replicas for engine in replicas[place]]
        return all(state in OFF for state in held)

    def _strike(self, engines: list[int]) -> None:
        """A replica goes down, whatever it does; one that is not switched on is known to be down."""
        for engine in engines:
            state = self._lives.states[engine]
            if state is State.PROVISIONING:
                self._lives.move([engine], State.OFF)
            if state in OFF:
                self._lives.move([engine], State.REPAIRING)
            else:
                self._losses.strike(engine, self._env.now)
                self._lives.move([engine], State.FAILED)

    def _noticed(self, component: Component) -> None:
        now, position = self._env.now, component.position
        lost = []
        for place in component.domain.replicas:
            for engine in self._scale.replicas[position][place]:
                if self._lives.states[engine] is State.FAILED:
                    lost += self._losses.notice(engine, now)
                    self._lives.move([engine], State.REPAIRING)
        self._losses.send_elsewhere(lost, now)
        crews = self._crews[position]
        if crews is not None:
            crews.call(component)
        self._scale.replace(position)

    def _repaired(self, component: Component) -> None:
        self.release(component.position, component.domain.replicas)
        self._arm(component)

    def hold(self, position: int, places: Iterable[int]) -> None:
        """Somebody works on the replicas at *places* of a pool, which are switched off or under repair."""
        for place in places:
            self._down[position][place] += 1
            self._lives.move(self._scale.replicas[position][place], State.REPAIRING)

    def release(self, position: int, places: Iterable[int]) -> None:
        """One reason less why the replicas at *places* of a pool cannot run."""
        down = self._down[position]
        for place in places:
            down[place] -= 1
            if not down[place]:
                self._scale.is_back(position, self._scale.replicas[position][place])
