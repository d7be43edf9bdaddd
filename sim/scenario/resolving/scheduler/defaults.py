"""Limits of a scheduler that a scenario leaves open, as the engine sets them."""

from sim.batching import PrefillFirst, Reserve, Scheduler
from sim.catalogue.entries.engine import Engine, default_limit, default_share
from sim.catalogue.entries.gpu import Gpu
from sim.catalogue.entries.model import Model

OPEN_LIMITS = ("max_num_seqs", "max_num_batched_tokens", "chunked_prefill_size")
"""Limits that the engine sets where the scenario is silent."""


def with_defaults(
    batching: Scheduler, engine: Engine, gpu: Gpu | None, max_model_len: int | None, model: Model | None
) -> Scheduler:
    """*batching* with the engine's own limits on *gpu* where it leaves them open.

    `model_copy` does not validate: whether the token budget covers max_num_seqs is checked where a
    message can say so.
    """
    filled: dict[str, int | float | None] = {"max_model_len": max_model_len}
    if isinstance(batching, PrefillFirst) and batching.schedule_conservativeness is None:
        usual = default_limit(engine, gpu, "schedule_conservativeness")
        filled["schedule_conservativeness"] = usual.value if usual is not None else None
    for name in OPEN_LIMITS:
        usual = default_limit(engine, gpu, name)
        if usual is not None and name in type(batching).model_fields:
            filled[name] = getattr(batching, name) or int(usual.value)
    longest = max_model_len or (model.max_context if model else None)
    if batching.max_num_batched_tokens is None and isinstance(batching, PrefillFirst):
        filled["max_num_batched_tokens"] = _whole_prompts(engine, filled.get("max_num_batched_tokens"), longest)
    if engine.memory is not None and gpu is not None:
        share = batching.gpu_memory_utilization
        filled["gpu_memory_utilization"] = default_share(engine, engine.memory, gpu) if share is None else share
    if isinstance(batching, Reserve) and batching.enable_chunked_prefill is None:
        filled["enable_chunked_prefill"] = engine.prefill == "chunked"
    return batching.model_copy(update=filled)


def _whole_prompts(engine: Engine, budget: float | None, longest: int | None) -> float | None:
    """*budget*, or the *longest* request where the engine makes room for whole prompts of that length."""
    most = engine.limits.whole_prompts_up_to if engine.limits else None
    if budget is None or longest is None or most is None or longest > most.value:
        return budget
    return max(budget, longest)


def slot_tokens(engine: Engine, model: Model | None) -> int | None:
    """The context of a slot where it is not stated: the engine's usual one, at most what the model allows."""
    usual = engine.limits.max_model_len if engine.limits else None
    known = [int(usual.value)] if usual else []
    return min([*known, model.max_context] if model else known, default=None)
