"""Which replica computes a prompt and which one answers it, where pools have roles."""

from collections.abc import Sequence

import numpy as np

from sim.records import Request
from sim.routing import Router, Routing
from sim.scenario.resolving.resolved import CasePlan
from sim.workload import Streams


class Team:
    """A routing policy over some replicas of a fleet; to the policy they are numbers 0 .. n-1."""

    def __init__(self, policy: Routing, members: Sequence[int], pools: Sequence[str], rng: np.random.Generator) -> None:
        """*pools* has the name of each member's pool."""
        self.members = list(members)
        self._place = {replica: place for place, replica in enumerate(members)}
        self.policy: Router = policy.start(list(pools), rng)

    def place(self, replica: int) -> int | None:
        """Its number to the policy; None if it is not in the team."""
        return self._place.get(replica)

    def choose(self, request: Request) -> int:
        """Index of the replica for *request*; -1 while none is open."""
        place = self.policy.choose(request)
        return self.members[place] if place >= 0 else -1


class RoleRouter:
    """A router over all replicas. A request goes to whoever computes prompts, or, where its prompt is short, to whoever
    answers.
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
            teams.append(Team(routing, members, names, streams(name)))
        self._prompts, self._answers = teams
        self._least_tokens = plan.kv_transfer.min_prompt_tokens

    def choose(self, request: Request) -> int:
        """Index of the replica for *request*, which has just come; -1 while none is open."""
        team = self._answers if request.prompt_tokens < self._least_tokens else self._prompts
        return team.choose(request)

    def choose_answering(self, request: Request) -> int:
        """Index of the replica that answers *request*, whose prompt is computed; -1 while none is open."""
        return self._answers.choose(request)

    def joined(self, replica: int, request: Request) -> None:
        """One more request at *replica*."""
        for team in (self._prompts, self._answers):
            if (place := team.place(replica)) is not None:
                team.policy.joined(place, request)

    def left(self, replica: int, request: Request) -> None:
        """One request fewer at *replica*, which is open."""
        for team in (self._prompts, self._answers):
            if (place := team.place(replica)) is not None:
                team.policy.left(place, request)

    def opened(self, replica: int, outstanding: int) -> None:
        """*replica*, closed until now, takes requests; it still has *outstanding* old ones."""
        for team in (self._prompts, self._answers):
            if (place := team.place(replica)) is not None:
                team.policy.opened(place, outstanding)

    def closed(self, replica: int) -> None:
        """*replica*, open until now, takes no new requests."""
        for team in (self._prompts, self._answers):
            if (place := team.place(replica)) is not None:
                team.policy.closed(place)
