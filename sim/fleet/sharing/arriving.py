"""Requests of several services on one clock."""

from collections.abc import Callable, Sequence
from typing import overload

from sim.fleet.arrivals.sessions import source_of
from sim.fleet.arrivals.source import Clock, Send, Source
from sim.fleet.arrivals.tenants import Bucket, TenantGate
from sim.records import Request
from sim.scenario.resolving.resolved import CasePlan, ServicePlan
from sim.workload import Streams
from sim.workload.traces import MooncakeTrace


class BlocksApart(Sequence[int]):
    """Ids of blocks that no other of several services has. Nothing is stored per block: contexts may be long."""

    __slots__ = ("_content", "_ids", "_services")

    def __init__(self, ids: Sequence[int], services: int, content: int) -> None:
        """*ids* within a service; *content* below *services* says whose texts they are."""
        self._ids, self._services, self._content = ids, services, content

    def __len__(self) -> int:
        return len(self._ids)

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[int, ...]: ...
    def __getitem__(self, place: int | slice) -> int | tuple[int, ...]:
        if isinstance(place, slice):
            return tuple(block * self._services + self._content for block in self._ids[place])
        return self._ids[place] * self._services + self._content


class ServicesSource:
    """Each service has a source of its own, which draws what it would draw alone. Its requests are numbered apart from
    those of the others, and get its priority and its weight; those over its rate limit are refused.
    """

    def __init__(
        self, plan: CasePlan, streams: Callable[[str], Streams], env: Clock, send: Send, turn_away: Send
    ) -> None:
        """*streams* maps a service to its random streams."""
        self.requests: list[Request] = []
        """Those that have arrived."""
        self._send, self._turn_away = send, turn_away
        self._sources: dict[str, Source] = {}
        self._adapters = [name for service in plan.services for name in service.workload.adapter_names]
        """Of all services: one that two of them name is the same one."""
        self._contents = [_content(service, place) for place, service in enumerate(plan.services)]
        for place, service in enumerate(plan.services):
            own = streams(service.name)
            arrive = self._gate(service, place, len(plan.services), own)
            self._sources[service.name] = source_of(service.workload, own, plan.horizon_s, env, arrive)

    @property
    def exhausted(self) -> bool:
        """Whether nothing will arrive any more, whatever is answered before."""
        return all(source.exhausted for source in self._sources.values())

    def release(self, until_s: float) -> None:
        """Sends what arrives at or before *until_s*."""
        for source in self._sources.values():
            source.release(until_s)

    def answered(self, request: Request, now: float) -> None:
        """*request* has its answer, or its refusal, at *now*."""
        self._sources[request.service].answered(request, now)

    def _gate(self, service: ServicePlan, place: int, services: int, streams: Streams) -> Send:
        """What the requests of *service* pass on their way to the fleet."""
        draws = service.workload.adapter_draws(streams, self._adapters) if self._adapters else None
        bucket = Bucket(service.rate_limit) if service.rate_limit is not None else None

        def weighted(requests: list[Request], now: float) -> None:
            for request in requests:
                request.weight *= service.weight
            self._send(requests, now)

        tenants = service.workload.tenants
        content = self._contents.index(self._contents[place])
        onward = TenantGate(tenants, weighted, self._turn_away).arrive if tenants else weighted

        def arrive(requests: list[Request], now: float) -> None:
            admitted: list[Request] = []
            refused: list[Request] = []
            for request in requests:
                request.service = service.name
                if draws is not None:  # by its number among those of the service
                    draws.give(request)
                if request.block_hashes:  # the texts of other services are others
                    request.block_hashes = BlocksApart(request.block_hashes, services, content)
                request.index = request.index * services + place
                request.priority = request.priority if service.priority is None else service.priority
                request.rejected = bucket is not None and not bucket.takes(now)
                (refused if request.rejected else admitted).append(request)
            self.requests += requests
            if admitted:
                onward(admitted, now)
            if refused:
                self._turn_away(refused, now)

        return arrive


def _content(service: ServicePlan, place: int) -> object:
    """What the ids of blocks of *service*, the one at *place*, stand for: a trace's own ids mean the same to all."""
    trace = service.workload.trace
    return trace.path if isinstance(trace, MooncakeTrace) else place
