"""Scheduler options of a pool, with the engine's defaults for those that the scenario leaves out.

Limits such as max_num_seqs, switches such as asynchronous scheduling, the cache of recurrent states beside the KV
cache, and the model that drafts for speculative decoding.
"""

from dataclasses import dataclass, replace
from math import inf

from sim.batching import PrefillFirst, Reserve, Scheduler, Vllm
from sim.catalogue.catalog import Catalog
from sim.catalogue.engine import Engine, default_limit, default_share
from sim.catalogue.gpu import Gpu
from sim.catalogue.kernel import Kernel
from sim.catalogue.model import Model
from sim.catalogue.quantization import KvCacheDtype, Quantization, native_quantization, padded
from sim.catalogue.value import Value
from sim.memory.fit import DraftMemory, MemoryFit
from sim.memory.kv_cache import StateCache
from sim.memory.weights import ReplicaLayout
from sim.message import Message
from sim.spec import Spec
from sim.steptime.inputs import RooflineInputs

OPEN_LIMITS = ("max_num_seqs", "max_num_batched_tokens", "chunked_prefill_size")
"""Limits that the engine sets where the scenario leaves them out."""


def with_defaults(
    batching: Scheduler,
    engine: Engine,
    gpu: Gpu | None,
    max_model_len: int | None,
    model: Model | None,
    in_process: bool = False,
) -> Scheduler:
    """Fill in the limits of *batching* that are left out with the engine's on *gpu*, as a library or a server.

    `model_copy` does not validate: the check that the token budget covers max_num_seqs is made where a message can name
    the scenario's line.
    """
    filled: dict[str, int | float | None] = {"max_model_len": max_model_len}
    if isinstance(batching, PrefillFirst) and batching.schedule_conservativeness is None:
        usual = default_limit(engine, gpu, "schedule_conservativeness")
        filled["schedule_conservativeness"] = usual.value if usual is not None else None
    for name in OPEN_LIMITS:
        usual = default_limit(engine, gpu, name, in_process)
        if usual is not None and name in type(batching).model_fields:
            filled[name] = getattr(batching, name) or int(usual.value)
    longest = max_model_len or (model.max_context if model else None)
    if batching.max_num_batched_tokens is None and isinstance(batching, PrefillFirst):
        filled["max_num_batched_tokens"] = _whole_prompts(engine, filled.get("max_num_batched_tokens"), longest)
    if isinstance(batching, Vllm) and not (batching.enable_chunked_prefill or batching.max_num_batched_tokens):
        budget = filled.get("max_num_batched_tokens")
        # vLLM's EngineArgs extend it in the same way
        filled["max_num_batched_tokens"] = budget and max(budget, longest or 0)
    if engine.memory is not None and gpu is not None:
        share = batching.gpu_memory_utilization
        filled["gpu_memory_utilization"] = default_share(engine, engine.memory, gpu) if share is None else share
    if isinstance(batching, Reserve) and batching.enable_chunked_prefill is None:
        filled["enable_chunked_prefill"] = engine.prefill == "chunked"
    return batching.model_copy(update=filled)


def _whole_prompts(engine: Engine, budget: float | None, longest: int | None) -> float | None:
    """Return *budget*, or *longest* where the engine extends it for whole prompts of that length."""
    most = engine.limits.whole_prompts_up_to if engine.limits else None
    if budget is None or longest is None or most is None or longest > most.value:
        return budget
    return max(budget, longest)


def slot_tokens(engine: Engine, gpu: Gpu | None, model: Model | None) -> int | None:
    """Return the default context of a slot [tokens]: the engine's on *gpu*, limited to that of the model."""
    usual = default_limit(engine, gpu, "max_model_len")
    known = [int(usual.value)] if usual else []
    return min([*known, model.max_context] if model else known, default=None)


STATE_LIMITS = ("mamba_full_memory_ratio", "states_per_request", "states_ahead")
"""Limits of an engine with a separate cache of recurrent states."""
OPTION_OF = {"state_bits": "mamba_ssm_dtype"}
"""Limit of an engine -> scenario option that overrides it, where their names differ."""
STATE_OPTIONS = ("mamba_full_memory_ratio", "max_mamba_cache_size", "mamba_ssm_dtype")
"""Options for recurrent states that an operator may set."""


def with_state_bits(model: Model | None, batching: Scheduler, engine: Engine) -> Model | None:
    """Return *model* with the state precision of *batching*, else that of *engine*, else its own."""
    usual = default_limit(engine, None, "state_bits")
    if not isinstance(batching, PrefillFirst) or model is None or model.linear_attention is None:
        return model
    dtype = batching.mamba_ssm_dtype
    if dtype is None and usual is None:
        return model
    bits = int(usual.value) if dtype is None and usual is not None else 32 if dtype == "float32" else 16
    states = model.linear_attention.model_copy(update={"state_bits": bits})
    return model.model_copy(update={"linear_attention": states})


def overlaps(engine: Engine, family: str = "") -> bool:
    """Return True if *engine* forms steps ahead by default, even with states of *family* in the prefix cache."""
    switches = [default_limit(engine, None, name) for name in ("overlap_schedule", "overlap_with_states")]
    if engine.limits and family in engine.limits.overlap_with_states_by_family:
        switches[1] = engine.limits.overlap_with_states_by_family[family]
    return all(usual is None or bool(usual.value) for usual in switches)


def state_cache(batching: Scheduler, engine: Engine, model: Model | None, given: Spec) -> StateCache | None:
    """Return the state cache of *model* on *engine*; None if it has none.

    *given* is `batching` as the operator wrote it.
    """
    ratio, places, ahead = (default_limit(engine, None, name) for name in STATE_LIMITS)
    if not isinstance(batching, PrefillFirst) or model is None or model.linear_attention is None:
        return None
    if ratio is None or places is None or ahead is None:
        return None
    kv_ratio = batching.mamba_full_memory_ratio or ratio.value
    if not batching.enable_prefix_caching:
        return StateCache(kv_ratio, 1, batching.max_mamba_cache_size or getattr(given, "max_num_seqs", None))
    requested = getattr(given, "overlap_schedule", None)
    per_request = int(places.value + ahead.value * (overlaps(engine, model.family) if requested is None else requested))
    return StateCache(kv_ratio, per_request, batching.max_mamba_cache_size)


def limited_by_states(batching: Scheduler, cache: StateCache | None, memory: MemoryFit | None) -> Scheduler:
    """Limit the sequences of *batching* to the places of the state *cache* in *memory*."""
    if cache is None or memory is None or not memory.fits:
        return batching
    most = cache.requests(memory.state_places)
    return batching.model_copy(update={"max_num_seqs": min(batching.max_num_seqs or most, most)})


def state_note(model: Model | None, cache: StateCache | None, memory: MemoryFit | None, wanted: int | None) -> str:
    """Compose a note if states limit requests below the *wanted* number; empty if they do not."""
    if cache is None or model is None or memory is None or not memory.fits:
        return ""
    most = cache.requests(memory.state_places)
    if wanted is not None and wanted <= most:
        return ""
    return Message(
        "{model}: recurrent states limit a rank to {limit} requests at once: {places} places, {per_request} a request",
        model.id,
        most,
        memory.state_places,
        cache.per_request,
    )


AHEAD_SWITCHES = ("async_scheduling", "overlap_schedule", "overlap_scheduler")
"""Switches of engines that form a step while one runs."""
DRAFTED_AHEAD = ("eagle", "mtp")
"""Drafting methods that work with `async_drafts`: n-grams need the tokens on the host, so they do not."""
OPEN_SWITCHES = {
    "enable_prefix_caching": False,
    **dict.fromkeys(AHEAD_SWITCHES, False),
    "scheduler_reserve_full_isl": True,
}
"""Switches that the engine sets where the scenario leaves them out, with the value where the engine has no default (a
pool with an explicit step time has no engine)."""


def with_switches(batching: Scheduler, engine: Engine | None, able: tuple[str, ...], states: str | None) -> Scheduler:
    """Fill in the switches of *batching* that are left out with the engine's defaults.

    Of the switches that form steps ahead, only those in *able* are on by default. With drafts, or with recurrent states
    in the prefix cache, they are on only if the engine can form steps ahead with these. *states* is the family of a
    model with such states, "" if it has no family; None: the model has none.
    """
    filled: dict[str, bool] = {}
    for name, otherwise in OPEN_SWITCHES.items():
        if getattr(batching, name, False) is None:
            usual = default_limit(engine, None, name) if engine else None
            can = name not in AHEAD_SWITCHES or (name in able and _with_drafts(batching, engine))
            filled[name] = (otherwise if usual is None else bool(usual.value)) and can
    if states is not None and engine and "overlap_schedule" in filled and not overlaps(engine, states):
        caches = filled.get("enable_prefix_caching", getattr(batching, "enable_prefix_caching", False))
        filled["overlap_schedule"] = filled["overlap_schedule"] and not caches
    return batching.model_copy(update=filled)


def _with_drafts(batching: Scheduler, engine: Engine | None) -> bool:
    """Return True if *engine* can form steps ahead with the drafts of *batching*, or there are none."""
    drafts = getattr(batching, "speculative", None)
    if drafts is None:
        return True
    usual = default_limit(engine, None, "async_drafts") if engine else None
    return drafts.method in DRAFTED_AHEAD and usual is not None and bool(usual.value)


def overlaps_host(batching: Scheduler) -> bool:
    """Return True if the engine of *batching* does host work while the GPU runs."""
    return any(getattr(batching, name, False) for name in AHEAD_SWITCHES)


def overlaps_chunks(engine: Engine) -> bool:
    """Return True if *engine* sends chunks of one prompt through several pipeline stages at once."""
    usual = default_limit(engine, None, "overlap_context_chunks")
    return usual is not None and bool(usual.value)


def overlaps_batches(engine: Engine | None, given: Spec | None = None) -> bool:
    """Return True if several pipeline stages of *engine* compute at once, each another batch.

    A pool with an explicit step time has no engine, and its batches overlap. *given* is the batching policy as the
    operator wrote it: vLLM's batches overlap if `async_scheduling` is off.
    """
    usual = default_limit(engine, None, "overlap_micro_batches") if engine else None
    return usual is None or bool(usual.value) or getattr(given, "async_scheduling", None) is False


def graph_tokens(
    batching: Scheduler, engine: Engine, gpu: Gpu, model: Model, one_rank: bool, stated: int | None
) -> tuple[float, float]:
    """Return the maximum tokens of a step with prompts, and of one without, that runs from CUDA graphs.

    *stated* is the server's option, which in vLLM limits both unless it is 0: then only steps without prompts have
    graphs. *one_rank* is whether the server has neither pipeline stages nor data-parallel ranks: SGLang has no graphs
    for prompts with either (server_args.py, _handle_piecewise_cuda_graph), nor on AMD's cards.
    """
    usual = default_limit(engine, gpu, "graph_tokens")
    if usual is None:
        return stated or 0, inf
    if not isinstance(batching, Vllm):
        captured = usual.value if one_rank and gpu.vendor == "nvidia" else 0
        return (captured if stated is None else stated), inf
    sequence_tokens = 2 * (1 + _graph_drafts(batching, engine))
    largest = min(usual.value, sequence_tokens * (batching.max_num_seqs or inf))
    if engine.limits and model.family in engine.limits.graph_tokens_by_family:
        largest = max(largest, engine.limits.graph_tokens_by_family[model.family].value)
    return (largest, largest) if stated is None else (stated, stated or largest)


def graph_size_multiple(engine: Engine, gpu: Gpu) -> int:
    """Return the tokens between the sizes of CUDA graphs in *engine* on *gpu*; 1: steps are not padded."""
    multiple = default_limit(engine, gpu, "graph_size_multiple")
    return int(multiple.value) if multiple is not None and gpu.vendor in ("nvidia", "amd") else 1


def _graph_drafts(batching: Vllm, engine: Engine) -> int:
    """Return the drafts of a sequence that count where *engine* derives its largest CUDA graph from max_num_seqs."""
    counts = default_limit(engine, None, "graphs_count_drafts")
    drafts = batching.speculative
    return drafts.num_speculative_tokens if drafts and counts is not None and counts.value else 0


def padded_tokens(engine: Engine, graphs: tuple[float, float]) -> tuple[float, float]:
    """Return the maximum tokens of a step with prompts, and of one without, that pads ranks in lockstep.

    These are the steps that run from CUDA graphs, up to the sizes *graphs*, or all steps.
    """
    pads_all = default_limit(engine, None, "pads_all_steps")
    return (inf, inf) if pads_all is not None and pads_all.value else graphs


@dataclass(frozen=True, slots=True)
class DraftModelPlan:
    """Draft model with its native quantization and kernel."""

    model: Model
    quantization: Quantization
    kernel: Kernel

    def inputs(self, target: RooflineInputs) -> RooflineInputs:
        """Return the inputs of the drafter's step time, on the GPUs of the *target*."""
        return replace(
            target,
            model=padded(self.quantization, self.model),
            quantization=self.quantization,
            kernel=self.kernel,
            load=None,
            host=None,
            forms_ahead=False,
        )


def bind_drafts(
    batching: Scheduler, unquantized: str, catalog: Catalog
) -> tuple[Scheduler, DraftModelPlan | None, Value | None]:
    """Return *batching* with a numeric acceptance, the draft model, and the measured acceptance.

    Raises UnknownId.
    """
    drafts = batching.speculative if isinstance(batching, Vllm) else None
    if drafts is None:
        return batching, None, None
    plan = None
    if drafts.draft_model is not None:
        model = catalog.model(drafts.draft_model)
        stored = native_quantization(catalog.quantization(unquantized), model, catalog.quantization)
        plan = DraftModelPlan(model, stored, catalog.kernel(stored.kernel))
    if not isinstance(drafts.acceptance, str):
        return batching, plan, None
    drafter, task = catalog.accepted(drafts.acceptance)
    drafts = drafts.model_copy(update={"acceptance": drafter.acceptance(task)})
    return batching.model_copy(update={"speculative": drafts}), plan, drafter.accepted_per_step[task]


def draft_memory(
    batching: Scheduler,
    drafter: DraftModelPlan | None,
    model: Model | None,
    quantization: Quantization | None,
    layout: ReplicaLayout,
    dtype: KvCacheDtype,
) -> DraftMemory | None:
    """Return the weights and KV cache of the drafter for *model*; None if there is none."""
    drafts = batching.speculative if isinstance(batching, Vllm) else None
    if drafts is None or drafts.method == "ngram" or model is None or quantization is None:
        return None
    if drafter is None:
        return DraftMemory.of_heads(model, quantization, layout, dtype)
    return DraftMemory.of_model(drafter.model, drafter.quantization, layout, dtype)
