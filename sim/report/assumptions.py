"""Inputs of an answer, from its resolved plans: how fleets are built, assumptions, values to check, and sources."""

from collections.abc import Mapping, Sequence
from typing import Any

from sim.language import N_, _, translate_rendered
from sim.report.run.key_figures import axis_cells
from sim.report.sources import Plans, notes
from sim.report.words.service_level import routing_text, slo_text
from sim.report.words.text import axis_label, commas, number, plain, ranged, replicas_of
from sim.scenario.slo import Slo
from sim.study.points import Point

SERVICE_ROWS = {
    "max_batch_size": N_("largest batch"),
    "max_queue_delay_s": N_("longest wait for others [s]"),
    "instances": N_("instances on a GPU"),
    "sharing": N_("sharing between instances"),
}
BATCHING_ROWS = {
    "policy": "scheduler",
    "max_num_seqs": N_("concurrent sequences (max_num_seqs)"),
    "max_num_batched_tokens": N_("token budget of a step (max_num_batched_tokens)"),
    "gpu_memory_utilization": N_("share of memory for the engine"),
    "max_model_len": N_("longest prompt + output [tokens]"),
    "enable_prefix_caching": N_("prefix caching"),
    "scheduling": N_("scheduling"),
}
MEMORY_ROWS = {
    "total": N_("memory per GPU, as the driver reports [GB]"),
    "usable": N_("usable by the engine [GB]"),
    "weights": N_("weights [GB]"),
    "activations": N_("activations [GB]"),
    "context": N_("CUDA context and libraries [GB]"),
    "graphs": N_("CUDA graphs [GB]"),
    "comms": N_("communication buffers [GB]"),
    "kv": N_("KV cache [GB]"),
    "states": N_("recurrent states [GB]"),
}
HOST_MEMORY_ROWS = {
    "weights": N_("weights in host memory, of a replica [GB]"),
    "kv": N_("KV cache in host memory, of a replica [GB]"),
}


def build(plans: Plans) -> dict[str, Any]:
    """Return the table of layout, engine options and GPU memory of every pool, a column per pool."""
    pools = [(plan, pool) for plan in plans for pool in plan.get("pools", ())]
    several = len(pools) > len(plans)
    heads = [(str(plan["fleet"]), str(pool["name"]) if several else "") for plan, pool in pools]
    columns = [_pool_cells(pool) for plan, pool in pools]
    names = list(dict.fromkeys(name for column in columns for name in column))
    rows = [(name, [column.get(name, "") for column in columns]) for name in names]
    return {"heads": heads, "rows": [(_(name), cells) for name, cells in rows if any(cells)]}


def _pool_cells(pool: Mapping[str, Any]) -> dict[str, str]:
    cells = {
        "GPU": pool.get("gpu"),
        N_("server"): pool.get("server"),
        N_("replicas"): replicas_of(pool) if "replicas" in pool else "",
    }
    cells[N_("GPUs of a replica")] = _layout(pool)
    batching, memory = pool.get("batching") or {}, pool.get("memory_gb_per_gpu") or {}
    cells |= {text: batching.get(key) for key, text in BATCHING_ROWS.items()}
    cells |= {text: f"{memory[key]:.2f}" for key, text in MEMORY_ROWS.items() if key in memory}
    in_host = pool.get("host_memory_gb_per_replica") or {}
    cells |= {text: f"{in_host[key]:.2f}" for key, text in HOST_MEMORY_ROWS.items() if key in in_host}
    if "max_batch_size" in batching:
        cells |= {text: batching[key] for key, text in SERVICE_ROWS.items()}
    else:
        cells[N_("KV cache [tokens of a rank]")] = pool.get("kv_tokens")
    return {name: number(value) for name, value in cells.items()}


def _layout(pool: Mapping[str, Any]) -> str:
    sizes = {word: pool.get(f"{word}_parallel_size", 1) for word in ("tensor", "pipeline", "data")}
    labels = {"tensor": _("tensor parallel"), "pipeline": _("pipeline parallel"), "data": _("data parallel")}
    ways = [f"{labels[word]} {size}" for word, size in sizes.items() if size > 1]
    part = _(" (a slice {mig})", mig=pool["mig"]) if "mig" in pool else ""
    return f"{pool.get('gpus_per_replica', '')}{part}" + (f" ({commas(ways)})" if ways else "")


def assumptions(
    plans: Plans, slo: Mapping[str, Any], axes: Sequence[str], points: Sequence[Point]
) -> list[tuple[str, str]]:
    """Return the assumptions of a run as (name, text)."""
    workload = _each(plans, lambda plan: translate_rendered(str(plan.get("workload") or "")))
    if axes and workload:
        workload = _("{workload} This is the first point of the sweep.", workload=workload)
    rows = [(_("Model"), _each(plans, lambda plan: plan.get("model"))), (_("Workload"), workload)]
    for axis in axes:
        values = list(dict.fromkeys(cell for point in points for cell in axis_cells(point, [axis]) if cell))
        rows.append((_("Sweep: {axis_label}", axis_label=axis_label(axis)), _(", ").join(values)))
    rows.append((_("SLO"), slo_text(Slo.model_validate(slo))))
    rows.append((_("Simulated time"), _each(plans, _window)))
    rows.append((_("Replications"), _replications(points)))
    rows.append((_("Seed"), _each(plans, lambda plan: number(plan.get("seed")))))
    rows.append((_("Routing"), _each(plans, lambda plan: routing_text(plan.get("routing") or {}))))
    rows += [(_("Note"), note) for note in notes(plans)]
    return [(name, text) for name, text in rows if text]


def _each(plans: Plans, get: Any) -> str:
    """Return the text of all plans; where plans differ, the text of each with its fleet."""
    texts = {str(plan.get("fleet")): str(get(plan) or "") for plan in plans}
    if len(set(texts.values())) <= 1:
        return next(iter(texts.values()), "")
    return _("; ").join(f"{fleet}: {text}" for fleet, text in texts.items())


def _window(plan: Mapping[str, Any]) -> str:
    window = plan.get("window_s") or {}
    if not window:
        return ""
    horizon, warmup = window.get("horizon"), window.get("warmup") or 0.0
    whole = (
        _("until the last request has finished")
        if horizon is None
        else _("{value} s of arrivals", value=plain(horizon, 6))
    )
    if isinstance(warmup, str):
        return _("{whole}, not measured until the run has settled (MSER-5, run by run)", whole=whole)
    return _("{whole}, the first {value} s not measured", whole=whole, value=plain(warmup, 6)) if warmup else whole


def _replications(points: Sequence[Point]) -> str:
    counts = sorted({point.row["replications"] for point in points if point.ok})
    if not counts:
        return ""
    return ranged(str(counts[0]), str(counts[-1]))
