"""Routers of a running fleet: a policy chooses among open replicas that serve the request's role and model.

`ServingReplicas` follows the states of replicas, `RoleRouter` sends prompts and answers to pools with roles (prefill,
decode), and `ServiceRouter` has a policy for each of several services. The policies are those of `sim.routing`.
"""

from collections.abc import Callable, Sequence

import numpy as np

from sim.engine.multi_model import SleepModeEngine
from sim.fleet.replica import STATE_PROPERTIES, Replica, State
from sim.records import Request
from sim.routing import Router, Routing
from sim.scenario.resolving.resolved import CasePlan
from sim.workload import Streams


class ServingReplicas:
    """Router that follows the states of replicas.

    The policy is notified when a replica opens or closes, and keeps its state of all others. A closed replica completes
    the requests it has; when a draining replica has answered its last request, *drained* is called. A failure is not
    detected at once: a failed replica stays open until it leaves that state.
    """

    def __init__(self, policy: Router, states: list[State], drained: Callable[[int], None]) -> None:
        self._policy = policy
        self._drained = drained
        self._outstanding = [0] * len(states)
        self._came = [0] * len(states)
        self._states = states
        self._ejected: set[int] = set()
        self._open = [STATE_PROPERTIES[state].routed for state in states]
        for replica, is_open in enumerate(self._open):
            if not is_open:
                policy.closed(replica)

    def outstanding(self, replica: int) -> int:
        """Return the number of requests waiting or running at *replica*."""
        return self._outstanding[replica]

    def came(self, replica: int) -> int:
        """Return the number of requests sent to *replica* so far."""
        return self._came[replica]

    def choose(self, request: Request) -> int:
        """Return the index of the replica for *request*; -1 while no eligible replica serves."""
        return self._policy.choose(request)

    def joined(self, replica: int, request: Request) -> None:
        """Count *request*, which is sent to *replica*."""
        self._outstanding[replica] += 1
        self._came[replica] += 1
        self._policy.joined(replica, request)

    def left(self, replica: int, request: Request) -> None:
        """Discount *request*, which has left *replica*."""
        self._outstanding[replica] -= 1
        if self._open[replica]:
            self._policy.left(replica, request)
        elif self._states[replica] is State.DRAINING and not self._outstanding[replica]:
            self._drained(replica)

    def before_move(self, replica: int, after: State) -> None:
        """Open or close *replica*, which changes to the state *after*."""
        if after is not State.FAILED:
            self._set(replica, STATE_PROPERTIES[after].routed and replica not in self._ejected)

    def eject(self, replica: int) -> bool:
        """Close *replica*, whatever its state. Return whether it was closed: the last open replica stays open."""
        if not self._open[replica] or sum(self._open) == 1:
            return False
        self._ejected.add(replica)
        self._set(replica, False)
        return True

    def readmit(self, replica: int) -> None:
        """End the ejection of *replica*.

        A failure since the ejection is not detected yet: a failed replica opens, too.
        """
        self._ejected.discard(replica)
        self._set(replica, self._states[replica] in (State.SERVING, State.FAILED))

    def _set(self, replica: int, is_open: bool) -> None:
        was_open = self._open[replica]
        self._open[replica] = is_open
        if is_open and not was_open:
            self._policy.opened(replica, self._outstanding[replica])
        elif was_open and not is_open:
            self._policy.closed(replica)


class AssignedReplicas:
    """Router of requests whose replicas have been chosen before."""

    def choose(self, request: Request) -> int:
        """Return the index of the replica chosen for *request*."""
        return request.replica

    def joined(self, replica: int, request: Request) -> None:
        """Ignore *request*: its replica is assigned."""

    def left(self, replica: int, request: Request) -> None:
        """Ignore *request*: its replica is assigned."""

    def opened(self, replica: int, outstanding: int) -> None:
        """Ignore *replica*: all are open."""

    def closed(self, replica: int) -> None:
        """Raise AssertionError: the replicas of assigned requests stay open."""
        raise AssertionError("a replica closes after requests were assigned to it")


class SubsetRouter:
    """Routing policy over some replicas of a fleet, which the policy numbers 0 .. n-1."""

    def __init__(self, policy: Routing, members: Sequence[int], pools: Sequence[str], rng: np.random.Generator) -> None:
        """Start *policy* over *members*; *pools* has the name of each member's pool."""
        self.members = list(members)
        self._place = {replica: place for place, replica in enumerate(members)}
        self.policy: Router = policy.start(list(pools), rng)

    def place(self, replica: int) -> int | None:
        """Return the policy's number of *replica*; None if it is not a member."""
        return self._place.get(replica)

    def choose(self, request: Request) -> int:
        """Return the index of the replica for *request*; -1 while none is open."""
        place = self.policy.choose(request)
        return self.members[place] if place >= 0 else -1


class RoleRouter:
    """Router over the replicas of pools with roles.

    A request goes to a prefill replica or, where its prompt is short, directly to a decode replica.
    """

    def __init__(self, plan: CasePlan, pool_of_replica: Sequence[int], streams: Streams) -> None:
        if plan.kv_transfer is None:
            raise ValueError("no pool has a role")
        pools = plan.pools
        teams = []
        for roles, routing, name in (
            (("prefill", "both"), plan.routing, "routing"),
            (("decode", "both"), plan.kv_transfer.routing, "routing of answers"),
        ):
            members = [i for i, position in enumerate(pool_of_replica) if pools[position].role in roles]
            names = [pools[pool_of_replica[i]].name for i in members]
            teams.append(SubsetRouter(routing, members, names, streams(name)))
        self._prompts, self._answers = teams
        self._least_tokens = plan.kv_transfer.min_prompt_tokens

    def choose(self, request: Request) -> int:
        """Return the index of the replica for *request*, which has just arrived; -1 while none is open."""
        team = self._answers if request.prompt_tokens < self._least_tokens else self._prompts
        return team.choose(request)

    def choose_answering(self, request: Request) -> int:
        """Return the index of the replica that answers *request*, whose prompt is computed; -1 while none is open."""
        return self._answers.choose(request)

    def joined(self, replica: int, request: Request) -> None:
        """Count *request*, which is sent to *replica*."""
        for team in (self._prompts, self._answers):
            if (place := team.place(replica)) is not None:
                team.policy.joined(place, request)

    def left(self, replica: int, request: Request) -> None:
        """Discount *request*, which has left *replica*; the replica is open."""
        for team in (self._prompts, self._answers):
            if (place := team.place(replica)) is not None:
                team.policy.left(place, request)

    def opened(self, replica: int, outstanding: int) -> None:
        """Open *replica*, which still has *outstanding* requests."""
        for team in (self._prompts, self._answers):
            if (place := team.place(replica)) is not None:
                team.policy.opened(place, outstanding)

    def closed(self, replica: int) -> None:
        """Close *replica* for new requests."""
        for team in (self._prompts, self._answers):
            if (place := team.place(replica)) is not None:
                team.policy.closed(place)


class ServiceRouter:
    """Routing policy per service over the replicas that serve it; each counts the requests of all services there.

    With sleep mode, replicas with the service's model awake and a free slot in the batch take precedence; among these,
    the replica with the fewest outstanding requests is chosen. Where pools have roles, a service has one policy for
    prompts and another for answers.
    """

    def __init__(
        self,
        plan: CasePlan,
        replicas: Sequence[Replica],
        streams: Callable[[str], Streams],
        clock: Callable[[], float],
    ) -> None:
        """Start the policies of all services; *streams* maps a service to its random streams."""
        transfer = plan.kv_transfer
        self._teams: dict[str, SubsetRouter] = {}
        self._answers: dict[str, SubsetRouter] = {}
        """Service -> router of requests whose prompts other replicas have computed; empty without roles."""
        self._least_tokens = 0 if transfer is None else transfer.min_prompt_tokens

        def team(service: str, routing: Routing, stream: str, role: str) -> SubsetRouter:
            members = [
                one.index
                for one in replicas
                if service in plan.pools[one.pool].served and plan.pools[one.pool].role in (role, "both")
            ]
            names = [plan.pools[replicas[index].pool].name for index in members]
            return SubsetRouter(routing, members, names, streams(service)(stream))

        for service in plan.services:
            self._teams[service.name] = team(service.name, plan.routing, "routing", "prefill")
            if transfer is not None:
                self._answers[service.name] = team(service.name, transfer.routing, "routing of answers", "decode")
        self._all = [*self._teams.values(), *self._answers.values()]
        self._clock = clock
        self._outstanding = [0] * len(replicas)
        self._open = [True] * len(replicas)
        max_num_seqs = [plan.pools[one.pool].batching.max_num_seqs or 1 for one in replicas]
        self._swapping = [
            (one.index, one.engine, max_num_seqs[one.index])
            for one in replicas
            if isinstance(one.engine, SleepModeEngine)
        ]

    def policies(self) -> list[tuple[Router, list[int]]]:
        """Return the policies of all services, each with its replicas."""
        return [(team.policy, team.members) for team in self._all]

    def choose(self, request: Request) -> int:
        """Return the index of the replica for *request*; -1 while no replica with its model is open."""
        if self._swapping and (awake := self._awake(request)) >= 0:
            return awake
        if request.prompt_tokens < self._least_tokens:
            return self._answers[request.service].choose(request)
        return self._teams[request.service].choose(request)

    def choose_answering(self, request: Request) -> int:
        """Return the index of the replica that answers *request*, whose prompt is computed; -1 while none is open."""
        return self._answers[request.service].choose(request)

    def _awake(self, request: Request) -> int:
        now, team = self._clock(), self._teams[request.service]
        able = [
            index
            for index, engine, max_num_seqs in self._swapping
            if self._open[index]
            and team.place(index) is not None
            and self._outstanding[index] < max_num_seqs
            and engine.accepts_now(request, now)
        ]
        return min(able, key=lambda index: self._outstanding[index], default=-1)

    def joined(self, replica: int, request: Request) -> None:
        """Count *request*, which is sent to *replica*."""
        self._outstanding[replica] += 1
        for team in self._all:
            if (place := team.place(replica)) is not None:
                team.policy.joined(place, request)

    def left(self, replica: int, request: Request) -> None:
        """Discount *request*, which has left *replica*; the replica is open."""
        self._outstanding[replica] -= 1
        for team in self._all:
            if (place := team.place(replica)) is not None:
                team.policy.left(place, request)

    def opened(self, replica: int, outstanding: int) -> None:
        """Open *replica*, which still has *outstanding* requests."""
        self._open[replica], self._outstanding[replica] = True, outstanding
        for team in self._all:
            if (place := team.place(replica)) is not None:
                team.policy.opened(place, outstanding)

    def closed(self, replica: int) -> None:
        """Close *replica* for new requests."""
        self._open[replica] = False
        for team in self._all:
            if (place := team.place(replica)) is not None:
                team.policy.closed(place)
