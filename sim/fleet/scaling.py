"""Starting and stopping replicas: the stages of a start, draining, and schedules by the time of day.

`PoolScaling` brings a pool to a number of replicas. Replicas that start at once share the links over which they fetch
images and weights: each transfer has its max-min fair share of the source's rate.
"""

from collections.abc import Callable
from functools import partial
from math import inf

import simpy

from sim.coldstart import StartStage, StartTransfer
from sim.cost.clock import MIDNIGHT
from sim.fleet.clock import FleetClock
from sim.fleet.replica import ReplicaLifecycle, State
from sim.fleet.routing import ServingReplicas
from sim.scenario.resolving.resolved import CasePlan, PoolPlan

Done = Callable[[], None]


class LinkTransfer:
    """Transfer of an image or of weights to a starting replica."""

    __slots__ = ("done", "left_bytes", "link", "most_bytes_per_s", "rate_bytes_per_s")

    def __init__(self, link: "SharedLink", transfer: StartTransfer, done: Done) -> None:
        self.link = link
        self.left_bytes = transfer.size_bytes
        self.most_bytes_per_s = transfer.most_bytes_per_s
        self.rate_bytes_per_s = 0.0
        self.done = done


class SharedLink:
    """Source that serves all transfers at once, at max-min fair rates.

    Each transfer has an equal share; what a slow receiver cannot use goes to the others.
    """

    def __init__(self, env: FleetClock, bytes_per_s: float) -> None:
        self._env = env
        self._bytes_per_s = bytes_per_s
        self._under_way: list[LinkTransfer] = []
        self._since_s = 0.0
        self._due: simpy.Event | None = None

    def send(self, transfer: StartTransfer, done: Done) -> LinkTransfer:
        """Begin *transfer*; *done* is called when its last byte has arrived."""
        self._settle()
        ticket = LinkTransfer(self, transfer, done)
        self._under_way.append(ticket)
        self._share()
        return ticket

    def stop(self, ticket: LinkTransfer) -> None:
        """Cancel a transfer; the others get its share."""
        if ticket in self._under_way:
            self._settle()
            self._under_way.remove(ticket)
            self._share()

    def _settle(self) -> None:
        """Count the bytes that have arrived since the rates were set."""
        elapsed_s = self._env.now - self._since_s
        for ticket in self._under_way:
            ticket.left_bytes -= ticket.rate_bytes_per_s * elapsed_s
        self._since_s = self._env.now

    def _share(self) -> None:
        """Set the rates and schedule the next completion."""
        rest_bytes_per_s, takers = self._bytes_per_s, len(self._under_way)
        for ticket in sorted(self._under_way, key=lambda one: one.most_bytes_per_s):
            ticket.rate_bytes_per_s = min(ticket.most_bytes_per_s, rest_bytes_per_s / takers)
            rest_bytes_per_s -= ticket.rate_bytes_per_s
            takers -= 1
        self._due = None
        next_s = min((max(0.0, one.left_bytes) / one.rate_bytes_per_s for one in self._under_way), default=inf)
        if next_s < inf:
            self._due = self._env.timeout(next_s)
            self._due.callbacks.append(self._end)

    def _end(self, event: simpy.Event) -> None:
        if event is not self._due:
            return
        # the transfer with the least time left is due; rounding may leave a fraction of a byte
        last = min(self._under_way, key=lambda one: one.left_bytes / one.rate_bytes_per_s)
        self._settle()
        least_s = max(0.0, last.left_bytes / last.rate_bytes_per_s)
        ended = [one for one in self._under_way if one.left_bytes / one.rate_bytes_per_s <= least_s + 1e-9]
        self._under_way = [one for one in self._under_way if one not in ended]
        self._share()
        for ticket in ended:
            ticket.done()


class Links:
    """Shared links of a fleet, each created when it is first used."""

    def __init__(self, env: FleetClock) -> None:
        self._env = env
        self._links: dict[tuple[str, int], SharedLink] = {}

    def send(self, transfer: StartTransfer, server: int, done: Done) -> LinkTransfer:
        """Begin *transfer* to a replica in *server*."""
        key = (transfer.source, server if transfer.of_server else -1)
        link = self._links.get(key)
        if link is None:
            self._links[key] = link = SharedLink(self._env, transfer.source_bytes_per_s)
        return link.send(transfer, done)


NOT_STARTED = (State.OFF, State.RESERVE)
ANSWERING = (State.SERVING, State.DRAINING)
STARTING = (State.PROVISIONING, State.BOOTING, State.LOADING)


class PoolScaling:
    """Control of the number of replicas of each pool.

    Scaling down stops starting replicas first, then the last of the serving ones: these get no new requests and drain.
    Scaling up takes back draining replicas before it starts others. A start goes through the pool's stages and ends
    early where the replica is moved to another state.
    """

    def __init__(self, plan: CasePlan, env: FleetClock, lifecycle: ReplicaLifecycle, router: ServingReplicas) -> None:
        self._plan, self._env, self._lifecycle, self._router = plan, env, lifecycle, router
        self.replicas = replicas_of(plan)
        """Replicas per pool, each the indices of the engines it consists of."""
        self._resting = [resting(pool) for pool in plan.pools for _ in range(pool.replicas * pool.engines_per_replica)]
        self._links = Links(env)
        self._fetching: dict[int, LinkTransfer] = {}
        """First engine of a replica -> transfer that it waits for."""
        self._wanted = [serving_at_start(plan, pool) for pool in plan.pools]
        self.barred: set[int] = set()
        """First engines of replicas that must not start."""
        self._starting_spares: set[int] = set()
        """First engines of replicas that start as spares in reserve."""

    def active(self, position: int) -> list[list[int]]:
        """Return the replicas of a pool that serve, then those that start."""
        states = self._lifecycle.states
        serving = [one for one in self.replicas[position] if states[one[0]] is State.SERVING]
        starting = [one for one in self.replicas[position] if states[one[0]] in STARTING]
        return serving + [one for one in starting if one[0] not in self._starting_spares]

    def serving(self, position: int) -> int:
        """Return the number of replicas of a pool that serve."""
        states = self._lifecycle.states
        return sum(states[one[0]] is State.SERVING for one in self.replicas[position])

    def scale_to(self, position: int, wanted: int) -> None:
        """Start or stop replicas of a pool until *wanted* serve or are starting.

        The number is smaller where other replicas are broken or under repair.
        """
        self._wanted[position] = wanted
        on = self.active(position)
        for engines in on[wanted:]:
            self.stop(engines)
        if len(on) < wanted:
            serving = {one[0] for one in on}
            rest = [one for one in self.replicas[position] if one[0] not in serving and self._rank(one) is not None]
            rest.sort(key=lambda one: self._rank(one) or 0)
            for engines in rest[: wanted - len(on)]:
                self.start(position, engines)

    def replace(self, position: int) -> None:
        """Start replacements for the failed replicas of a pool, where it has other replicas."""
        if self._plan.pools[position].has_substitutes:
            self.scale_to(position, self._wanted[position])

    def repaired(self, position: int, engines: list[int]) -> None:
        """Return a repaired replica to the pool: it serves if it is wanted, otherwise it becomes a spare."""
        pool = self._plan.pools[position]
        self._lifecycle.move(engines, State.OFF)
        if engines[0] in self.barred:
            return
        if not pool.has_substitutes:
            self.start(position, engines)
            return
        self.scale_to(position, self._wanted[position])
        spares = pool.failures.spares if pool.failures else None
        warm = pool.start.wake or (spares is not None and spares.kind == "warm")
        if warm and self._is_idle(engines):
            self._starting_spares.add(engines[0])
            self._stage(position, engines, pool.start.stages)

    def start(self, position: int, engines: list[int]) -> None:
        """Start a replica that is off, in reserve or repaired; a draining one serves again at once."""
        start = self._plan.pools[position].start
        if self._drains(engines):  # the server still runs, so its engines that are off serve again at once
            states = self._lifecycle.states
            self._lifecycle.move([engine for engine in engines if states[engine] in NOT_STARTED], State.BOOTING)
            self._lifecycle.move(engines, State.SERVING)
        elif engines[0] in self._starting_spares:  # the start continues, with the state serving as its end
            self._starting_spares.remove(engines[0])
        elif self._lifecycle.states[engines[0]] is not State.RESERVE:
            self._stage(position, engines, start.stages)
        elif start.wake:
            self._stage(position, engines, start.wake)
        else:
            self._take_over(position, engines)

    def stop(self, engines: list[int]) -> None:
        """Drain a replica, or switch it off where it has no requests."""
        for engine in engines:
            busy = self._lifecycle.states[engine] in ANSWERING and self._router.outstanding(engine)
            self._lifecycle.move([engine], State.DRAINING if busy else self._resting[engine])

    def drained(self, engine: int) -> None:
        """Switch off a draining engine that has answered its last request."""
        self._lifecycle.move([engine], self._resting[engine])

    def moved(self, replica: int, following: State) -> None:
        """Cancel the transfer of *replica*, which changes to the state *following*, unless its start continues."""
        if following not in STARTING:
            self._starting_spares.discard(replica)
        if following not in STARTING and (ticket := self._fetching.pop(replica, None)) is not None:
            ticket.link.stop(ticket)

    def _drains(self, engines: list[int]) -> bool:
        return any(self._lifecycle.states[engine] is State.DRAINING for engine in engines)

    def _rank(self, engines: list[int]) -> int | None:
        """Return how soon an idle replica could serve, 0 being the soonest; None where it cannot."""
        if engines[0] in self.barred:
            return None
        if self._drains(engines):
            return 0
        if self._lifecycle.states[engines[0]] is State.RESERVE:
            return 1
        if engines[0] in self._starting_spares:
            return 2
        return 3 if self._is_idle(engines) else None

    def _take_over(self, position: int, engines: list[int]) -> None:
        """Let a spare in reserve serve after its takeover time."""
        failing = self._plan.pools[position].failures
        self._lifecycle.move(engines, State.BOOTING)
        move = self._lifecycle.moves[engines[0]]

        def serve(_: simpy.Event) -> None:
            if self._lifecycle.moves[engines[0]] == move:
                self._lifecycle.move(engines, State.SERVING)

        takeover_s = failing.spares.takeover_s if failing and failing.spares else 0.0
        self._env.timeout(takeover_s).callbacks.append(serve)

    def _is_idle(self, engines: list[int]) -> bool:
        return all(self._lifecycle.states[engine] in NOT_STARTED for engine in engines)

    def _stage(self, position: int, engines: list[int], stages: tuple[StartStage, ...]) -> None:
        """Run the *stages* of a start one after another; then the replica serves or is a spare."""
        if not stages:
            self._lifecycle.move(engines, State.RESERVE if engines[0] in self._starting_spares else State.SERVING)
            return
        stage = stages[0]
        self._lifecycle.move(engines, State(stage.doing))
        move = self._lifecycle.moves[engines[0]]

        def go_on() -> None:
            self._fetching.pop(engines[0], None)
            if self._lifecycle.moves[engines[0]] == move:
                self._stage(position, engines, stages[1:])

        def fetch(_: simpy.Event) -> None:
            if self._lifecycle.moves[engines[0]] != move:
                return
            if stage.transfer is None:
                go_on()
                return
            server = self._server(position, engines)
            self._fetching[engines[0]] = self._links.send(stage.transfer, server, go_on)

        self._env.timeout(stage.seconds).callbacks.append(fetch)

    def _server(self, position: int, engines: list[int]) -> int:
        """Return the number of the server that a replica is in; pools do not share servers."""
        pool = self._plan.pools[position]
        place = self.replicas[position].index(engines) // pool.replicas_per_server
        return place + sum(one.replicas for one in self._plan.pools[:position])


def resting(pool: PoolPlan) -> State:
    """Return the state of an unwanted replica of *pool*: off, or in reserve (asleep)."""
    return State.RESERVE if pool.start.wake else State.OFF


def states_at_start(plan: CasePlan) -> list[State]:
    """Return the state of every engine at time 0; unwanted replicas are off or in reserve."""
    states: list[State] = []
    for pool, replicas in zip(plan.pools, replicas_of(plan), strict=True):
        wanted = serving_at_start(plan, pool)
        spares = pool.failures.spares if pool.failures else None
        others = State.RESERVE if spares is not None and spares.kind == "warm" else resting(pool)
        for place, engines in enumerate(replicas):
            states += [State.SERVING if place < wanted else others] * len(engines)
    return states


def serving_at_start(plan: CasePlan, pool: PoolPlan) -> int:
    """Return the number of replicas of *pool* that serve at time 0."""
    if pool.autoscaling is not None:
        return pool.first_replicas
    if pool.on_call:
        return 0
    if pool.schedule is None:
        return pool.replicas - pool.standby_replicas
    return pool.schedule.wanted((plan.clock or MIDNIGHT).second_of_day(0.0))


def replicas_of(plan: CasePlan) -> list[list[list[int]]]:
    """Return the replicas per pool, each as the indices of the engines it consists of."""
    first = 0
    pools: list[list[list[int]]] = []
    for pool in plan.pools:
        pools.append(_replicas_of_pool(pool, first))
        first += pool.replicas * pool.engines_per_replica
    return pools


def _replicas_of_pool(pool: PoolPlan, first: int) -> list[list[int]]:
    size = pool.engines_per_replica
    return [list(range(first + one * size, first + (one + 1) * size)) for one in range(pool.replicas)]


class ScheduledScaling:
    """Schedules that set the number of replicas of pools by the time of day."""

    def __init__(self, plan: CasePlan, env: FleetClock, scale: PoolScaling) -> None:
        self._plan, self._env, self._scale = plan, env, scale
        self._clock = plan.clock or MIDNIGHT
        for position, pool in enumerate(plan.pools):
            if pool.schedule is not None:
                for at_s in pool.schedule.switches_s(self._clock, plan.horizon_s or 0.0):
                    env.timeout(at_s).callbacks.append(partial(self._switch, position))

    def _switch(self, position: int, event: simpy.Event) -> None:
        schedule = self._plan.pools[position].schedule
        if schedule is not None:
            self._scale.scale_to(position, schedule.wanted(self._clock.second_of_day(self._env.now)))
