"""The built-in batching policies with their options.

Continuous batching as vLLM's V1 scheduler does it; prompts before tokens (vLLM V0, SGLang); in-flight batching with
reserved KV blocks or MAX_UTILIZATION (TensorRT-LLM); slots (llama.cpp, Ollama); static batches; dynamic batches of
requests that are answered in one pass (Triton, TorchServe). `OfEngine` leaves the policy to the engine.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from sim.batching.limits import BatchingLimits, PagedLimits, QueueLimits, VllmLimits
from sim.spec import Count, Fraction, NonNegative, Positive, Spec


class Vllm(VllmLimits):
    """Who runs comes first, then prompts in chunks up to the step's budget; KV blocks are handed out on demand.

    `sim/engine/schedulers/vllm.py` holds the rules that these limits steer.
    """

    policy: Literal["vllm"]


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


MICRO_BATCH_TOKENS = 512
"""llama.cpp's --ubatch-size: the pieces in which prompts pass from card to card."""


class SlotLimits(BatchingLimits):
    """Limits that llama.cpp alone knows."""

    policy: str
    kv_unified: bool = False
    """All slots share one cache of `max_model_len` tokens (`--kv-unified`), as llama.cpp has it since autumn 2025 where
    `--parallel` is left out. Where a step finds no place, all requests in slots end with an error."""


class Slots(SlotLimits):
    """`max_num_seqs` slots (`--parallel`, OLLAMA_NUM_PARALLEL) of `max_model_len` tokens (num_ctx), all of it reserved.

    A step holds one token of each slot that answers, and prompts up to `max_num_batched_tokens` (n_batch) in all; a
    request longer than a slot is rejected. Slots left out: the engine's usual number if the memory holds them, else
    one. The schedule is that of `sim/engine/schedulers/reserve.py` with a slot for a block. GPUs that hold the layers
    in turn (`pipeline_parallel_size`) work one after the other on answers, and on several pieces of a prompt at once.
    """

    policy: Literal["slots"]

    @property
    def block_size(self) -> int:
        """Tokens of a slot, or of a cell of the cache that they share."""
        return 1 if self.kv_unified else self.max_model_len or 1

    @property
    def num_gpu_blocks(self) -> int | None:
        """Slots, or cells of the cache that they share, and the null block that every pool has."""
        reserved = self.max_model_len if self.kv_unified else self.max_num_seqs
        return None if reserved is None else reserved + 1

    def sized(self, blocks: int, longest: int) -> Self:
        """Unchanged: slots and their context are what the operator or the engine says."""
        return self


class Static(PagedLimits):
    """Up to `max_num_seqs` waiting requests start together as soon as the engine is free; nobody joins them.

    The rules are in `sim/engine/schedulers/static.py`.
    """

    policy: Literal["static"]


class Dynamic(Spec):
    """A free instance takes up to `max_batch_size` waiting requests, at once or when the oldest has waited long enough.

    As Triton's dynamic batcher without preferred sizes: a full batch starts as soon as an instance is free; a smaller
    one starts when its oldest request has waited `max_queue_delay_s`. See
    `sim/engine/dynamic_batching.py`.
    """

    policy: Literal["dynamic"]
    max_batch_size: Count
    """Most requests in one batch."""
    max_queue_delay_s: NonNegative = 0.0
    """How long a request may wait for others while an instance is free; 0: a free instance takes whatever waits."""
    instances: Count = 1
    """Copies of the model that share a replica's GPU, as `sharing` says."""
    sharing: Literal["time_slicing", "mps"] = "time_slicing"
    """time_slicing: instances at work at once get equal shares of the GPU's time. mps: their kernels run side by side;
    an instance is slowed only where all together ask for more than the whole GPU."""

    @property
    def max_num_seqs(self) -> int:
        """Requests that can be at work together."""
        return self.max_batch_size * self.instances

    @property
    def max_num_batched_tokens(self) -> None:
        """There are no tokens."""
        return None

    @property
    def step_tokens(self) -> None:
        """There are no tokens."""
        return None

    @property
    def gpu_memory_utilization(self) -> None:
        """There is no KV cache."""
        return None

    @property
    def max_model_len(self) -> None:
        """No request is too long."""
        return None

    @property
    def block_size(self) -> int:
        """There is no KV cache."""
        return 1

    @property
    def num_gpu_blocks(self) -> None:
        """There is no KV cache."""
        return None

    def sized(self, blocks: int, longest: int) -> Self:
        """Unchanged: there is no KV cache to size."""
        return self


class EngineOptions(VllmLimits, PrefillFirstLimits, ReserveLimits, SlotLimits):
    """Options of every policy: a scheduler reads its own of them, and the others have their defaults."""

    policy: str = ""


class OfEngine(EngineOptions):
    """The engine's own policy, with its own defaults for what is left out: what a pool without a policy gets. An option
    that the engine does not know is refused once the engine is known.
    """

    policy: Literal["engine"] = "engine"
