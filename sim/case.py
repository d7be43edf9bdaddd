"""The story of one case, on one page."""

from dataclasses import dataclass

from sim.catalogue.catalog import Catalog
from sim.cost import Ledger, RequestUse, request_costs
from sim.fleet import RunningFleet
from sim.fleet.warmup import with_warmup
from sim.records import FleetLog
from sim.scenario.resolving.case import resolve
from sim.scenario.resolving.resolved import CasePlan
from sim.scenario.schema import Scenario
from sim.scenario.sweep import Case


@dataclass(frozen=True, slots=True)
class CaseResult:
    """What one fleet did at one sweep point in one replication, and what it cost."""

    plan: CasePlan
    log: FleetLog
    ledger: Ledger | None
    """None without a `cost` section, or where the window has no length because nothing was served."""
    request_nano_usd: list[int] | None = None
    """What each request cost, in the order of the log; None unless asked for."""

    @property
    def window_s(self) -> tuple[float, float]:
        """[start, end) of what is measured [s]."""
        return self.plan.window_s(self.log.end_s)


def run_case(scenario: Scenario, case: Case, catalog: Catalog) -> CaseResult | CasePlan:
    """Simulates and prices *case*; the plan alone where the fleet cannot run (`plan.infeasible` says why)."""
    plan = resolve(scenario, case, catalog)  # ids become sourced values
    if plan.infeasible:
        return plan
    if plan.warmup_auto:
        plan = with_warmup(plan)  # a run of its own shows when the start is over
    log = RunningFleet(plan).run()  # requests and intervals: quantities, no money
    return priced(plan, log)  # money: quantity x sourced price


def priced(plan: CasePlan, log: FleetLog) -> CaseResult:
    """The quantities of *log* at the prices of *plan*."""
    result = CaseResult(plan, log, None)
    start_s, end_s = result.window_s
    if plan.costs is None or end_s <= start_s:
        return result
    ledger = Ledger.of(log.intervals, plan.costs, *result.window_s)
    if not plan.requests_cost:
        return CaseResult(plan, log, ledger)
    pools = [plan.pools[position].name for position in log.pool_of_replica]
    uses = [RequestUse(pools[r.replica], r.prefill_s, r.decode_s, r.recompute_s) for r in log.requests]
    return CaseResult(plan, log, ledger, request_costs(ledger.rows, uses))
