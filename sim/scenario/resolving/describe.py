"""Plans as plain data: for resolved.yaml, `gpufleet check` and the last pages of the report."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from fractions import Fraction
from typing import Any

from sim.batching import Vllm
from sim.catalogue.catalog import Catalog
from sim.cost.carbon import CarbonPlan
from sim.cost.charge import UnitPrice
from sim.cost.cost_plan import CostPlan
from sim.memory.fit import MemoryFit
from sim.records import ONLY_SERVICE
from sim.scenario.resolving.resolved import CasePlan, Fact, PoolPlan, ServicePlan
from sim.steptime.drafting import ComputedStepTime
from sim.steptime.kernels import kernel_rates, measured_kernels
from sim.steptime.links import Exchange
from sim.units import GB

UNITS = {
    "_bytes_per_s": "B/s",
    "_ops_per_s": "op/s",
    "_bytes_per_logit": "B/logit",
    "_flops": "FLOP/s",
    "_bytes": "B",
    "_gib": "GiB",
    "_hz": "Hz",
    "_rps": "1/s",
    "_w": "W",
    "mtbf_h": "h",
    "_s": "s",
    "bits_per_weight": "bit",
    "_usd": "USD",
    "bytes_per_s_per_gpu": "B/s",
    "bytes_per_s_per_replica": "B/s",
    "_s_per_layer": "s",
}
"""Units by suffix of a name, longest suffix first."""


def unit_of(name: str) -> str:
    """Return the unit of the value called *name*, from its suffix; empty for counts and fractions.

    >>> unit_of("memory_bytes_per_s"), unit_of("tdp_w"), unit_of("gpu_slots")
    ('B/s', 'W', '')
    """
    return next((unit for suffix, unit in UNITS.items() if name.endswith(suffix)), "")


def describe(plan: CasePlan, catalog: Catalog) -> dict[str, Any]:
    """Return everything that the case depends on: settings, memory, catalogue values with origin, and sources."""
    values = values_of(plan.fleet, plan.facts, plan.costs, plan.carbon, catalog)
    return {
        "fleet": plan.fleet,
        "model": plan.model,
        "workload": plan.workload.describe(),
        "notes": [
            *plan.workload.notes(),
            *dict.fromkeys(pool.slices.note for pool in plan.pools if pool.slices and pool.slices.note),
            *dict.fromkeys(one.kv_note for pool in plan.pools for one in pool.models or (pool,) if one.kv_note),
            *(plan.costs.notes if plan.costs else ()),
            *(plan.carbon.notes if plan.carbon else ()),
        ],
        "window_s": {
            "warmup": _warmup(plan),
            "horizon": plan.horizon_s,
            "drain_limit": plan.drain_limit_s,
        },
        "slo": plan.slo.model_dump(exclude_none=True),
        **({"services": [_service(one) for one in plan.services]} if plan.services else {}),
        "routing": plan.routing.model_dump(),
        "infeasible": plan.infeasible,
        "pools": [_pool(pool) for pool in plan.pools],
        "capex_usd": plan.costs.capex_usd if plan.costs else None,
        "charges": charges_of(plan.costs),
        **_by_hour(plan.costs),
        "values": values,
        "sources": sources_of(values, catalog),
    }


def values_of(
    fleet: str, facts: Sequence[Fact], costs: CostPlan | None, carbon: CarbonPlan | None, catalog: Catalog
) -> list[dict[str, Any]]:
    """Return all sourced values and scenario figures of *fleet*: path, value, unit, source, kind."""
    given = _stated_figures(costs, carbon)
    return [_fact(fact, f"fleets.{fleet}.cost.", catalog) for fact in facts] + _quotes(fleet, given)


def sources_of(values: Iterable[Mapping[str, Any]], catalog: Catalog) -> dict[str, dict[str, str]]:
    """Return the sources that *values* cite, keyed by source id."""
    cited = dict.fromkeys(str(value["source"]) for value in values)
    return {key: _source(key, catalog) for key in cited if key in catalog.sources()}


def _service(service: ServicePlan) -> dict[str, Any]:
    slo = service.slo.model_dump(exclude_none=True)
    return {"name": service.name, "workload": service.workload.describe(), "slo": slo}


def _warmup(plan: CasePlan) -> float | str:
    return "auto: MSER-5 in each run" if plan.warmup_auto else plan.warmup_s


def charges_of(costs: CostPlan | None) -> list[dict[str, Any]]:
    """Return each line of the bill: component, pool, time of payment, and one-off amount."""
    return [
        {"component": one.component, "pool": one.pool, "paid": one.paid.value, "once_usd": one.once_usd}
        for one in (costs.charges if costs is not None else ())
    ]


def _by_hour(costs: CostPlan | None) -> dict[str, list[float] | None]:
    """Return the mean electricity price at each hour of the day, and of the week where its days differ."""
    by_hour = costs.usd_per_kwh_by_hour if costs is not None else None
    of_week = costs.usd_per_kwh_by_hour_of_week if costs is not None else None
    found: dict[str, list[float] | None] = {"usd_per_kwh_by_hour": list(by_hour) if by_hour else None}
    return found | ({"usd_per_kwh_by_hour_of_week": list(of_week)} if of_week else {})


def _pool(pool: PoolPlan) -> dict[str, Any]:
    ranks = pool.pipeline_parallel_size * pool.data_parallel_size
    return {
        "name": pool.name,
        **({"service": pool.service} if pool.service != ONLY_SERVICE else {}),
        "gpu": pool.gpu,
        "server": pool.server,
        "replicas": pool.replicas,
        **({"availability": pool.failures.availability} if pool.failures and pool.failures.domains else {}),
        **({"mig": pool.slices.profile, "gpus": _plain(pool.gpus)} if pool.slices else {}),
        "gpus_per_replica": _plain(pool.gpus_per_replica),
        "tensor_parallel_size": max(1, int(pool.gpus_per_replica // ranks)),
        "pipeline_parallel_size": pool.pipeline_parallel_size,
        "data_parallel_size": pool.data_parallel_size,
        "batching": pool.batching.model_dump(),
        "kv_tokens": _kv_tokens(pool),
        "memory_gb_per_gpu": _memory(pool.memory) if pool.memory else None,
        **({"models": [_model(one) for one in pool.models]} if pool.models else {}),
        **_host_memory(pool.memory),
        "request_overhead_s": pool.request_overhead_s,
        "tokenising_s_per_token": pool.tokenising_s,
        **_exchanges(pool),
        "peak_w_per_replica": pool.power.peak_w if pool.power else None,
        **_switching(pool),
    }


def _exchanges(pool: PoolPlan) -> dict[str, Any]:
    """Return the communication of a replica's GPUs in steps of one token, one per sequence, and the whole budget."""
    steptime = pool.steptime
    if not isinstance(steptime, ComputedStepTime):
        return {}
    max_num_seqs = getattr(pool.batching, "max_num_seqs", None) or 1
    budget = max(max_num_seqs, getattr(pool.batching, "max_num_batched_tokens", None) or max_num_seqs)
    found = [
        {"tokens": tokens} | asdict(one) | {"over": list(one.over)}
        for tokens in sorted({1, max_num_seqs, budget})
        for one in _merged_exchanges(one for one in steptime.exchanges(tokens) if one.calls * one.each_s)
    ]
    return {"link": steptime.inputs.link.name, "exchanges": found} if found else {}


def kernels(plan: CasePlan, catalog: Catalog) -> list[dict[str, Any]]:
    """Return the rates of the matrix kernels of each pool with computed step times, for `gpufleet check`."""
    measured = measured_kernels(catalog)
    return [
        {"pool": pool.name}
        | asdict(one)
        | {"basis": one.basis.model_dump(mode="json", exclude_none=True)}
        | ({"computed_as_usual": usual} if one.part == "experts" and (usual := steptime.inputs.usual_experts) else {})
        for pool in plan.pools
        for steptime in dict.fromkeys(part.steptime for part in pool.models or (pool,))
        if isinstance(steptime, ComputedStepTime)
        for one in kernel_rates(steptime.inputs, measured)
    ]


def _merged_exchanges(exchanges: Iterable[Exchange]) -> list[Exchange]:
    """Merge *exchanges* that differ only in their number of calls."""
    calls: dict[Exchange, float] = {}
    for one in exchanges:
        kind = replace(one, calls=0)
        calls[kind] = calls.get(kind, 0) + one.calls
    return [replace(kind, calls=number) for kind, number in calls.items()]


def _model(pool: PoolPlan) -> dict[str, Any]:
    """Return the values in which a model of a pool with several models differs from the others."""
    found = _pool(pool)
    own = (
        "batching",
        "kv_tokens",
        "memory_gb_per_gpu",
        "request_overhead_s",
        "tokenising_s_per_token",
        "start_s",
        "wake_s",
    )
    return {"services": list(pool.services)} | {name: found[name] for name in own if name in found}


def _switching(pool: PoolPlan) -> dict[str, Any]:
    """Return the autoscaler, and the start stage by stage without competing starts."""
    found: dict[str, Any] = {}
    if pool.autoscaling is not None:
        found["autoscaling"] = pool.autoscaling.model_dump()
    for name, stages in (("start_s", pool.start.stages), ("wake_s", pool.start.wake)):
        if pool.start.specified and stages:
            found[name] = {stage.what: round(stage.alone_s, 3) for stage in stages}
    return found


def _plain(gpus: int | Fraction) -> int | float:
    return gpus if isinstance(gpus, int) else int(gpus) if gpus.denominator == 1 else round(float(gpus), 4)


def _kv_tokens(pool: PoolPlan) -> int:
    """Return the tokens in the KV cache of one data-parallel rank; the null block holds none."""
    if isinstance(pool.batching, Vllm) and len(pool.batching.windows) > 1 and pool.memory is not None:
        return pool.memory.kv_tokens
    blocks = pool.batching.num_gpu_blocks or 0
    return max(0, blocks - 1) * pool.batching.block_size


def _memory(memory: MemoryFit) -> dict[str, float]:
    parts = ("total", "usable", "weights", "activations", "context", "graphs", "comms", "kv")
    states = ("states",) if memory.states_bytes else ()
    return {part: round(getattr(memory, f"{part}_bytes") / GB, 2) for part in (*parts, *states)}


def _host_memory(memory: MemoryFit | None) -> dict[str, dict[str, float]]:
    """Return what one replica keeps in host memory; empty if it keeps nothing there."""
    if memory is None or not memory.host_weights_bytes:
        return {}
    parts = {"weights": memory.host_weights_bytes, "kv": memory.host_kv_bytes}
    return {"host_memory_gb_per_replica": {part: round(size / GB, 2) for part, size in parts.items()}}


def _fact(fact: Fact, costs: str, catalog: Catalog) -> dict[str, Any]:
    value = fact.value
    return {
        "path": fact.path,
        "value": value.value,
        "unit": _unit(fact, costs, catalog),
        "source": value.source,
        "where": value.where,
        "kind": value.kind,
        "as_of": value.as_of.isoformat() if value.as_of else None,
        "range": list(value.range) if value.range else None,
        "note": value.note,
    }


def _unit(fact: Fact, costs: str, catalog: Catalog) -> str:
    """Return the unit of a fact; facts below the path *costs* are offers with their own unit."""
    if fact.path.startswith(costs):
        offer = catalog.offer(fact.path.removeprefix(costs))
        return f"{offer.currency}/{offer.unit}"
    holder, _, name = fact.path.rpartition(".")
    return unit_of(holder if name.isdecimal() else name)


def _quotes(fleet: str, given: Mapping[str, tuple[float, str]]) -> list[dict[str, Any]]:
    """Return the planner's own prices, whose only source is the scenario."""
    return [
        {
            "path": f"fleets.{fleet}.{place}",
            "value": value,
            "unit": unit,
            "source": "scenario",
            "where": place,
            "kind": "given",
            "as_of": None,
            "range": None,
            "note": "the scenario's own figure",
        }
        for place, (value, unit) in given.items()
    ]


def _stated_figures(costs: CostPlan | None, carbon: CarbonPlan | None) -> dict[str, tuple[float, str]]:
    given: dict[str, tuple[float, str]] = {}
    for price in _prices(costs) if costs else ():
        given |= {figure.path: (figure.value, figure.unit) for figure in price.stated}
        if price.value is None and not price.stated:
            given[price.source.removeprefix("scenario: ")] = (price.usd, f"USD/{price.unit}")
    given |= {figure.path: (figure.value, figure.unit) for figure in (carbon.stated if carbon else ())}
    return given


def _prices(costs: CostPlan) -> list[UnitPrice]:
    elsewhere = [costs.api.input, costs.api.output] if costs.api is not None else []
    return [*(charge.price for charge in costs.charges), *elsewhere]


def _source(key: str, catalog: Catalog) -> dict[str, str]:
    source = catalog.source(key)
    return {"title": source.title, "author": source.author, "url": source.url, "accessed": str(source.accessed)}
