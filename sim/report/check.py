"""Output of `gpufleet check`: the resolved fleets of a scenario, and the candidates of `gpufleet size`."""

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import RenderableType

from sim.catalogue.catalog import Catalog
from sim.language import N_, _, ngettext, translate_rendered
from sim.report.catalogue import origin
from sim.report.sources import notes, values_and_sources
from sim.report.terminal_table import EntryList, FittedTable, ListEntry, Sentence
from sim.report.words.text import MESSAGES, number, percent, replicas_of
from sim.scenario.schema import Scenario
from sim.scenario.sections.precision import Precision
from sim.study.size.bounds import CandidateBounds, why_no_size
from sim.study.size.search_space import Unit, units

HOST_MEMORY_PARTS = ("weights", "kv")
MEMORY_PARTS = ("total", "usable", "weights", "activations", "context", "graphs", "comms", "kv")
SIZES = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
LIMITS = ("max_num_seqs", "max_num_batched_tokens", "max_model_len")
STARTS = {"start_s": N_("in all"), "wake_s": N_("from sleep, in all")}
SERVICE_LIMITS = ("max_batch_size", "max_queue_delay_s", "instances")


def overview(
    plans: Sequence[tuple[dict[str, Any], dict[str, Any]]], cases: int, precision: Precision | None = None
) -> Iterator[RenderableType]:
    """Yield texts and tables on *plans*: (axes, description) of every fleet at every sweep point, by fleet."""
    axes, first = plans[0]
    several = len({plan["workload"] for _axes, plan in plans}) > 1
    yield Sentence(
        _(
            "Workload{point}: {workload}",
            point=_(" at {point}", point=_point(axes)) if several else "",
            workload=translate_rendered(first["workload"]),
        )
    )
    for note in notes([plan for _axes, plan in plans]):
        yield Sentence(_("Note: {note}", note=note))
    yield Sentence(_("Cases to run: {cases}{how_many}", cases=cases, how_many=_how_many(plans, precision)))
    yield pools_table(plans)
    if any(pool["memory_gb_per_gpu"] for _axes, plan in plans for pool in plan["pools"]):
        yield memory_table(plans)
    yield from kernel_lists(plans)
    yield from exchange_tables(plans)
    yield from host_memory_tables(plans)
    yield from start_tables(plans)
    for _axes, plan in _distinct(plans, "infeasible"):
        if plan["infeasible"]:
            yield Sentence(
                _(
                    "{fleet} cannot run: {infeasible}",
                    fleet=plan["fleet"],
                    infeasible=translate_rendered(plan["infeasible"]),
                )
            )
    yield from values_and_sources([plan for _axes, plan in plans])


def _how_many(plans: Sequence[tuple[dict[str, Any], dict[str, Any]]], precision: Precision | None) -> str:
    """Explain the number of cases; with a precision this number is the least."""
    fleets = len({plan["fleet"] for _axes, plan in plans})
    text = ngettext(
        " ({count} fleet at {points} points)",
        " ({count} fleets at {points} points)",
        fleets,
        points=len(plans) // fleets,
    )
    text = text if len(plans) > fleets else ""
    if precision is None or precision.metric is None:
        return text
    exact = _("{metric} is known within {percent}", metric=precision.metric, percent=percent(precision.relative))
    return _(
        "{told}, and more until {exact}, at most {max_replications} replications of each",
        told=text,
        exact=exact,
        max_replications=precision.max_replications,
    )


def _distinct(
    plans: Sequence[tuple[dict[str, Any], dict[str, Any]]], key: str
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield plans that differ in *key* from the preceding plan, so that hardware is not repeated along a load sweep."""
    last: tuple[str, Any] | None = None
    for axes, plan in plans:
        if (now := (plan["fleet"], plan[key])) != last:
            yield axes, plan
        last = now


def _point(axes: dict[str, Any]) -> str:
    return ", ".join(f"{axis}={value}" for axis, value in axes.items())


def _gpus(pool: dict[str, Any]) -> str:
    """Describe the GPUs of a pool: 4x l4, or 7 slices 1g.10gb of 1x a100-80gb-sxm."""
    if not pool["gpu"]:
        return "none"
    count = pool["gpus"] if "gpus" in pool else replicas_of(pool, pool["gpus_per_replica"])
    gpus = f"{count}x {pool['gpu']}"
    return (
        _("{replicas} slices {mig} of {gpus}", replicas=replicas_of(pool), mig=pool["mig"], gpus=gpus)
        if "mig" in pool
        else gpus
    )


def _by_model(plan: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the pools of *plan*; a pool that runs several models once per model."""
    return [
        pool | model | {"name": f"{pool['name']} ({', '.join(model['services'])})"} if model else pool
        for pool in plan["pools"]
        for model in pool.get("models", [None])
    ]


def pools_table(plans: Sequence[tuple[dict[str, Any], dict[str, Any]]]) -> FittedTable:
    """Build the table of pools: GPUs, layout, server and limits."""
    several = sum(1 for _ in _distinct(plans, "pools")) > len({plan["fleet"] for _axes, plan in plans})
    front = [_("fleet"), *([_("from point")] if several else []), _("pool")]
    pools = [pool for _, plan in _distinct(plans, "pools") for pool in _by_model(plan)]
    limits = [name for name in (*LIMITS, *SERVICE_LIMITS) if any(name in pool["batching"] for pool in pools)]
    cached = [_("KV tokens per rank")] if any("max_num_seqs" in pool["batching"] for pool in pools) else []
    heads = [*front, "GPUs", _("layout (tp x pp x dp)"), _("server"), *limits, *cached]
    rows = [
        [
            plan["fleet"],
            *([_point(axes)] if several else []),
            pool["name"],
            _gpus(pool),
            f"{replicas_of(pool)} x ({' x '.join(str(pool[size]) for size in SIZES)})",
            pool["server"] or _("none"),
            *(f"{pool['batching'][limit]:,}" if limit in pool["batching"] else "none" for limit in limits),
            *(f"{pool['kv_tokens']:,}" for _ in cached),
        ]
        for axes, plan in _distinct(plans, "pools")
        for pool in _by_model(plan)
    ]
    words = frozenset(range(len(front) + 3))
    return FittedTable(heads, rows, words, len(front), title="\n" + _("Pools"))


def memory_table(plans: Sequence[tuple[dict[str, Any], dict[str, Any]]]) -> FittedTable:
    """Build the table of the memory of each GPU, a row per pool."""
    pools = [
        (plan["fleet"], pool["name"], memory)
        for _axes, plan in _distinct(plans, "pools")
        for pool in _by_model(plan)
        if (memory := pool["memory_gb_per_gpu"])
    ]
    parts = (*MEMORY_PARTS, *(["states"] if any("states" in memory for *_names, memory in pools) else []))
    rows = [[fleet, pool, *(f"{memory.get(part, 0):.2f}" for part in parts)] for fleet, pool, memory in pools]
    return FittedTable(
        [_("fleet"), _("pool"), *parts], rows, frozenset({0, 1}), 2, title="\n" + _("Memory of each GPU [GB]")
    )


PARTS = {"layers": N_("layers"), "experts": N_("experts"), "unquantised": N_("layers at {arithmetic}")}
"""Names of the matrices that one kernel multiplies."""
LARGE_BATCH = 8192
"""Tokens of the measured products that are shown beside the rate of prompts."""


def kernel_lists(plans: Sequence[tuple[dict[str, Any], dict[str, Any]]]) -> Iterator[EntryList]:
    """Yield the kernels of each fleet at its first point: rates of prompts and of decoding, with sources."""
    first = {plan["fleet"]: plan for _axes, plan in reversed(plans) if plan.get("kernels")}
    for fleet, plan in reversed(first.items()):
        several = len(plan["pools"]) > 1
        entries = []
        gpus = {pool["name"]: pool["gpu"] for pool in plan["pools"]}
        for one in plan["kernels"]:
            part = _(PARTS[one["part"]], arithmetic=one["arithmetic"])
            where = f"{one['pool']}, {part}" if several else part
            basis = origin(one["basis"]["kind"], one["basis"]["source"])
            kernel = f"{one['format']}: {one['kernel']}; {basis}" if one["kernel"] else basis
            alone = next((rate for rate in one["measured"] if rate["tokens"] == LARGE_BATCH), None)
            notes = [kernel, *_computed_as_usual(one), *_measured_alone(alone, gpus[one["pool"]])]
            share = _share_of_peak(one["prefill_flops"] / 1e12, one["peak_flops"] / 1e12, "TFLOPS")
            entries.append(ListEntry(_("prefill, {part}", part=where), share, notes))
            read = _share_of_peak(one["decode_bytes_per_s"] / 1e9, one["memory_bytes_per_s"] / 1e9, "GB/s")
            entries.append(ListEntry(_("decode, {part}", part=where), read))
        yield EntryList(_("Kernels: {fleet}", fleet=fleet), entries)


def _share_of_peak(rate: float, peak: float, unit: str) -> str:
    return _("{rate:,.0f} of {peak:,.0f} {unit} ({share:.0%})", rate=rate, peak=peak, unit=unit, share=rate / peak)


def _computed_as_usual(kernel: dict[str, Any]) -> list[str]:
    """Describe kernels of experts that a server states and whose own rates are unknown; empty if there are none."""
    backend = kernel.get("computed_as_usual")
    return [_("moe_backend {backend}: computed as the engine's usual kernels", backend=backend)] if backend else []


def _measured_alone(measured: dict[str, Any] | None, gpu: str) -> list[str]:
    """Describe a kernel *measured* outside of a server, for a pool of *gpu*; empty if none is."""
    if measured is None:
        return []
    text = _(
        "{rate:,.0f} TFLOPS at {tokens:,} tokens on {gpu}, {engine} {release} ({kernel}; aic)",
        rate=measured["flops"] / 1e12,
        **{name: measured[name] for name in ("tokens", "gpu", "engine", "release", "kernel")},
    )
    if measured["gpu"] == gpu:
        return [_("measured alone: {text}", text=text)]
    return [_("measured alone, on another card of the same architecture: {text}", text=text)]


def exchange_tables(plans: Sequence[tuple[dict[str, Any], dict[str, Any]]]) -> Iterator[FittedTable]:
    """Yield tables of messages between a replica's GPUs, by size; none for replicas with a single GPU."""
    heads = [_("new tokens"), _("message"), _("number"), _("kB each"), _("us each"), _("ms together")]
    for _axes, plan in _distinct(plans, "pools"):
        pools = [pool for pool in _by_model(plan) if "exchanges" in pool]
        for pool in pools:
            rows = [
                [
                    number(one["tokens"]), _(MESSAGES[one["what"]][one["own"]]), f"{one['calls']:.4g}",
                    f"{one['message_bytes'] / 1e3:,.0f}", f"{1e6 * one['each_s']:,.1f}",
                    f"{1e3 * one['calls'] * one['each_s']:,.2f}",
                ]
                for one in pool["exchanges"]
            ]  # fmt: skip
            title = _(
                "Messages between the GPUs of a replica of {fleet} in a step, over {link}",
                fleet=f"{plan['fleet']}, {pool['name']}" if len(pools) > 1 else plan["fleet"],
                link=", ".join(sorted({name for one in pool["exchanges"] for name in one["over"]})),
            )
            yield FittedTable(heads, rows, frozenset({1}), 2, title="\n" + title)


def host_memory_tables(plans: Sequence[tuple[dict[str, Any], dict[str, Any]]]) -> Iterator[FittedTable]:
    """Yield the table of pools with weights in host memory; none without such pools."""
    rows = [
        [plan["fleet"], pool["name"], *(f"{held[part]:.2f}" for part in HOST_MEMORY_PARTS)]
        for _axes, plan in _distinct(plans, "pools")
        for pool in plan["pools"]
        if (held := pool.get("host_memory_gb_per_replica"))
    ]
    if rows:
        title = "\n" + _("Host memory of each replica [GB]")
        yield FittedTable([_("fleet"), _("pool"), *HOST_MEMORY_PARTS], rows, frozenset({0, 1}), 2, title=title)


def start_tables(plans: Sequence[tuple[dict[str, Any], dict[str, Any]]]) -> Iterator[RenderableType]:
    """Yield autoscaling policies, availabilities and the times of a replica's start; none without switched pools."""
    rows = [
        [plan["fleet"], pool["name"], translate_rendered(part), f"{seconds:.1f}"]
        for _axes, plan in _distinct(plans, "pools")
        for pool in _by_model(plan)
        for name, whole in STARTS.items()
        if name in pool
        for part, seconds in [*pool[name].items(), (_(whole), sum(pool[name].values()))]
    ]
    for fleet, pool, scaler in _scalers(plans):
        text = _("{fleet}, {pool}: {policy} keeps {least} to {most} replicas.", fleet=fleet, pool=pool, **scaler)
        yield Sentence(f"\n{text}")
    for fleet, pool, works in _failing(plans):
        text = _("{fleet}, {pool}: each replica is up {share} of the time.", fleet=fleet, pool=pool, share=works)
        yield Sentence(f"\n{text}")
    rows = list(map(list, dict.fromkeys(map(tuple, rows))))  # points of a sweep with equal start times share a row
    if rows:
        title = "\n" + _("Start of one replica while no other starts [s]")
        yield FittedTable([_("fleet"), _("pool"), _("part"), _("time")], rows, frozenset({0, 1, 2}), 2, title=title)


def _failing(plans: Sequence[tuple[dict[str, Any], dict[str, Any]]]) -> list[tuple[str, str, str]]:
    """Return (fleet, pool, availability of a replica) of every pool with failures."""
    found = [
        (plan["fleet"], pool["name"], f"{100 * pool['availability']:.5g}\N{NO-BREAK SPACE}%")
        for _axes, plan in plans
        for pool in plan["pools"]
        if "availability" in pool
    ]
    return list(dict.fromkeys(found))


def _scalers(plans: Sequence[tuple[dict[str, Any], dict[str, Any]]]) -> list[tuple[str, str, dict[str, Any]]]:
    """Return (fleet, pool, policy and bounds) of every autoscaler."""
    found: list[tuple[str, str, dict[str, Any]]] = []
    for _axes, plan in plans:
        for pool in plan["pools"]:
            if (one := pool.get("autoscaling")) is not None:
                bounds = {"policy": one["policy"], "least": one["min_replicas"], "most": one["max_replicas"]}
                if (entry := (plan["fleet"], pool["name"], bounds)) not in found:
                    found.append(entry)
    return found


FEW = 8
"""Largest number of candidates, and of reasons for refusal, that are named."""


def workload_text(scenario: Scenario) -> Sentence:
    """Describe the load of a scenario without fleets."""
    return Sentence(_("Workload: {describe}", describe=translate_rendered(scenario.workload.describe())))


def candidates(scenario: Scenario, catalog: Catalog) -> Iterator[Sentence]:
    """Yield the number of candidates, the first that may serve, and the reasons of refusals, most frequent first."""
    assert scenario.size is not None
    every = units(scenario, scenario.size, catalog)
    kinds = [unit for unit in every if unit.elastic is None and unit.owned is None]  # variants of other candidates
    candidate_bounds = None if why_no_size(scenario) else CandidateBounds(scenario, catalog)
    able: list[Unit] = []
    refused: dict[str, list[Unit]] = {}
    for unit in kinds:
        reason = unit.refusal if candidate_bounds is None else candidate_bounds.bounds_of(unit).reason
        if reason:
            refused.setdefault(reason, []).append(unit)
        else:
            able.append(unit)
    text = _(
        "gpufleet size chooses among {count} kinds of replicas, at most {most} of each; {able} may serve:",
        count=len(kinds),
        most=scenario.size.max_replicas,
        able=len(able),
    )
    yield Sentence(f"\n{text}")
    for unit in able[:FEW]:
        yield Sentence(f"  {unit.name}")
    if len(able) > FEW:
        yield Sentence("  " + _("and {more} more, which size.csv of gpufleet size has", more=len(able) - FEW))
    if refused:
        yield Sentence(_("{count} cannot:", count=len(kinds) - len(able)))
    reasons = sorted(refused, key=lambda reason: -len(refused[reason]))
    for reason in reasons[:FEW]:
        first, *others = refused[reason]
        who = _("{name} and {more} more", name=first.name, more=len(others)) if others else first.name
        yield Sentence(f"  {who}: {translate_rendered(reason)}")
    if len(reasons) > FEW:
        yield Sentence("  " + _("and {more} more reasons", more=len(reasons) - FEW))
