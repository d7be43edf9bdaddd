"""Checks of routers, queues, adapters and roles against the pools behind them."""

from collections.abc import Iterator, Sequence

from sim.batching import Vllm
from sim.message import Message
from sim.routing import ByLength
from sim.routing.affinity import AdapterAffinity
from sim.routing.prefix_cache import CacheAware, Exact, PrefixScore
from sim.scenario.experiment import Experiment
from sim.scenario.resolving.bind import BoundPool
from sim.scenario.schema import Fleet, Scenario
from sim.scenario.slo import Slo
from sim.validation import Place, ValidationIssue, did_you_mean
from sim.workload import TraceError, Workload

QUEUE_LIMITS = ("max_num_queued_reqs", "max_num_queued_tokens", "max_queued_requests")
DIFFERS = "differs from that of pool 0: the KV of one cannot be read by the other"


def routing_issues(
    fleet: Fleet, bound: Sequence[BoundPool], pools: Sequence[str], place: Place
) -> Iterator[ValidationIssue]:
    """Yield issues of a router: unknown pools, pools that get no requests, caches that report nothing."""
    routing = fleet.routing
    if isinstance(routing, CacheAware | PrefixScore) and isinstance(routing.index, Exact):
        for pool, name in zip(bound, pools, strict=True):
            if why := _reports_nothing(pool):
                yield ValidationIssue(
                    (*place, "routing", "index"),
                    Message("exact needs reports of the caches, and pool {name} {why}", name, why),
                )
    if not isinstance(routing, ByLength):
        return
    for i, one in enumerate(routing.classes):
        for name in one.pools:
            if name not in pools:
                at = (*place, "routing", "classes", i, "pools", name)
                yield ValidationIssue(
                    at,
                    Message("there is no pool {name!r} in this fleet{hint}", name, did_you_mean(name, pools)),
                )
    reached = {name for one in routing.classes for name in one.pools}
    for name in pools:
        if name not in reached:
            yield ValidationIssue(
                (*place, "routing", "classes"), Message("no class is routed to the pool {name}: it would be idle", name)
            )


def _reports_nothing(pool: BoundPool) -> str:
    """Return the reason why the cache of *pool* has no single list of blocks to report; empty if it has."""
    batching = pool.batching
    if not getattr(batching, "enable_prefix_caching", False):
        return "has no prefix cache: set enable_prefix_caching: true"
    if pool.layout.enable_expert_parallel and pool.layout.data_parallel_size > 1:
        return "has ranks that step together, each with its own cache: choose index: {kind: approximate}"
    return ""


def fair_issues(scenario: Experiment, bound: Sequence[BoundPool], place: Place) -> Iterator[ValidationIssue]:
    """Yield issues of fair scheduling without tenants, or with queues that do not support it."""
    for j, pool in enumerate(bound):
        if getattr(pool.batching, "scheduling", "") != "fair":
            continue
        at = (*place, "pools", j, "batching", "scheduling")
        service = scenario.service_of(pool.spec)
        workload = scenario.workload if service is None else service.workload
        if not workload.names_tenants and not pool.spec.services:
            text = "fair shares a replica among tenants, and the workload has none: give tenants"
            yield ValidationIssue(at, text, lacks=("workload.tenants",))
        if pool.layout.pipeline_parallel_size > 1 or getattr(pool.batching, "kv_groups", None) not in (None, "mean"):
            yield ValidationIssue(at, "fair needs one rank and one kind of KV blocks: no pipeline stages, no kv_groups")


def queue_limit_issues(
    scenario: Experiment, fleet: Fleet, bound: Sequence[BoundPool], place: Place
) -> Iterator[ValidationIssue]:
    """Yield issues of queue limits, and of servers that end answers with an error.

    Queue limits do not apply to servers that share their GPUs, or to requests whose answers began elsewhere.
    """
    resumes = scenario.client is not None and scenario.client.retry == "resume"
    migrates = any(pool.spot is not None and pool.spot.on_notice == "migrate" for pool in fleet.pools)
    for j, pool in enumerate(bound):
        limits = pool.batching
        unified = (*place, "pools", j, "batching", "kv_unified")
        if getattr(limits, "kv_unified", False) and pool.spec.sharing is not None:
            yield ValidationIssue(unified, "needs a pool with one model")
        if getattr(limits, "kv_unified", False) and resumes:
            yield ValidationIssue(unified, "cannot be combined with client.retry: resume: the error ends an answer")
        if not getattr(limits, "limits_its_queue", False):
            continue
        at = (*place, "pools", j, "batching")
        given = [key for key in QUEUE_LIMITS if getattr(limits, key, None) is not None]
        if pool.spec.sharing is not None:
            yield ValidationIssue(
                (*at, given[0]), "is the limit of one server, and each of the several models here has its own server"
            )
        if pool.spec.role != "both":
            yield ValidationIssue(
                (*at, given[0]), "needs a pool without a role: prompts that are handed over have no limit"
            )
        if (resumes or migrates) and "max_num_queued_tokens" in given:
            why = "client.retry: resume" if resumes else "spot.on_notice: migrate"
            text = Message("cannot be combined with {why}: answers that continue here started on another replica", why)
            yield ValidationIssue((*at, "max_num_queued_tokens"), text)


def adapter_use_issues(
    scenario: Experiment, fleet: Fleet, bound: Sequence[BoundPool], place: Place
) -> Iterator[ValidationIssue]:
    """Yield an issue for adapter requests to a pool without slots, or for slots without adapter requests."""
    of_services = {one.name: one.workload.uses_adapters for one in scenario.services}
    uses_adapters = scenario.workload.uses_adapters or any(of_services.values())
    for j, pool in enumerate(bound):
        served = [of_services[name] for name in fleet.pools[j].served if name in of_services]
        here = any(served) if served else uses_adapters
        if here and pool.spec.lora is None:
            yield ValidationIssue((*place, "pools", j, "lora"), "is missing: requests of the workload use adapters")
        if not here and pool.spec.lora is not None:
            text = "has slots that no request uses: give the workload adapters, or a tenant its adapter"
            yield ValidationIssue((*place, "pools", j, "lora"), text, lacks=("workload.adapters", "workload.tenants"))
    if not uses_adapters and isinstance(fleet.routing, AdapterAffinity):
        text = "routes by adapter, but no request uses an adapter"
        yield ValidationIssue((*place, "routing"), text, lacks=("workload.adapters", "workload.tenants"))


def level_issues(scenario: Scenario) -> Iterator[ValidationIssue]:
    """Yield issues of tenants' limits: unknown tenants, missing limits."""
    levels: list[tuple[Slo, Workload, Place]] = [
        (service.slo, service.workload, ("services", i, "slo")) for i, service in enumerate(scenario.services)
    ]
    for slo, workload, place in levels or [(scenario.slo, scenario.workload, ("slo",))]:
        if slo.tenants is None:
            continue
        try:
            known = workload.known_tenants
        except TraceError:
            continue  # `verify` reports the error
        if not slo.goals:
            yield ValidationIssue(
                (*place, "tenants"), "leaves the other tenants without limits: give ttft_s, tpot_s or e2e_s"
            )
        for name, level in slo.tenants.items():
            if name not in known:
                text = Message("there is no tenant {name!r} in the workload{hint}", name, did_you_mean(name, known))
                yield ValidationIssue((*place, "tenants", name), text)
            if not level.goals:
                yield ValidationIssue((*place, "tenants", name), "has no limit: give ttft_s, tpot_s or e2e_s")


def role_issues(
    scenario: Experiment, fleet: Fleet, bound: Sequence[BoundPool], place: Place
) -> Iterator[ValidationIssue]:
    """Yield issues of pool roles: missing counterparts, engines that cannot, and options that roles exclude."""
    roles = [pool.role for pool in fleet.pools]
    if set(roles) == {"both"}:
        if fleet.kv_transfer is not None:
            yield ValidationIssue((*place, "kv_transfer"), "transfers nothing: no pool has role: prefill")
        return
    if fleet.kv_transfer is None:
        yield ValidationIssue(
            (*place, "kv_transfer"), "is missing: pools with a role need a link, e.g. {link: infiniband-ndr}"
        )
    for places, whose in _transferring_pools(scenario, fleet):
        own = {fleet.pools[j].role for j in places}
        if "decode" in own and "prefill" not in own:
            first = next(j for j in places if fleet.pools[j].role == "decode")
            text: str = Message("{whose}decode needs another pool with role: prefill", whose)
            yield ValidationIssue((*place, "pools", first, "role"), text)
        elif own == {"prefill"}:
            text = Message("{whose}prefill needs another pool with role: decode or both", whose)
            yield ValidationIssue((*place, "pools", places[0], "role"), text)
    if fleet.admission is not None:
        text = "cannot be combined with admission: a gateway does not see requests between two replicas"
        yield ValidationIssue((*place, "kv_transfer"), text)
    if scenario.client is not None and scenario.client.retry == "resume":
        yield ValidationIssue(
            (*place, "kv_transfer"), "cannot be combined with client.retry: resume: prompts start over"
        )
    if scenario.slo is not None and scenario.slo.availability is not None:
        text = "cannot be combined with slo.availability: replicas of one role do not replace those of another"
        yield ValidationIssue((*place, "kv_transfer"), text)
    for j, pool in enumerate(fleet.pools):
        if pool.sharing is not None and pool.role != "both":
            yield ValidationIssue(
                (*place, "pools", j, "role"), "cannot be combined with several models: they take turns on a GPU"
            )
    routings = {"routing": fleet.routing}
    if fleet.kv_transfer is not None:
        routings["kv_transfer.routing"] = fleet.kv_transfer.routing
    for name, routing in routings.items():
        if isinstance(routing, ByLength) or isinstance(getattr(routing, "index", None), Exact):
            what = "classes of pools" if isinstance(routing, ByLength) else "an exact index"
            yield ValidationIssue(
                (*place, *name.split(".")), Message("{feature} and roles of pools cannot be combined", what)
            )
    found = [
        one
        for places, _ in _transferring_pools(scenario, fleet)
        if {fleet.pools[j].role for j in places} != {"both"}
        for j in places
        for one in _pool_role_issues(bound[j], bound[places[0]], (*place, "pools", j))
    ]
    yield from dict.fromkeys(found)  # several services may share the pool


def _transferring_pools(scenario: Experiment, fleet: Fleet) -> Iterator[tuple[list[int], str]]:
    """Yield the indices of the pools that transfer a service's requests, with the service's name as prefix."""
    every = list(range(len(fleet.pools)))
    if not scenario.services:
        yield every, ""
    for one in scenario.services:
        if own := [j for j in every if one.name in fleet.pools[j].served]:
            yield own, f"{one.name}: "


def _pool_role_issues(pool: BoundPool, first: BoundPool, place: Place) -> Iterator[ValidationIssue]:
    """Yield issues of one pool in a fleet with roles."""
    spec, batching = pool.spec, pool.batching
    if not isinstance(batching, Vllm):
        yield ValidationIssue(
            (*place, "batching", "policy"), "only vllm can send prompts to other replicas and receive them"
        )
    elif batching.kv_groups not in (None, "mean"):
        yield ValidationIssue(
            (*place, "batching", "kv_groups"), "KV in groups is not transferred between pools: remove it"
        )
    if pool.layout.pipeline_parallel_size > 1:
        yield ValidationIssue(
            (*place, "pipeline_parallel_size"), "stages cannot send prompts to other replicas: use tensor_parallel_size"
        )
    if spec.spot is not None and spec.spot.on_notice == "migrate":
        yield ValidationIssue(
            (*place, "spot", "on_notice"), "migrate cannot be combined with roles of pools: prompts start over"
        )
    if spec.role == "prefill" and pool.model is None and spec.kv_bytes_per_token is None:
        yield ValidationIssue(
            (*place, "kv_bytes_per_token"), "is missing: without a model the KV bytes of a token are unknown"
        )
    if pool.model != first.model or pool.kv_cache_dtype != first.kv_cache_dtype:
        key = "model" if pool.model != first.model else "kv_cache_dtype"
        yield ValidationIssue((*place, key), DIFFERS)
    bytes_per_token = {one.spec.kv_bytes_per_token for one in (pool, first) if one.model is None} - {None}
    if len(bytes_per_token) > 1:
        yield ValidationIssue((*place, "kv_bytes_per_token"), DIFFERS)
