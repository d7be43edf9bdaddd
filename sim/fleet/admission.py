"""What a request passes before an engine has it: its tenant, the gateway's rules, the server's queue limits.

A tenant gives a request its priority, its weight and its adapter, and may limit the rate of requests. The gateway
refuses requests by the rules of `sim.routing.admission`. Last come the limits of the server itself: a vLLM server
counts requests in flight and prompts to compute over all its data-parallel ranks, in the process that answers
clients (`AsyncLLM.check_admission`); an SGLang scheduler counts the requests that wait at it
(`_abort_on_queued_limit`). Both answer with HTTP 503, a refusal like the gateway's: clients may send again.
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


def gated(workload: Workload, streams: Streams, send: Send, refused: Send) -> Send:
    """*send* behind what requests of *workload* pass first."""
    if workload.asks_for_adapters:
        send = AdapterGate(workload.adapter_draws(streams), send).arrive
    return TenantGate(workload.tenants, send, refused).arrive if workload.tenants else send


class TenantGate:
    """Lets requests in; those over the limit of their tenant are refused, whatever the fleet has to do."""

    def __init__(self, tenants: Sequence[Tenant], send: Send, refused: Send) -> None:
        self._tenants = {tenant.name: tenant for tenant in tenants}
        self._buckets = {t.name: TokenBucket(t.rate_limit) for t in tenants if t.rate_limit is not None}
        self._send, self._refused = send, refused

    def arrive(self, requests: list[Request], now: float) -> None:
        """*requests* arrive together."""
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
    """Gives requests their LoRA adapters."""

    def __init__(self, draws: AdapterDraws, send: Send) -> None:
        self._draws, self._send = draws, send

    def arrive(self, requests: list[Request], now: float) -> None:
        """*requests* arrive together."""
        for request in requests:
            self._draws.give(request)
        self._send(requests, now)


class TokenBucket:
    """See `RateLimit`."""

    def __init__(self, limit: RateLimit) -> None:
        self._limit = limit
        self._requests = float(limit.burst)
        self._at_s = 0.0

    def takes(self, now: float) -> bool:
        """Whether a request at *now*, never before the last one, is within the limit; it then counts."""
        limit = self._limit
        self._requests = min(float(limit.burst), self._requests + (now - self._at_s) * limit.requests_per_s)
        self._at_s = now
        if self._requests < 1.0 - 1e-9:  # a bucket that fills for 1/rate seconds has room for one
            return False
        self._requests -= 1.0
        return True


class LimitedServer:
    """The requests that one server with limits of its own has, and the *engines* that serve them."""

    def __init__(self, limits: VllmLimits | PrefillFirst, engines: Sequence[Replica]) -> None:
        self._limits, self._engines = limits, engines
        self._in_flight: set[Request] = set()
        self._before_first_token: set[Request] = set()

    def turns_away(self, request: Request, engine: Replica, now: float) -> Request | None:
        """Who is refused where *request* wants to come to *engine*: it, one that waits there and is less urgent, or
        nobody.
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
        """Tokens of the prompts of which no answer has begun; a prompt counts whole until then."""
        self._before_first_token = {one for one in self._before_first_token if isnan(one.first_token_s)}
        return sum(one.prompt_tokens for one in self._before_first_token)

    def joined(self, request: Request) -> None:
        """*request* is on its way here."""
        self._in_flight.add(request)
        self._before_first_token.add(request)

    def left(self, request: Request) -> None:
        """*request* is here no longer."""
        self._in_flight.discard(request)
        self._before_first_token.discard(request)


class AdmissionControl:
    """The gateway of a fleet, where it has rules, and the servers that have limits of their own."""

    def __init__(
        self, gate: AdmissionRules | None, replicas: Sequence[Replica], servers: dict[int, LimitedServer]
    ) -> None:
        self._gate, self._replicas, self._servers = gate, replicas, servers

    def turns_away(self, request: Request, replica: int, now: float) -> Request | None:
        """Who is refused where *request* is to go to *replica*: it, one that waits there, or nobody."""
        if self._gate is not None and not self._gate.admits(request, replica, now):
            return request
        server = self._servers.get(replica)
        return None if server is None else server.turns_away(request, self._replicas[replica], now)

    def joined(self, replica: int, request: Request) -> None:
        """*request* is on its way to *replica*."""
        if self._gate is not None:
            self._gate.joined(replica)
        if replica in self._servers:
            self._servers[replica].joined(request)

    def left(self, replica: int, request: Request) -> None:
        """*request* is not at *replica* any more."""
        if self._gate is not None:
            self._gate.left(replica)
        if replica in self._servers:
            self._servers[replica].left(request)

    def answered(self, replica: int, now: float) -> None:
        """*replica* has answered a request."""
        if self._gate is not None:
            self._gate.answered(replica, now)

    def timed_out(self, replica: int) -> None:
        """A client has given up waiting for *replica*."""
        if self._gate is not None:
            self._gate.timed_out(replica)


def doors_of(
    plan: CasePlan, replicas: Sequence[Replica], eject: Callable[[int, float], None]
) -> AdmissionControl | None:
    """What turns requests away from *replicas*; None where nothing does. *eject* closes a replica for some seconds."""
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
