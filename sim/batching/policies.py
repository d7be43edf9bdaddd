"""Built-in batching policies with their options.

Continuous batching as vLLM's V1 scheduler does it; prompts before tokens (vLLM V0, SGLang); in-flight batching with
reserved KV blocks or MAX_UTILIZATION (TensorRT-LLM); slots (llama.cpp, Ollama); static batches; dynamic batches of
requests that are answered in one pass (Triton, TorchServe). `OfEngine` leaves the policy to the engine.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from sim.batching.limits import BatchingLimits, PagedLimits, QueueLimits, VllmLimits
from sim.spec import Count, Fraction, NonNegative, Positive, Spec


class Vllm(VllmLimits):
    """Continuous batching of vLLM V1: running sequences first, then chunks of prompts up to the step's token budget.

    KV blocks are allocated on demand. `sim/engine/schedulers/vllm.py` implements the policy.
    """

    policy: Literal["vllm"]


class PrefillFirstLimits(QueueLimits):
    """Limits of a prefill-first scheduler, with SGLang's names."""

    policy: str
    schedule_policy: Literal["fcfs", "lpm"] = "fcfs"
    """Order of waiting requests: by arrival (fcfs), or by the longest cached prefix (lpm, SGLang)."""
    chunked_prefill_size: Count | None = None
    """Most prompt tokens in one step; longer prompts are cut there (SGLang). Default: the engine's; prompts stay whole
    where the engine has none."""
    schedule_conservativeness: Annotated[float, Field(ge=0)] | None = None
    """Scale of the fraction of all remaining output tokens for which SGLang reserves memory when a request joins: it
    starts at 0.7 times this value and decays to 14 % of that. Default: the engine's; an engine without the option uses
    the watermark."""
    enable_mixed_chunk: bool = False
    """True if prompts and decoding sequences share steps (SGLang)."""
    overlap_schedule: bool | None = None
    """True if the next step is formed while a step runs, so that an arriving request waits one step more (SGLang's
    overlap scheduler). Default: the engine's."""
    late_output: bool = False
    """True if a step's tokens reach the client only when the next step ends: vLLM 0.6 and 0.7 with the engine in the
    client's process (AsyncLLMEngine)."""
    scheduler_recv_interval: Annotated[int, Field(ge=1, le=1000)] = 1
    """Decode steps between two checks for new requests (SGLang) [steps]. After a step with prompts, and while idle, the
    scheduler checks at once."""
    priority_scheduling_preemption_threshold: Annotated[int, Field(ge=0)] = 10
    """Priority difference above which a waiting request preempts a running one when `max_num_seqs` requests run, with
    `scheduling: priority` (SGLang; lower priority values come first)."""
    max_queued_requests: Count | None = None
    """Most waiting requests; further requests are refused (SGLang). Default: no limit."""
    mamba_full_memory_ratio: Positive | None = None
    """Ratio of the memory of recurrent states to that of the KV cache (SGLang). Default: the engine's."""
    max_mamba_cache_size: Count | None = None
    """Sequences whose recurrent states a rank can store (SGLang). Default: as many as the state memory holds."""
    mamba_ssm_dtype: Literal["float32", "bfloat16", "float16"] | None = None
    """Precision of recurrent states (SGLang). Default: the model's."""
    watermark: Fraction = 0.01
    """Fraction of the KV blocks that stays free when a request joins running requests (vLLM V0's block manager).
    Ignored with `schedule_conservativeness`."""

    @property
    def limits_its_queue(self) -> bool:
        """True if the server refuses requests beyond a queue limit."""
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
    """Prefill-first batching: waiting prompts are computed, several in a step, before any sequence decodes.

    KV blocks are allocated on demand. `max_num_batched_tokens` limits the prompts of a step; a longer prompt gets a
    step for itself. `sim/engine/schedulers/prefill_first.py` implements the policy.
    """

    policy: Literal["prefill_first"]


class ReserveLimits(QueueLimits):
    """Limits that only TensorRT-LLM has."""

    policy: str
    capacity_scheduler_policy: Literal["guaranteed_no_evict", "max_utilization"] = "guaranteed_no_evict"
    """Admission rule. guaranteed_no_evict: a request joins once the blocks of its prompt and output are free;
    max_utilization: once those of its prompt are free; when blocks run out, the request that started last is paused and
    recomputed."""
    overlap_scheduler: bool | None = None
    """True if the host works on a step while the GPU computes the next one, which is formed one step ahead; where
    prompts are held back, and with max_utilization, a step is formed when it begins. Default: the engine's."""
    batch_wait_timeout_iters: Annotated[int, Field(ge=0)] = 0
    """Most steps for which prompts wait for further prompts while other requests decode [steps]; 0: they never wait."""
    batch_wait_max_tokens_ratio: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Fraction of `max_num_batched_tokens` at which the prompts and decodes of a step end the wait."""

    attention_dp_timeout_iters: Annotated[int, Field(ge=0)] = 0
    """Most steps for which prompts wait until every data-parallel rank has prompts to compute [steps]
    (attention_dp_config with enable_balance, timeout_iters); 0: ranks compute prompts as they come."""
    attention_dp_batching_wait_iters: Annotated[int, Field(ge=0)] = 0
    """Steps for which prompts wait for others once every rank has some [steps] (attention_dp_config)."""

    @model_validator(mode="after")
    def _wait_has_both_ends(self) -> Self:
        if (self.batch_wait_timeout_iters > 0) != (self.batch_wait_max_tokens_ratio > 0):
            raise ValueError("batch_wait_timeout_iters and batch_wait_max_tokens_ratio work together: set both")
        if self.batch_wait_timeout_iters and self.capacity_scheduler_policy != "guaranteed_no_evict":
            raise ValueError("batch_wait_timeout_iters: needs capacity_scheduler_policy: guaranteed_no_evict")
        if self.attention_dp_timeout_iters and self.capacity_scheduler_policy != "guaranteed_no_evict":
            raise ValueError("attention_dp_timeout_iters: needs capacity_scheduler_policy: guaranteed_no_evict")
        if self.attention_dp_batching_wait_iters and not self.attention_dp_timeout_iters:
            raise ValueError("attention_dp_batching_wait_iters: needs attention_dp_timeout_iters")
        return self


class Reserve(ReserveLimits):
    """In-flight batching with reservation: a request joins once the KV blocks of its whole prompt and output are free.

    No request is ever preempted. `sim/engine/schedulers/reserve.py` implements this policy and max_utilization.
    """

    policy: Literal["reserve"]
    enable_chunked_prefill: bool | None = None
    """True if a prompt beyond the step's budget is cut; otherwise it waits for a step that holds it whole. Default: the
    engine's."""


MICRO_BATCH_TOKENS = 512
"""Tokens of the pieces in which prompts pass from GPU to GPU (llama.cpp's --ubatch-size)."""


class SlotLimits(BatchingLimits):
    """Limits that only llama.cpp has."""

    policy: str
    kv_unified: bool = False
    """True if all slots share one cache of `max_model_len` tokens (`--kv-unified`; llama.cpp's default since autumn
    2025 where `--parallel` is left out). If a step finds the cache full, all requests in slots end with an error."""


class Slots(SlotLimits):
    """Fixed slots, each with `max_model_len` reserved tokens, as llama.cpp and Ollama have them.

    There are `max_num_seqs` slots (`--parallel`, OLLAMA_NUM_PARALLEL) of `max_model_len` tokens (num_ctx). A step holds
    one token of each decoding slot, and prompts up to `max_num_batched_tokens` (n_batch) in all; a request longer than
    a slot is rejected. Without `max_num_seqs`, the engine's usual number of slots is used if the memory holds them,
    else one. The schedule is that of `sim/engine/schedulers/reserve.py` with a slot for a block. GPUs that hold the
    layers in turn (`pipeline_parallel_size`) work one after the other on decoded tokens, and on several pieces of a
    prompt at once.
    """

    policy: Literal["slots"]

    @property
    def block_size(self) -> int:
        """Tokens of a slot, or of a cell of the unified cache."""
        return 1 if self.kv_unified else self.max_model_len or 1

    @property
    def num_gpu_blocks(self) -> int | None:
        """Slots, or cells of the unified cache, plus the null block that every pool has."""
        reserved = self.max_model_len if self.kv_unified else self.max_num_seqs
        return None if reserved is None else reserved + 1

    def sized(self, blocks: int, longest: int) -> Self:
        """Return this policy unchanged: operator or engine fix the slots and their context."""
        return self


class Static(PagedLimits):
    """Static batching: up to `max_num_seqs` waiting requests start together when the engine is free.

    No request joins a running batch. `sim/engine/schedulers/static.py` implements the policy.
    """

    policy: Literal["static"]


class Dynamic(Spec):
    """Dynamic batching of requests that are answered in one pass, as Triton's dynamic batcher without preferred sizes.

    A full batch of `max_batch_size` requests starts as soon as an instance is free; a smaller one starts when its
    oldest request has waited `max_queue_delay_s`. `sim/engine/dynamic_batching.py` implements the policy.
    """

    policy: Literal["dynamic"]
    max_batch_size: Count
    """Most requests in one batch."""
    max_queue_delay_s: NonNegative = 0.0
    """Longest wait of a request for others while an instance is free [s]; 0: a free instance starts at once with the
    waiting requests."""
    instances: Count = 1
    """Copies of the model that share a replica's GPU (see `sharing`)."""
    sharing: Literal["time_slicing", "mps"] = "time_slicing"
    """GPU sharing among instances. time_slicing: busy instances get equal shares of the GPU's time. mps: kernels run
    side by side; an instance is slowed only where all together need more than the whole GPU."""

    @property
    def max_num_seqs(self) -> int:
        """Most requests in service at once, over all instances."""
        return self.max_batch_size * self.instances

    @property
    def max_num_batched_tokens(self) -> None:
        """Token budget of a step: always None, as requests of this policy have no tokens."""
        return None

    @property
    def step_tokens(self) -> None:
        """Most new tokens of a step: always None, as requests of this policy have no tokens."""
        return None

    @property
    def gpu_memory_utilization(self) -> None:
        """GPU memory share of the engine: always None, as this policy has no KV cache."""
        return None

    @property
    def max_model_len(self) -> None:
        """Longest request: always None, as requests of any length are accepted."""
        return None

    @property
    def block_size(self) -> int:
        """Tokens of a KV block: always 1, as this policy has no KV cache."""
        return 1

    @property
    def num_gpu_blocks(self) -> None:
        """Number of KV blocks: always None, as this policy has no KV cache."""
        return None

    def sized(self, blocks: int, longest: int) -> Self:
        """Return this policy unchanged: it has no KV cache to size."""
        return self


class EngineOptions(VllmLimits, PrefillFirstLimits, ReserveLimits, SlotLimits):
    """Options of all policies; a scheduler reads its own options, and the others keep their defaults."""

    policy: str = ""


class OfEngine(EngineOptions):
    """The engine's default policy and limits: the policy of a pool that names none.

    An option that the engine does not have is refused once the engine is known.
    """

    policy: Literal["engine"] = "engine"
