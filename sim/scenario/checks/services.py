"""Checks of several services on one fleet, and of services that answer in one pass.

One of several services can also be extracted as a scenario of its own, on which every command works.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from sim.batching import Dynamic
from sim.batching.sharing import Resident, Swapped
from sim.batchtime.one_pass import AffineBatch, OnePass
from sim.batchtime.roofline import missing_work
from sim.catalogue.catalog import Catalog
from sim.cost.revenue import Revenue
from sim.message import Message
from sim.routing import ByLength
from sim.routing.prefix_cache import Exact
from sim.scenario.checks.hardware import batch_issues
from sim.scenario.resolving.bind import BoundPool, one_pass_step_time
from sim.scenario.resolving.scheduler import AHEAD_SWITCHES
from sim.scenario.schema import Fleet, Pool, Scenario
from sim.scenario.slo import Slo
from sim.scenario.sweep import as_data
from sim.validation import Place, ValidationIssue, did_you_mean
from sim.workload import CsvTrace, TraceError, Workload

OWN = ("name", "workload", "slo", "priority", "weight", "rate_limit")
"""Keys of a service that do not choose what runs; priority and weight mean nothing without the others."""


def with_one_service(scenario: Scenario) -> Scenario:
    """Return *scenario* with only its chosen `service`: its workload and limits, and its pools of every fleet.

    The pools have their own GPUs then: slices of other services that would share a card are not included. A scenario
    that chooses no service is returned unchanged, and so is one whose chosen service shares a pool, as its results
    depend on the others.
    """
    if scenario.service is None or shares_a_pool(scenario):
        return scenario
    data = as_data(scenario)
    services, name = data.pop("services"), data.pop("service")
    chosen = next(one for one in services if one["name"] == name)
    choices = {key: value for key, value in chosen.items() if key not in OWN}
    data |= {key: chosen[key] for key in ("workload", "slo") if key in chosen}
    if data.get("size"):
        data |= choices  # the settings from which `size` chooses are kept
    for fleet in data.get("fleets", ()):
        own = (pool for pool in fleet["pools"] if pool.get("service") == name)
        fleet["pools"] = [choices | {key: value for key, value in pool.items() if key != "service"} for pool in own]
        if not any(pool.get("role") == "prefill" for pool in fleet["pools"]):
            fleet.pop("kv_transfer", None)
    if data.get("sweep"):
        data["sweep"] = _sweep(data["sweep"], [f"services.{name}.", f"services.{services.index(chosen)}."])
    return Scenario.model_validate(data)


def shares_a_pool(scenario: Scenario) -> bool:
    """Return True if the chosen service has a pool together with others."""
    return any(scenario.service in pool.services for fleet in scenario.fleets for pool in fleet.pools)


def _sweep(sweep: Any, prefixes: list[str]) -> Any:
    """Return the axes of the chosen service under their names in a scenario of its own."""
    if isinstance(sweep, list | tuple):
        return [_sweep(point, prefixes) for point in sweep]
    renamed = {}
    for axis, value in sweep.items():
        for prefix in prefixes:
            axis = axis.removeprefix(prefix)
        renamed[axis] = value
    return renamed


SWITCHED = ("schedule", "autoscaling", "failures")
"""Keys that several services can only use in pools with one model."""
OF_ONE_WORKLOAD = ("load_profile", "futures")
"""Sections that are not available with several services."""
TOKEN_KEYS = ("engine", "calibration", "kernel", "kv_cache_dtype", "max_model_len", "cpu_offload_gb")
"""Keys that a one-pass pool cannot have; at the top they may apply to other pools."""


def service_workload_issues(scenario: Scenario) -> Iterator[ValidationIssue]:
    """Yield issues of workloads with several or one-pass services: lengths, traces, mixed routers."""
    yield from _tenant_issues(scenario)
    yield from _sale_issues(scenario)
    if scenario.services:
        yield from _services_issues(scenario)
        return
    yield from _unknown_service_issues(scenario)
    workload = scenario.workload
    dynamic = [[isinstance(pool.batching, Dynamic) for pool in fleet.pools] for fleet in scenario.fleets]
    for i, pools in enumerate(dynamic):
        if any(pools) and not all(pools):
            text = "serves a language model and a service behind one router: give each a fleet of its own"
            yield ValidationIssue(("fleets", i), text)
    served = [one for pools in dynamic for one in pools]
    if not scenario.fleets and scenario.size is not None:
        served = [isinstance(batching, Dynamic) for batching in scenario.size.batching]
    yield from _trace_issues(workload, served, ("workload", "trace"))
    if any(served):
        yield from _token_limit_issues(scenario.slo, ("slo",))
    if workload.lengths is not None and any(served):
        text = "a request of a service is one unit of work: remove lengths, or policy: dynamic"
        yield ValidationIssue(("workload", "lengths"), text)
    if workload.trace is None and workload.lengths is None and not (served and all(served)):
        text = "needs arrivals and lengths, or a trace; only arrivals is given"
        yield ValidationIssue(("workload",), text)


def _sale_issues(scenario: Scenario) -> Iterator[ValidationIssue]:
    """Yield an issue for each price of tokens of an unknown service."""
    names = [one.name for one in scenario.services]
    sales: list[tuple[Place, Revenue | None]] = [((), scenario.revenue)]
    sales += [(("fleets", i), fleet.revenue) for i, fleet in enumerate(scenario.fleets)]
    for holder, revenue in sales:
        for name in revenue.services if revenue is not None else ():
            if name not in names and name != scenario.service:
                hint = did_you_mean(name, names) if names else ": the scenario has no services"
                place = (*holder, "revenue", "services", name)
                yield ValidationIssue(place, Message("unknown service {name!r}{hint}", name, hint))


def _tenant_issues(scenario: Scenario) -> Iterator[ValidationIssue]:
    """Yield an issue for an unknown tenant, or for one whose load cannot be raised alone."""
    name = scenario.tenant
    if name is None:
        return
    chosen = [one.workload for one in scenario.services if one.name == scenario.service]
    if scenario.services and not chosen:
        yield ValidationIssue(("tenant",), "is a tenant of one service: name it with `service: <name>`")
        return
    workload = chosen[0] if chosen else scenario.workload
    names = [one.name for one in workload.tenants]
    if name not in names:
        hint = did_you_mean(name, names) if names else ": the workload has no tenants"
        yield ValidationIssue(("tenant",), Message("there is no tenant {name!r}{hint}", name, hint))
    elif workload.trace is not None or workload.mean_rate_rps() is None:
        yield ValidationIssue(("tenant",), "has no request rate to raise: requests are not drawn at a rate here")
    elif not next(one.share for one in workload.tenants if one.name == name):
        yield ValidationIssue(
            ("tenant",), Message("{name} has no share of the requests at the start: give it one", name)
        )


def _unknown_service_issues(scenario: Scenario) -> Iterator[ValidationIssue]:
    """Yield issues of service names in a scenario without services."""
    if scenario.service is not None:
        yield ValidationIssue(("service",), "names one of several services, and the scenario has no services")
    for i, fleet in enumerate(scenario.fleets):
        for j, pool in enumerate(fleet.pools):
            for key, name in (("service", pool.service), ("services", next(iter(pool.services), None))):
                if name is not None:
                    text = Message("there is no service {name!r}: the scenario has no services", name)
                    yield ValidationIssue(("fleets", i, "pools", j, key), text)
            if pool.sharing is not None and not pool.services:
                yield ValidationIssue(
                    ("fleets", i, "pools", j, "sharing"), "is for services that share the pool: name them"
                )


def _services_issues(scenario: Scenario) -> Iterator[ValidationIssue]:
    """Yield issues of services without pools, pools without a service, and options that exclude services."""
    names = [service.name for service in scenario.services]
    if scenario.service is not None and scenario.service not in names:
        yield ValidationIssue(
            ("service",),
            Message("there is no service {name!r}{hint}", scenario.service, did_you_mean(scenario.service, names)),
        )
    for i, fleet in enumerate(scenario.fleets):
        for j, pool in enumerate(fleet.pools):
            place: Place = ("fleets", i, "pools", j, "services" if pool.services else "service")
            if not pool.served:
                yield ValidationIssue(
                    place, Message("is missing: which of the services ({names}) it serves", ", ".join(names))
                )
            for name in pool.served:
                if name not in names:
                    yield ValidationIssue(
                        place, Message("there is no service {name!r}{hint}", name, did_you_mean(name, names))
                    )
            yield from _names_issues(pool, ("fleets", i, "pools", j))
        served = {name for pool in fleet.pools for name in pool.served}
        missing = [name for name in names if name not in served]
        if missing and served.issubset(names):
            yield ValidationIssue(("fleets", i, "pools"), Message("none serves {missing}", " and ".join(missing)))
        if isinstance(fleet.routing, ByLength):
            text = "divides the requests of one service by their lengths; with several services choose another policy"
            yield ValidationIssue(("fleets", i, "routing", "policy"), text)
    for i, service in enumerate(scenario.services):
        pools = [pool for fleet in scenario.fleets for pool in fleet.pools if service.name in pool.served]
        yield from _unit_issues(service.workload, pools, ("services", i, "workload"))
        if any(isinstance(pool.batching, Dynamic) for pool in pools):
            yield from _token_limit_issues(service.slo, ("services", i, "slo"))
        shared = not pools or any(pool.services for pool in pools)  # `size` itself finds pools for all services
        if service.weight != 1 and not shared:
            yield ValidationIssue(
                ("services", i, "weight"), "applies among services that share a pool, and this service shares none"
            )
    yield from _single_service_issues(scenario)


def _names_issues(pool: Pool, place: Place) -> Iterator[ValidationIssue]:
    """Yield issues of services that a pool names twice or in two ways."""
    if pool.services and pool.service is not None:
        yield ValidationIssue((*place, "service"), "conflicts with services: remove one of them")
    if len(pool.services) == 1:
        yield ValidationIssue((*place, "services"), "has one name: use service")
    if twice := sorted({name for name in pool.services if pool.services.count(name) > 1}):
        yield ValidationIssue((*place, "services"), Message("names {twice} twice", ", ".join(twice)))
    if pool.sharing is not None and not pool.services:
        yield ValidationIssue((*place, "sharing"), "is for services that share the pool: name them")


def sharing_issues(
    scenario: Scenario, fleet: Fleet, models: Sequence[BoundPool], place: Place
) -> Iterator[ValidationIssue]:
    """Yield issues of options that services cannot use in a shared pool, above all with several *models*."""
    pool = models[0].spec
    if not pool.services:
        return
    if scenario.requests == "none":
        yield ValidationIssue(("requests",), "a shared pool is billed by requests: they must be csv or parquet")
    routing = getattr(fleet.routing, "index", None)
    if isinstance(routing, Exact):
        text = "exact needs caches of one service, and services share pools here: choose index: {kind: approximate}"
        yield ValidationIssue((*place[:2], "routing", "index"), text)
    for key in ("mig", "spot", "kv_tiers") + (() if len(models) == 1 else ("lora", *SWITCHED)):
        if getattr(pool, key):
            yield ValidationIssue((*place, key), "cannot be combined with services that share the pool")
    if any(isinstance(one.batching, Dynamic) for one in models):
        yield ValidationIssue(
            (*place, "services"), "only language models share a pool: use mig, or instances of one service"
        )
        return
    if len(models) == 1:
        if pool.sharing is not None:
            yield ValidationIssue((*place, "sharing"), "all of its services run one model: remove it")
        return
    if pool.sharing is None:
        text = "is missing: its services run several models: {models: resident} or {models: swapped}"
        yield ValidationIssue((*place, "sharing"), text)
    for one in models:
        yield from _alternation_issues(one, place)
    yield from _memory_issues(pool, models, (*place, "sharing"))


def _alternation_issues(bound: BoundPool, place: Place) -> Iterator[ValidationIssue]:
    """Yield issues of engines that cannot alternate with others on a GPU."""
    if bound.layout.pipeline_parallel_size > 1:
        yield ValidationIssue(
            (*place, "pipeline_parallel_size"), "stages cannot share a GPU in turns with another model: must be 1"
        )
    if bound.layout.data_parallel_size > 1:
        yield ValidationIssue(
            (*place, "data_parallel_size"), "must be 1 together with another model: more ranks are more replicas"
        )
    for name in AHEAD_SWITCHES:
        if getattr(bound.batching, name, None):
            yield ValidationIssue((*place, "batching", name), "must be off together with another model")
    if bound.kv_layout is not None:
        text = Message(
            "{services}: KV in groups cannot share a GPU: set kv_groups: mean", " and ".join(bound.spec.services)
        )
        yield ValidationIssue((*place, "batching", "kv_groups"), text)


def _memory_issues(pool: Pool, models: Sequence[BoundPool], place: Place) -> Iterator[ValidationIssue]:
    """Yield issues of memory shares that are unknown or too large, and of models that cannot sleep."""
    if isinstance(pool.sharing, Swapped) and (pool.cold_start is None or pool.cold_start.sleep_level is None):
        yield ValidationIssue((*place[:-1], "cold_start"), "swapped models sleep: set sleep_level: 1 or 2")
    if not isinstance(pool.sharing, Resident):
        return
    given = pool.sharing.gpu_memory_utilization
    known = [name for one in models for name in one.spec.services]
    for name in given:
        if name not in known:
            text = Message("there is no service {name!r} in this pool{hint}", name, did_you_mean(name, known))
            yield ValidationIssue((*place, "gpu_memory_utilization", name), text)
    if given and any(not any(given.get(name) for name in one.spec.services) for one in models):
        yield ValidationIssue((*place, "gpu_memory_utilization"), "gives some models no memory: name a service of each")
    if sum(given.values()) > 1:
        yield ValidationIssue((*place, "gpu_memory_utilization"), "sums to more than 1")
    for one in models:
        if one.engine.memory is not None and one.engine.memory.share == "rest":
            text = Message("{id} uses a share of the free memory: only one model fits in a replica", one.engine.id)
            yield ValidationIssue((*place, "models"), text)


def _token_limit_issues(slo: Slo, place: Place) -> Iterator[ValidationIssue]:
    """Yield an issue for a limit on the time between tokens, which one-pass requests always meet."""
    if slo.tpot_s is not None:
        text = "limits the time between tokens, and a request of a service has one unit of work: use e2e_s"
        yield ValidationIssue((*place, "tpot_s"), text)


def _unit_issues(workload: Workload, pools: Sequence[Pool], place: Place) -> Iterator[ValidationIssue]:
    """Yield issues of lengths for one-pass requests, or of missing lengths for language models."""
    dynamic = [isinstance(pool.batching, Dynamic) for pool in pools]
    if workload.trace is None and workload.lengths is None and not all(dynamic):
        yield ValidationIssue(place, "needs arrivals and lengths, or a trace; only arrivals is given")
    if any(dynamic) and workload.lengths is not None:
        yield ValidationIssue((*place, "lengths"), "a request of a service is one unit of work: remove lengths")
    yield from _trace_issues(workload, dynamic, (*place, "trace"))
    if isinstance(workload.trace, CsvTrace) and workload.trace.service is None and _names_services(workload.trace):
        text = "has rows of several services in its column 'service': name one with service: <name>"
        yield ValidationIssue((*place, "trace"), text)


def _names_services(trace: CsvTrace) -> bool:
    try:
        return trace.requests(None).service is not None
    except TraceError:
        return False  # `verify` reports the error


def _trace_issues(workload: Workload, dynamic: Sequence[bool], place: Place) -> Iterator[ValidationIssue]:
    """Yield issues of traces with tokens for one-pass services, or without tokens for language models."""
    if workload.trace is None:
        return
    try:
        units = workload.of_units
    except TraceError:
        return  # `verify` reports the error
    if any(dynamic) and not units:
        yield ValidationIssue(place, "brings tokens, and a request of a service is one unit: a CSV of arrival_s alone")
    elif units and not all(dynamic):
        yield ValidationIssue(
            place, "brings no tokens: requests of a language model need prompt_tokens and output_tokens"
        )


def _single_service_issues(scenario: Scenario) -> Iterator[ValidationIssue]:
    """Yield issues of settings and sections that apply to a single workload."""
    if scenario.slo != Slo():
        yield ValidationIssue(("slo",), "belongs in each of the services")
    if scenario.service is not None and not shares_a_pool(scenario):
        service = next((one for one in scenario.services if one.name == scenario.service), None)
        if service is not None and service.rate_limit is not None:
            text = Message("{name} has a rate_limit, which applies only beside other services: remove it", service.name)
            yield ValidationIssue(("service",), text)
        return
    if scenario.horizon_s is None:
        yield ValidationIssue(("horizon_s",), "is missing: services are measured in one window")
    if scenario.warmup_s == "auto":
        yield ValidationIssue(("warmup_s",), "auto works with a single service: give seconds")
    for name in OF_ONE_WORKLOAD:
        if getattr(scenario, name) is not None:
            refusal: str = "applies to one workload: choose a service with pools of its own by `service: <name>`"
            if scenario.service is not None:
                refusal = Message(
                    "applies to one workload, and {service} shares pools with others: remove it", scenario.service
                )
            yield ValidationIssue((name,), refusal)


def service_issues(pool: BoundPool, place: Place, catalog: Catalog) -> Iterator[ValidationIssue]:
    """Yield issues of language-model keys on a one-pass pool, the reverse, and unknown batch times."""
    dynamic, service = isinstance(pool.batching, Dynamic), pool.service
    if not dynamic:
        if service is not None:
            text = Message("{id} answers in one pass: set batching: {{policy: dynamic, max_batch_size: 8}}", service.id)
            yield ValidationIssue((*place, "batching"), text)
        elif isinstance(pool.steptime, AffineBatch | OnePass):
            text = Message(
                "{model} gives the time of whole batches: it needs batching: {{policy: dynamic, ...}}",
                pool.steptime.model,
            )
            yield ValidationIssue((*place, "steptime", "model"), text)
        return
    if pool.model is not None:
        text = Message("{id} generates tokens: policy dynamic is for services that answer in one pass", pool.model.id)
        yield ValidationIssue((*place, "batching", "policy"), text)
    if not isinstance(pool.steptime, AffineBatch | OnePass):
        text = Message(
            "{model} gives the time of token steps: for a dynamic batch use affine_batch or one_pass",
            pool.steptime.model,
        )
        yield ValidationIssue((*place, "steptime", "model"), text)
    for name in ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"):
        if getattr(pool.spec, name) != 1 and pool.slicing is None:
            yield ValidationIssue((*place, name), "must be 1: a service runs on one GPU; more GPUs are more replicas")
    for name in TOKEN_KEYS:
        if getattr(pool.spec, name):
            yield ValidationIssue(
                (*place, name), "is about language models, and this pool answers in one pass: remove it"
            )
    if isinstance(pool.steptime, OnePass):
        yield from _batch_time_issues(pool, place, catalog)


def _batch_time_issues(pool: BoundPool, place: Place, catalog: Catalog) -> Iterator[ValidationIssue]:
    why = "the batch time follows from it; or give steptime: {model: affine_batch, base_s: ..., per_item_s: ...}"
    for key, value in (("gpu", pool.gpu), ("model", pool.service or pool.model)):
        if value is None:
            yield ValidationIssue((*place, key), Message("is missing: {why}", why))
    if pool.gpu is None or pool.service is None:
        return
    lacks = missing_work(pool.service)
    if lacks:
        yield ValidationIssue(
            (*place, "model"),
            Message("predictions need {lacks} of {id}, which are not known", " and ".join(lacks), pool.service.id),
        )
        return
    sizes = isinstance(pool.steptime, OnePass) and (pool.steptime.steps or pool.steptime.resolution)
    if sizes and pool.service.generator is None:
        yield ValidationIssue(
            (*place, "steptime"),
            Message("{id} generates no images: it has no steps and no resolution", pool.service.id),
        )
    if isinstance(pool.steptime, OnePass) and pool.steptime.table_bytes is not None and not pool.service.table_elements:
        yield ValidationIssue(
            (*place, "steptime", "table_bytes"), Message("{id} has no embedding tables", pool.service.id)
        )
    yield from batch_issues(pool, place)
    try:
        one_pass_step_time(pool, catalog)
    except ValueError as error:
        yield ValidationIssue((*place, "quantization"), Message("{error}: choose another quantization", error))
