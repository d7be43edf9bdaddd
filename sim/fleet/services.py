"""Source of the requests of services that share a fleet, on one clock."""

from collections.abc import Callable, Sequence
from typing import overload

from sim.fleet.admission import TenantGate, TokenBucket
from sim.fleet.arrivals import RequestSource, Send, source_of
from sim.fleet.clock import FleetClock
from sim.records import Request
from sim.scenario.resolving.resolved import CasePlan, ServicePlan
from sim.workload import Streams
from sim.workload.traces import MooncakeTrace


class ServiceBlockIds(Sequence[int]):
    """Block ids that are unique to one of several services. Nothing is stored per block: contexts may be long."""

    __slots__ = ("_content", "_ids", "_services")

    def __init__(self, ids: Sequence[int], services: int, content: int) -> None:
        """Map *ids* of one service to ids of the fleet; *content* numbers the set of texts they stand for."""
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
    """Source of the requests of all services. Each service has its own source, with the draws that it would have alone.

    Requests are numbered apart from those of other services, and get the priority and the weight of their service.
    Requests over the service's rate limit are refused.
    """

    def __init__(
        self, plan: CasePlan, streams: Callable[[str], Streams], env: FleetClock, send: Send, refuse: Send
    ) -> None:
        """Start the sources of all services; *streams* maps a service to its random streams."""
        self.requests: list[Request] = []
        """Requests that have arrived."""
        self._send, self._refuse_arrivals = send, refuse
        self._sources: dict[str, RequestSource] = {}
        self._adapters = [name for service in plan.services for name in service.workload.adapter_names]
        """Names of the LoRA adapters of all services; services that use the same name share the adapter."""
        self._contents = [_content(service, place) for place, service in enumerate(plan.services)]
        for place, service in enumerate(plan.services):
            own = streams(service.name)
            arrive = self._gate(service, place, len(plan.services), own)
            self._sources[service.name] = source_of(service.workload, own, plan.horizon_s, env, arrive)

    @property
    def exhausted(self) -> bool:
        """True if no further requests will arrive, whatever is answered before."""
        return all(source.exhausted for source in self._sources.values())

    def release(self, until_s: float) -> None:
        """Send the requests that arrive at or before *until_s*."""
        for source in self._sources.values():
            source.release(until_s)

    def answered(self, request: Request, now: float) -> None:
        """Report to the service's source that *request* has been answered or refused at *now*."""
        self._sources[request.service].answered(request, now)

    def _gate(self, service: ServicePlan, place: int, services: int, streams: Streams) -> Send:
        """Return the function that the requests of *service* pass on their way to the fleet."""
        draws = service.workload.adapter_draws(streams, self._adapters) if self._adapters else None
        bucket = TokenBucket(service.rate_limit) if service.rate_limit is not None else None

        def weighted(requests: list[Request], now: float) -> None:
            for request in requests:
                request.weight *= service.weight
            self._send(requests, now)

        tenants = service.workload.tenants
        content = self._contents.index(self._contents[place])
        onward = TenantGate(tenants, weighted, self._refuse_arrivals).arrive if tenants else weighted

        def arrive(requests: list[Request], now: float) -> None:
            admitted: list[Request] = []
            refused: list[Request] = []
            for request in requests:
                request.service = service.name
                if draws is not None:  # draws depend on the request's number within the service
                    draws.give(request)
                if request.block_hashes:  # blocks of different services have different contents
                    request.block_hashes = ServiceBlockIds(request.block_hashes, services, content)
                request.index = request.index * services + place
                request.priority = request.priority if service.priority is None else service.priority
                request.rejected = bucket is not None and not bucket.takes(now)
                (refused if request.rejected else admitted).append(request)
            self.requests += requests
            if admitted:
                onward(admitted, now)
            if refused:
                self._refuse_arrivals(refused, now)

        return arrive


def _content(service: ServicePlan, place: int) -> object:
    """Return the namespace of the block ids of *service*; services that replay the same trace share one."""
    trace = service.workload.trace
    return trace.path if isinstance(trace, MooncakeTrace) else place
