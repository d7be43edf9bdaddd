"""Batching options that policies share.

Limits of a step and of the queue, groups of KV blocks, speculative decoding.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from sim.catalogue.drafter import DraftMethod
from sim.message import Message
from sim.spec import Count, Fraction, Spec, WholeNumber


class Speculative(Spec):
    """Speculative decoding: each step also verifies `num_speculative_tokens` drafted tokens per decoding sequence."""

    num_speculative_tokens: Count
    """Tokens drafted per sequence and step."""
    method: DraftMethod = "ngram"
    """Drafting method. ngram: drafts are looked up in the text and cost no GPU time; eagle, mtp: each drafted token is
    a pass through one more layer of the model and its LM head; draft_model: through `draft_model`."""
    draft_model: str | None = None
    """Draft model, an id as under `model`; it runs on the same GPUs in its own dtype."""
    accepted: WholeNumber | None = None
    """Drafted tokens accepted in every step."""
    acceptance: Fraction | tuple[Fraction, ...] | str | None = None
    """Probability that a draft is accepted if all drafts before it are: one value for all positions, one per position,
    or a measured drafter and task of the catalogue (qwen3-8b-eagle3/gsm8k)."""

    @property
    def rates(self) -> tuple[float, ...]:
        """Acceptance probability of each position."""
        given = 0.0 if self.acceptance is None or isinstance(self.acceptance, str) else self.acceptance
        return given if isinstance(given, tuple) else (given,) * self.num_speculative_tokens

    @model_validator(mode="after")
    def _drafts_hold(self) -> Self:
        drafts = self.num_speculative_tokens
        if (self.accepted is None) == (self.acceptance is None):
            raise ValueError("give either accepted (drafts accepted in every step) or acceptance (a probability)")
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
                Message(
                    "acceptance has {count} places, but num_speculative_tokens is {drafts}", len(self.rates), drafts
                )
            )
        return self


class BatchingLimits(Spec):
    """Scheduler options under vLLM's names; an option that is left out has the engine's default."""

    max_num_seqs: Count | None = None
    """Most sequences in one step."""
    max_num_batched_tokens: Count | None = None
    """Most new tokens in one step."""
    gpu_memory_utilization: Fraction | None = None
    """Fraction of the GPU's memory that the engine may use, weights and activations included."""
    max_model_len: Count | None = None
    """Longest prompt + output [tokens]; a longer request is rejected. Left out: the model's longest context."""

    @property
    def step_tokens(self) -> int | None:
        """Most new tokens that a step can have."""
        return self.max_num_batched_tokens

    @model_validator(mode="after")
    def _sequences_fit_budget(self) -> Self:
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
    """Limits of an engine with a paged KV cache."""

    block_size: Count = 16
    """Tokens in one KV block."""
    num_gpu_blocks: Count | None = None
    """KV blocks, the null block included. Default: the number that fits in memory."""

    @model_validator(mode="after")
    def _a_block_beside_the_null_block(self) -> Self:
        if self.num_gpu_blocks == 1:
            raise ValueError("num_gpu_blocks must be at least 2: one block is the null block")
        return self

    def sized(self, blocks: int, longest: int) -> Self:
        """Return a copy with `num_gpu_blocks` and `max_model_len` filled in.

        Parameters
        ----------
        blocks
            KV blocks that fit in memory, the null block included.
        longest
            Longest sequence that model and memory allow [tokens]; 0: no limit but the blocks.

        """
        blocks = self.num_gpu_blocks or blocks
        tokens = max(0, blocks - 1) * self.block_size  # one block is the null block
        longest = self.max_model_len or min(tokens, longest or tokens)
        return self.model_copy(update={"num_gpu_blocks": blocks, "max_model_len": longest})


class QueueLimits(PagedLimits):
    """Limits of an engine with prefix caching and an ordered queue."""

    enable_prefix_caching: bool | None = None
    """True if equal prefixes share KV blocks; a preempted request finds its own blocks again. Default: the engine's;
    off where layers keep states."""
    scheduling: Literal["fcfs", "priority", "fair"] = "fcfs"
    """Order of the queue. fcfs: by arrival; priority: by `priority` (lower first), then arrival; fair: among tenants by
    virtual token counters."""


class KvGroup(Spec):
    """Group of layers with equal KV caches, which have their own blocks of the pool."""

    window: WholeNumber | None
    """Sliding window of the layers [tokens]; null: all tokens are kept; 0: one block per sequence, for a state of fixed
    size."""


class VllmLimits(QueueLimits):
    """Limits of vLLM's V1 scheduler, with vLLM's names and defaults."""

    async_scheduling: bool | None = None
    """True if the next step is formed while a step runs, so that an arriving request waits one step more. Default: the
    engine's."""
    enable_chunked_prefill: bool = True
    """True if a prompt beyond the rest of the step's budget is cut; otherwise it waits for a step that holds it
    whole."""
    long_prefill_token_threshold: Annotated[int, Field(ge=0)] = 0
    """Most tokens of one prompt in a step while other requests run or wait [tokens]; 0: up to the step's budget."""
    watermark: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Fraction of the KV blocks that stays free when a request joins running requests."""
    scheduler_reserve_full_isl: bool | None = None
    """True if a request joins only once the KV blocks of all its tokens so far are free; otherwise the blocks of its
    first chunk are enough. Default: the engine's; true without an engine."""
    prefill_schedule_interval: Count = 1
    """Steps from one that computes prompts to the next one [steps]. Prompts never wait while no sequence decodes, or
    after a step that left requests in the queue."""
    kv_groups: Annotated[tuple[KvGroup, ...], Field(min_length=1)] | Literal["model", "mean"] | None = None
    """Groups of layers that share num_gpu_blocks. model: those of the model, block by block; mean: one group, where a
    window uses its mean share of a block and states use nothing; a list, for pools with an affine step time. Default:
    model where the engine has groups and they are simulated, else mean."""
    speculative: Speculative | None = None
    """Speculative decoding; None: each step makes one token per sequence."""
    max_num_queued_reqs: Count | None = None
    """Most requests, waiting and running, on one server over all its data-parallel ranks; further requests are refused.
    Default: no limit."""
    max_num_queued_tokens: Count | None = None
    """Prompt tokens of requests without a first token, over all data-parallel ranks of a server, from which on it
    refuses requests. Default: no limit."""

    @property
    def reserves_all_tokens(self) -> bool:
        """True if a request joins only once the KV blocks of all its tokens so far are free."""
        return self.scheduler_reserve_full_isl is not False

    @property
    def limits_its_queue(self) -> bool:
        """True if the server refuses requests beyond a queue limit."""
        return self.max_num_queued_reqs is not None or self.max_num_queued_tokens is not None

    @property
    def windows(self) -> tuple[int | None, ...]:
        """Sliding window of each group of layers [tokens]."""
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
