"""Replicas that an autoscaler switches by what monitoring shows."""

from collections.abc import Callable

import simpy

from sim.autoscaling import Gauge, Latency, Scaler
from sim.fleet.lifecycle import Lives
from sim.fleet.replica import Replica
from sim.fleet.roster import Roster
from sim.fleet.scaling.scale import Scale
from sim.fleet.scaling.scrapes import Scrapes
from sim.records import Request
from sim.scenario.resolving.resolved import CasePlan


class Autoscaled:
    """Asks the autoscaler of each pool at its intervals and brings the pool to what it wants, within the bounds."""

    def __init__(
        self,
        plan: CasePlan,
        env: simpy.Environment,
        scale: Scale,
        lives: Lives,
        roster: Roster,
        engines: list[Replica],
        held: Callable[[], int],
        over: Callable[[], bool],
    ) -> None:
        """*held* counts the requests at the router, *over* tells whether nothing is left to do."""
        self._env, self._over = env, over
        self._pools: dict[int, Loop] = {}
        for position, pool in enumerate(plan.pools):
            if pool.autoscaling is None:
                continue
            scrapes = Scrapes(pool, scale.replicas[position], engines, lives, roster, held)
            self._pools[position] = loop = Loop(plan, position, env, scale, scrapes)
            self._every(pool.autoscaling.scrape_interval_s, loop.read)
            self._every(pool.autoscaling.period_s, loop.decide)

    def held(self) -> None:
        """A request has found no replica that serves."""
        for loop in self._pools.values():
            loop.woken()

    def finished(self, position: int, requests: list[Request], now: float) -> None:
        """Requests on a replica of a pool have ended."""
        if (loop := self._pools.get(position)) is not None:
            loop.scrapes.finished(requests, now)

    def _every(self, interval_s: float, do: Callable[[], None]) -> None:
        """Calls *do* at the multiples of an interval until nothing is left to do."""
        count = 0

        def due(_: simpy.Event) -> None:
            nonlocal count
            if not self._over():
                do()
                count += 1
                arm()

        def arm() -> None:
            at_s = (count + 1) * interval_s
            self._env.timeout(max(0.0, at_s - self._env.now)).callbacks.append(due)

        arm()


class Loop:
    """The control loop of one pool; it is what the autoscaler sees."""

    def __init__(self, plan: CasePlan, position: int, env: simpy.Environment, scale: Scale, scrapes: Scrapes) -> None:
        spec = plan.pools[position].autoscaling
        assert spec is not None
        self._spec, self._position = spec, position
        self._env, self._scale, self.scrapes = env, scale, scrapes
        self._scaler: Scaler = spec.start()

    def read(self) -> None:
        """Monitoring reads the replicas."""
        self.scrapes.read(self._env.now)

    def decide(self) -> None:
        """The autoscaler decides."""
        wanted = self._scaler.wanted(self)
        bounded = min(max(wanted, self._spec.min_replicas), self._spec.max_replicas)
        self._scale.bring(self._position, bounded)

    def woken(self) -> None:
        """Asks at once where the pool has nothing on its way and the policy wants to know."""
        if self._spec.wakes and not self.replicas:
            self.decide()

    @property
    def now(self) -> float:
        """Simulated time [s]."""
        return self._env.now

    @property
    def replicas(self) -> int:
        """Replicas that serve or are on their way."""
        return len(self._scale.on(self._position))

    @property
    def ready(self) -> int:
        """Replicas that serve."""
        return self._scale.serving(self._position)

    @property
    def held(self) -> int:
        """Requests that wait at the router at this moment."""
        return self.scrapes.held_now()

    def per_replica(self, gauge: Gauge, window_s: float) -> list[float]:
        """See `Seen.per_replica`."""
        return self.scrapes.per_replica(self.now, gauge, window_s)

    def total(self, gauge: Gauge, window_s: float) -> float:
        """See `Seen.total`."""
        return self.scrapes.total(self.now, gauge, window_s)

    def latency_s(self, latency: Latency, quantile: float, window_s: float) -> float | None:
        """See `Seen.latency_s`."""
        return self.scrapes.latency_s(self.now, latency, quantile, window_s)
