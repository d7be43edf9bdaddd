"""Replicas that a schedule switches on and off by the time of day."""

from functools import partial

import simpy

from sim.cost import MIDNIGHT
from sim.fleet.lifecycle import Lives, State
from sim.fleet.pool import engines_per_replica
from sim.fleet.roster import Roster
from sim.scenario.resolving.resolved import CasePlan


class ByClock:
    """Brings each scheduled pool to the number of replicas that is wanted at the time.

    Switching off takes the last replica first; it gets no new requests and goes on until it has answered those it has.
    Switching on takes back a replica that still drains before it starts another, which serves after its starting
    time.
    """

    def __init__(self, plan: CasePlan, env: simpy.Environment, lives: Lives, roster: Roster) -> None:
        self._plan, self._env, self._lives, self._roster = plan, env, lives, roster
        self._clock = plan.clock or MIDNIGHT
        self._replicas = _replicas(plan)
        for position, pool in enumerate(plan.pools):
            if pool.schedule is not None:
                for at_s in pool.schedule.switches_s(self._clock, plan.horizon_s or 0.0):
                    env.timeout(at_s).callbacks.append(partial(self._switch, position))

    def _switch(self, position: int, event: simpy.Event) -> None:
        schedule = self._plan.pools[position].schedule
        if schedule is None:
            return
        wanted = schedule.wanted(self._clock.second_of_day(self._env.now))
        states = self._lives.states
        on = [one for one in self._replicas[position] if states[one[0]] in (State.BOOTING, State.SERVING)]
        for engines in on[wanted:]:
            self._stop(engines)
        rest = [one for one in self._replicas[position] if one not in on]
        rest.sort(key=lambda engines: not self._drains(engines))
        for engines in rest[: max(0, wanted - len(on))]:
            self._begin(engines, schedule.starting_s)

    def _drains(self, engines: list[int]) -> bool:
        return any(self._lives.states[engine] is State.DRAINING for engine in engines)

    def _stop(self, engines: list[int]) -> None:
        for engine in engines:
            busy = self._lives.states[engine] is State.SERVING and self._roster.outstanding(engine)
            self._lives.move([engine], State.DRAINING if busy else State.OFF)

    def _begin(self, engines: list[int], starting_s: float) -> None:
        states = self._lives.states
        back = self._drains(engines)
        self._lives.move([engine for engine in engines if states[engine] is State.OFF], State.BOOTING)
        if back:  # the machine has not stopped yet
            self._lives.move(engines, State.SERVING)
            return
        move = self._lives.moves[engines[0]]
        self._env.timeout(starting_s).callbacks.append(lambda _: self._ready(engines, move))

    def _ready(self, engines: list[int], move: int) -> None:
        if self._lives.moves[engines[0]] == move:
            self._lives.move(engines, State.SERVING)


def states_at_start(plan: CasePlan) -> list[State]:
    """The state of every replica at time 0: those that the schedule does not want yet are off."""
    clock = plan.clock or MIDNIGHT
    states: list[State] = []
    for pool, replicas in zip(plan.pools, _replicas(plan), strict=True):
        wanted = len(replicas) if pool.schedule is None else pool.schedule.wanted(clock.second_of_day(0.0))
        for place, engines in enumerate(replicas):
            states += [State.SERVING if place < wanted else State.OFF] * len(engines)
    return states


def _replicas(plan: CasePlan) -> list[list[list[int]]]:
    """Pool by pool the replicas, each the indices of the engines that it consists of."""
    first = 0
    pools: list[list[list[int]]] = []
    for pool in plan.pools:
        size = engines_per_replica(pool)
        pools.append([list(range(first + one * size, first + (one + 1) * size)) for one in range(pool.replicas)])
        first += pool.replicas * size
    return pools
