"""Replicas that a schedule switches on and off by the time of day."""

from functools import partial

import simpy

from sim.cost import MIDNIGHT
from sim.fleet.scaling.scale import Scale
from sim.scenario.resolving.resolved import CasePlan


class ByClock:
    """Brings each scheduled pool to the number of replicas that is wanted at the time."""

    def __init__(self, plan: CasePlan, env: simpy.Environment, scale: Scale) -> None:
        self._plan, self._env, self._scale = plan, env, scale
        self._clock = plan.clock or MIDNIGHT
        for position, pool in enumerate(plan.pools):
            if pool.schedule is not None:
                for at_s in pool.schedule.switches_s(self._clock, plan.horizon_s or 0.0):
                    env.timeout(at_s).callbacks.append(partial(self._switch, position))

    def _switch(self, position: int, event: simpy.Event) -> None:
        schedule = self._plan.pools[position].schedule
        if schedule is not None:
            self._scale.bring(position, schedule.wanted(self._clock.second_of_day(self._env.now)))
