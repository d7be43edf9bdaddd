"""The cache of recurrent states that a pool's engine keeps beside the KV cache."""

from sim.batching import PrefillFirst, Scheduler
from sim.catalogue.entries.engine import Engine, default_limit
from sim.catalogue.entries.model import Model
from sim.memory import MemoryFit, StateCache
from sim.spec import Spec

STATE_LIMITS = ("mamba_full_memory_ratio", "states_per_request", "states_ahead")
"""What an engine with such a cache says of it."""
OPTION_OF = {"state_bits": "mamba_ssm_dtype"}
"""Option that takes the place of a limit, where it is called otherwise."""
STATE_OPTIONS = ("mamba_full_memory_ratio", "max_mamba_cache_size", "mamba_ssm_dtype")
"""What an operator may set."""


def with_state_bits(model: Model | None, batching: Scheduler, engine: Engine) -> Model | None:
    """*model* with states in the precision that *batching* asks for, else in that of *engine*, else its own."""
    usual = default_limit(engine, None, "state_bits")
    if not isinstance(batching, PrefillFirst) or model is None or model.linear_attention is None:
        return model
    dtype = batching.mamba_ssm_dtype
    if dtype is None and usual is None:
        return model
    bits = int(usual.value) if dtype is None and usual is not None else 32 if dtype == "float32" else 16
    states = model.linear_attention.model_copy(update={"state_bits": bits})
    return model.model_copy(update={"linear_attention": states})


def overlaps(engine: Engine) -> bool:
    """Whether *engine* forms a step while one runs where the prefix cache holds states, if nobody says otherwise."""
    switches = (default_limit(engine, None, name) for name in ("overlap_schedule", "overlap_with_states"))
    return all(usual is None or bool(usual.value) for usual in switches)


def state_cache(batching: Scheduler, engine: Engine, model: Model | None, given: Spec) -> StateCache | None:
    """That of *model* on *engine*; None where there is none. *given*: `batching` as the operator has it."""
    ratio, places, ahead = (default_limit(engine, None, name) for name in STATE_LIMITS)
    if not isinstance(batching, PrefillFirst) or model is None or model.linear_attention is None:
        return None
    if ratio is None or places is None or ahead is None:
        return None
    kv_ratio = batching.mamba_full_memory_ratio or ratio.value
    if not batching.enable_prefix_caching:
        return StateCache(kv_ratio, 1, batching.max_mamba_cache_size or getattr(given, "max_num_seqs", None))
    asked = getattr(given, "overlap_schedule", None)
    per_request = int(places.value + ahead.value * (overlaps(engine) if asked is None else asked))
    return StateCache(kv_ratio, per_request, batching.max_mamba_cache_size)


def seated(batching: Scheduler, cache: StateCache | None, memory: MemoryFit | None) -> Scheduler:
    """*batching* with no more sequences than the places of *cache* in *memory* allow."""
    if cache is None or memory is None or not memory.fits:
        return batching
    most = cache.requests(memory.state_places)
    return batching.model_copy(update={"max_num_seqs": min(batching.max_num_seqs or most, most)})


def state_note(model: Model | None, cache: StateCache | None, memory: MemoryFit | None, wanted: int | None) -> str:
    """That states keep requests below the *wanted* number; empty if they do not."""
    if cache is None or model is None or memory is None or not memory.fits:
        return ""
    most = cache.requests(memory.state_places)
    if wanted is not None and wanted <= most:
        return ""
    return (
        f"{model.id}: recurrent states limit a rank to {most} requests at once: "
        f"{memory.state_places} places, {cache.per_request} a request"
    )
