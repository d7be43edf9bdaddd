"""What an operator may set under every policy: limits of a step and of the queue, and speculative decoding."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from sim.catalogue.drafter import DraftMethod
from sim.message import Message
from sim.spec import Count, Fraction, Spec, WholeNumber


class Speculative(Spec):
    """Each step computes so many drafted tokens behind the next one of every sequence that decodes."""

    num_speculative_tokens: Count
    """Tokens drafted for a sequence in a step."""
    method: DraftMethod = "ngram"
    """ngram: drafts are looked up in the text and cost no GPU time; eagle, mtp: each drafted token is a pass through
    one more layer of the model and its LM head; draft_model: through `draft_model`."""
    draft_model: str | None = None
    """The model that drafts, an id as under `model`: on the same GPUs, in its own dtype."""
    accepted: WholeNumber | None = None
    """Drafts that hold in every step."""
    acceptance: Fraction | tuple[Fraction, ...] | str | None = None
    """Probability that a draft holds where those before it do: one for all places, one for each, or as measured: a
    drafter and a task of the catalogue (qwen3-8b-eagle3/gsm8k)."""

    @property
    def rates(self) -> tuple[float, ...]:
        """Probability for each place."""
        given = 0.0 if self.acceptance is None or isinstance(self.acceptance, str) else self.acceptance
        return given if isinstance(given, tuple) else (given,) * self.num_speculative_tokens

    @model_validator(mode="after")
    def _drafts_hold(self) -> Self:
        drafts = self.num_speculative_tokens
        if (self.accepted is None) == (self.acceptance is None):
            raise ValueError("give either accepted (drafts that hold in every step) or acceptance (a probability)")
        if (self.method == "draft_model") == (self.draft_model is None):
            raise ValueError("draft_model (a model's id) and method: draft_model belong together")
        if self.accepted is not None and self.accepted > drafts:
            raise ValueError(
                Message(
                    "accepted ({accepted}) must not exceed num_speculative_tokens ({drafts})", self.accepted, drafts
                )
            )
        if len(self.rates) != drafts:
            raise ValueError(
                Message("acceptance has {len} places, but num_speculative_tokens is {drafts}", len(self.rates), drafts)
            )
        return self


class BatchingLimits(Spec):
    """Scheduler options under vLLM's names. What is left out takes the engine's default."""

    max_num_seqs: Count | None = None
    """Most sequences in one step."""
    max_num_batched_tokens: Count | None = None
    """Most new tokens in one step."""
    gpu_memory_utilization: Fraction | None = None
    """Share of the GPU's memory that the engine may take; weights and activations come out of it first."""
    max_model_len: Count | None = None
    """Longest prompt + output [tokens]; a longer request is rejected. Left out: the model's longest context."""

    @property
    def step_tokens(self) -> int | None:
        """Most new tokens that a step can have."""
        return self.max_num_batched_tokens

    @model_validator(mode="after")
    def _seats_fit_budget(self) -> Self:
        if self.max_num_seqs and self.max_num_batched_tokens and self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError(
                Message(
                    "max_num_batched_tokens ({max_num_batched_tokens}) must not be below max_num_seqs ({max_num_seqs})",
                    self.max_num_batched_tokens,
                    self.max_num_seqs,
                )
            )
        return self


class PagedLimits(BatchingLimits):
    """Limits of an engine whose KV cache is cut into blocks that any request may take."""

    block_size: Count = 16
    """Tokens in one KV block."""
    num_gpu_blocks: Count | None = None
    """KV blocks, the null block included. Left out: what the memory fit leaves."""

    @model_validator(mode="after")
    def _a_block_beside_the_null_block(self) -> Self:
        if self.num_gpu_blocks == 1:
            raise ValueError("num_gpu_blocks must be at least 2: one block is the null block")
        return self

    def sized(self, blocks: int, longest: int) -> Self:
        """With the block pool and the longest request filled in: *blocks* and *longest* are what the memory leaves."""
        blocks = self.num_gpu_blocks or blocks
        held = max(0, blocks - 1) * self.block_size  # one block is the null block
        longest = self.max_model_len or min(held, longest or held)
        return self.model_copy(update={"num_gpu_blocks": blocks, "max_model_len": longest})


class QueueLimits(PagedLimits):
    """Limits of an engine that can share prefixes and order its queue."""

    enable_prefix_caching: bool | None = None
    """Share the KV blocks of equal prefixes; a preempted request finds its own again. Left out: as the engine does, and
    off where layers keep states."""
    scheduling: Literal["fcfs", "priority", "fair"] = "fcfs"
    """fcfs; or lower `priority` first and then by arrival; or fair: among tenants by virtual token counters."""


class KvGroup(Spec):
    """Layers whose KV caches are alike: they have blocks of their own out of the pool."""

    window: WholeNumber | None
    """Their sliding window [tokens]; null: they keep all tokens; 0: one block for a sequence, a state of fixed size."""


class VllmLimits(QueueLimits):
    """Limits of vLLM's V1 scheduler, with vLLM's names and defaults."""

    async_scheduling: bool | None = None
    """The next step is formed while one runs; a request that arrives waits one step more. Left out: as the engine
    does."""
    enable_chunked_prefill: bool = True
    """A prompt beyond the rest of the step's budget is cut; else it waits for a step that holds it whole."""
    long_prefill_token_threshold: Annotated[int, Field(ge=0)] = 0
    """Most tokens of one prompt in a step while other requests run or wait [tokens]; 0: up to the step's budget."""
    watermark: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the KV blocks that stays free when a request joins others that run."""
    scheduler_reserve_full_isl: bool | None = None
    """A request joins once the KV blocks of all its tokens are free; else those of its first chunk are enough. Left
    out: as the engine does; without an engine, on."""
    prefill_schedule_interval: Count = 1
    """Steps from one that computes prompts to the next one [steps]. No prompt waits while nobody decodes, or after a
    step that left requests in the queue."""
    kv_groups: Annotated[tuple[KvGroup, ...], Field(min_length=1)] | Literal["model", "mean"] | None = None
    """Groups of layers that share num_gpu_blocks. model: those of the model, block by block; mean: one group, where a
    window takes its mean share of a block and states take nothing; a list, for pools with an affine step time. Left
    out: model where the engine has groups and they are simulated, else mean."""
    speculative: Speculative | None = None
    """Drafted tokens; None: each step makes one token for a sequence."""
    max_num_queued_reqs: Count | None = None
    """Requests that a server takes at most, waiting and running, over all its data-parallel ranks; more are refused.
    Left out: no limit."""
    max_num_queued_tokens: Count | None = None
    """A server refuses requests while the prompts of those without a first token have so many tokens or more, over all
    its data-parallel ranks. Left out: no limit."""

    @property
    def reserves_all_tokens(self) -> bool:
        """Whether a request joins only once the KV blocks of all its tokens are free."""
        return self.scheduler_reserve_full_isl is not False

    @property
    def limits_its_queue(self) -> bool:
        """Whether its server refuses requests."""
        return self.max_num_queued_reqs is not None or self.max_num_queued_tokens is not None

    @property
    def windows(self) -> tuple[int | None, ...]:
        """Sliding windows of the groups of layers."""
        groups = self.kv_groups if isinstance(self.kv_groups, tuple) else (KvGroup(window=None),)
        return tuple(group.window for group in groups)

    @model_validator(mode="after")
    def _chunks_hold_drafts(self) -> Self:
        most, drafts = self.long_prefill_token_threshold, self.speculative
        if drafts and 0 < most <= drafts.num_speculative_tokens:
            raise ValueError(
                Message(
                    "long_prefill_token_threshold ({most}) must be above num_speculative_tokens "
                    "({num_speculative_tokens})",
                    most,
                    drafts.num_speculative_tokens,
                )
            )
        return self

    @model_validator(mode="after")
    def _whole_prompts_fit_budget(self) -> Self:
        budget, longest = self.max_num_batched_tokens, self.max_model_len
        if not self.enable_chunked_prefill and budget and longest and budget < longest:
            raise ValueError(
                Message(
                    "max_num_batched_tokens ({budget}) must not be below max_model_len ({longest}) without "
                    "enable_chunked_prefill",
                    budget,
                    longest,
                )
            )
        return self
