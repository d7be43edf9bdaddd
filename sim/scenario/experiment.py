"""What every scenario file says: workload, services, fleets, pools, their schedules and terms, as frozen data.

Ids of the catalogue and parameters only: nothing here is looked up. Sections that not every scenario has are in
`sim/scenario/sections`.
"""

import re
from typing import Annotated, Any, Literal, Self, TypeVar, cast
from unicodedata import category

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from sim.autoscaling import Autoscaling
from sim.batching import Batching, OfEngine
from sim.batching.sharing import Sharing
from sim.batchtime.one_pass import AffineBatch, OnePass
from sim.catalogue.quantization import KvCacheDtype
from sim.coldstart import ColdStart
from sim.cost.carbon import Carbon
from sim.cost.clock import Moment, SiteClock
from sim.cost.cost_plan import Cost
from sim.cost.finance import Finance
from sim.cost.operations import Operations
from sim.cost.site import Site
from sim.cost.token_api import Api
from sim.failures import FailureSpec, SpotInterruptions
from sim.memory.lora import LoraAdapters
from sim.memory.weights import KvTier
from sim.power import Power
from sim.registry import Registry
from sim.routing import LeastOutstanding, Routing
from sim.routing.admission import Admission
from sim.routing.kv_transfer import KvTransfer, Role
from sim.scenario.slo import Slo
from sim.spec import Count, NonNegative, Positive, Spec, WholeNumber
from sim.steptime.affine import Affine, RegisteredStepTime
from sim.steptime.collective import NetworkSpec
from sim.steptime.options import Roofline
from sim.workload import MergedWorkload, Workload
from sim.workload.client import Client
from sim.workload.tenants import RateLimit
from sim.yamlio import MOST_CHARACTERS

MINUTES_PER_DAY = 24 * 60


def _minute(value: Any) -> int:
    """Minutes since midnight. Unquoted, YAML reads 20:00 as 1200, which is the same."""
    if isinstance(value, str) and (found := re.fullmatch(r"(\d{1,2}):(\d\d)", value)):
        hours, minutes = map(int, found.groups())
        if minutes < 60:
            value = 60 * hours + minutes
    if isinstance(value, str) and value.isdecimal():  # what went through JSON as a key is text
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < MINUTES_PER_DAY:
        raise ValueError(f'a time of day is needed, such as "08:30", not {value!r}')
    return value


TimeOfDay = Annotated[int, BeforeValidator(_minute, json_schema_input_type=str)]


class ReplicasByDay(Spec):
    """A number of replicas that changes every day at the same times; before the first of them the last one holds."""

    replicas: Annotated[dict[TimeOfDay, WholeNumber], Field(min_length=1)]
    """Time of day -> how many replicas are wanted from then on: {"08:00": 4, "20:00": 1}. With `starts_at` it is the
    site's local time, else the day begins with simulated time 0."""

    @property
    def most(self) -> int:
        """The most replicas that are wanted at any time."""
        return max(self.replicas.values())

    def wanted(self, second_of_day: float) -> int:
        """Replicas wanted at a time of day [s after midnight]."""
        times = sorted(self.replicas)
        reached = [at for at in times if 60 * at <= second_of_day]
        return self.replicas[reached[-1] if reached else times[-1]]

    def switches_s(self, clock: SiteClock, until_s: float) -> list[float]:
        """Simulated times in (0, *until_s*) at which the number may change."""
        return [at_s for at_s in clock.times_shown_s(self.replicas, until_s) if at_s > 0]


class ReplicaSchedule(ReplicasByDay):
    """Replicas switched on and off every day at the same times; before the first of them the last one holds."""

    starting_s: NonNegative | None = None
    """From switching a replica on to its first request: the machine, the engine, the weights. Left out: the pool's
    `cold_start`."""


T = TypeVar("T")

INVISIBLE = ("Cc", "Cf", "Zl", "Zp")
"""Unicode's control and format characters: zero-width and bidirectional ones, and separators of lines."""
LONGEST_NAME = 200
"""Characters: what tables, pictures and folders can still show."""


def _readable(name: str) -> str:
    """Names distinguish things in tables and pictures: no two may look alike."""
    if "\n" in name or "\t" in name or "\r" in name:
        raise ValueError("a name stands on one line, without tabs")
    if name != name.strip():
        raise ValueError(f"a name begins and ends without blanks: {name!r}")
    for character in name:
        if category(character) in INVISIBLE:
            raise ValueError(f"a name holds no invisible characters: U+{ord(character):04X} in {name!r}")
    return name


Name = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME), AfterValidator(_readable)]

GridSweep = dict[str, tuple[Any, ...]]
"""Axis (dotted path) -> values: every combination is a point."""
PointSweep = tuple[dict[str, Any], ...]
"""Explicit points: dotted path -> value."""


def _seconds_or_auto(value: Any) -> Any:
    if isinstance(value, str) and value != "auto":
        raise ValueError(f"a number of seconds or auto is needed, not {value!r}")
    return value


SecondsOrAuto = Annotated[NonNegative | Literal["auto"], BeforeValidator(_seconds_or_auto)]


BuiltinStepTime = Affine | Roofline | AffineBatch | OnePass
PoolStepTime = Annotated[
    BuiltinStepTime, Field(discriminator="model"), Registry("steptime", RegisteredStepTime, BuiltinStepTime)
]
"""Of steps of tokens, or of batches that are answered in one pass."""


class InheritedKeys(Spec):
    """What may stand at the top, in a fleet or in a pool: the nearest wins."""

    model: str | None = None
    """Id in data/models, or the path of a Hugging Face config.json (relative to the scenario)."""
    quantization: str | None = None
    """Id in data/quantizations; none: the model's own dtype."""
    kv_cache_dtype: KvCacheDtype | None = None
    """Storage of the KV cache; auto: the activations' 16 bit."""
    kernel: str | None = None
    """Id in data/kernels: how fast quantised weights multiply. Left out: the kernel that is usual for the format."""
    engine: str | None = None
    """Id in data/engines: scheduler, host overheads, memory reserves and default limits."""
    calibration: str | None = None
    """File that `gpufleet calibrate` has written (relative to the scenario): holds for pools of its GPU."""
    max_model_len: Count | None = None
    """Longest prompt + output [tokens]; left out: what the model allows."""
    power: Power | None = None
    """How power is computed; left out: from how busy the GPUs are."""


class Service(InheritedKeys):
    """One of several services of a scenario: what it runs, what it is asked to do and how fast."""

    name: Name
    """Pools name it, and outputs show it."""
    workload: Workload
    """Arrivals and lengths, or a trace."""
    slo: Slo = Slo()
    """Limits of its requests."""
    priority: int | None = None
    """With `scheduling: priority` in a pool that services share: of all its requests, lower first. Left out: as
    tenants or a trace say, else 0."""
    weight: Positive = 1.0
    """With `scheduling: fair` in a pool that services share: a service of weight 2 is owed twice the tokens of one of
    weight 1."""
    rate_limit: RateLimit | None = None
    """Requests over it are refused; left out: none."""


class Pool(InheritedKeys):
    """Identical replicas of one model on one kind of GPU."""

    name: Name | None = None
    """In the outputs; left out: the GPU's id."""
    role: Role = "both"
    """Whether its replicas compute prompts, answer with KV that was computed elsewhere, or serve whole requests."""
    service: str | None = None
    """The one of the scenario's `services` that it serves; needed where there are any."""
    services: tuple[str, ...] = ()
    """In place of `service`: several services that share its replicas."""
    sharing: Sharing | None = None
    """How the models of these services share a replica; needed where they are several."""
    gpu: str | None = None
    """Id in data/gpus. Only a pool with its own step time and block pool does without."""
    mig: str | None = None
    """MIG profile as nvidia-smi names it: 1g.10gb. A replica is then a slice of the GPU; left out: whole GPUs."""
    replicas: Count = 1
    """Copies of the model, each with GPUs of its own; with `mig`, each on a slice."""
    tensor_parallel_size: Count = 1
    """GPUs that share every layer."""
    pipeline_parallel_size: Count = 1
    """Stages that hold the layers in turn."""
    data_parallel_size: Count = 1
    """Ranks of one replica, each with its own requests."""
    enable_expert_parallel: bool = False
    """Spread the experts over all GPUs of the replica; its data-parallel ranks then step together."""
    kv_tiers: tuple[KvTier, ...] = ()
    """Where KV goes that has left the GPU, the nearest tier first; left out: it is lost."""
    lora: LoraAdapters | None = None
    """Slots for LoRA adapters; left out: requests ask for the model itself."""
    cpu_offload_gb: NonNegative | None = None
    """Weights per GPU that stay in host memory, as vLLM's option says [GiB]."""
    n_gpu_layers: WholeNumber | None = None
    """Layers on the GPU, as llama.cpp counts them (the LM head is one more); the CPU computes the others."""
    n_cpu_moe: WholeNumber | None = None
    """Leading layers whose routed experts the CPU computes from host memory, as llama.cpp's option says."""
    schedule: ReplicaSchedule | None = None
    """When the replicas run, by the time of day; left out: always."""
    autoscaling: Autoscaling | None = None
    """Who decides how many replicas run; `replicas` serve at first, left out: `min_replicas`, and one at least."""
    cold_start: ColdStart | None = None
    """What a replica goes through when it is switched on."""
    failures: FailureSpec | None = None
    """What breaks, how often and for how long, and what stands by; left out: nothing ever breaks."""
    spot: SpotInterruptions | None = None
    """How the landlord interrupts these replicas, which are rented as spot instances; left out: never."""
    server: str | None = None
    """Id in data/servers. Left out: GPUs without a chassis to buy or to power."""
    link: str | None = None
    """Id in data/links. Left out: the server's, else the GPU's own."""
    network: NetworkSpec | None = None
    """Between the servers of a replica that fills several; left out: `link` joins all of its GPUs."""
    kv_bytes_per_token: Positive | None = None
    """KV of one token, for a pool with a step time of its own; with a model it follows from that."""
    steptime: PoolStepTime | None = None
    """How long a step or a batch takes; left out: a roofline of the model on the GPU."""
    batching: Batching = OfEngine()
    """The scheduler and its limits; without a policy the engine's own."""
    cost: Cost | None = None
    """How this pool is paid for, where that is not as the fleet's `cost` says."""

    @property
    def served(self) -> tuple[str, ...]:
        """Names of the services that it serves; none where the scenario has a single one."""
        return self.services or ((self.service,) if self.service is not None else ())

    @property
    def most_replicas(self) -> int:
        """Replicas that there are hardware and engines for."""
        return self.replicas if self.autoscaling is None else self.autoscaling.max_replicas

    @property
    def first_replicas(self) -> int:
        """Replicas of an autoscaled pool that serve at first."""
        if self.autoscaling is None or "replicas" in self.model_fields_set:
            return self.replicas
        return max(1, self.autoscaling.min_replicas)


class Fleet(InheritedKeys):
    """One candidate to compare: pools behind one router, and what they cost."""

    name: Name
    """In the outputs."""
    pools: Annotated[tuple[Pool, ...], Field(min_length=1)]
    routing: Routing = LeastOutstanding(policy="least_outstanding")
    """Which replica, of all pools, gets the next request."""
    kv_transfer: KvTransfer | None = None
    """How the KV of prompts moves between pools with roles."""
    admission: Admission | None = None
    """What the gateway does against overload; left out: every request is let in."""
    cost: Cost | None = None
    """Left out: no money columns, unless each pool has a cost of its own."""
    site: Site | None = None
    """In place of the scenario's."""
    finance: Finance | None = None
    """In place of the scenario's."""
    operations: Operations | None = None
    """In place of the scenario's."""
    api: Api | None = None
    """In place of the scenario's."""
    carbon: Carbon | None = None
    """In place of the scenario's."""

    @property
    def costs(self) -> tuple[Cost | None, ...]:
        """How each pool is paid for: as it says itself, else as the fleet says."""
        return tuple(self.cost if pool.cost is None else pool.cost for pool in self.pools)

    @property
    def is_priced(self) -> bool:
        """Whether any pool is paid for."""
        return any(cost is not None for cost in self.costs)

    @property
    def has_own_costs(self) -> bool:
        """Whether pools are paid for in ways of their own."""
        return any(pool.cost is not None for pool in self.pools)


class Experiment(InheritedKeys):
    """Fleets x sweep points x replications, all under the same workload: what every scenario says."""

    name: Annotated[str, Field(max_length=LONGEST_NAME), AfterValidator(_readable)]
    """Also names the out folder. Left out: the file's name."""
    question: Annotated[str, Field(max_length=MOST_CHARACTERS)] = ""
    """What the scenario answers. Left out: the comment that opens the file."""
    workload: Workload = Field(default=cast(Workload, None), validate_default=False)
    """Arrivals and lengths, or a trace; with `services` each has its own."""
    services: tuple[Service, ...] = ()
    """Several services that share a fleet, each with pools of its own; left out: one, which `workload` and `slo`
    describe."""
    service: str | None = None
    """Of `services` the only one to look at: the pools of the others are left out, and every command works on it."""
    tenant: str | None = None
    """Of `workload.tenants` (with several services, of the chosen one's) the one whose load `capacity` and `breakeven`
    raise while the others hold theirs; left out: all tenants in proportion."""
    horizon_s: Positive | None = None
    """When arrivals stop; a trace without it runs until its last request has finished."""
    warmup_s: SecondsOrAuto = 0.0
    """Requests that arrive before are simulated and not measured. auto: until the run has settled, by the rule MSER-5
    (docs/statistics.md), in each replication by itself."""
    drain_limit_s: NonNegative | None = None
    """How long the fleet may go on after the horizon; left out: as long as the horizon."""
    meter_interval_s: Positive = 300.0
    """Usage is cut into rows of at most this length."""
    starts_at: Moment | None = None
    """Date and time of day at simulated time 0, for electricity by the hour: 2026-07-01T08:00:00 is local time in the
    site's `timezone`, 2026-07-01T08:00:00+02:00 one moment everywhere. Meters are then read at every full hour of the
    local clock, too."""
    seed: WholeNumber = 0
    replications: Count = 1
    """Runs with other random numbers; confidence intervals come from them."""
    measured_at: Literal["client", "engine"] = "client"
    """Whether latencies include the API server's time per request."""
    requests: Literal["csv", "parquet", "none"] = "csv"
    """Format of the request table; csv turns into parquet from 200,000 rows."""
    requests_cost: bool = False
    """Whether each request's part of the cost is booked: a column cost_usd in the request table, and percentiles."""
    slo: Slo = Slo()
    client: Client | None = None
    """How long clients wait for an answer and how often they ask; left out: once, for as long as it takes."""
    site: Site | None = None
    """Electricity price, PUE, hosting."""
    finance: Finance | None = None
    """How capital becomes a rate."""
    operations: Operations | None = None
    """Network, maintenance, failures, staff, software and what else is paid beside hardware, space and electricity."""
    api: Api | None = None
    """Prices of an API, for what the same tokens would cost there."""
    carbon: Carbon | None = None
    """Greenhouse gases of the electricity and of making the machines."""
    fleets: Annotated[tuple[Fleet, ...], Field(min_length=1)] = Field(default=(), validate_default=False)
    """The candidates to compare. `gpufleet size` does without, where `size` says what to choose from."""
    sweep: GridSweep | PointSweep | None = None
    """Dotted paths to lists of values (a grid), or a list of explicit points."""

    @model_validator(mode="after")
    def _something_to_do(self) -> Self:
        if self.services:
            if self.workload is not None and not isinstance(self.workload, MergedWorkload):
                raise ValueError("each of the services has its own workload: remove workload")
            if known := [service.name for service in self.services if service.workload.sent_before]:
                raise ValueError(f"services: {known[0]}: sent_before is for a fleet with one service: remove it")
            parts = {service.name: service.workload for service in self.services}
            object.__setattr__(
                self, "workload", MergedWorkload.of(parts)
            )  # the model is frozen; the dump has the services
        elif self.workload is None:
            raise ValueError("workload: is missing")
        return self

    def service_of(self, pool: Pool) -> Service | None:
        """The service that *pool* serves, or the first of several; None where the scenario has a single one."""
        name = pool.service or next(iter(pool.services), None)
        return next((one for one in self.services if one.name == name), None)


def nearest(*levels: T | None) -> T | None:
    """The first of *levels* that is given: pool, then fleet, then scenario."""
    return next((level for level in levels if level is not None), None)


_OF_BOTH = (name for name in Fleet.model_fields if name in Experiment.model_fields)
TERMS = tuple(name for name in _OF_BOTH if name not in ("name", *InheritedKeys.model_fields))
"""Sections of prices and terms: the fleet's own, else the scenario's."""
