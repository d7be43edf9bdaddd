"""What a case comes to once every id is a sourced value: the input of the fleet, free of YAML.

A case has services, a service has pools, and a pool may run on MIG slices: how many whole GPUs the slices take, and
what of these lies idle, is part of its plan.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import floor, prod
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
from sim.memory.weights import KvTier
from sim.power import PoolPower
from sim.records import ONLY_SERVICE, StepTime
from sim.routing import Routing
from sim.routing.admission import Admission
from sim.routing.kv_transfer import TransferPlan
from sim.scenario.experiment import ReplicaSchedule
from sim.scenario.slo import Slo
from sim.workload import Workload
from sim.workload.client import Client
from sim.workload.tenants import RateLimit


@dataclass(frozen=True, slots=True)
class Slicing:
    """What the slices of one pool are cut from."""

    card: Gpu
    """The whole GPU."""
    profile: str

    @property
    def mig(self) -> Mig:
        """How the card can be cut."""
        assert self.card.mig is not None  # bind has looked the profile up there
        return self.card.mig


@dataclass(frozen=True, slots=True)
class Slices:
    """One pool's slices, with its part of the GPUs that they are cut from."""

    profile: str
    gpus_per_slice: Fraction
    """Idle remainders included: over all slices of the group they sum to its whole GPUs."""
    unused: Fraction
    """The part of the GPUs that no slice uses."""
    reach: float
    """How much of the way from idle power to the limit of its part of the GPUs a busy slice goes."""
    note: str
    """What a reader of the bill must know; empty where nothing lies idle."""


def placed(slicing: Slicing, wanted: Sequence[tuple[str, int]], pools: str) -> Slices:
    """The slices of one pool, placed with all that are *wanted* of its group of *pools*: (profile, replicas).

    Pools of a group share GPUs; their slices are placed as the driver allows.
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
    """For example: 3 of 7 slices 1g.10gb are paid for and idle."""
    cards = f"{gpus}x {slicing.card.name}"
    if len(counts) == 1:
        ((profile, count),) = counts.items()
        whole = gpus * slicing.mig.profiles[profile].instances
        return f"Pool {pools}: {whole - count} of {whole} slices {profile} on {cards} are paid for and idle."
    slices = sum(count * slicing.mig.profiles[profile].compute_slices for profile, count in counts.items())
    whole = gpus * slicing.mig.compute_slices
    return f"Pools {pools}: {whole - slices} of {whole} compute slices on {cards} are paid for and idle."


@dataclass(frozen=True, slots=True)
class AdapterPlan:
    """Slots for LoRA adapters of one engine."""

    on_gpu: int
    in_host: int
    swap_s: float
    """From host memory to the GPU [s]."""
    fetch_s: float
    """From where adapters are stored to host memory [s]."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One sourced value that the case rests on: where it is used and where it comes from."""

    path: str
    """For example `fleets.4x RTX 4090.pools.0.gpu.memory_bytes_per_s`."""
    value: Value


@dataclass(frozen=True, slots=True)
class FailurePlan:
    """What fails in a pool."""

    domains: tuple[FailureDomain, ...]
    servers: tuple[tuple[int, ...], ...] = ()
    """Places of the replicas in each server."""
    detection_s: float = 0.0
    crews: int | None = None
    """Repairs that can go on at once; None: any number."""
    maintenance: MaintenanceSpec | None = None
    spares: StandbyReplicas | None = None

    @property
    def availability(self) -> float:
        """Share of time in which nothing that the first replica needs is broken, in the long run; it counts as broken
        until that is noticed, and waits for no repair crew.
        """
        needed = [one.law for one in self.domains if 0 in one.replicas]
        return prod(law.mtbf_s / (law.mtbf_s / law.availability + self.detection_s) for law in needed)


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """Identical replicas of one model on one kind of GPU."""

    name: str
    gpu: str
    """Catalogue id, or an empty string where the step time is given and there is no GPU."""
    server: str
    replicas: int
    gpus_per_replica: int | Fraction
    """Parts of a GPU where a replica is a slice of one."""
    batching: Scheduler
    """With num_gpu_blocks and max_model_len filled in."""
    steptime: StepTime
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    lockstep: bool = False
    """Data-parallel ranks step together (experts are spread over them)."""
    padded_tokens: int | None = 0
    """Such ranks are padded to the fullest of them in steps of at most so many tokens; None: where all decode."""
    request_overhead_s: float = 0.0
    """API-server time before a request's first token that does not hold the engine."""
    intake_s: float = 0.0
    """API-server time that each request holds up all others with before the engine gets it."""
    turn_s: float = 0.0
    """API-server time by which requests that come together reach the engine apart."""
    memory: MemoryFit | None = None
    power: PoolPower | None = None
    schedule: ReplicaSchedule | None = None
    """When the replicas run; None: always."""
    autoscaling: Autoscaling | None = None
    """Who decides how many replicas run; None: nobody."""
    first_replicas: int = 0
    """Replicas that serve at first where there is an autoscaler."""
    start: ReplicaStart = field(default_factory=lambda: ReplicaStart(()))
    """What a replica goes through from being switched on to serving."""
    replicas_per_server: int = 1
    failures: FailurePlan | None = None
    """What fails, and what stands by; None: nothing."""
    spot: SpotInterruptions | None = None
    """How the landlord takes replicas back; None: never."""
    on_call: bool = False
    """Its replicas run only while those of a spot pool are interrupted."""
    unit: str = ""
    """Noun for one unit of a service's work: image, sequence, ...; empty where language is made."""
    slices: Slices | None = None
    """MIG slices that the replicas are; None: whole GPUs."""
    service: str = ONLY_SERVICE
    """The service that it serves."""
    role: str = "both"
    """prefill, decode or both."""
    kv_tiers: tuple[KvTier, ...] = ()
    adapters: AdapterPlan | None = None
    """Slots for LoRA adapters."""
    """Below the KV cache of each rank, the nearest first."""
    kv_note: str = ""
    """Why its KV blocks are not those of the engine's groups; empty if they are."""
    kv_bytes_per_token: float = 0.0
    """KV of one token in all layers, on all GPUs together."""
    services: tuple[str, ...] = ()
    """Those that share its replicas; none where it serves a single one."""
    models: tuple["PoolPlan", ...] = ()
    """Where these run several models: the pool as it would be with each of them, and the services that this one has."""
    sharing: Sharing | None = None
    """How several models share a replica."""

    @property
    def served(self) -> tuple[str, ...]:
        """Names of the services that it serves."""
        return self.services or (self.service,)

    def serving(self, service: str) -> "PoolPlan":
        """The pool with the model that it runs for *service*."""
        return next((one for one in self.models if service in one.served), self)

    @property
    def switched(self) -> bool:
        """Whether its replicas start and stop while the fleet runs."""
        return self.scaled or self.failures is not None

    @property
    def scaled(self) -> bool:
        """Whether somebody decides while the fleet runs how many of its replicas serve."""
        return self.schedule is not None or self.autoscaling is not None or self.spot is not None or self.on_call

    @property
    def standing_by(self) -> int:
        """Spares that do not serve with the others."""
        spares = self.failures.spares if self.failures is not None else None
        return 0 if spares is None or spares.kind == "hot" else spares.count

    @property
    def has_others(self) -> bool:
        """Whether one replica may take the place of another."""
        return self.scaled or self.standing_by > 0

    @property
    def engines_per_replica(self) -> int:
        """Engines that one replica consists of."""
        return 1 if self.lockstep else self.data_parallel_size

    @property
    def gpus_per_engine(self) -> float | Fraction:
        """GPUs that one engine keeps busy."""
        return self.gpus_per_replica / self.engines_per_replica

    @property
    def gpus(self) -> int | Fraction:
        """Of all replicas; a part of one where pools share a GPU that is cut into slices."""
        return self.replicas * self.gpus_per_replica


def gpus_of(pools: Iterable[PoolPlan]) -> float:
    """GPUs that *pools* use together: a whole number for all those of a fleet."""
    gpus = sum(pool.gpus for pool in pools)
    return int(gpus) if gpus == int(gpus) else float(gpus)


@dataclass(frozen=True, slots=True)
class ServicePlan:
    """One of several services of a case."""

    name: str
    workload: Workload
    slo: Slo
    priority: int | None = None
    """Of all its requests; None: as they have it themselves."""
    weight: float = 1.0
    rate_limit: RateLimit | None = None


@dataclass(frozen=True, slots=True)
class CasePlan:
    """One fleet at one sweep point, one replication."""

    fleet: str
    axes: dict[str, Any]
    """Sweep axis (shortest unique dotted suffix) -> value."""
    replication: int
    seed: int
    workload: Workload
    routing: Routing
    pools: tuple[PoolPlan, ...]
    slo: Slo
    horizon_s: float | None
    """None: until the last request of the trace has finished."""
    warmup_s: float
    drain_limit_s: float | None
    meter_interval_s: float
    warmup_auto: bool = False
    """Whether the warm-up is read off the run itself; `warmup_s` is then 0 until it has been."""
    warmup_steady: bool = True
    """False where no steady part was found behind the warm-up."""
    clock: SiteClock | None = None
    """Local time at the site; None: it is not said when the simulation begins."""
    requests_cost: bool = False
    load_by_hour: tuple[float, ...] | None = None
    """How the year's load falls on the hours of the day; None: evenly."""
    model: str = ""
    costs: CostPlan | None = None
    carbon: CarbonPlan | None = None
    servers: int = 0
    """Servers that the fleet fills, whole ones."""
    pue: float = 1.0
    """Facility power over the servers' power; 1 where no site is given."""
    infeasible: str = ""
    """Why this fleet cannot run (memory); empty if it can."""
    facts: tuple[Fact, ...] = field(default=())
    services: tuple[ServicePlan, ...] = ()
    """Each with pools of its own; none where the case has a single service."""
    service: str = ""
    """The one that this plan is of, where a case has several."""
    client: Client | None = None
    """How long clients wait, and whether they ask again; None: they wait as long as it takes."""
    admission: Admission | None = None
    """Requests that are turned away, and replicas that are left alone; None: none."""
    kv_transfer: TransferPlan | None = None
    """How the KV of prompts moves; None where no pool has a role."""

    @property
    def shared_pools(self) -> tuple[PoolPlan, ...]:
        """Those that several services share."""
        return tuple(pool for pool in self.pools if pool.services)

    def groups(self) -> list[tuple[ServicePlan, ...]]:
        """The services, those together that share pools, if only by way of others."""
        groups = [{service.name} for service in self.services]
        for pool in self.shared_pools:
            met = [group for group in groups if not group.isdisjoint(pool.services)]
            groups = [group for group in groups if group not in met] + [set().union(*met)]
        found = [tuple(one for one in self.services if one.name in group) for group in groups]
        return sorted(found, key=lambda group: self.services.index(group[0]))

    def together(self, group: tuple[ServicePlan, ...]) -> "CasePlan":
        """The part of the plan that serves the services of *group*, which share pools."""
        names = {service.name for service in group}
        positions = [place for place, pool in enumerate(self.pools) if not names.isdisjoint(pool.served)]
        pools = tuple(self.pools[place] for place in positions)
        label = " + ".join(service.name for service in group)
        own = replace(self, pools=pools, carbon=None, services=group, service=label)
        return replace(own, kv_transfer=self.kv_transfer and self.kv_transfer.within(positions))

    def alone(self, service: ServicePlan) -> "CasePlan":
        """The part of the plan that serves *service*: its pools, with their charges."""
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
        """[start, end) of what is measured [s]; without a horizon it lasts until *end_s*, the end of the run."""
        return self.warmup_s, end_s if self.horizon_s is None else self.horizon_s

    @property
    def unit(self) -> str:
        """Noun for a unit of work where all pools serve one that answers in one pass; empty where language is made."""
        units = {pool.unit for pool in self.pools}
        return "" if "" in units else units.pop() if len(units) == 1 else "unit"

    @property
    def switched(self) -> bool:
        """Whether replicas are switched on and off, or left alone for a while."""
        ejects = self.admission is not None and self.admission.ejection is not None
        return ejects or any(pool.switched for pool in self.pools)

    @property
    def asks_again(self) -> bool:
        """Whether a request may be sent more than once, or end without an answer."""
        return self.client is not None or self.admission is not None or self.fails or self.refuses

    @property
    def refuses(self) -> bool:
        """Whether servers have queue limits of their own, or end requests with an error."""
        return self.breaks or any(getattr(pool.batching, "limits_its_queue", False) for pool in self.pools)

    @property
    def breaks(self) -> bool:
        """Whether servers end requests that they have begun with an error."""
        return any(getattr(pool.batching, "kv_unified", False) for pool in self.pools)

    @property
    def fails(self) -> bool:
        """Whether replicas break down or are taken away."""
        return any(pool.failures is not None or pool.spot is not None for pool in self.pools)

    def next_reading_s(self, after_s: float) -> float:
        """When meters are read next after *after_s*: at a multiple of the interval, or at a full hour of the clock."""
        interval_s = self.meter_interval_s
        by_interval_s = (floor(after_s / interval_s) + 1) * interval_s
        if by_interval_s <= after_s:  # rounded onto it
            by_interval_s += interval_s
        return by_interval_s if self.clock is None else min(by_interval_s, self.clock.next_hour_s(after_s))
