"""Short answer of `gpufleet check`: what fits, what a run takes, and the assumptions that matter."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rich.console import RenderableType

from sim.catalogue.catalog import Catalog
from sim.language import N_, _, ngettext, translate_rendered
from sim.memory.kv_cache import KvLayout
from sim.report.sources import weak_values
from sim.report.terminal_table import FittedTable, Sentence
from sim.report.words.text import commas
from sim.scenario.resolving.case import refusals_of, resolve
from sim.scenario.schema import Pool, Scenario
from sim.scenario.sweep import Case, at_point, cases

REQUESTS_PER_S = 1_500
"""Simulated requests per second of one core, about those of scenarios/4x4090-vs-2xa100.yaml on a shared machine."""
LAYOUTS = (2, 4, 8, 16)
CONTEXTS = (65_536, 32_768, 16_384, 8_192, 4_096, 2_048)
MOST_NAMED = 3
"""Largest number of assumed values that are named."""
DETAILS = N_("--details shows memory by part, every value with its source, and the whole plan")
Plans = Sequence[tuple[dict[str, Any], dict[str, Any]]]


def check_summary(scenario: Scenario, catalog: Catalog, plans: Plans, workers: int) -> Iterator[RenderableType]:
    """Yield the short answer: fleets that do not fit first, then the fleets, the run and its assumptions."""
    found = [plan for _axes, plan in plans]
    for plan in {plan["fleet"]: plan for plan in found if plan["infeasible"]}.values():
        pools = what_fits(scenario, catalog, plan["fleet"])
        # changes of the scenario that were tried replace the advice of the layout
        reason = str(plan["infeasible"]).partition("; fits ")[0] if any(pools.values()) else plan["infeasible"]
        reason = translate_rendered(reason)
        yield Sentence(_("{fleet} cannot run: {infeasible}", fleet=plan["fleet"], infeasible=reason))
        for pool, fitting in pools.items():
            text = _("it fits with {changes}", changes=_(", or ").join(fitting))
            own = text if fitting else _("no single change of layout, weights, context or GPU fits")
            yield Sentence(f"  {_('{pool}: ', pool=pool) if pool else ''}{own}")
    yield fit_table(found)
    yield Sentence(run_estimate(scenario, workers))
    weak = list(dict.fromkeys(one["path"] for one in weak_values(found)))
    if weak:
        named = commas(weak[:MOST_NAMED]) + (" ..." if len(weak) > MOST_NAMED else "")
        yield Sentence(_("Assumed or recalled, not measured: {count} values ({names})", count=len(weak), names=named))


def fit_table(plans: Sequence[dict[str, Any]]) -> FittedTable:
    """Build the table of pools: whether they fit, free KV tokens, longest context and concurrent sequences."""
    heads = [
        *(_("fleet"), _("fits"), "GPUs", _("free KV tokens"), _("longest context")),
        *(_("sequences at once"), _("at full context")),
    ]
    rows: dict[tuple[str, ...], None] = {}
    for plan in plans:
        several = len(plan["pools"]) > 1
        for pool in plan["pools"]:
            name = f"{plan['fleet']}: {pool['name']}" if several else plan["fleet"]
            gpus = f"{pool['replicas'] * pool['gpus_per_replica']:g}" if pool["gpu"] else ""
            rows[name, _("no") if plan["infeasible"] else _("yes"), gpus, *_room(plan, pool)] = None
    return FittedTable(heads, list(map(list, rows)), frozenset({0, 1}), 1, optional=(6, 2))


def _room(plan: dict[str, Any], pool: dict[str, Any]) -> list[str]:
    """Return the free KV tokens, longest context and numbers of concurrent sequences of a replica, as text."""
    context, max_num_seqs = (pool["batching"].get(name) for name in ("max_model_len", "max_num_seqs"))
    tokens = pool.get("kv_tokens") or 0
    if plan["infeasible"] or not context or not max_num_seqs or not tokens:
        return [""] * 4
    full = min(max_num_seqs, _whole_contexts(pool, context, tokens))
    return [f"{tokens:,}", f"{context:,}", f"{max_num_seqs:,}", f"{full:,}"]


def _whole_contexts(pool: Mapping[str, Any], context: int, tokens: int) -> int:
    """Return the number of sequences of *context* tokens that the cache holds; windows keep their last tokens only."""
    batching = pool["batching"]
    groups, blocks = batching.get("kv_groups"), batching.get("num_gpu_blocks")
    if not groups or not blocks:
        return tokens // context
    in_flight = pool["pipeline_parallel_size"] + bool(batching.get("async_scheduling"))
    states = 1 + in_flight * bool(batching.get("enable_prefix_caching"))
    windows = tuple(one["window"] for one in groups)
    layout = KvLayout(windows, 1, batching["block_size"], 1.0, in_flight, states)
    return int((blocks - 1) // layout.blocks(context, batching["max_num_batched_tokens"]))


def what_fits(scenario: Scenario, catalog: Catalog, fleet: str) -> dict[str, list[str]]:
    """Return the nearest single change of each kind with which each pool of *fleet* fits, as settings; all computed.

    Each pool that does not fit is a key, its name or an empty text if the fleet has one pool.
    """
    place = next(place for place, one in enumerate(scenario.fleets) if one.name == fleet)
    case = next(case for case in cases(scenario) if case.fleet == fleet)
    pools = scenario.fleets[place].pools
    found: dict[str, list[str]] = {}
    for number, pool in enumerate(pools):
        if len(pools) > 1 and _fits_alone(scenario, catalog, case, number):
            continue
        changes = _changes_of(pool, catalog)
        name = (pool.name or pool.gpu or str(number)) if len(pools) > 1 else ""
        found[name] = []
        for key, values in changes.items():
            path = f"fleets.{place}.pools.{number}.{key}"
            tries = ({path: value} for value in values)
            fitting = next((one for one in tries if _fits_alone(scenario, catalog, case, number, one)), None)
            if fitting is not None:
                found[name].append(f"{key}={fitting[path]}")
    return found


def _changes_of(pool: Pool, catalog: Catalog) -> dict[str, Sequence[Any]]:
    """Return the values to try for each key of *pool*, the nearest first."""
    own = catalog.gpu(pool.gpu).memory_bytes.value if pool.gpu else 0.0
    memory = {name: catalog.gpu(name).memory_bytes.value for name in catalog.ids("gpus")}
    larger = sorted((name for name, size in memory.items() if size > own), key=lambda name: (memory[name], name))
    width = {name: catalog.quantization(name).bits_per_weight.value for name in catalog.ids("quantizations")}
    return {
        "tensor_parallel_size": [size for size in LAYOUTS if size > (pool.tensor_parallel_size or 1)],
        "quantization": sorted(width, key=lambda name: (-width[name], name)),
        "max_model_len": CONTEXTS,
        "gpu": larger,
    }


def _fits_alone(
    scenario: Scenario, catalog: Catalog, case: Case, number: int, changes: Mapping[str, Any] | None = None
) -> bool:
    """Return whether pool *number* of *case* fits with *changes*; a change that is refused does not fit."""
    changed = replace(case, overrides=case.overrides | dict(changes or {}))
    try:
        if refusals_of(scenario, changed, catalog)[number]:
            return False
        plan = resolve(scenario, changed, catalog, advised=False)
    except (ValueError, LookupError):  # the schema, the catalogue or the fleet's own rules refuse the change
        return False
    # the reasons of several pools are joined, each after the pool's name
    return f"pool {plan.pools[number].name}: " not in plan.infeasible if len(plan.pools) > 1 else not plan.infeasible


def run_requests(scenario: Scenario, wanted: Sequence[Case]) -> float | None:
    """Return the number of requests that *wanted* cases offer; None where it depends on latency."""
    whole, known = 0.0, {}
    for case in wanted:
        key = repr(case.axes)
        if key not in known:
            known[key] = _offered_requests(at_point(scenario, case.overrides))
        offered = known[key]
        if offered is None:
            return None
        whole += offered
    return whole


def _offered_requests(at: Scenario) -> float | None:
    """Return the number of requests of one case of *at*; None where it depends on latency."""
    if at.workload.trace is not None:
        return float(len(at.workload.trace.requests(at.horizon_s).arrived_s))
    rate_rps = at.workload.mean_rate_rps()
    return None if rate_rps is None or at.horizon_s is None else rate_rps * at.horizon_s


def run_estimate(scenario: Scenario, workers: int) -> str:
    """Describe what a run takes: cases, requests and minutes on *workers* processes."""
    return _estimate(*_size(scenario), workers)


def long_run_note(scenario: Scenario, workers: int) -> str:
    """Return the estimate before a run of more than a minute; else empty."""
    several, count = _size(scenario)
    return _estimate(several, count, workers) if count and _minutes(count, workers, several) >= 1 else ""


def _size(scenario: Scenario) -> tuple[int, float | None]:
    """Return the number of cases of a run, and of their requests."""
    wanted = cases(scenario)
    return len(wanted), run_requests(scenario, wanted)


def _estimate(several: int, count: float | None, workers: int) -> str:
    if not count:
        return _("A run: {cases}; requests and minutes depend on the latency", cases=_cases_text(several))
    minutes = _minutes(count, workers, several)
    return _(
        "A run: {cases}, about {count} requests, {minutes} min on {cores} (assuming {rate} requests/s each)",
        cases=_cases_text(several),
        count=f"{count:,.0f}",
        minutes="<1" if minutes < 1 else f"{minutes:,.0f}",
        cores=ngettext("{count} core", "{count} cores", workers),
        rate=f"{REQUESTS_PER_S:,}",
    )


def _cases_text(several: int) -> str:
    return ngettext("{count:,} case", "{count:,} cases", several)


def _minutes(requests: float, workers: int, several: int) -> float:
    return requests / REQUESTS_PER_S / max(1, min(workers, several)) / 60
