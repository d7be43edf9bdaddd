"""Typed figures of one replication of a case, under the names of summary.csv.

`measure` computes them from a simulation, `with_bill` replaces those that prices change, and `idle_metrics` has those
of a fleet for an hour in which no requests arrive.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import accumulate
from math import ceil, fsum, inf
from typing import Any, get_origin

import numpy as np
from numpy.typing import NDArray

from sim.case import CaseResult, of_services, priced
from sim.cost.charge import Paid
from sim.cost.metering import NOT_RENTED, Window
from sim.fleet.fleet import RunningFleet
from sim.fleet.replica import State
from sim.records import Interval
from sim.routing import PowerOfTwo, Random
from sim.scenario.resolving.resolved import CasePlan, PoolPlan, gpus_of
from sim.scenario.slo import LATENCIES, Slo
from sim.study.bill import OPTIONAL, UNPRICED, Emissions, Money, SitePower, bill, it_power_w_mean
from sim.study.metrics.batch_means import mean_half_width, percentile_half_width, rate_intervals
from sim.study.metrics.bottleneck import KvTransfers, availability, kv_transfers, limited_by, step_share
from sim.study.metrics.cohort import Cohort, Endings, PrefixHits, percentile, prefixes_of
from sim.units import HOURS_PER_DAY, SECONDS_PER_HOUR
from sim.workload import Burst


@dataclass(frozen=True, slots=True)
class Level:
    """A number over the window, weighted by time."""

    mean: float
    p95: float
    """Least number that is not exceeded in 95 % of the time."""
    highest: float

    @classmethod
    def of(cls, spans: Iterable[tuple[float, float, float]]) -> "Level":
        """Return the level of the sum of *spans* (start [s], end [s], amount), over the time that any of them covers.

        >>> Level.of([(0.0, 10.0, 1.0), (6.0, 10.0, 2.0)])
        Level(mean=1.8, p95=3.0, highest=3.0)
        """
        steps: dict[float, float] = {}
        for start_s, end_s, amount in spans:
            steps[start_s] = steps.get(start_s, 0.0) + amount
            steps[end_s] = steps.get(end_s, 0.0) - amount
        times = sorted(steps)
        levels = [round(level, 9) for level in accumulate(steps[time] for time in times)]
        lasted = sorted((level, end - start) for level, start, end in zip(levels, times, times[1:], strict=False))
        whole_s = fsum(length for _, length in lasted)
        if not whole_s:
            return cls(0.0, 0.0, 0.0)
        reached = accumulate(length for _, length in lasted)
        least_s = 0.95 * whole_s * EXACT
        p95 = next(level for (level, _), so_far in zip(lasted, reached, strict=True) if so_far >= least_s)
        return cls(fsum(level * length for level, length in lasted) / whole_s, p95, lasted[-1][0])


EXACT = 1 - 1e-12
"""A sum of lengths that is 95 % of the window may be a rounding error short of it."""


@dataclass(frozen=True, slots=True)
class Held:
    """GPUs and servers of the fleet in the window."""

    gpus: float
    """GPUs of the fleet, spares included; of replicas that are paid while they are switched on the most at a time."""
    servers: int
    """Servers that these GPUs fill."""
    gpu_hours_per_day: float


def serving(result: CaseResult) -> Level:
    """Return the number of serving replicas of all pools together."""
    of_pool = {pool.name: pool for pool in result.plan.pools}
    return Level.of(
        (one.start_s, one.end_s, _part(one, of_pool[one.pool]) if one.state == State.SERVING else 0.0)
        for one in _inside(result)
    )


def _part(interval: Interval, pool: PoolPlan) -> float:
    """Return what part of a replica *interval* is of: one of several engines, or what one of several services has."""
    if not pool.gpus_per_replica:
        return 1 / pool.engines_per_replica
    return interval.gpu_s / (interval.end_s - interval.start_s) / float(pool.gpus_per_replica)


def held(result: CaseResult) -> Held:
    """Return what is held for the fleet: what is bought or reserved all the time, else while it is switched on."""
    plan, inside = result.plan, _inside(result)
    charges = () if plan.costs is None else plan.costs.charges
    by_time = {charge.pool for charge in charges if charge.paid is Paid.SWITCHED_ON}
    on = [one for one in inside if one.state not in NOT_RENTED or (plan.costs is not None and one.pool not in by_time)]
    start_s, end_s = result.window_s
    gpu_h = fsum(one.gpu_s for one in on) / SECONDS_PER_HOUR
    switched = {pool.name for pool in plan.pools if pool.scaled and (plan.costs is None or pool.name in by_time)}
    whole = gpus_of(plan.pools)
    gpus = whole
    if switched:
        spans = ((one.start_s, one.end_s, one.gpu_s / (one.end_s - one.start_s)) for one in on if one.pool in switched)
        gpus = gpus_of(pool for pool in plan.pools if pool.name not in switched) + Level.of(spans).highest
        gpus = int(gpus) if gpus == int(gpus) else gpus
    servers = ceil(plan.servers * gpus / whole - 1e-9) if whole else plan.servers
    hours = (end_s - start_s) / SECONDS_PER_HOUR
    return Held(gpus, servers, HOURS_PER_DAY * gpu_h / hours if hours else 0.0)


def _inside(result: CaseResult) -> list[Interval]:
    start_s, end_s = result.window_s
    return [one for one in result.log.intervals if one.is_within(start_s, end_s) and one.end_s > one.start_s]


PERCENTILES = (50, 95, 99)
THIN_TAIL = 20
"""A percentile with fewer requests than this beyond it is marked."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Requests and tokens that arrived and were served in the window."""

    requests: int
    completed: int
    rejected: int
    unfinished: int
    offered_rps: float
    requests_per_s: float
    output_tokens_per_s: float
    total_tokens_per_s: float
    goodput_rps: float
    slo_attainment: float | None
    overloaded: bool
    queue_growth: int
    waiting_growth: int
    warmup_s: float
    warmup_steady: bool | None
    """Whether a steady part was found behind an automatic warm-up; None for a given one."""
    output_tokens: int
    total_tokens: int
    preemptions: int
    late_growth: float | None = None
    """Mean number of requests in the system in the last quarter of the window minus that before its middle."""
    late_growth_error: float | None = None
    """Standard error of the late growth."""


@dataclass(frozen=True, slots=True)
class Latencies:
    """Means and percentiles over the requests of the window [s]; inf where the request never got an answer."""

    thin_percentiles: list[str]
    by_column: dict[str, float | None]
    """`ttft_s_mean`, `ttft_s_p95`, ...; None without a request."""


@dataclass(frozen=True, slots=True)
class ServiceLevel:
    """What is asked for, and the share of requests that is within the limits of each goal."""

    slo: dict[str, Any]
    slo_shares: list[float | None]
    """Shares of requests of tenants without limits of their own, where some tenants have limits."""
    tenant_shares: dict[str, list[float | None]] | None = None
    """Tenant with limits of its own -> the same of its requests."""


@dataclass(frozen=True, slots=True)
class Machines:
    """Use of the GPUs in the window."""

    limited_by: str
    step_share: dict[str, float]
    batch_mean: float
    gpu_busy_fraction: float
    kv_used_peak_fraction: float
    gpus: float
    """Whole ones; of one of several services its part of those that it shares."""
    servers: int
    gpu_power_w_mean: float | None
    it_power_w_mean: float | None
    window_h: float
    units: int | None = None
    """Units of work that services did; None where language is made."""
    unit: str | None = None
    """Noun for one of them: image, sequence, ..."""
    availability: float | None = None
    """Share of time in which the replicas that may break down are neither broken nor under repair."""
    replicas_mean: float | None = None
    """Mean number of serving replicas over the window, of all pools together."""
    replicas_p95: float | None = None
    """Number of serving replicas that is not exceeded in 95 % of the time."""
    replicas_max: float | None = None
    """Highest number of replicas that serve at the same time."""
    gpu_hours_per_day: float | None = None
    """GPU-hours a day of the GPUs that are held: bought or reserved, else switched on."""
    scaled: bool | None = None
    """True where replicas are started and stopped while the fleet runs; None where not."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Inputs of intervals, beside the figures themselves."""

    good_output_tokens: float
    """Output tokens of the window that belong to requests within the limits."""
    batch_ci95: dict[str, float]
    """Half-widths of 95 % intervals that the run alone gives, by column."""
    chance: bool | None = None
    """Whether another seed gives another run; None where that was not stored."""


@dataclass(frozen=True, slots=True)
class CaseMetrics:
    """All figures of a case, in base units. `metrics["ttft_s_p95"]` reads one by its name."""

    traffic: Traffic
    latencies: Latencies
    level: ServiceLevel
    machines: Machines
    samples: Samples
    site: SitePower
    money: Money | None
    """Cost figures; None without a cost."""
    carbon: Emissions | None
    """None where the scenario does not ask for it."""
    endings: Endings | None = None
    """None where a request is sent once and waits for as long as it takes."""
    prefixes: PrefixHits | None = None
    """None where no prompts have anything in common."""
    transfers: KvTransfers | None = None
    """None where pools have no roles."""
    services: Mapping[str, "CaseMetrics"] = field(default_factory=dict)
    """Service -> its part, where a fleet serves several."""

    def __getitem__(self, name: str) -> Any:
        """The figure *name*; None where this case has none. Raises KeyError for a name that no case can have."""
        if (group := GROUP_OF.get(name)) is not None:
            return getattr(getattr(self, group), name, None)
        if name.startswith(LATENCY_NAMES):
            return self.latencies.by_column.get(name)
        raise KeyError(name)

    @property
    def usd_of_a_mean_year(self) -> float | None:
        """What the window cost at the mean prices of the year, which a choice among fleets rests on; None without a
        cost.
        """
        return None if self.money is None else self.money.usd_of_a_mean_year

    def as_data(self) -> dict[str, Any]:
        """The figures by name, as they are stored."""
        found: dict[str, Any] = {}
        for group in GROUPS:
            values = getattr(self, group)
            if values is None:
                found |= UNPRICED if group == "money" else {}
            elif group == "latencies":
                found |= {"thin_percentiles": values.thin_percentiles} | values.by_column
            else:
                found |= {
                    one.name: value
                    for one in fields(values)
                    if (value := getattr(values, one.name)) is not None or one.name not in OPTIONAL | SERVICE_FIGURES
                }
        if self.services:
            found[OF_SERVICES] = {name: one.as_data() for name, one in self.services.items()}
        return found

    @classmethod
    def of_data(cls, data: Mapping[str, Any]) -> "CaseMetrics":
        """The figures that `as_data` gave; what is missing (a case of an older version) is None."""
        groups = {name: _group(kind, data) for name, kind in GROUPS.items()}
        by_column = {name: value for name, value in data.items() if name not in GROUP_OF and name != OF_SERVICES}
        groups["latencies"] = Latencies(data.get("thin_percentiles") or [], by_column)
        if data.get("cost_usd") is None:
            groups["money"] = None
        groups |= {group: None for group, name in ALWAYS_HAS.items() if name not in data}
        services = {name: cls.of_data(one) for name, one in (data.get(OF_SERVICES) or {}).items()}
        return cls(**groups, services=services)


def _group(kind: type, data: Mapping[str, Any]) -> Any:
    """Return the fields of *kind* in *data*; a missing mapping is empty."""
    return kind(*(data.get(one.name, {} if get_origin(one.type) is dict else None) for one in fields(kind)))


OF_SERVICES = "services"
SERVICE_FIGURES = frozenset({"units", "unit", "availability", "tenant_shares", "scaled"})
"""What is stored only of services, where replicas break down or scale, or where tenants have limits of their own."""
GROUPS = {
    "traffic": Traffic,
    "latencies": Latencies,
    "level": ServiceLevel,
    "machines": Machines,
    "samples": Samples,
    "site": SitePower,
    "money": Money,
    "carbon": Emissions,
    "endings": Endings,
    "prefixes": PrefixHits,
    "transfers": KvTransfers,
}
ALWAYS_HAS = {"carbon": "embodied_kg_co2e", "endings": "timed_out", "prefixes": "prefix_hit_rate",
              "transfers": "kv_port_busy_fraction"}  # fmt: skip
"""A figure that a group always has where it is there at all."""
GROUP_OF = {one.name: group for group, kind in GROUPS.items() for one in fields(kind) if one.name != "by_column"}
LATENCY_NAMES = tuple(f"{name}_" for name in (*LATENCIES, "queue_s"))


def measure(result: CaseResult) -> CaseMetrics:
    """All figures of a case."""
    cohort = Cohort.of(result)
    kept = good_requests(result, cohort)
    traffic = _traffic(result, cohort, kept & cohort.measured)
    return CaseMetrics(
        traffic,
        _latencies(cohort, result.plan.slo),
        service_level(cohort, result.plan.slo),
        _machines(result),
        Samples(
            traffic.output_tokens * cohort.good_share_of_tokens(kept),
            _batch_intervals(result, cohort, kept),
            not result.plan.workload.deterministic or isinstance(result.plan.routing, Random | PowerOfTwo),
        ),
        *bill(result),
        endings=(
            cohort.endings(result.log.requests, result.plan.client is not None) if result.plan.asks_again else None
        ),
        prefixes=prefixes_of(result, cohort),
        transfers=kv_transfers(result, cohort),
        services={name: measure(own) for name, own in of_services(result).items()},
    )


def good_requests(result: CaseResult, cohort: Cohort) -> NDArray[np.bool_]:
    """Return which requests finished within all limits, those of their own service where there are several."""
    plan = result.plan
    if not plan.services:
        return cohort.good(plan.slo)
    names = np.array([request.service for request in result.log.requests])
    good = np.zeros(len(names), bool)
    for one in plan.services:
        good |= cohort.good(one.slo) & (names == one.name)
    return good


def _traffic(result: CaseResult, cohort: Cohort, good: NDArray[np.bool_]) -> Traffic:
    # a window without length (all requests come at once and none can be served) has rates of zero
    window_s = cohort.end_s - cohort.start_s or inf
    requests = int(cohort.measured.sum())
    completed = int((cohort.measured & cohort.finished).sum())
    rejected = int((cohort.measured & cohort.rejected).sum())
    given_up = int((cohort.measured & cohort.given_up).sum())
    totals = result.log.meters
    output_tokens = sum(meters.output_tokens for meters in totals)
    prompt_tokens = sum(meters.prompt_tokens + meters.cached_tokens for meters in totals)
    attainment = float(good.sum()) / requests if requests else None
    growth = cohort.queue_growth()
    return Traffic(
        requests=requests,
        completed=completed,
        rejected=rejected,
        unfinished=requests - completed - rejected - given_up,
        offered_rps=requests / window_s,
        requests_per_s=float(cohort.served().sum()) / window_s,
        output_tokens_per_s=output_tokens / window_s,
        total_tokens_per_s=(prompt_tokens + output_tokens) / window_s,
        goodput_rps=float(good.sum()) / window_s,
        slo_attainment=attainment,
        overloaded=growth.certain,
        queue_growth=growth.requests,
        waiting_growth=growth.waiting,
        warmup_s=result.plan.warmup_s,
        warmup_steady=result.plan.warmup_steady if result.plan.warmup_auto else None,
        output_tokens=output_tokens,
        total_tokens=prompt_tokens + output_tokens,
        preemptions=sum(meters.preemptions for meters in totals),
        late_growth=growth.late,
        late_growth_error=growth.late_error,
    )


def service_level(cohort: Cohort, slo: Slo) -> ServiceLevel:
    """The share of the measured requests within each goal of *slo*, and of its tenants."""
    shares = cohort.shares(slo, ~cohort.of_tenants(slo.tenants or ()))
    own = {name: cohort.shares(level, cohort.of_tenants((name,))) for name, level in (slo.tenants or {}).items()}
    return ServiceLevel(slo.model_dump(exclude_none=True), shares, own or None)


def percents(slo: Slo, latency: str) -> list[float]:
    """The percentiles of one latency that are measured: the usual ones, and those that the service level names."""
    return list(dict.fromkeys([*PERCENTILES, *(one.percent for one in slo.percentiles if one.latency == latency)]))


def thin_tail(requests: int, percent: float) -> bool:
    """Whether fewer than THIN_TAIL of the *requests* lie beyond the percentile."""
    return requests * min(percent, 100 - percent) / 100 < THIN_TAIL


def _latencies(cohort: Cohort, slo: Slo) -> Latencies:
    thin: list[str] = []
    found: dict[str, float | None] = {}
    for name in LATENCIES:
        values, members = getattr(cohort, name), cohort.members(name)
        answered, chosen = values[members & cohort.finished], values[members]
        found[f"{name}_mean"] = float(answered.mean()) if answered.size else None
        for percent in percents(slo, name):
            column = f"{name}_p{percent:g}"
            found[column] = percentile(chosen, percent) if chosen.size else None
            if thin_tail(chosen.size, percent):
                thin.append(column)
    queued = cohort.queue_s[cohort.measured]
    found["queue_s_p95"] = percentile(queued, 95) if queued.size else None
    return Latencies(thin, found)


def _batch_intervals(result: CaseResult, cohort: Cohort, kept: NDArray[np.bool_]) -> dict[str, float]:
    """Half-widths of 95 % intervals that this run alone gives, for what is counted request by request.

    None for a load without chance or without a steady state, for a queue that grows, and for replicas that come and
    go: failures and starts are too few for the parts of a run to stand for runs.
    """
    workload = result.plan.workload
    if any(pool.switched for pool in result.plan.pools) or cohort.open_end:
        return {}
    if workload.deterministic or not workload.stationary or cohort.queue_growth().certain:
        return {}
    found: dict[str, float | None] = {}
    for name in LATENCIES:
        values = getattr(cohort, name)[cohort.members(name)]
        found[f"{name}_mean"] = mean_half_width(values)
        measured = percents(result.plan.slo, name)
        found |= {f"{name}_p{percent:g}": percentile_half_width(values, percent) for percent in measured}
    found["queue_s_p95"] = percentile_half_width(cohort.queue_s[cohort.measured], 95)
    found["slo_attainment"] = mean_half_width(kept[cohort.measured].astype(float))
    found |= rate_intervals(cohort, kept)
    return {name: half for name, half in found.items() if half is not None}


def _machines(result: CaseResult) -> Machines:
    plan, totals = result.plan, result.log.meters
    start_s, end_s = result.window_s
    window_s = end_s - start_s or inf
    inside = [i for i in result.log.intervals if i.is_within(start_s, end_s)]
    busy_s = sum(meters.busy_s for meters in totals)
    powered = all(pool.power is not None for pool in plan.pools)
    replicas, having = serving(result), held(result)
    return Machines(
        limited_by=limited_by(result),
        step_share=step_share(result),
        batch_mean=sum(meters.sequence_s for meters in totals) / busy_s if busy_s else 0.0,
        gpu_busy_fraction=busy_s / (len(totals) * window_s),
        kv_used_peak_fraction=_kv_peak(result),
        gpus=having.gpus,
        servers=having.servers,
        gpu_power_w_mean=sum(i.gpu_energy_j for i in inside) / window_s if powered else None,
        it_power_w_mean=it_power_w_mean(result),
        window_h=(end_s - start_s) / SECONDS_PER_HOUR,
        units=sum(meters.output_tokens for meters in totals) if plan.unit else None,
        unit=plan.unit or None,
        availability=availability(plan, inside),
        replicas_mean=replicas.mean,
        replicas_p95=replicas.p95,
        replicas_max=replicas.highest,
        gpu_hours_per_day=having.gpu_hours_per_day,
        scaled=any(pool.scaled for pool in plan.pools) or None,
    )


def _kv_peak(result: CaseResult) -> float:
    """The fullest that any replica's block pool has been."""
    blocks = [(pool.batching.num_gpu_blocks or 1) - 1 for pool in result.plan.pools]
    fullest = 0.0
    for index, meters in enumerate(result.log.meters):
        fullest = max(fullest, meters.kv_peak_blocks / max(1, blocks[result.log.pool_of_replica[index]]))
    return fullest


def with_bill(metrics: CaseMetrics, billed: CaseResult) -> CaseMetrics:
    """*metrics*, and those of each service, with what *billed* says of site, money and greenhouse gases."""
    parts = of_services(billed) if metrics.services else {}
    services = {name: _with_bill(own, parts[name]) for name, own in metrics.services.items()}
    return replace(_with_bill(metrics, billed), services=services)


def _with_bill(metrics: CaseMetrics, billed: CaseResult) -> CaseMetrics:
    site, money, carbon = bill(billed)
    having = held(billed)
    machines = replace(
        metrics.machines, gpus=having.gpus, servers=having.servers, gpu_hours_per_day=having.gpu_hours_per_day
    )
    return replace(metrics, machines=machines, site=site, money=money, carbon=carbon)


def idle_metrics(plan: CasePlan) -> CaseMetrics:
    """Return the figures of the fleet of *plan* without load, metered and billed as any other case.

    Electricity has the price of the hour at `starts_at`.
    """
    empty = without_load(plan)
    return measure(priced(empty, RunningFleet(empty).run()))


def idle_window(plan: CasePlan) -> Window:
    """Return what the fleet of *plan* is metered without load."""
    empty = without_load(plan)
    assert empty.horizon_s is not None
    return Window.of(RunningFleet(empty).run().intervals, empty.warmup_s, empty.horizon_s)


def without_load(plan: CasePlan) -> CasePlan:
    """Return *plan* without requests, for an hour; for its own window where replicas are switched on and off."""
    window_s = (0.0, SECONDS_PER_HOUR)
    if plan.switched and plan.horizon_s is not None:
        window_s = (plan.warmup_s, plan.horizon_s)
    # a burst of no requests: not a load that a scenario may ask for
    nothing = plan.workload.model_copy(update={"arrivals": Burst.model_construct(process="burst", num_requests=0)})
    return replace(
        plan,
        workload=nothing,
        requests_cost=False,
        warmup_auto=False,
        warmup_s=window_s[0],
        horizon_s=window_s[1],
        drain_limit_s=0.0,
    )
