"""Servers of a fleet in the terms of serving tools: model on the Hub, options of the engine, GPUs, autoscaler."""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

from sim.answers.from_files.gpu_labels import gpu_of
from sim.answers.from_files.server_options import BATCHING, FORMATS, LORA, STEPTIME, format_name, options_of
from sim.answers.from_files.source import slug
from sim.catalogue.catalog import Catalog
from sim.catalogue.checkpoint_names import is_of, model_of, stored_in, weight_format
from sim.catalogue.data_folder import UnknownId
from sim.catalogue.hf_config.load import is_config
from sim.coldstart import ColdStart, StartUnknown
from sim.message import Message
from sim.scenario.experiment import Fleet, Pool, nearest
from sim.scenario.resolving.bind import USUAL_ENGINE
from sim.scenario.resolving.case import resolve
from sim.scenario.resolving.resolved import PoolPlan
from sim.scenario.schema import Scenario
from sim.scenario.sweep import Case
from sim.steptime.options import Roofline

ENGINES = ("vllm", "sglang")
IMAGES = {"vllm": "vllm/vllm-openai", "sglang": "lmsysorg/sglang"}
LIMITS = ("max_num_seqs", "max_num_batched_tokens", "chunked_prefill_size", "gpu_memory_utilization")
"""Limits of a scheduler that are written with the values that the simulation used."""
FLEET = ("routing", "kv_transfer", "admission")
"""Keys of a fleet that no tool can express; they are written as annotations of its servers."""
READ_ELSEWHERE = {
    *("name", "gpu", "mig", "replicas", "role", "cost", "model", "checkpoint", "quantization", "engine"),
    *("kv_cache_dtype", "max_model_len", "batching", "steptime", "autoscaling", "service", "services"),
}
"""Keys of a pool that become options of the tools, or that a deployment does not need."""


class NoDeployment(ValueError):
    """Error for a fleet that a tool cannot run; the message gives the reason."""


@dataclass(slots=True)
class ServerGroup:
    """Servers of one pool that start with the same options."""

    name: str
    """Name of the objects: lower case, digits and dashes."""
    pool: str
    """Name of the pool."""
    role: str
    engine: str
    """Family of the engine: vllm or sglang."""
    image: str
    model: str
    """Model on the Hugging Face Hub, or the folder of a config.json."""
    options: dict[str, str]
    """Options of the engine without the model: name -> value, empty for a flag."""
    replicas: int
    """Replicas at the start."""
    gpu: str
    gpus: int
    """GPUs, or MIG slices, of a replica."""
    resource: str
    """Kubernetes resource of these GPUs."""
    label: tuple[str, str]
    """Label of nodes with the GPU."""
    servers_per_replica: int
    start_s: float | None
    """Duration of a cold start [s]; None if it is not known."""
    checkpoint: str = ""
    """Checkpoint that the scenario states; empty if it states none."""
    autoscaling: Any = None
    own: dict[str, Any] = field(default_factory=dict)
    """Keys of the pool that the tool cannot express."""
    fleet: dict[str, Any] = field(default_factory=dict)
    """Keys of the fleet that the tool cannot express; set for the first pool only."""
    notes: list[str] = field(default_factory=list)

    @property
    def program(self) -> list[str]:
        """Words that start the server, without its arguments."""
        return ["vllm", "serve"] if self.engine == "vllm" else ["python3", "-m", "sglang.launch_server"]

    @property
    def arguments(self) -> list[str]:
        """Model and options as words of a command."""
        model = self.model if self.engine == "vllm" else f"--model-path={self.model}"
        return [model, *words_of(self.options)]


def words_of(options: Mapping[str, str]) -> list[str]:
    """Return *options* as words of a command; an option without a value is a flag.

    >>> words_of({"max-num-seqs": "64", "enforce-eager": ""})
    ['--max-num-seqs=64', '--enforce-eager']
    """
    return [f"--{name}={value}" if value else f"--{name}" for name, value in options.items()]


def groups_of(scenario: Scenario, case: Case, catalog: Catalog) -> list[ServerGroup]:
    """Return the servers of the fleet of *case*, in the order of its pools. Raises NoDeployment."""
    fleet = next(one for one in scenario.fleets if one.name == case.fleet)
    plan = resolve(scenario, case, catalog)
    if plan.infeasible:
        raise NoDeployment(Message("{fleet} cannot run: {reason}", fleet.name, plan.infeasible))
    starts = _starts(scenario, case, catalog, fleet)
    groups: list[ServerGroup] = []
    for index, (pool, resolved) in enumerate(zip(fleet.pools, plan.pools, strict=True)):
        levels = (pool, fleet, *((one,) if (one := scenario.service_of(pool)) else ()), scenario)
        groups.append(_group(pool, resolved, levels, catalog, starts.get(index)))
    names = [group.name for group in groups]
    for index, group in enumerate(groups):
        if names.count(group.name) > 1:
            group.name = f"{group.name}-{index + 1}"
    of_fleet = fleet.model_dump(mode="json", exclude_unset=True, include=set(FLEET))
    groups[0].fleet = {key: value for key, value in of_fleet.items() if value is not None}
    return groups


def _group(pool: Pool, plan: PoolPlan, levels: tuple[Any, ...], catalog: Catalog, start_s: float | None) -> ServerGroup:
    named = nearest(*(level.engine for level in levels)) or USUAL_ENGINE
    engine = next((one for one in ENGINES if catalog.engine(named).id.startswith(one)), "")
    model_id = nearest(*(level.model for level in levels))
    if pool.gpu is None or model_id is None or not isinstance(pool.steptime, Roofline | None):
        raise NoDeployment(Message("pool {name} has no model on a GPU: no tool can serve it", plan.name))
    if not engine:
        raise NoDeployment(
            Message("pool {name} runs {engine}; deployments are written for vLLM and SGLang only", plan.name, named)
        )
    if plan.unit or pool.services:
        raise NoDeployment(Message("pool {name} does not serve exactly one language model", plan.name))
    gpu = catalog.gpu(pool.gpu)
    own: dict[str, Any] = {}
    notes: list[str] = []
    quantization = nearest(*(level.quantization for level in levels)) or "none"
    stated = nearest(*(level.checkpoint for level in levels)) or ""
    model, precision = _checkpoint(model_id, quantization, stated, engine, catalog, own, notes)
    group = ServerGroup(
        name=slug(plan.name),
        pool=plan.name,
        role=pool.role if pool.role != "both" else "",
        engine=engine,
        image=f"{IMAGES[engine]}:{_release(named)}",
        model=model,
        options={"quantization": precision} if precision else {},
        replicas=plan.first_replicas if pool.autoscaling is not None else plan.replicas,
        gpu=gpu.id,
        gpus=1 if pool.mig else prod((pool.tensor_parallel_size, pool.pipeline_parallel_size, pool.data_parallel_size)),
        resource=f"nvidia.com/mig-{pool.mig}" if pool.mig else f"{gpu.vendor}.com/gpu",
        label=label_of(pool.gpu, catalog),
        servers_per_replica=_servers(pool, catalog),
        start_s=start_s,
        checkpoint=stated,
        autoscaling=pool.autoscaling,
        own=own,
        notes=notes,
    )
    _add_options(group, pool, plan, levels, catalog.engine(named).batching)
    if named not in ENGINES:
        own["engine"] = named
    return group


def _add_options(group: ServerGroup, pool: Pool, plan: PoolPlan, levels: tuple[Any, ...], policy: str) -> None:
    """Add the keys of *pool* to the options of *group*, and those without an option to its `own` keys.

    *policy* is the engine's default policy.
    """
    given = {
        key: value
        for key, value in pool.model_dump(mode="json", exclude_unset=True).items()
        if key not in READ_ELSEWHERE and value is not None
    }
    for key in ("kernel", "calibration", "power"):
        if key not in given and (value := nearest(*(getattr(level, key) for level in levels))) is not None:
            given[key] = value.model_dump(mode="json", exclude_unset=True) if hasattr(value, "model_dump") else value
    dtype = nearest(*(level.kv_cache_dtype for level in levels))
    if dtype not in (None, "auto"):
        given["kv_cache_dtype"] = dtype
    stated = nearest(*(level.max_model_len for level in levels))
    given["max_model_len"] = stated or getattr(plan.batching, "max_model_len", None)
    batching = pool.batching.model_dump(mode="json", exclude_unset=True)
    batching.pop("max_model_len", None)
    if batching.get("policy") == policy:
        del batching["policy"]
    for key in LIMITS:
        if (value := getattr(plan.batching, key, None)) is not None:
            batching[key] = value
    own_order = {"scheduling": batching.pop("scheduling")} if batching.get("scheduling") == "fair" else {}
    given |= {BATCHING + key: value for key, value in batching.items() if value is not None}
    steptime = {} if pool.steptime is None else pool.steptime.model_dump(exclude_unset=True, exclude={"model"})
    given |= {STEPTIME + key: value for key, value in steptime.items() if value is not None}
    if pool.lora is not None:
        group.notes.append(Message("{name}: name the adapters and their paths with --lora-modules", group.name))
        given |= {LORA + "enabled": True} | {LORA + key: value for key, value in given.pop("lora").items()}
    if group.engine == "sglang" and given.pop("enable_expert_parallel", False):
        group.options["expert-parallel-size"] = str(group.gpus)
    options, left = options_of(group.engine, {key: value for key, value in given.items() if value is not None})
    if options.get("max-cudagraph-capture-size") == "0":  # vLLM refuses 0
        del options["max-cudagraph-capture-size"]
        left[STEPTIME + "graph_tokens"] = 0
    group.options |= {name: value for name, value in options.items() if value != "1" or "parallel-size" not in name}
    rest, host, slots = (_taken(left, section) for section in (BATCHING, STEPTIME, LORA))
    rest |= own_order
    slots = {key: value for key, value in slots.items() if value is not None}
    group.own |= left | ({"batching": rest} if rest else {}) | ({"lora": slots} if slots else {})
    if host:
        group.own["steptime"] = {"model": "roofline", **host}


def _taken(keys: dict[str, Any], section: str) -> dict[str, Any]:
    """Remove the keys that start with *section* from *keys*, and return them without it."""
    return {key.removeprefix(section): keys.pop(key) for key in list(keys) if key.startswith(section)}


def _checkpoint(
    model_id: str,
    quantization: str,
    stated: str,
    engine: str,
    catalog: Catalog,
    own: dict[str, Any],
    notes: list[str],
) -> tuple[str, str]:
    """Return the model on the Hub and the value of --quantization; keys that they cannot express are added to *own*.

    The model is the *stated* checkpoint if that is one of this model whose weights can be in the format.
    """
    if is_config(Path(model_id)):
        model_name, format_id = model_id, catalog.quantization(quantization).id
    else:
        model = catalog.model(model_id)
        format_id = catalog.quantization(quantization).id
        model_name = model.hf_id or model.id
        if stated and is_of(stated, model, catalog):
            stores = stored_in(stated, catalog)
            if stores == format_id or weight_format(stores, "", model, catalog) == format_id:
                return stated, ""
            if not stores:
                model_name = stated
        organisation = model_name.rpartition("/")[0]
        for alias in (*model.aliases, model_name):
            if model_name != stated and format_id != "none" and stored_in(alias, catalog) == format_id:
                return (alias if "/" in alias else f"{organisation}/{alias}".lstrip("/")), ""
        with suppress(UnknownId):
            if model_of(model_name, catalog).id != model.id:
                own["model"] = model.id
    if format_id == "none":
        return model_name, ""
    known: dict[str, str] = {}
    for name in ("fp8", "awq", "gptq", "bitsandbytes", *FORMATS.values()):
        with suppress(UnknownId):
            known[name] = format_id if name and catalog.quantization(name).id == format_id else ""
    named = format_name(engine, known)
    if named != "fp8":
        notes.append(
            Message("{model_name}: name a checkpoint whose weights are stored as {format_id}", model_name, format_id)
        )
    if not named:
        own["quantization"] = format_id
    return model_name, named


def label_of(gpu_id: str, catalog: Catalog) -> tuple[str, str]:
    """Return a label of nodes (key, value) from which `init --from` reads the GPU *gpu_id* back."""
    gpu = catalog.gpu(gpu_id)
    names = [one for one in gpu.aliases if one.upper().startswith(("NVIDIA ", "AMD ")) and "(" not in one]
    for name in sorted(names, key=lambda one: ("-" in one, names.index(one))):
        value = re.sub(r"[^\w.-]", "-" if gpu.vendor == "nvidia" else "_", name)
        with suppress(UnknownId):
            if len(value) <= 63 and gpu_of(value, catalog) == gpu.id:
                return ("nvidia.com/gpu.product" if gpu.vendor == "nvidia" else "amd.com/gpu.product-name"), value
    return "gpu", gpu.id


def _release(engine: str) -> str:
    found = re.fullmatch(r"(?:vllm|sglang)-(\d+\.\d+\.\d+)", engine)
    return f"v{found[1]}" if found else "latest"


def _servers(pool: Pool, catalog: Catalog) -> int:
    """Return the number of servers that a replica fills; 1 without a known chassis."""
    slots = catalog.server(pool.server).gpu_slots if pool.server is not None and not pool.mig else None
    gpus = pool.tensor_parallel_size * pool.pipeline_parallel_size * pool.data_parallel_size
    return 1 if slots is None else -(-gpus // int(slots.value))


def _starts(scenario: Scenario, case: Case, catalog: Catalog, fleet: Fleet) -> dict[int, float]:
    """Return the duration of a cold start by the index of the pool [s], where it is known."""
    found: dict[int, float] = {}
    for index, pool in enumerate(fleet.pools):
        described = pool if pool.cold_start is not None else pool.model_copy(update={"cold_start": ColdStart()})
        pools = [*fleet.pools]
        pools[index] = described
        other = fleet.model_copy(update={"pools": tuple(pools)})
        fleets = tuple(other if one.name == fleet.name else one for one in scenario.fleets)
        with suppress(StartUnknown):
            plan = resolve(scenario.model_copy(update={"fleets": fleets}), case, catalog).pools[index]
            found[index] = sum(stage.alone_s for stage in plan.start.stages)
    return found
