"""In-flight batching with all KV blocks reserved, as TensorRT-LLM's GUARANTEED_NO_EVICT does it; or MAX_UTILIZATION."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from sim.batching.limits import QueueLimits


class ReserveLimits(QueueLimits):
    """Limits that TensorRT-LLM alone knows."""

    policy: str
    capacity_scheduler_policy: Literal["guaranteed_no_evict", "max_utilization"] = "guaranteed_no_evict"
    """max_utilization: a request joins once the blocks of its prompt are free; when blocks run out, the request that
    started last is paused and computed again."""
    batch_wait_timeout_iters: Annotated[int, Field(ge=0)] = 0
    """Steps for which prompts are held back, while others decode, until more have come; 0: none."""
    batch_wait_max_tokens_ratio: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of `max_num_batched_tokens` from which on a step's prompts and decodes are enough."""

    @model_validator(mode="after")
    def _wait_has_both_ends(self) -> Self:
        if (self.batch_wait_timeout_iters > 0) != (self.batch_wait_max_tokens_ratio > 0):
            raise ValueError(
                "batch_wait_timeout_iters and batch_wait_max_tokens_ratio hold prompts back together: set both"
            )
        if self.batch_wait_timeout_iters and self.capacity_scheduler_policy != "guaranteed_no_evict":
            raise ValueError("batch_wait_timeout_iters: needs capacity_scheduler_policy: guaranteed_no_evict")
        return self


class Reserve(ReserveLimits):
    """A request joins once the KV blocks of its whole prompt and output are free; nobody is ever pushed out.

    The rules, and those of max_utilization, are in `sim/engine/schedulers/reserve.py`.
    """

    policy: Literal["reserve"]
    enable_chunked_prefill: bool | None = None
    """A prompt beyond the step's budget is cut; else it waits for a step that holds it whole. Left out: as the engine
    does."""
