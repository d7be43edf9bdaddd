"""What a request gets from its tenant: priority, weight, and a place in a bucket that limits the rate; its adapter."""

from collections.abc import Sequence

from sim.fleet.arrivals.source import Send
from sim.records import Request
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
        self._buckets = {t.name: Bucket(t.rate_limit) for t in tenants if t.rate_limit is not None}
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


class Bucket:
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
