"""Result of one case: its plan, the log of its fleet and its ledger, as a whole and by service."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sim.case.service_weights import ServiceWeights, service_weights
from sim.cost.charge import PaymentTime
from sim.cost.cost_plan import CostPlan
from sim.cost.ledger import Ledger, RequestUse, request_costs
from sim.records import FleetLog
from sim.scenario.resolving.resolved import CasePlan, PoolPlan, ServicePlan


@dataclass(frozen=True, slots=True)
class CaseResult:
    """Result of one fleet at one sweep point in one replication: its log and its costs."""

    plan: CasePlan
    log: FleetLog
    ledger: Ledger | None
    """Ledger of the case; None without a `cost` section, or where the window is empty because no requests were
    served."""
    request_nano_usd: list[int] | None = None
    """Cost of each request, in the order of the log [nano-USD]; None unless requested."""

    @property
    def window_s(self) -> tuple[float, float]:
        """Measurement window [start, end) [s]."""
        return self.plan.window_s(self.log.end_s)


def results_by_service(result: CaseResult) -> dict[str, CaseResult]:
    """Split *result* by service.

    Returns
    -------
    dict of str to CaseResult
        Service name -> its requests, and its shares of replicas, intervals and ledger rows; empty with one service.

    """
    if not result.plan.services:
        return {}
    parts = service_weights(result.plan, result.log)
    return {service.name: _result_of_service(result, service, parts) for service in result.plan.services}


def _result_of_service(result: CaseResult, service: ServicePlan, parts: Mapping[str, ServiceWeights]) -> CaseResult:
    plan, log, name = result.plan.for_service(service), result.log, service.name
    shared = {pool: part for pool, part in parts.items() if name in part.names}
    plan = replace(plan, pools=tuple(_part_of_pool(pool, name, shared.get(pool.name)) for pool in plan.pools))
    positions = [position for position, pool in enumerate(result.plan.pools) if name in pool.served]
    pools = {result.plan.pools[position].name for position in positions}
    of_replica = [result.plan.pools[position].name for position in log.pool_of_replica]
    replicas = [i for i, position in enumerate(log.pool_of_replica) if position in positions]
    chosen = [i for i, request in enumerate(log.requests) if request.service == name]
    totals = ((log.meters[i], shared.get(of_replica[i])) for i in replicas) if log.meters else ()
    intervals = ((one, shared.get(one.pool)) for one in log.intervals if one.pool in pools)
    own = FleetLog(
        requests=[log.requests[i] for i in chosen],
        intervals=[one if part is None else part.interval(one, name) for one, part in intervals],
        meters=[one if part is None else part.meters(one, name) for one, part in totals],
        pool_of_replica=[positions.index(log.pool_of_replica[i]) for i in replicas],
        end_s=log.end_s,
        kv_sent_bytes={positions.index(p): sent for p, sent in log.kv_sent_bytes.items() if p in positions},
        numbers=replicas,
    )
    ledger = result.ledger
    if ledger is not None and plan.costs is not None:
        billed = ((row, shared.get(row.pool)) for row in ledger.rows if row.pool in pools)
        rows = tuple(row if part is None else part.row(row, name) for row, part in billed)
        ledger = replace(ledger, rows=rows, capex_usd=_capex_usd(plan.costs, shared, name))
    costs = result.request_nano_usd
    return CaseResult(plan, own, ledger, None if costs is None else [costs[i] for i in chosen])


def _part_of_pool(pool: PoolPlan, service: str, part: ServiceWeights | None) -> PoolPlan:
    """Return *pool* with the share of its GPUs that *service* has."""
    return pool if part is None else replace(pool, gpus_per_replica=pool.gpus_per_replica * part.whole(service))


def _capex_usd(costs: CostPlan, shared: Mapping[str, ServiceWeights], service: str) -> float:
    """Return the purchase cost of the service's own pools, and its share of that of shared pools [USD]."""
    if not shared:
        return costs.capex_usd
    once = ((charge.pool, charge.once_usd) for charge in costs.charges if charge.paid is PaymentTime.AT_DELIVERY)
    return sum(usd * float(shared[pool].whole(service)) if pool in shared else usd for pool, usd in once)


def price_case(plan: CasePlan, log: FleetLog) -> CaseResult:
    """Price the quantities of *log* at the prices of *plan*."""
    result = CaseResult(plan, log, None)
    start_s, end_s = result.window_s
    if plan.costs is None or end_s <= start_s:
        return result
    ledger = Ledger.of(log.intervals, plan.costs, *result.window_s)
    if not plan.cost_per_request:
        return CaseResult(plan, log, ledger)
    return CaseResult(plan, log, ledger, _costs_of_requests(plan, log, ledger))


def _costs_of_requests(plan: CasePlan, log: FleetLog, ledger: Ledger) -> list[int]:
    """Return the cost of each request [nano-USD]: the sum over its visits, at the prices of the visited pools."""
    pools = [plan.pools[position].name for position in log.pool_of_replica]
    visits = [(place, hop) for place, request in enumerate(log.requests) for hop in request.hops]
    uses = [RequestUse(pools[h.replica], h.busy.prefill_s, h.busy.decode_s, h.busy.recompute_s) for _, h in visits]
    costs = [0] * len(log.requests)
    for (place, _), cost in zip(visits, request_costs(ledger.rows, uses), strict=True):
        costs[place] += cost
    return costs
