"""Which replicas serve: all of them, or those that a schedule has switched on."""

from collections.abc import Callable
from functools import partial

import simpy

from sim.cost import MIDNIGHT
from sim.fleet.pool import engines_per_replica
from sim.records import Request
from sim.routing import Router
from sim.scenario.resolving.resolved import CasePlan

OFF, BOOTING, SERVING, DRAINING = "off", "booting", "serving", "draining"


class Roster:
    """The router over the replicas that serve at the moment.

    A replica that is switched off gets no new requests and goes on until it has answered those it has; one that is
    switched on serves after its starting time. Switching off takes the last replica first; switching on takes one back
    that is still draining before it starts another. Whenever the set changes, the routing policy starts anew over it,
    with the requests that each replica has.
    """

    def __init__(
        self,
        plan: CasePlan,
        env: simpy.Environment,
        pool_of_replica: list[int],
        start: Callable[[list[str]], Router],
        read_meters: Callable[[], None],
        serves: Callable[[], None],
    ) -> None:
        """*read_meters* closes the running intervals, *serves* is told when a replica begins to."""
        self._plan, self._env, self._start = plan, env, start
        self._clock = plan.clock or MIDNIGHT
        self._read_meters, self._serves = read_meters, serves
        self._pool = pool_of_replica
        self._members: dict[int, list[list[int]]] = {}
        """Pool -> its replicas, each the engines that it consists of."""
        for position, pool in enumerate(plan.pools):
            engines = [index for index, owner in enumerate(pool_of_replica) if owner == position]
            size = engines_per_replica(pool)
            self._members[position] = [engines[i : i + size] for i in range(0, len(engines), size)]
        self.states = [SERVING] * len(pool_of_replica)
        self._outstanding = [0] * len(pool_of_replica)
        self._changes = [0] * len(pool_of_replica)
        """How often each was switched: a start that was called off must not end in serving."""
        for position in self._members:
            self._switch(position, at_once=True)
            self._arm(position)
        self._restart()

    def choose(self, request: Request) -> int:
        """Index of the replica for *request*; -1 while none that may have it serves."""
        place = self._router.choose(request) if self._serving else -1
        return self._serving[place] if place >= 0 else -1

    def joined(self, replica: int) -> None:
        """One more request at *replica*."""
        self._outstanding[replica] += 1
        self._router.joined(self._place[replica])

    def left(self, replica: int) -> None:
        """One request fewer at *replica*: the last one of a draining replica switches it off."""
        self._outstanding[replica] -= 1
        place = self._place.get(replica)
        if place is not None:
            self._router.left(place)
        elif self.states[replica] == DRAINING and not self._outstanding[replica]:
            self._read_meters()
            self._set([replica], OFF)

    def _arm(self, position: int) -> None:
        schedule = self._plan.pools[position].schedule
        if schedule is not None:
            for at_s in schedule.switches_s(self._clock, self._plan.horizon_s or 0.0):
                self._env.timeout(at_s).callbacks.append(partial(self._on_switch, position))

    def _on_switch(self, position: int, event: simpy.Event) -> None:
        self._switch(position)

    def _switch(self, position: int, at_once: bool = False) -> None:
        """Brings the number of running replicas of a pool to what is wanted now."""
        schedule = self._plan.pools[position].schedule
        if schedule is None:
            return
        wanted = schedule.wanted(self._clock.second_of_day(self._env.now))
        members = self._members[position]
        if not at_once:
            self._read_meters()
        running = [one for one in members if self.states[one[0]] in (BOOTING, SERVING)]
        if at_once:
            for one in members[wanted:]:
                self._set(one, OFF)
            return
        for one in running[wanted:]:
            self._stop(one)
        stopped = [one for one in members if one not in running]
        stopped.sort(key=lambda one: not any(self.states[engine] == DRAINING for engine in one))
        for one in stopped[: max(0, wanted - len(running))]:
            self._begin(one, schedule.starting_s)
        self._restart()

    def _stop(self, engines: list[int]) -> None:
        for engine in engines:
            busy = self.states[engine] == SERVING and self._outstanding[engine]
            self._set([engine], DRAINING if busy else OFF)

    def _begin(self, engines: list[int], starting_s: float) -> None:
        if any(self.states[engine] == DRAINING for engine in engines):
            self._set(engines, SERVING)  # the machine has not stopped yet
            self._serves()
            return
        self._set(engines, BOOTING)
        change = self._changes[engines[0]]
        self._env.timeout(starting_s).callbacks.append(lambda _: self._ready(engines, change))

    def _ready(self, engines: list[int], change: int) -> None:
        if self._changes[engines[0]] == change:
            self._read_meters()
            self._set(engines, SERVING)
            self._restart()
            self._serves()

    def _set(self, engines: list[int], state: str) -> None:
        for engine in engines:
            self.states[engine] = state
            self._changes[engine] += 1

    def _restart(self) -> None:
        """The policy over the replicas that serve now."""
        self._serving = [index for index, state in enumerate(self.states) if state == SERVING]
        self._place = {replica: place for place, replica in enumerate(self._serving)}
        if self._serving:
            self._router = self._start([self._plan.pools[self._pool[index]].name for index in self._serving])
            for place, replica in enumerate(self._serving):
                for _ in range(self._outstanding[replica]):
                    self._router.joined(place)
