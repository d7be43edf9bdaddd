"""What an engine has on or off where the scenario leaves it open."""

from sys import maxsize

from sim.batching import Scheduler
from sim.catalogue.entries.engine import Engine, default_limit
from sim.catalogue.entries.gpu import Gpu
from sim.scenario.resolving.scheduler.states import overlaps

AHEAD = ("async_scheduling", "overlap_schedule")
"""Switches of engines that form a step while one runs."""
OPEN_SWITCHES = {"enable_prefix_caching": False, **dict.fromkeys(AHEAD, False), "scheduler_reserve_full_isl": True}
"""What is on or off as the engine has it where the scenario is silent, and what it is where the engine says nothing;
a pool with a step time of its own has no engine."""


def switched(batching: Scheduler, engine: Engine | None, able: tuple[str, ...], states: bool) -> Scheduler:
    """*batching* with what *engine* has on where it leaves that open.

    Steps are formed ahead by default where the pool is *able* to, and without drafts; with *states* in the prefix cache
    where the engine can.
    """
    filled: dict[str, bool] = {}
    for name, otherwise in OPEN_SWITCHES.items():
        if getattr(batching, name, False) is None:
            usual = default_limit(engine, None, name) if engine else None
            can = name not in AHEAD or (name in able and getattr(batching, "speculative", None) is None)
            filled[name] = (otherwise if usual is None else bool(usual.value)) and can
    if states and engine and "overlap_schedule" in filled and not overlaps(engine):
        caches = filled.get("enable_prefix_caching", getattr(batching, "enable_prefix_caching", False))
        filled["overlap_schedule"] = filled["overlap_schedule"] and not caches
    return batching.model_copy(update=filled)


def padded_tokens(batching: Scheduler, engine: Engine, gpu: Gpu | None) -> int | None:
    """Tokens of the largest step in which ranks that step together are padded to the fullest one of them; None: they
    are where all decode.
    """
    most = default_limit(engine, gpu, "padded_tokens")
    if most is None:
        return None
    seats = getattr(batching, "max_num_seqs", None) or 0
    return min(int(most.value), 2 * seats) or maxsize
