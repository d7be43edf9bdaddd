"""Prompts before tokens, as vLLM's V0 scheduler and SGLang do it."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from sim.batching.limits import QueueLimits
from sim.spec import Count, Fraction, Positive


class PrefillFirstLimits(QueueLimits):
    """Limits of a scheduler that puts prompts first, with SGLang's names."""

    policy: str
    schedule_policy: Literal["fcfs", "lpm"] = "fcfs"
    """Order of waiting requests: as they come, or by the longest prefix that is cached (SGLang)."""
    chunked_prefill_size: Count | None = None
    """Most prompt tokens in one step, prompts being cut there (SGLang). Left out: the engine's; without one, whole
    prompts."""
    schedule_conservativeness: Annotated[float, Field(ge=0)] | None = None
    """How much of the rest of all answers SGLang counts on when a request joins: the share begins at 0.7 times this and
    falls to 14 % of that. Left out: as the engine does; an engine without it leaves the watermark free."""
    enable_mixed_chunk: bool = False
    """Prompts share their steps with those who decode (SGLang)."""
    overlap_schedule: bool | None = None
    """The next step is formed while one runs; a request that arrives waits one step more (SGLang's overlap scheduler).
    Left out: as the engine does."""
    late_output: bool = False
    """A step's tokens reach the client when the next step ends: vLLM 0.6 and 0.7 with the engine in the client's
    process (AsyncLLMEngine)."""
    scheduler_recv_interval: Annotated[int, Field(ge=1, le=1000)] = 1
    """Decode steps from one look for new requests to the next (SGLang) [steps]. Whoever has just computed prompts, or
    has nothing to do, looks at once."""
    priority_scheduling_preemption_threshold: Annotated[int, Field(ge=0)] = 10
    """With `scheduling: priority`, a running request gives its seat to a waiting one whose `priority` is lower than its
    own by more than this, where all seats are taken (SGLang)."""
    max_queued_requests: Count | None = None
    """Requests that wait at most; more are refused (SGLang). Left out: no limit."""
    mamba_full_memory_ratio: Positive | None = None
    """Memory of recurrent states over that of the KV cache (SGLang). Left out: as the engine does."""
    max_mamba_cache_size: Count | None = None
    """Sequences whose recurrent states a rank has places for (SGLang). Left out: as many as their memory holds."""
    mamba_ssm_dtype: Literal["float32", "bfloat16", "float16"] | None = None
    """Precision of recurrent states (SGLang). Left out: the model's."""
    watermark: Fraction = 0.01
    """Share of the KV blocks that stays free when a request joins others (vLLM V0's block manager); without
    `schedule_conservativeness`."""

    @property
    def limits_its_queue(self) -> bool:
        """Whether its server refuses requests."""
        return self.max_queued_requests is not None

    @model_validator(mode="after")
    def _one_order(self) -> Self:
        if self.schedule_policy == "lpm" and self.scheduling == "priority":
            raise ValueError("schedule_policy: lpm and scheduling: priority are two orders of one queue: remove one")
        return self

    @property
    def step_tokens(self) -> int | None:
        """Most new tokens that a step can have."""
        chunk, budget = self.chunked_prefill_size, self.max_num_batched_tokens
        return budget if chunk is None or budget is None else min(chunk, budget)


class PrefillFirst(PrefillFirstLimits):
    """Waiting prompts are computed, several in a step, before anybody decodes; KV blocks are handed out on demand.

    `max_num_batched_tokens` limits the prompts of a step; a longer prompt is computed by itself. The rules are in
    `sim/engine/schedulers/prefill_first/`.
    """

    policy: Literal["prefill_first"]
