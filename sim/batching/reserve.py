"""In-flight batching with all KV blocks reserved, as TensorRT-LLM's GUARANTEED_NO_EVICT does it; or MAX_UTILIZATION."""

from typing import Literal

from sim.batching.limits import QueueLimits


class ReserveLimits(QueueLimits):
    """Limits that TensorRT-LLM alone knows."""

    policy: str
    capacity_scheduler_policy: Literal["guaranteed_no_evict", "max_utilization"] = "guaranteed_no_evict"
    """max_utilization: a request joins once the blocks of its prompt are free; when blocks run out, the request that
    started last is paused and computed again."""


class Reserve(ReserveLimits):
    """A request joins once the KV blocks of its whole prompt and output are free; nobody is ever pushed out.

    The rules, and those of max_utilization, are in `sim/engine/schedulers/reserve.py`.
    """

    policy: Literal["reserve"]
    enable_chunked_prefill: bool | None = None
    """A prompt beyond the step's budget is cut; else it waits for a step that holds it whole. Left out: as the engine
    does."""
