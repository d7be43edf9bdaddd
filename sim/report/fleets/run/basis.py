"""What the run rests on, from the resolved plans: how fleets are built, assumptions, values to check, sources."""

from collections.abc import Mapping, Sequence
from typing import Any

from sim.catalogue.value import WEAK_KINDS
from sim.report.fleets.run.figures import axis_cells
from sim.report.words.goals import asked_for
from sim.report.words.routing import routing_told
from sim.report.words.text import axis_label, number, plain
from sim.scenario.sections.slo import Slo
from sim.study.fleets.run.point import Point

Plans = Sequence[Mapping[str, Any]]
"""As sim.scenario.resolving.describe makes them, one per fleet or more."""

SERVICE_ROWS = {
    "max_batch_size": "largest batch",
    "max_queue_delay_s": "longest wait for others [s]",
    "instances": "instances on a GPU",
    "sharing": "sharing between instances",
}
BATCHING_ROWS = {
    "policy": "scheduler",
    "max_num_seqs": "concurrent sequences (max_num_seqs)",
    "max_num_batched_tokens": "token budget of a step (max_num_batched_tokens)",
    "gpu_memory_utilization": "share of memory for the engine",
    "max_model_len": "longest prompt + output [tokens]",
    "enable_prefix_caching": "prefix caching",
    "scheduling": "scheduling",
}
MEMORY_ROWS = {
    "total": "memory per GPU, as the driver reports [GB]",
    "usable": "usable by the engine [GB]",
    "weights": "weights [GB]",
    "activations": "activations [GB]",
    "context": "CUDA context and libraries [GB]",
    "graphs": "CUDA graphs [GB]",
    "comms": "communication buffers [GB]",
    "kv": "KV cache [GB]",
}
HOST_MEMORY_ROWS = {
    "weights": "weights in host memory, of a replica [GB]",
    "kv": "KV cache in host memory, of a replica [GB]",
}


def one_per_fleet(resolved: Plans) -> Plans:
    """What a fleet is made of does not depend on the load: its first plan stands for all."""
    first: dict[str, Mapping[str, Any]] = {}
    for plan in resolved:
        first.setdefault(str(plan.get("fleet", "")), plan)
    return list(first.values())


def build(plans: Plans) -> dict[str, Any]:
    """How every pool is built and what its memory holds, one column a pool; rows that say nothing are left out."""
    pools = [(plan, pool) for plan in plans for pool in plan.get("pools", ())]
    several = len(pools) > len(plans)
    heads = [(str(plan["fleet"]), str(pool["name"]) if several else "") for plan, pool in pools]
    columns = [_pool_cells(pool) for _, pool in pools]
    names = list(dict.fromkeys(name for column in columns for name in column))
    rows = [(name, [column.get(name, "") for column in columns]) for name in names]
    return {"heads": heads, "rows": [(name, cells) for name, cells in rows if any(cells)]}


def _pool_cells(pool: Mapping[str, Any]) -> dict[str, str]:
    cells = {"GPU": pool.get("gpu"), "server": pool.get("server"), "replicas": pool.get("replicas")}
    cells["GPUs of a replica"] = _layout(pool)
    batching, memory = pool.get("batching") or {}, pool.get("memory_gb_per_gpu") or {}
    cells |= {text: batching.get(key) for key, text in BATCHING_ROWS.items()}
    cells |= {text: f"{memory[key]:.2f}" for key, text in MEMORY_ROWS.items() if key in memory}
    in_host = pool.get("host_memory_gb_per_replica") or {}
    cells |= {text: f"{in_host[key]:.2f}" for key, text in HOST_MEMORY_ROWS.items() if key in in_host}
    if "max_batch_size" in batching:
        cells |= {text: batching[key] for key, text in SERVICE_ROWS.items()}
    else:
        cells["KV cache [tokens of a rank]"] = pool.get("kv_tokens")
    return {name: number(value) for name, value in cells.items()}


def _layout(pool: Mapping[str, Any]) -> str:
    sizes = {word: pool.get(f"{word}_parallel_size", 1) for word in ("tensor", "pipeline", "data")}
    ways = [f"{word} parallel {size}" for word, size in sizes.items() if size > 1]
    part = f" (a slice {pool['mig']})" if "mig" in pool else ""
    return f"{pool.get('gpus_per_replica', '')}{part}" + (f" ({', '.join(ways)})" if ways else "")


def assumptions(
    plans: Plans, slo: Mapping[str, Any], axes: Sequence[str], points: Sequence[Point]
) -> list[tuple[str, str]]:
    """What the run took as given."""
    rows = [(name.capitalize(), _each(plans, lambda plan, name=name: plan.get(name))) for name in ("model", "workload")]
    if axes and rows[1][1]:
        rows[1] = ("Workload", f"{rows[1][1]} This is the first point of the sweep.")
    for axis in axes:
        values = list(dict.fromkeys(cell for point in points for cell in axis_cells(point, [axis]) if cell))
        rows.append((f"Sweep: {axis_label(axis)}", ", ".join(values)))
    rows.append(("SLO", asked_for(Slo.model_validate(slo))))
    rows.append(("Simulated time", _each(plans, _window)))
    rows.append(("Replications", _replications(points)))
    rows.append(("Seed", _each(plans, lambda plan: number(plan.get("seed")))))
    rows.append(("Routing", _each(plans, lambda plan: routing_told(plan.get("routing") or {}))))
    rows += [("Note", note) for note in notes(plans)]
    return [(name, text) for name, text in rows if text]


def notes(plans: Plans) -> list[str]:
    """What a reader must know, each sentence once; with the fleets that it is about, unless it is about all."""
    fleets: dict[str, dict[str, None]] = {}
    for plan in plans:
        for note in plan.get("notes", ()):
            fleets.setdefault(note, {})[str(plan.get("fleet", ""))] = None
    everyone = {str(plan.get("fleet", "")) for plan in plans}
    return [note if set(named) == everyone else f"{', '.join(named)}: {note}" for note, named in fleets.items()]


def _each(plans: Plans, get: Any) -> str:
    """The text of all plans; where they differ, each with its fleet."""
    texts = {str(plan.get("fleet")): str(get(plan) or "") for plan in plans}
    if len(set(texts.values())) <= 1:
        return next(iter(texts.values()), "")
    return "; ".join(f"{fleet}: {text}" for fleet, text in texts.items())


def _window(plan: Mapping[str, Any]) -> str:
    window = plan.get("window_s") or {}
    if not window:
        return ""
    horizon, warmup = window.get("horizon"), window.get("warmup") or 0.0
    whole = "until the last request has finished" if horizon is None else f"{plain(horizon, 6)} s of arrivals"
    if isinstance(warmup, str):
        return f"{whole}, not measured until the run has settled (MSER-5, run by run)"
    return f"{whole}, the first {plain(warmup, 6)} s not measured" if warmup else whole


def _replications(points: Sequence[Point]) -> str:
    counts = sorted({point.row["replications"] for point in points if point.ok})
    if not counts:
        return ""
    return "1 (no intervals)" if counts == [1] else " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))


def weak_values(resolved: Plans) -> list[dict[str, Any]]:
    """The assumed and recalled values that the run rests on, each once, with the fleets that use it."""
    found: dict[str, dict[str, Any]] = {}
    for plan in resolved:
        for value in plan.get("values", ()):
            if value["kind"] in WEAK_KINDS:
                name = str(value["path"]).removeprefix(f"fleets.{plan['fleet']}.")
                row = found.setdefault(repr((name, value["value"])), {**value, "path": name, "fleets": {}})
                row["fleets"][str(plan["fleet"])] = None
    return list(found.values())


def sources(resolved: Plans) -> list[dict[str, Any]]:
    """Every source, once, by key."""
    merged: dict[str, Any] = {}
    for plan in resolved:
        merged |= plan.get("sources", {})
    return [{"key": key, **source} for key, source in sorted(merged.items())]
