"""Plans of cases, in which every id is replaced by sourced values: the input of the fleet, free of YAML.

A case has services, a service has pools, and a pool may run on MIG slices: the number of whole GPUs that the slices
use, and the idle part of these, are in its plan.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import floor, inf, prod
from typing import Any

from sim.autoscaling import Autoscaling
from sim.batching import Scheduler
from sim.batching.sharing import Sharing
from sim.catalogue.gpu import Gpu, Mig, sms_share
from sim.catalogue.value import Value
from sim.coldstart import ReplicaStart
from sim.cost.carbon import CarbonPlan
from sim.cost.clock import SiteClock
from sim.cost.cost_plan import CostPlan
from sim.failures import FailureDomain, MaintenanceSpec, SpotInterruptions, StandbyReplicas
from sim.memory.fit import MemoryFit
from sim.memory.kv_cache import SequenceCache
from sim.memory.weights import KvTier
from sim.message import Message
from sim.power import PoolPower
from sim.records import ONLY_SERVICE, StepTime
from sim.routing import Routing
from sim.routing.admission import Admission
from sim.routing.kv_transfer import TransferPlan
from sim.routing.round_robin_and_random import StaticRouting
from sim.scenario.replica_schedule import ReplicaSchedule
from sim.scenario.slo import Slo
from sim.workload import Workload
from sim.workload.client import Client
from sim.workload.tenants import RateLimit


@dataclass(frozen=True, slots=True)
class Slicing:
    """MIG card and profile that the slices of one pool are cut from."""

    card: Gpu
    """Whole GPU that is cut into slices."""
    profile: str

    @property
    def mig(self) -> Mig:
        """MIG profiles of the card."""
        assert self.card.mig is not None  # `bind` has looked up the profile in `card.mig`
        return self.card.mig


@dataclass(frozen=True, slots=True)
class Slices:
    """MIG slices of one pool, with its part of the GPUs that they are cut from."""

    profile: str
    gpus_per_slice: Fraction
    """GPUs per slice, idle remainders included; the sum over all slices of the group is its whole number of GPUs."""
    unused: Fraction
    """Fraction of the GPUs that no slice uses."""
    power_reach: float
    """Fraction of the range from idle power to the power limit of its GPU part that a busy slice reaches."""
    note: str
    """Note on idle slices that are paid for; empty if there are none."""


def place_slices(slicing: Slicing, wanted: Sequence[tuple[str, int]], pools: str) -> Slices:
    """Place the slices of one pool together with all slices *wanted* in its group of *pools*.

    Pools of a group share GPUs; *wanted* has (profile, replicas) of each pool. Slices are placed as the driver allows.
    """
    counts: dict[str, int] = {}
    for profile, replicas in wanted:
        counts[profile] = counts.get(profile, 0) + replicas
    mig, alone = slicing.mig, len(counts) == 1
    gpus = mig.cards(counts)
    used = sum((count * mig.weight(profile, alone) for profile, count in counts.items()), Fraction(0))
    each = mig.weight(slicing.profile, alone) * gpus / used
    unused = max(Fraction(0), 1 - used / gpus)
    reach = sms_share(slicing.card, slicing.profile) / float(each)
    note = _note(slicing, counts, gpus, pools) if unused else ""
    return Slices(slicing.profile, each, unused, reach, note)


def _note(slicing: Slicing, counts: dict[str, int], gpus: int, pools: str) -> str:
    """Compose a note such as "3 of 7 slices 1g.10gb are paid for and idle"."""
    cards = f"{gpus}x {slicing.card.name}"
    if len(counts) == 1:
        ((profile, count),) = counts.items()
        whole = gpus * slicing.mig.profiles[profile].instances
        return Message(
            "Paid but idle in pool {pool}: {idle} of {slices} slices {profile} on {cards}.",
            pools,
            whole - count,
            whole,
            profile,
            cards,
        )
    slices = sum(count * slicing.mig.profiles[profile].compute_slices for profile, count in counts.items())
    whole = gpus * slicing.mig.compute_slices
    return Message(
        "Paid but idle in pools {pools}: {idle} of {slices} compute slices on {cards}.",
        pools,
        whole - slices,
        whole,
        cards,
    )


@dataclass(frozen=True, slots=True)
class AdapterPlan:
    """LoRA adapter slots of one engine, with the times to load adapters."""

    on_gpu: int
    in_host: int
    swap_s: float
    """Time to copy an adapter from host memory to the GPU [s]."""
    fetch_s: float
    """Time to read an adapter from storage into host memory [s]."""


@dataclass(frozen=True, slots=True)
class Fact:
    """Sourced value that the case depends on, with the path of its use."""

    path: str
    """Path of the value, for example `fleets.4x RTX 4090.pools.0.gpu.memory_bytes_per_s`."""
    value: Value


@dataclass(frozen=True, slots=True)
class FailurePlan:
    """Failures of a pool: components, detection, crews, maintenance and spares."""

    domains: tuple[FailureDomain, ...]
    servers: tuple[tuple[int, ...], ...] = ()
    """Indices of the replicas in each server."""
    detection_s: float = 0.0
    crews: int | None = None
    """Repairs that can proceed at once; None: any number."""
    maintenance: MaintenanceSpec | None = None
    spares: StandbyReplicas | None = None

    @property
    def availability(self) -> float:
        """Long-run fraction of time in which all components that the first replica needs work.

        A component counts as failed until the failure is detected; waits for repair crews are not included.
        """
        needed = [one.law for one in self.domains if 0 in one.replicas]
        return prod(law.mtbf_s / (law.mtbf_s / law.availability + self.detection_s) for law in needed)


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """Pool of identical replicas of one model on one kind of GPU, with all values resolved."""

    name: str
    gpu: str
    """Catalogue id of the GPU; empty where the step time is given and there is no GPU."""
    server: str
    replicas: int
    gpus_per_replica: int | Fraction
    """GPUs per replica; a fraction where a replica is a MIG slice."""
    batching: Scheduler
    """Scheduler options, with num_gpu_blocks and max_model_len filled in."""
    steptime: StepTime
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    lockstep: bool = False
    """True if data-parallel ranks step together (experts are spread over them)."""
    overlaps_chunks: bool = False
    """True if chunks of one prompt follow each other through the pipeline stages."""
    overlaps_batches: bool = True
    """True if several pipeline stages compute at once, each another batch."""
    padded_tokens: tuple[float, float] = (0, 0)
    """Maximum tokens of a step with prompts, and of one without, in which ranks in lockstep are padded to the fullest
    rank."""
    request_overhead_s: float = 0.0
    """API-server time before a request's first token during which the engine is not blocked [s]."""
    tokenising_s: float = 0.0
    """API-server time before a request's first token per token of its prompt, which does not block the engine [s]."""
    intake_s: float = 0.0
    """API-server time per request that delays all other requests before they reach the engine [s]."""
    turn_s: float = 0.0
    """API-server time by which requests that arrive together reach the engine one after the other [s]."""
    memory: MemoryFit | None = None
    power: PoolPower | None = None
    second_power: PoolPower | None = None
    """Power for which the energy of the step time's second power law is metered as well; None: none."""
    schedule: ReplicaSchedule | None = None
    """Schedule of the replicas; None: they always run."""
    autoscaling: Autoscaling | None = None
    """Autoscaler of the pool; None: the number of replicas is fixed."""
    first_replicas: int = 0
    """Replicas at the start of the run, with an autoscaler."""
    start: ReplicaStart = field(default_factory=lambda: ReplicaStart(()))
    """Stages from switching a replica on to serving."""
    replicas_per_server: int = 1
    failures: FailurePlan | None = None
    """Failures and spares of the pool; None if nothing fails."""
    spot: SpotInterruptions | None = None
    """Spot interruptions; None if replicas are never reclaimed."""
    on_call: bool = False
    """True if the replicas run only while those of a spot pool are interrupted."""
    unit: str = ""
    """Noun for one unit of a service's work: image, sequence, ...; empty for language models."""
    slices: Slices | None = None
    """MIG slices of the replicas; None: whole GPUs."""
    service: str = ONLY_SERVICE
    """Name of the service that the pool serves."""
    role: str = "both"
    """Role of the pool: prefill, decode or both."""
    kv_tiers: tuple[KvTier, ...] = ()
    """Storage tiers below the KV cache of each rank, the nearest first."""
    usual_tokens: int = 0
    """Mean length of prompt and output together, with KV tiers of a model that has states; 0 elsewhere [tokens]."""
    adapters: AdapterPlan | None = None
    """LoRA adapter slots; None without adapters."""
    kv_note: str = ""
    """Reason why KV blocks are not simulated by the engine's groups; empty if they are."""
    sequence_cache: SequenceCache = field(default_factory=SequenceCache)
    """Bytes of a sequence in the caches of all layers, over all GPUs."""
    services: tuple[str, ...] = ()
    """Names of the services that share the replicas; empty with a single service."""
    models: tuple["PoolPlan", ...] = ()
    """Plans of the pool with each of its models, if there are several, with the services of that model."""
    sharing: Sharing | None = None
    """Way in which several models share a replica."""

    @property
    def served(self) -> tuple[str, ...]:
        """Names of all services of the pool."""
        return self.services or (self.service,)

    def serving(self, service: str) -> "PoolPlan":
        """Return the plan of the pool with the model that it runs for *service*."""
        return next((one for one in self.models if service in one.served), self)

    @property
    def ends_with_errors(self) -> bool:
        """True if a full KV cache may end running requests: in a unified cache, and in SGLang's pipelines."""
        aborts = getattr(self.batching, "schedule_conservativeness", None) is not None
        return getattr(self.batching, "kv_unified", False) or (aborts and self.pipeline_parallel_size > 1)

    @property
    def switched(self) -> bool:
        """True if replicas start and stop during the run."""
        return self.scaled or self.failures is not None

    @property
    def scaled(self) -> bool:
        """True if the number of serving replicas changes during the run: schedule, autoscaler, spot or fallback."""
        return self.schedule is not None or self.autoscaling is not None or self.spot is not None or self.on_call

    @property
    def standby_replicas(self) -> int:
        """Number of spares that do not serve with the others."""
        spares = self.failures.spares if self.failures is not None else None
        return 0 if spares is None or spares.kind == "hot" else spares.count

    @property
    def has_substitutes(self) -> bool:
        """True if another replica may replace a failed one."""
        return self.scaled or self.standby_replicas > 0

    @property
    def engines_per_replica(self) -> int:
        """Number of engines in one replica."""
        return 1 if self.lockstep else self.data_parallel_size

    @property
    def gpus_per_engine(self) -> float | Fraction:
        """GPUs that one engine occupies."""
        return self.gpus_per_replica / self.engines_per_replica

    @property
    def gpus(self) -> int | Fraction:
        """GPUs of all replicas; a fraction where pools share a GPU that is cut into slices."""
        return self.replicas * self.gpus_per_replica


def gpus_of(pools: Iterable[PoolPlan]) -> float:
    """Return the GPUs that *pools* use together: a whole number for all pools of a fleet."""
    gpus = sum(pool.gpus for pool in pools)
    return int(gpus) if gpus == int(gpus) else float(gpus)


@dataclass(frozen=True, slots=True)
class ServicePlan:
    """Service of a case with several services."""

    name: str
    workload: Workload
    slo: Slo
    priority: int | None = None
    """Priority of all its requests; None: each request has its own."""
    weight: float = 1.0
    rate_limit: RateLimit | None = None


@dataclass(frozen=True, slots=True)
class CasePlan:
    """Plan of one fleet at one sweep point in one replication."""

    fleet: str
    axes: dict[str, Any]
    """Values of the sweep axes, keyed by the shortest unique dotted suffix."""
    replication: int
    seed: int
    workload: Workload
    routing: Routing
    pools: tuple[PoolPlan, ...]
    slo: Slo
    horizon_s: float | None
    """End of arrivals [s]; None: the run lasts until the last request of the trace has finished."""
    warmup_s: float
    drain_limit_s: float | None
    meter_interval_s: float
    warmup_auto: bool = False
    """True if the warm-up is estimated from the run itself; `warmup_s` is 0 before."""
    warmup_steady: bool = True
    """False if no steady part was found after the warm-up."""
    clock: SiteClock | None = None
    """Local time at the site; None without a start time."""
    cost_per_request: bool = False
    load_by_hour: tuple[float, ...] | None = None
    """Share of the year's load in each hour of the day; None: even."""
    model: str = ""
    costs: CostPlan | None = None
    carbon: CarbonPlan | None = None
    servers: int = 0
    """Servers that the fleet fills, rounded up."""
    pue: float = 1.0
    """Ratio of facility power to server power; 1 without a site."""
    infeasible: str = ""
    """Reason why the fleet cannot run (memory); empty if it can."""
    facts: tuple[Fact, ...] = field(default=())
    services: tuple[ServicePlan, ...] = ()
    """Services of the case; empty for a single service."""
    service: str = ""
    """Name of the service that this plan is for, in a case with several."""
    client: Client | None = None
    """Timeouts and retries of clients; None: clients wait without limit."""
    admission: Admission | None = None
    """Admission control and ejection of replicas; None without either."""
    kv_transfer: TransferPlan | None = None
    """KV transfer between pools; None if no pool has a role."""

    @property
    def shared_pools(self) -> tuple[PoolPlan, ...]:
        """Pools that several services share."""
        return tuple(pool for pool in self.pools if pool.services)

    def groups(self) -> list[tuple[ServicePlan, ...]]:
        """Return the services in groups that share pools, directly or through other services."""
        groups = [{service.name} for service in self.services]
        for pool in self.shared_pools:
            met = [group for group in groups if not group.isdisjoint(pool.services)]
            groups = [group for group in groups if group not in met] + [set().union(*met)]
        found = [tuple(one for one in self.services if one.name in group) for group in groups]
        return sorted(found, key=lambda group: self.services.index(group[0]))

    def for_group(self, group: tuple[ServicePlan, ...]) -> "CasePlan":
        """Return the part of the plan that serves the services of *group*, which share pools."""
        names = {service.name for service in group}
        positions = [place for place, pool in enumerate(self.pools) if not names.isdisjoint(pool.served)]
        pools = tuple(self.pools[place] for place in positions)
        label = " + ".join(service.name for service in group)
        own = replace(self, pools=pools, carbon=None, services=group, service=label)
        return replace(own, kv_transfer=self.kv_transfer and self.kv_transfer.within(positions))

    def for_service(self, service: ServicePlan) -> "CasePlan":
        """Return the part of the plan that serves *service*: its pools, with their charges."""
        positions = [place for place, pool in enumerate(self.pools) if service.name in pool.served]
        pools = tuple(self.pools[place].serving(service.name) for place in positions)
        names = {pool.name for pool in pools}
        costs = self.costs and replace(
            self.costs, charges=tuple(charge for charge in self.costs.charges if charge.pool in names)
        )
        whole = replace(self, pools=pools, costs=costs, carbon=None, services=(), service=service.name)
        transfer = self.kv_transfer and self.kv_transfer.within(positions)
        return replace(whole, workload=service.workload, slo=service.slo, kv_transfer=transfer)

    def window_s(self, end_s: float) -> tuple[float, float]:
        """Return the measured window [start, end) [s]; without a horizon it ends with the run at *end_s*."""
        return self.warmup_s, end_s if self.horizon_s is None else self.horizon_s

    @property
    def unit(self) -> str:
        """Noun for a unit of work if all pools answer in one pass; empty for language models."""
        units = {pool.unit for pool in self.pools}
        return "" if "" in units else units.pop() if len(units) == 1 else "unit"

    @property
    def switched(self) -> bool:
        """True if replicas are switched on and off, or ejected for a while."""
        ejects = self.admission is not None and self.admission.ejection is not None
        return ejects or any(pool.switched for pool in self.pools)

    @property
    def may_retry(self) -> bool:
        """True if a request may be sent more than once, or end without an answer."""
        return self.client is not None or self.admission is not None or self.fails or self.refuses

    @property
    def refuses(self) -> bool:
        """True if servers have queue limits, or end requests with an error."""
        return self.ends_with_errors or any(getattr(pool.batching, "limits_its_queue", False) for pool in self.pools)

    @property
    def ends_with_errors(self) -> bool:
        """True if servers may end running requests with an error."""
        return any(pool.ends_with_errors for pool in self.pools)

    @property
    def fails(self) -> bool:
        """True if replicas fail or are reclaimed."""
        return any(pool.failures is not None or pool.spot is not None for pool in self.pools)

    @property
    def has_independent_replicas(self) -> bool:
        """True if no replica affects another: requests arrive at given times, and routing ignores the replicas' load.

        Parts of such a fleet can be simulated apart.
        """
        shares_cache = any(tier.shared for pool in self.pools for tier in pool.kv_tiers)
        meets = self.services or self.kv_transfer or self.switched or self.may_retry or shares_cache
        return not meets and isinstance(self.routing, StaticRouting) and self.workload.is_open

    @property
    def stop_s(self) -> float:
        """End of the drain at the latest [s]; inf without a horizon or a limit."""
        return inf if self.horizon_s is None or self.drain_limit_s is None else self.horizon_s + self.drain_limit_s

    def next_reading_s(self, after_s: float) -> float:
        """Return the next time [s] after *after_s* to read meters: a multiple of the interval, or a full hour."""
        interval_s = self.meter_interval_s
        by_interval_s = (floor(after_s / interval_s) + 1) * interval_s
        if by_interval_s <= after_s:  # the product was rounded down to *after_s*
            by_interval_s += interval_s
        return by_interval_s if self.clock is None else min(by_interval_s, self.clock.next_hour_s(after_s))
