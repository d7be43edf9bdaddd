"""A replica of the fleet: its possible states, its engine on the fleet's clock, and requests stranded on it.

Schedules, autoscalers and failures move replicas from state to state through `ReplicaLifecycle`; routing, metering and
rent only read the table `STATE_PROPERTIES`. `Replica` wakes when its engine changes something that the fleet observes.
`StrandedRequests` lists the requests at each replica: those of a failed one are stranded until the failure is detected.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from math import inf, isnan, nan

from sim.engine.protocol import KvTransit, ReplicaEngine
from sim.fleet.clock import FleetClock, TimedWakeup
from sim.records import BusyTime, ReplicaProgress, ReplicaVisit, Request


class State(StrEnum):
    """State of a replica, as written in usage.csv."""

    OFF = "off"
    PROVISIONING = "provisioning"
    BOOTING = "booting"
    LOADING = "loading"
    SERVING = "serving"
    DRAINING = "draining"
    FAILED = "failed"
    REPAIRING = "repairing"
    RESERVE = "reserve"


@dataclass(frozen=True, slots=True)
class StateProperties:
    """Properties of a state for routing, metering and rent."""

    successors: frozenset[State]
    """States that may follow."""
    routed: bool = False
    """True if the router may send new requests."""
    powered: bool = False
    """True if the replica draws power: at least idle power."""
    rented: bool = False
    """True if a provider that bills switched-on time bills time in this state."""


def _states(*states: State) -> frozenset[State]:
    return frozenset(states)


STATE_PROPERTIES: dict[State, StateProperties] = {
    # switched off, or returned to the provider
    State.OFF: StateProperties(_states(State.PROVISIONING, State.BOOTING, State.REPAIRING)),
    # requested and not available yet: clouds bill from the start of the machine
    State.PROVISIONING: StateProperties(_states(State.BOOTING, State.OFF)),
    # machine, container and engine start, and the engine warms up after its weights are loaded; a replica whose start
    # is given as a single time stays in this state until it serves
    State.BOOTING: StateProperties(
        _states(State.LOADING, State.SERVING, State.RESERVE, State.FAILED, State.OFF), powered=True, rented=True
    ),
    # weights are being loaded into GPU memory
    State.LOADING: StateProperties(
        _states(State.BOOTING, State.SERVING, State.RESERVE, State.FAILED, State.OFF), powered=True, rented=True
    ),
    State.SERVING: StateProperties(
        _states(State.DRAINING, State.RESERVE, State.FAILED, State.OFF), routed=True, powered=True, rented=True
    ),
    # answers its remaining requests; it can serve again before it is off
    State.DRAINING: StateProperties(
        _states(State.SERVING, State.RESERVE, State.FAILED, State.OFF), powered=True, rented=True
    ),
    # powered and not working until the failure is detected; the router continues to send requests
    State.FAILED: StateProperties(
        _states(State.REPAIRING, State.PROVISIONING, State.BOOTING, State.OFF), powered=True, rented=True
    ),
    # under repair, or replaced by the provider
    State.REPAIRING: StateProperties(_states(State.PROVISIONING, State.BOOTING, State.OFF)),
    # a spare or asleep: the machine is on, so a shorter start suffices
    State.RESERVE: StateProperties(
        _states(State.BOOTING, State.LOADING, State.SERVING, State.FAILED, State.OFF), powered=True, rented=True
    ),
}  # fmt: skip


WITHOUT_MEMORY = frozenset({State.OFF, State.PROVISIONING, State.REPAIRING})
"""States after which a replica starts with empty caches."""


class IllegalTransition(ValueError):
    """Change of a replica to a state that cannot follow its current one."""


class ReplicaLifecycle:
    """Current states of all replicas of a fleet, by index."""

    def __init__(
        self, states: list[State], before_move: Callable[[int, State, State], None], opened: Callable[[], None]
    ) -> None:
        """Track *states* of replicas.

        *before_move* gets a replica, its state and the next one before the change; *opened* is called when replicas
        begin to take requests.
        """
        self.states = states
        self.moves = [0] * len(states)
        """Number of state changes of each replica, by which a start detects that it was cancelled meanwhile."""
        self._before_move = before_move
        self._opened = opened

    def move(self, replicas: Iterable[int], state: State) -> None:
        """Move *replicas* to *state*, and report once if they begin to serve; those already in it stay.

        Raises `IllegalTransition` where *state* cannot follow.
        """
        opened = False
        for replica in replicas:
            before = self.states[replica]
            if before is state:
                continue
            if state not in STATE_PROPERTIES[before].successors:
                raise IllegalTransition(f"replica {replica} is {before} and cannot be {state} next")
            self._before_move(replica, before, state)
            self.states[replica] = state
            self.moves[replica] += 1
            opened |= STATE_PROPERTIES[state].routed
        if opened:
            self._opened()


Finished = Callable[["Replica", list[Request], float], None]
Released = Callable[[float], None]


class Replica(TimedWakeup):
    """Replica of a pool on the fleet's clock; it wakes only when its engine changes something that the fleet observes.

    A replica is no SimPy process: it schedules a wake-up call at the engine's planned end. A later plan cancels this
    call and schedules another one.
    """

    __slots__ = ("_env", "_finished", "_release", "after_step", "end_s", "engine", "formed", "index", "pool")

    def __init__(
        self,
        env: FleetClock,
        engine: ReplicaEngine,
        index: int,
        pool: int,
        release: Released,
        finished: Finished,
    ) -> None:
        super().__init__()
        # first what each step reads: it is in one line of the CPU's caches
        self.end_s = inf
        """Planned end of the step [s]: inf without one, nan when it has ended and the next one is not planned."""
        self.engine = engine
        self._env = env
        self._release = release
        self._finished = finished
        self.index = index
        self.pool = pool
        self.after_step: Callable[[Replica, float], None] | None = None
        """Callback when a step has ended and the next one is formed."""
        self.formed: Callable[[Replica], None] | None = None
        """Callback for every step that begins."""

    def catch_up(self, now: float) -> None:
        """End a step that ended before *now*: rounding can process an arrival first."""
        if now > self.end_s:
            self._fire()

    def offer(self, request: Request, now: float, prompt_only: bool = False) -> bool:
        """Offer *request*, or only its prompt, to the engine. Return whether `replan` is needed."""
        if now > self.end_s:
            self._fire()
        return self.engine.offer(request, now, prompt_only)

    @property
    def transit(self) -> KvTransit:
        """Interface for KV transfers of the engine. Raises ValueError where the engine has none."""
        transit = self.engine.kv_transit()
        if transit is None:
            raise ValueError(f"the engine of replica {self.index} keeps requests from the first token to the last")
        return transit

    def reserve(self, request: Request, now: float) -> bool:
        """Reserve blocks for the KV of *request*'s prompt. Return whether there were enough."""
        self.catch_up(now)
        if not self.transit.reserve(request, now):
            return False
        self.replan(now)
        return True

    def release_kv(self, request: Request, now: float) -> None:
        """Free the KV of *request*'s prompt, which another replica has fetched."""
        self.catch_up(now)
        self.transit.release_kv(request, now)
        self.replan(now)

    def evict(self, requests: Iterable[Request], now: float) -> list[Request]:
        """Remove *requests* at *now*, before the next step is formed.

        Return the removed ones; requests that get their last tokens at *now* are not removed.
        """
        gone = self._take_away(requests, now)
        self.replan(now)
        return gone

    def crash(self, requests: Iterable[Request], now: float) -> list[Request]:
        """Fail at *now*: the step under way and *requests*, all that the replica has, are lost.

        Return the lost requests; those that get their last tokens at *now* are answered.
        """
        gone = self._take_away(requests, now)
        self.engine.crash(now)
        self._end_step()
        return gone

    def stop(self, now: float) -> None:
        """Switch off at *now*, when all requests have left; a step under way is aborted."""
        if self.end_s < inf:
            self.engine.crash(now)
            self._end_step()

    def _take_away(self, requests: Iterable[Request], now: float) -> list[Request]:
        """End the visits of *requests* and return those that were here."""
        if now >= self.end_s:
            self._complete()
        gone = [request for request in requests if request.replica == self.index and isnan(request.finished_s)]
        for request in gone:
            self._end_visit(request, self.engine.evict(request, now), now)
        return gone

    def broken_off(self, requests: Iterable[Request], now: float) -> list[Request]:
        """End the visits of those of *requests* that the engine has rejected, and return them."""
        broken = [request for request in requests if request.rejected]
        for request in broken:
            request.rejected = False
            self._end_visit(request, None, now)
        return broken

    def _end_visit(self, request: Request, progress: ReplicaProgress | None, now: float) -> None:
        request.left = (*request.left, ReplicaVisit(self.index, request.came_s, now, progress, request.busy))
        request.replica, request.came_s, request.busy = -1, nan, BusyTime()

    def withdraw(self, request: Request, now: float) -> None:
        """Remove the waiting *request*; `replan` is needed afterwards."""
        self._end_visit(request, self.engine.evict(request, now), now)

    def replan(self, now: float) -> None:
        """Plan the engine's next event and schedule the wake-up call for it."""
        end_s = self.engine.plan(now)
        if end_s == self.end_s:
            return
        self.end_s = end_s
        self._env.move_call(self, end_s)
        if end_s < inf and self.formed is not None:
            self.formed(self)

    def _end_step(self) -> None:
        """Have no step under way, and no wake-up call at its end."""
        self.end_s = inf
        self._env.move_call(self, inf)

    def wake(self) -> None:
        """End the step."""
        self._fire()

    def _fire(self) -> None:
        """End the step: release arrivals up to its end, complete it and form the next one."""
        end_s = self._complete()
        self.replan(end_s)
        if self.after_step is not None:
            self.after_step(self, end_s)

    def _complete(self) -> float:
        """Release arrivals up to the step's end and complete the step. Return its end [s]."""
        self._release(self.end_s)
        end_s = self.end_s
        done = self.engine.advance()
        self.end_s = nan
        if done:
            self._finished(self, done, end_s)
        return end_s


Lose = Callable[[list[Request], float], None]
"""Function that gets requests lost with their replica, and the time of detection [s]."""


class StrandedRequests:
    """Requests at each replica, and requests stranded on failed ones.

    From a failure until its detection the router continues to send requests to the replica; these are stranded as
    well.
    """

    def __init__(self, replicas: list[Replica], left: Callable[[int, Request], None], lose: Lose, move: Lose) -> None:
        """Track *replicas*.

        *left* removes a request from the router's counts, *lose* retries lost requests, and *move* sends requests
        on to other replicas.
        """
        self._replicas = replicas
        self._left, self._lose, self._move = left, lose, move
        self._requests: list[dict[Request, None]] = [{} for _ in replicas]
        self._stranded: dict[Request, int] = {}
        self._failed: set[int] = set()
        self.transfers: Callable[[int, float], list[Request]] = lambda index, now: []
        """Function that returns the requests on their way to or from a failed replica; they are stranded there."""

    def has_failed(self, index: int) -> bool:
        """Return whether replica *index* has failed and the failure is not detected."""
        return index in self._failed

    def joined(self, request: Request, index: int) -> None:
        """Record that replica *index* works on *request*."""
        self._requests[index][request] = None

    def left(self, request: Request, index: int) -> None:
        """Record that *request* has left replica *index*, finished or removed."""
        del self._requests[index][request]

    def strand_if_failed(self, request: Request, index: int) -> bool:
        """Strand *request*, sent to replica *index*, if that has failed. Return whether it has."""
        if index not in self._failed:
            return False
        self._stranded[request] = index
        return True

    def replica_of(self, request: Request) -> int:
        """Return the replica at which *request* is stranded; -1 if it is not."""
        return self._stranded.get(request, -1)

    def abandon(self, request: Request) -> bool:
        """Forget *request*, whose client has given up. Return whether it was stranded."""
        index = self._stranded.pop(request, None)
        if index is None:
            return False
        self._left(index, request)
        return True

    def fail(self, index: int, now: float) -> None:
        """Fail replica *index*: its KV cache and its current step are lost, and its requests are stranded."""
        self._failed.add(index)
        for request in self._replicas[index].crash(list(self._requests[index]), now):
            del self._requests[index][request]
            self._stranded[request] = index
        for request in self.transfers(index, now):
            self._stranded[request] = index

    def migrate(self, index: int, now: float) -> None:
        """Stop replica *index*, which is closed; other replicas continue its requests."""
        gone = self._replicas[index].crash(list(self._requests[index]), now)
        for request in gone:
            self.left(request, index)
            self._left(index, request)
        if gone:
            self._move(gone, now)

    def detect(self, index: int, now: float) -> list[Request]:
        """Detect the failure of replica *index*. Return the requests that were stranded there."""
        self._failed.discard(index)
        lost = [request for request, where in self._stranded.items() if where == index]
        for request in lost:
            del self._stranded[request]
            self._left(index, request)
        return lost

    def retry(self, lost: list[Request], now: float) -> None:
        """Retry *lost* through their clients or the router."""
        if lost:
            self._lose(lost, now)
