"""Stages between a request's arrival and its engine: tenant limits, the gateway's rules, the server's queue limits.

A tenant gives a request its priority, its weight and its adapter, and may limit the rate of requests. The gateway
refuses requests by the rules of `sim.routing.admission`. The limits of the server come last: a vLLM server counts
requests in flight and prompts to compute over all its data-parallel ranks, in the process that answers clients
(`AsyncLLM.check_admission`); an SGLang scheduler counts the requests in its waiting queue (`_abort_on_queued_limit`).
Both answer with HTTP 503, a refusal like the gateway's: clients may send again.
"""

from collections.abc import Callable, Sequence
from math import isnan

from sim.batching import PrefillFirst
from sim.batching.limits import VllmLimits
from sim.fleet.arrivals import Send
from sim.fleet.replica import Replica
from sim.records import Request
from sim.routing.admission import AdmissionRules
from sim.scenario.resolving.resolved import CasePlan
from sim.workload import Streams, Workload
from sim.workload.adapters import AdapterDraws
from sim.workload.tenants import RateLimit, Tenant


def with_request_gates(workload: Workload, streams: Streams, send: Send, refused: Send) -> Send:
    """Return *send* behind the adapter draws and the tenants' limits of *workload*."""
    if workload.uses_adapters:
        send = AdapterGate(workload.adapter_draws(streams), send).arrive
    return TenantGate(workload.tenants, send, refused).arrive if workload.tenants else send


class TenantGate:
    """Tenant limits: requests over the rate limit of their tenant are refused, whatever the load of the fleet."""

    def __init__(self, tenants: Sequence[Tenant], send: Send, refused: Send) -> None:
        self._tenants = {tenant.name: tenant for tenant in tenants}
        self._buckets = {t.name: TokenBucket(t.rate_limit) for t in tenants if t.rate_limit is not None}
        self._send, self._refused = send, refused

    def arrive(self, requests: list[Request], now: float) -> None:
        """Send *requests*, which arrive together, or refuse them."""
        admitted, refused = [], []
        for request in requests:
            tenant = self._tenants.get(request.tenant)
            if tenant is not None:
                request.weight = tenant.weight
                request.priority = request.priority if tenant.priority is None else tenant.priority
            bucket = self._buckets.get(request.tenant)
            if bucket is None or bucket.takes(now):
                admitted.append(request)
            else:
                request.rejected = True
                refused.append(request)
        if admitted:
            self._send(admitted, now)
        if refused:
            self._refused(refused, now)


class AdapterGate:
    """Assignment of LoRA adapters to requests."""

    def __init__(self, draws: AdapterDraws, send: Send) -> None:
        self._draws, self._send = draws, send

    def arrive(self, requests: list[Request], now: float) -> None:
        """Give *requests*, which arrive together, their adapters and send them."""
        for request in requests:
            self._draws.give(request)
        self._send(requests, now)


class TokenBucket:
    """Token bucket with the rate and the burst of a `RateLimit`."""

    def __init__(self, limit: RateLimit) -> None:
        self._limit = limit
        self._requests = float(limit.burst)
        self._at_s = 0.0

    def takes(self, now: float) -> bool:
        """Return whether a request at *now* is within the limit, and count it if so. Calls are in order of time."""
        limit = self._limit
        self._requests = min(float(limit.burst), self._requests + (now - self._at_s) * limit.requests_per_s)
        self._at_s = now
        # the tolerance lets a request pass after exactly 1/rate seconds, despite rounding
        if self._requests < 1.0 - 1e-9:
            return False
        self._requests -= 1.0
        return True


class LimitedServer:
    """Queue limits of one server, and the *engines* that serve its requests."""

    def __init__(self, limits: VllmLimits | PrefillFirst, engines: Sequence[Replica]) -> None:
        self._limits, self._engines = limits, engines
        self._in_flight: set[Request] = set()
        self._before_first_token: set[Request] = set()

    def request_to_refuse(self, request: Request, engine: Replica, now: float) -> Request | None:
        """Return the request to refuse if *request* is sent to *engine*; None if none.

        The refused request is *request* itself, or a less urgent one that waits there.
        """
        limits = self._limits
        for one in self._engines:
            one.catch_up(now)
        if isinstance(limits, PrefillFirst):
            if limits.max_queued_requests is None or engine.engine.waiting() < limits.max_queued_requests:
                return None
            last = engine.engine.last_waiting()
            return request if last is None or last.priority <= request.priority else last
        most, tokens = limits.max_num_queued_reqs, limits.max_num_queued_tokens
        full = most is not None and len(self._in_flight) >= most
        return request if full or (tokens is not None and self._prompt_tokens() >= tokens) else None

    def _prompt_tokens(self) -> int:
        """Return the prompt tokens of the requests whose answers have not begun; a prompt counts whole until then."""
        self._before_first_token = {one for one in self._before_first_token if isnan(one.first_token_s)}
        return sum(one.prompt_tokens for one in self._before_first_token)

    def joined(self, request: Request) -> None:
        """Count *request*, which is on its way to the server."""
        self._in_flight.add(request)
        self._before_first_token.add(request)

    def left(self, request: Request) -> None:
        """Discount *request*, which has left the server."""
        self._in_flight.discard(request)
        self._before_first_token.discard(request)


class AdmissionControl:
    """Admission control of a fleet: the gateway's rules, if any, and servers with queue limits."""

    def __init__(
        self, gate: AdmissionRules | None, replicas: Sequence[Replica], servers: dict[int, LimitedServer]
    ) -> None:
        self._gate, self._replicas, self._servers = gate, replicas, servers

    def request_to_refuse(self, request: Request, replica: int, now: float) -> Request | None:
        """Return the request to refuse if *request* is sent to *replica*: itself, one that waits there, or None."""
        if self._gate is not None and not self._gate.admits(request, replica, now):
            return request
        server = self._servers.get(replica)
        return None if server is None else server.request_to_refuse(request, self._replicas[replica], now)

    def joined(self, replica: int, request: Request) -> None:
        """Count *request*, which is on its way to *replica*."""
        if self._gate is not None:
            self._gate.joined(replica)
        if replica in self._servers:
            self._servers[replica].joined(request)

    def left(self, replica: int, request: Request) -> None:
        """Discount *request*, which has left *replica*."""
        if self._gate is not None:
            self._gate.left(replica)
        if replica in self._servers:
            self._servers[replica].left(request)

    def answered(self, replica: int, now: float) -> None:
        """Report to the gateway that *replica* has answered a request."""
        if self._gate is not None:
            self._gate.answered(replica, now)

    def timed_out(self, replica: int) -> None:
        """Report to the gateway that a client has given up waiting for *replica*."""
        if self._gate is not None:
            self._gate.timed_out(replica)


def admission_control(
    plan: CasePlan, replicas: Sequence[Replica], eject: Callable[[int, float], None]
) -> AdmissionControl | None:
    """Return the admission control of *replicas*; None where nothing is limited.

    *eject* closes a replica for a number of seconds.
    """
    servers: dict[int, LimitedServer] = {}
    first = 0
    for pool in plan.pools:
        ranks = pool.engines_per_replica
        for _ in range(pool.replicas):
            if isinstance(pool.batching, VllmLimits | PrefillFirst) and pool.batching.limits_its_queue:
                server = LimitedServer(pool.batching, replicas[first : first + ranks])
                servers |= dict.fromkeys(range(first, first + ranks), server)
            first += ranks
    gate = None
    if plan.admission is not None:
        gate = AdmissionRules(plan.admission, [replica.engine.waiting for replica in replicas], eject)
    return AdmissionControl(gate, replicas, servers) if gate is not None or servers else None
