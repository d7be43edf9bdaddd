"""Which replica gets a request where replicas serve several services: one that has its model."""

from collections.abc import Callable, Sequence

from sim.engine.parallel.swapping import SwappingEngine
from sim.fleet.handing.roles import Team
from sim.fleet.replica import Replica
from sim.records import Request
from sim.routing import Router, Routing
from sim.scenario.resolving.resolved import CasePlan
from sim.workload import Streams


class ServiceRouter:
    """A routing policy for each service over the replicas that serve it; each knows of all requests there.

    Where a replica has one model awake at a time, the replicas come first that have the right one awake and can run one
    more request at once: of these the one with the fewest outstanding. Where pools have roles, a service has a policy
    for prompts and another for answers.
    """

    def __init__(
        self,
        plan: CasePlan,
        replicas: Sequence[Replica],
        streams: Callable[[str], Streams],
        clock: Callable[[], float],
    ) -> None:
        """*streams* maps a service to its random streams."""
        transfer = plan.kv_transfer
        self._teams: dict[str, Team] = {}
        self._answers: dict[str, Team] = {}
        """Who answers what others have computed the prompts of; without roles nobody."""
        self._least_tokens = 0 if transfer is None else transfer.min_prompt_tokens

        def team(service: str, routing: Routing, stream: str, role: str) -> Team:
            members = [
                one.index
                for one in replicas
                if service in plan.pools[one.pool].served and plan.pools[one.pool].role in (role, "both")
            ]
            names = [plan.pools[replicas[index].pool].name for index in members]
            return Team(routing, members, names, streams(service)(stream))

        for service in plan.services:
            self._teams[service.name] = team(service.name, plan.routing, "routing", "prefill")
            if transfer is not None:
                self._answers[service.name] = team(service.name, transfer.routing, "routing of answers", "decode")
        self._all = [*self._teams.values(), *self._answers.values()]
        self._clock = clock
        self._outstanding = [0] * len(replicas)
        self._open = [True] * len(replicas)
        seats = [plan.pools[one.pool].batching.max_num_seqs or 1 for one in replicas]
        self._swapping = [
            (one.index, one.engine, seats[one.index]) for one in replicas if isinstance(one.engine, SwappingEngine)
        ]

    def policies(self) -> list[tuple[Router, list[int]]]:
        """The policies of each service, with their replicas."""
        return [(team.policy, team.members) for team in self._all]

    def choose(self, request: Request) -> int:
        """Index of the replica for *request*; -1 while none that has its model is open."""
        if self._swapping and (awake := self._awake(request)) >= 0:
            return awake
        if request.prompt_tokens < self._least_tokens:
            return self._answers[request.service].choose(request)
        return self._teams[request.service].choose(request)

    def choose_answering(self, request: Request) -> int:
        """Index of the replica that answers *request*, whose prompt is computed; -1 while none is open."""
        return self._answers[request.service].choose(request)

    def _awake(self, request: Request) -> int:
        now, team = self._clock(), self._teams[request.service]
        able = [
            index
            for index, engine, seats in self._swapping
            if self._open[index]
            and team.place(index) is not None
            and self._outstanding[index] < seats
            and engine.awake_for(request, now)
        ]
        return min(able, key=lambda index: self._outstanding[index], default=-1)

    def joined(self, replica: int, request: Request) -> None:
        """One more request at *replica*."""
        self._outstanding[replica] += 1
        for team in self._all:
            if (place := team.place(replica)) is not None:
                team.policy.joined(place, request)

    def left(self, replica: int, request: Request) -> None:
        """One request fewer at *replica*, which is open."""
        self._outstanding[replica] -= 1
        for team in self._all:
            if (place := team.place(replica)) is not None:
                team.policy.left(place, request)

    def opened(self, replica: int, outstanding: int) -> None:
        """*replica*, closed until now, takes requests; it still has *outstanding* old ones."""
        self._open[replica], self._outstanding[replica] = True, outstanding
        for team in self._all:
            if (place := team.place(replica)) is not None:
                team.policy.opened(place, outstanding)

    def closed(self, replica: int) -> None:
        """*replica*, open until now, takes no new requests."""
        self._open[replica] = False
        for team in self._all:
            if (place := team.place(replica)) is not None:
                team.policy.closed(place)
