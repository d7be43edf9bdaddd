"""Components that fail, are noticed and repaired, and move their replicas through the states of a life."""

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
import simpy

from sim.failures import Domain
from sim.fleet.failing.losses import Losses
from sim.fleet.lifecycle import Lives, State
from sim.fleet.scaling.scale import Scale
from sim.scenario.resolving.resolved import CasePlan
from sim.workload import Streams

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
