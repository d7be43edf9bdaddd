"""Keys of every scenario: workload, services, fleets, pools, their schedules and terms, as frozen data.

Ids of the catalogue and parameters only: nothing here is looked up. Sections that not every scenario has are in
`sim/scenario/sections`.
"""

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
from sim.cost.clock import Moment
from sim.cost.cost_plan import Cost
from sim.cost.finance import Finance
from sim.cost.operations import Operations
from sim.cost.revenue import Revenue
from sim.cost.site import Site
from sim.cost.token_api import Api
from sim.failures import FailureSpec, SpotInterruptions
from sim.memory.lora import LoraAdapters
from sim.memory.weights import KvTier
from sim.message import Message
from sim.power import Power
from sim.registry import Registry
from sim.routing import LeastOutstanding, Routing
from sim.routing.admission import Admission
from sim.routing.kv_transfer import KvTransfer, Role
from sim.scenario.replica_schedule import ReplicaSchedule
from sim.scenario.slo import Slo
from sim.spec import Count, NonNegative, Positive, Spec, Tagged, WholeNumber
from sim.steptime.affine import Affine, RegisteredStepTime
from sim.steptime.collective import NetworkSpec
from sim.steptime.options import Roofline
from sim.workload import MergedWorkload, Workload
from sim.workload.client import Client
from sim.workload.tenants import RateLimit
from sim.yamlio import MOST_CHARACTERS

T = TypeVar("T")

INVISIBLE = ("Cc", "Cf", "Zl", "Zp")
"""Unicode categories of control and format characters: zero-width, bidirectional, line separators."""
LONGEST_NAME = 200
"""Longest name that tables, charts and folders can show [characters]."""


def _readable(name: str) -> str:
    """Check that a name is readable, so that no two names look alike in tables and charts."""
    if "\n" in name or "\t" in name or "\r" in name:
        raise ValueError("a name is on one line, without tabs")
    if name != name.strip():
        raise ValueError(Message("a name begins and ends without blanks: {name!r}", name))
    for character in name:
        if category(character) in INVISIBLE:
            raise ValueError(
                Message("a name holds no invisible characters: U+{code:04X} in {name!r}", ord(character), name)
            )
    return name


Name = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME), AfterValidator(_readable)]

GridSweep = dict[str, tuple[Any, ...]]
"""Axis (dotted path) -> values: every combination is a point."""
PointSweep = tuple[dict[str, Any], ...]
"""Explicit points: dotted path -> value."""


def _seconds_or_auto(value: Any) -> Any:
    if isinstance(value, str) and value != "auto":
        raise ValueError(Message("a number of seconds or auto is needed, not {value!r}", value))
    return value


SecondsOrAuto = Annotated[NonNegative | Literal["auto"], BeforeValidator(_seconds_or_auto)]


BuiltinStepTime = Affine | Roofline | AffineBatch | OnePass
PoolStepTime = Annotated[BuiltinStepTime, Tagged("model"), Registry("steptime", RegisteredStepTime, BuiltinStepTime)]
"""Step-time model of a pool: of steps of tokens, or of batches that are answered in one pass."""


class InheritedKeys(Spec):
    """Keys that may be given at the top, in a fleet or in a pool; the nearest one applies."""

    model: str | None = None
    """Id in data/models, or the path of a Hugging Face config.json (relative to the scenario)."""
    checkpoint: Annotated[str, Field(max_length=LONGEST_NAME), AfterValidator(_readable)] | None = None
    """Published checkpoint of `model` that the servers load, such as meta-llama/Llama-3.1-70B-Instruct, for deployments
    that `export` writes; results do not depend on it. Default: the model's own name on the Hub."""
    quantization: str | None = None
    """Id in data/quantizations; none: the model's own dtype."""
    kv_cache_dtype: KvCacheDtype | None = None
    """Storage of the KV cache; auto: the activations' 16 bit."""
    kernel: str | None = None
    """Kernel of quantised matrix products, an id in data/kernels. Default: the usual kernel of the format."""
    engine: str | None = None
    """Id in data/engines: scheduler, host overheads, memory reserves and default limits."""
    calibration: str | None = None
    """File that `gpufleet calibrate` has written (relative to the scenario); it applies to pools of its GPU."""
    max_model_len: Count | None = None
    """Longest prompt + output [tokens]. Default: the model's longest context."""
    power: Power | None = None
    """Power model of the GPUs. Default: power by the load of the GPUs."""


class Service(InheritedKeys):
    """Service of a scenario: its model, workload and service level."""

    name: Name
    """Name of the service, by which pools refer to it and outputs show it."""
    workload: Workload
    """Arrivals and lengths, or a trace."""
    slo: Slo = Slo()
    """Limits of its requests."""
    priority: int | None = None
    """Priority of all its requests, lower first, with `scheduling: priority` in a shared pool. Default: that of tenants
    or the trace, else 0."""
    weight: Positive = 1.0
    """Fair-share weight with `scheduling: fair` in a shared pool: a service of weight 2 gets twice the tokens of one of
    weight 1."""
    rate_limit: RateLimit | None = None
    """Rate limit of the service; requests above it are refused. Default: none."""


class Pool(InheritedKeys):
    """Pool of identical replicas of one model on one kind of GPU."""

    name: Name | None = None
    """Name in the outputs. Default: the GPU's id."""
    role: Role = "both"
    """Role of the replicas. prefill: compute prompts; decode: answer with KV computed elsewhere; both: serve whole
    requests."""
    service: str | None = None
    """Name of the pool's service among the scenario's `services`; required where there are any."""
    services: tuple[str, ...] = ()
    """Several services that share the replicas, in place of `service`."""
    sharing: Sharing | None = None
    """Way in which the models of these services share a replica; required for several models."""
    gpu: str | None = None
    """GPU of the pool, an id in data/gpus. Optional only with an explicit step time and block pool."""
    mig: str | None = None
    """MIG profile as nvidia-smi names it, such as 1g.10gb; a replica is then a slice of the GPU. Default: whole
    GPUs."""
    replicas: Count = 1
    """Number of replicas: copies of the model with their own GPUs, or with `mig` their own slices."""
    tensor_parallel_size: Count = 1
    """GPUs that share every layer."""
    pipeline_parallel_size: Count = 1
    """Stages that hold the layers in turn."""
    data_parallel_size: Count = 1
    """Ranks of one replica, each with its own requests."""
    enable_expert_parallel: bool = False
    """Spread the experts over all GPUs of the replica; its data-parallel ranks then step together."""
    kv_tiers: tuple[KvTier, ...] = ()
    """Storage tiers for KV blocks evicted from the GPU, the nearest first. Default: evicted blocks are lost."""
    lora: LoraAdapters | None = None
    """Slots for LoRA adapters. Default: none; requests use the base model."""
    cpu_offload_gb: NonNegative | None = None
    """Weights per GPU that stay in host memory, as vLLM's option says [GiB]."""
    n_gpu_layers: WholeNumber | None = None
    """Layers on the GPU, as llama.cpp counts them (the LM head is one more); the CPU computes the others."""
    n_cpu_moe: WholeNumber | None = None
    """Leading layers whose routed experts the CPU computes from host memory, as llama.cpp's option says."""
    schedule: ReplicaSchedule | None = None
    """Daily schedule of the replicas. Default: they always run."""
    autoscaling: Autoscaling | None = None
    """Autoscaler of the pool. It starts with `replicas`; default: `min_replicas`, and at least one."""
    cold_start: ColdStart | None = None
    """Stages of a replica's start."""
    failures: FailureSpec | None = None
    """Failures of components, repairs and spares. Default: nothing fails."""
    spot: SpotInterruptions | None = None
    """Interruptions of replicas that are rented as spot instances. Default: none."""
    server: str | None = None
    """Id in data/servers. Left out: GPUs without a chassis to buy or to power."""
    link: str | None = None
    """Id in data/links. Left out: the server's, else the GPU's own."""
    network: NetworkSpec | None = None
    """Network between the servers of a replica that fills several. Default: `link` joins all of its GPUs."""
    kv_bytes_per_token: Positive | None = None
    """KV bytes of one token, for a pool with an explicit step time; with a model they are computed."""
    steptime: PoolStepTime | None = None
    """Step-time or batch-time model. Default: a roofline of the model on the GPU."""
    batching: Batching = OfEngine()
    """Batching policy and its limits. Default policy: the engine's."""
    cost: Cost | None = None
    """Cost of this pool, where it differs from the fleet's `cost`."""

    @property
    def served(self) -> tuple[str, ...]:
        """Names of the services of the pool; empty where the scenario has a single service."""
        return self.services or ((self.service,) if self.service is not None else ())

    @property
    def most_replicas(self) -> int:
        """Number of replicas for which there are hardware and engines."""
        return self.replicas if self.autoscaling is None else self.autoscaling.max_replicas

    @property
    def first_replicas(self) -> int:
        """Number of replicas that an autoscaled pool starts with."""
        if self.autoscaling is None or "replicas" in self.model_fields_set:
            return self.replicas
        return max(1, self.autoscaling.min_replicas)


class Fleet(InheritedKeys):
    """Candidate fleet: pools behind one router, and their costs."""

    name: Name
    """Name of the fleet in the outputs."""
    pools: Annotated[tuple[Pool, ...], Field(min_length=1)]
    """Groups of identical replicas."""
    routing: Routing = LeastOutstanding(policy="least_outstanding")
    """Routing policy, which chooses a replica of any pool for each request."""
    kv_transfer: KvTransfer | None = None
    """Transfer of prompts' KV between pools with roles."""
    admission: Admission | None = None
    """Admission control of the gateway against overload. Default: every request is accepted."""
    cost: Cost | None = None
    """Cost of the fleet. Default: no money columns, unless each pool has its own cost."""
    site: Site | None = None
    """Site of the fleet. Default: the scenario's."""
    finance: Finance | None = None
    """Financing of the fleet. Default: the scenario's."""
    operations: Operations | None = None
    """Operating expenses of the fleet. Default: the scenario's."""
    api: Api | None = None
    """Hosted API to compare with. Default: the scenario's."""
    revenue: Revenue | None = None
    """Prices at which the fleet's tokens are sold. Default: the scenario's."""
    carbon: Carbon | None = None
    """Carbon accounting of the fleet. Default: the scenario's."""

    @property
    def costs(self) -> tuple[Cost | None, ...]:
        """Cost section of each pool: its own, else the fleet's."""
        return tuple(self.cost if pool.cost is None else pool.cost for pool in self.pools)

    @property
    def is_priced(self) -> bool:
        """True if any pool has a cost."""
        return any(cost is not None for cost in self.costs)

    @property
    def has_own_costs(self) -> bool:
        """True if any pool has a cost section of its own."""
        return any(pool.cost is not None for pool in self.pools)


class Experiment(InheritedKeys):
    """Keys of every scenario: fleets x sweep points x replications under the same workload."""

    name: Annotated[str, Field(max_length=LONGEST_NAME), AfterValidator(_readable)]
    """Name of the scenario and of its output folder. Default: the file's name."""
    question: Annotated[str, Field(max_length=MOST_CHARACTERS)] = ""
    """Question that the scenario answers. Default: the comment that opens the file."""
    workload: Workload = Field(default=cast(Workload, None), validate_default=False)
    """Arrivals and lengths, or a trace; with `services` each has its own."""
    services: tuple[Service, ...] = ()
    """Several services that share a fleet, each with pools of its own; left out: one, which `workload` and `slo`
    describe."""
    service: str | None = None
    """Name of the only service to simulate: pools of the others are left out, and every command works."""
    tenant: str | None = None
    """Tenant whose load `capacity` and `breakeven` raise while that of the others is constant: one of
    `workload.tenants` (with several services, of the chosen service's). Default: all tenants in proportion."""
    horizon_s: Positive | None = None
    """End of arrivals [s]; a trace without it runs until its last request has finished."""
    warmup_s: SecondsOrAuto = 0.0
    """Warm-up [s]: requests that arrive before are simulated and not measured. auto: until the run has settled, by the
    rule MSER-5 (docs/statistics.md), separately in each replication."""
    drain_limit_s: NonNegative | None = None
    """Longest time that the fleet may run after the horizon [s]. Default: as long as the horizon."""
    meter_interval_s: Positive = 300.0
    """Longest interval of a usage row [s]."""
    starts_at: Moment | None = None
    """Date and time of day at simulated time 0, for electricity by the hour: 2026-07-01T08:00:00 is local time in the
    site's `timezone`, 2026-07-01T08:00:00+02:00 one moment everywhere. Meters are then read at every full hour of the
    local clock, too."""
    seed: WholeNumber = 0
    """Seed of all random numbers; the same seed gives the same results."""
    replications: Count = 1
    """Number of runs with other random numbers, from which confidence intervals are computed."""
    measured_at: Literal["client", "engine"] = "client"
    """Point of latency measurement: client includes the API server's time per request, engine excludes it."""
    requests: Literal["csv", "parquet", "none"] = "csv"
    """Format of the request table; csv turns into parquet from 200,000 rows."""
    cost_per_request: bool = False
    """True to book each request's part of the cost: a column cost_usd in the request table, and percentiles."""
    slo: Slo = Slo()
    """Latency limits of the requests and the fraction that must meet them. Default: no limits."""
    client: Client | None = None
    """Timeouts and retries of clients. Default: one attempt without a timeout."""
    site: Site | None = None
    """Electricity price, PUE, hosting."""
    finance: Finance | None = None
    """Financing terms, which convert capital to a rate."""
    operations: Operations | None = None
    """Operating expenses beside hardware, space and electricity: network, maintenance, failures, staff, software."""
    api: Api | None = None
    """Prices of a hosted API, to compare the cost of the same tokens."""
    revenue: Revenue | None = None
    """Prices at which the tokens are sold, or the margin that they shall leave."""
    carbon: Carbon | None = None
    """Greenhouse gases of the electricity and of manufacturing the machines."""
    fleets: Annotated[tuple[Fleet, ...], Field(min_length=1)] = Field(default=(), validate_default=False)
    """Candidate fleets to compare. Optional for `gpufleet size`, where `size` defines the candidates."""
    sweep: GridSweep | PointSweep | None = None
    """Dotted paths to lists of values (a grid), or a list of explicit points."""

    @model_validator(mode="after")
    def _something_to_do(self) -> Self:
        if self.services:
            if self.workload is not None and not isinstance(self.workload, MergedWorkload):
                raise ValueError("each of the services has its own workload: remove workload")
            if known := [service.name for service in self.services if service.workload.sent_before]:
                raise ValueError(
                    Message("services: {service}: sent_before is for a fleet with one service: remove it", known[0])
                )
            parts = {service.name: service.workload for service in self.services}
            object.__setattr__(
                self, "workload", MergedWorkload.of(parts)
            )  # set past the frozen model; a dump states the services instead
        elif self.workload is None:
            raise ValueError("workload: is missing")
        return self

    def service_of(self, pool: Pool) -> Service | None:
        """Return the service of *pool*, the first of several; None where the scenario has a single service."""
        name = pool.service or next(iter(pool.services), None)
        return next((one for one in self.services if one.name == name), None)


def nearest(*levels: T | None) -> T | None:
    """Return the first of *levels* that is given: pool, then fleet, then scenario."""
    return next((level for level in levels if level is not None), None)


_SHARED_KEYS = (name for name in Fleet.model_fields if name in Experiment.model_fields)
TERMS = tuple(name for name in _SHARED_KEYS if name not in ("name", *InheritedKeys.model_fields))
"""Names of the sections of prices and terms: the fleet's own, else the scenario's."""
