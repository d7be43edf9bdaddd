"""What an engine has on or off where the scenario leaves it open."""

from sys import maxsize

from sim.batching import Reserve, Scheduler
from sim.catalogue.entries.engine import Engine, default_limit
from sim.catalogue.entries.gpu import Gpu
from sim.scenario.resolving.scheduler.states import overlaps

AHEAD = ("async_scheduling", "overlap_schedule")
"""Switches of engines that form a step while one runs."""
DRAFTED_AHEAD = ("eagle", "mtp")
"""Who may draft where `async_drafts` is on: n-grams are looked up on the host, in tokens that it must have."""
OPEN_SWITCHES = {"enable_prefix_caching": False, **dict.fromkeys(AHEAD, False), "scheduler_reserve_full_isl": True}
"""What is on or off as the engine has it where the scenario is silent, and what it is where the engine says nothing;
a pool with a step time of its own has no engine."""


def switched(batching: Scheduler, engine: Engine | None, able: tuple[str, ...], states: bool) -> Scheduler:
    """*batching* with what *engine* has on where it leaves that open.

    Steps are formed ahead by default where the pool is *able* to; with drafts, and with *states* in the prefix cache,
    where the engine can.
    """
    filled: dict[str, bool] = {}
    for name, otherwise in OPEN_SWITCHES.items():
        if getattr(batching, name, False) is None:
            usual = default_limit(engine, None, name) if engine else None
            can = name not in AHEAD or (name in able and _with_drafts(batching, engine))
            filled[name] = (otherwise if usual is None else bool(usual.value)) and can
    if states and engine and "overlap_schedule" in filled and not overlaps(engine):
        caches = filled.get("enable_prefix_caching", getattr(batching, "enable_prefix_caching", False))
        filled["overlap_schedule"] = filled["overlap_schedule"] and not caches
    return batching.model_copy(update=filled)


def _with_drafts(batching: Scheduler, engine: Engine | None) -> bool:
    """Whether *engine* forms steps ahead with the drafts of *batching*, also where it has none."""
    drafts = getattr(batching, "speculative", None)
    if drafts is None:
        return True
    usual = default_limit(engine, None, "async_drafts") if engine else None
    return drafts.method in DRAFTED_AHEAD and usual is not None and bool(usual.value)


def host_beside(batching: Scheduler, engine: Engine) -> bool:
    """Whether *engine* works on the host beside the GPU: where it forms steps ahead, and as TensorRT-LLM does."""
    usual = default_limit(engine, None, "overlap_scheduler") if isinstance(batching, Reserve) else None
    return any(getattr(batching, name, False) for name in AHEAD) or (usual is not None and bool(usual.value))


def padded_tokens(batching: Scheduler, engine: Engine, gpu: Gpu | None) -> int | None:
    """Tokens of the largest step in which ranks that step together are padded to the fullest one of them; None: they
    are where all decode.
    """
    most = default_limit(engine, gpu, "padded_tokens")
    if most is None:
        return None
    seats = getattr(batching, "max_num_seqs", None) or 0
    return min(int(most.value), 2 * seats) or maxsize
